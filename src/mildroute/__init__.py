"""Learn which expert should answer, from a table of what each expert cost.

Importing this package loads neither torch nor any optional dependency; exports are imported when
first used.

Example:
    >>> import mildroute as mr
    >>> table = mr.CostTable.from_data(
    ...     {"query_id": ["a", "b"], "score:small": [1, 0], "score:large": [1, 1]}
    ... )
    >>> table.experts
    ('small', 'large')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute._api import (
        FitResult as FitResult,
        Route as Route,
        compare as compare,
        describe as describe,
        evaluate as evaluate,
        fit as fit,
    )
    from mildroute.collection.collector import collect as collect
    from mildroute.collection.job import CollectionJob as CollectionJob
    from mildroute.costs.table import CostTable as CostTable
    from mildroute.fitting.text_router import TextRouter as TextRouter
    from mildroute.persistence.artifact import (
        load_router as load_router,
        save_router as save_router,
    )
    from mildroute.routers.frontier.router import FrontierRouter as FrontierRouter
    from mildroute.routers.frontier.target import Target as Target
    from mildroute.routers.mild import MildRouter as MildRouter

__version__ = "0.1.0"

_PACKAGES = frozenset(
    {
        "collection",
        "costs",
        "datasets",
        "deep",
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
__all__, _get, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute._api": ("FitResult", "Route", "compare", "describe", "evaluate", "fit"),
        "mildroute.collection.collector": ("collect",),
        "mildroute.collection.job": ("CollectionJob",),
        "mildroute.costs.table": ("CostTable",),
        "mildroute.fitting.text_router": ("TextRouter",),
        "mildroute.persistence.artifact": ("load_router", "save_router"),
        "mildroute.routers.frontier.router": ("FrontierRouter",),
        "mildroute.routers.frontier.target": ("Target",),
        "mildroute.routers.mild": ("MildRouter",),
    },
)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    # Packages are also available as attributes, but completion lists only the main exports.
    return importlib.import_module(f"{__name__}.{name}") if name in _PACKAGES else _get(name)
