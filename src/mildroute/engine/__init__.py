"""The experiment engine: cells as plain data, results in a store that resumes, the same in one process, in many or over Ray."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mildroute.engine.cells import Cell, Costs, Data, Experts, Method
    from mildroute.engine.folders import Folders
    from mildroute.engine.results import Result
    from mildroute.engine.run import run_cell, run_cells
    from mildroute.engine.store import Store

__all__ = ["Cell", "Costs", "Data", "Experts", "Folders", "Method", "Result", "Store", "run_cell", "run_cells"]

_HOMES = {
    **dict.fromkeys(("Cell", "Costs", "Data", "Experts", "Method"), "cells"),
    "Folders": "folders",
    "Result": "results",
    "Store": "store",
    "run_cell": "run",
    "run_cells": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
