"""Cost tables: what every expert scored and cost on every query, read, checked, priced, split and summarised."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mildroute.costs.prices import Price, PriceList
    from mildroute.costs.stream import batches
    from mildroute.costs.summary import Summary, summarise
    from mildroute.costs.table import CostTable

__all__ = ["CostTable", "Price", "PriceList", "Summary", "batches", "summarise"]

_HOMES = {
    "CostTable": "table",
    "Price": "prices",
    "PriceList": "prices",
    "Summary": "summary",
    "batches": "stream",
    "summarise": "summary",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
