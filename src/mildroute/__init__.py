"""Learn which expert should answer, from a table of what each expert cost.

Importing this package loads neither torch nor any optional dependency: what it exports is imported when it is first used.

Example:
    >>> import mildroute as mr
    >>> table = mr.CostTable.of({"query_id": ["a", "b"], "score:small": [1, 0], "score:large": [1, 1]})
    >>> table.experts
    ('small', 'large')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute._fit import FitResult, Target, fit
    from mildroute.collection.job import CollectionJob, collect
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.comparison import compare
    from mildroute.evaluation.router_evaluation import evaluate_router
    from mildroute.persistence.artifact import load_router, save_router
    from mildroute.pipeline import TextRouter
    from mildroute.routers.frontier import FrontierRouter
    from mildroute.routers.mild import MildRouter

__version__ = "0.1.0.dev0"

__all__ = [
    "CollectionJob",
    "CostTable",
    "FitResult",
    "FrontierRouter",
    "MildRouter",
    "Target",
    "TextRouter",
    "__version__",
    "collect",
    "compare",
    "evaluate_router",
    "fit",
    "load_router",
    "save_router",
]

_PACKAGES = frozenset(
    {
        "collection",
        "costs",
        "deep",
        "distributed",
        "encoders",
        "evaluation",
        "exceptions",
        "experts",
        "judges",
        "losses",
        "persistence",
        "routers",
    }
)
_get, __dir__ = lazy_names(
    __name__,
    {
        "_fit": ("FitResult", "Target", "fit"),
        "collection.job": ("CollectionJob", "collect"),
        "costs.table": ("CostTable",),
        "evaluation.comparison": ("compare",),
        "evaluation.router_evaluation": ("evaluate_router",),
        "persistence.artifact": ("load_router", "save_router"),
        "pipeline": ("TextRouter",),
        "routers.frontier": ("FrontierRouter",),
        "routers.mild": ("MildRouter",),
    },
)


def __getattr__(name: str) -> Any:
    # Packages are reachable as attributes, too, but completion shows the things that people type first.
    return importlib.import_module(f"{__name__}.{name}") if name in _PACKAGES else _get(name)
