"""Cost tables: what every expert scored and cost on every query; read, checked, priced, split and summarized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.costs.prices import Price, PriceList
    from mildroute.costs.summary import TableSummary, describe
    from mildroute.costs.table import CostTable, batches

__all__ = ["CostTable", "Price", "PriceList", "TableSummary", "batches", "describe"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "prices": (
            "Price",
            "PriceList",
        ),
        "summary": (
            "TableSummary",
            "describe",
        ),
        "table": (
            "CostTable",
            "batches",
        ),
    },
)
