"""Cost tables: the score and cost of every expert on every query.

Reading, checking, pricing, splitting and summarizing them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.costs.prices import Price as Price, PriceList as PriceList
    from mildroute.costs.stream import batches as batches
    from mildroute.costs.summary import TableSummary as TableSummary, describe as describe
    from mildroute.costs.table import CostTable as CostTable

__all__, __getattr__, __dir__ = lazy_exports(__name__)
