"""The experiment engine: cells as plain data, results in a store that resumes, the same in one process, in many or over Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.engine.cells import Cell, Costs, Data, Experts, Method
    from mildroute.engine.collecting.makers import Makers
    from mildroute.engine.collecting.on_ray import collect_on_ray
    from mildroute.engine.folders import Folders
    from mildroute.engine.results import Result
    from mildroute.engine.run import run_cell, run_cells
    from mildroute.engine.store import Store
    from mildroute.engine.training.plans import LinearPlan, NetworkPlan
    from mildroute.engine.training.run import train

__all__ = [
    "Cell",
    "Costs",
    "Data",
    "Experts",
    "Folders",
    "LinearPlan",
    "Makers",
    "Method",
    "NetworkPlan",
    "Result",
    "Store",
    "collect_on_ray",
    "run_cell",
    "run_cells",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cells": ("Cell", "Costs", "Data", "Experts", "Method"),
        "collecting.makers": ("Makers",),
        "collecting.on_ray": ("collect_on_ray",),
        "folders": ("Folders",),
        "results": ("Result",),
        "run": ("run_cell", "run_cells"),
        "store": ("Store",),
        "training.plans": ("LinearPlan", "NetworkPlan"),
        "training.run": ("train",),
    },
)
