"""Cost tables: what every expert scored and cost on every query, read, checked, priced, split and summarised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.costs.prices import Price, PriceList
    from mildroute.costs.stream import batches
    from mildroute.costs.summary import Summary, summarise
    from mildroute.costs.table import CostTable

__all__ = ["CostTable", "Price", "PriceList", "Summary", "batches", "summarise"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "prices": ("Price", "PriceList"),
        "stream": ("batches",),
        "summary": ("Summary", "summarise"),
        "table": ("CostTable",),
    },
)
