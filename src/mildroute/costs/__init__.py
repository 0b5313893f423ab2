"""Cost tables: the score and cost of every expert on every query.

Reading, checking, pricing, splitting and summarizing them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.costs.importers.read import read_eval_logs as read_eval_logs
    from mildroute.costs.prices import Price as Price, PriceList as PriceList
    from mildroute.costs.summary import TableSummary as TableSummary, describe as describe
    from mildroute.costs.table import CostTable as CostTable

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.costs.importers.read": ("read_eval_logs",),
        "mildroute.costs.prices": ("Price", "PriceList"),
        "mildroute.costs.summary": ("TableSummary", "describe"),
        "mildroute.costs.table": ("CostTable",),
    },
)
