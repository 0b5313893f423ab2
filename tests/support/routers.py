"""All routers of the package, found by looking, with settings that fit in a moment.

And problems to give them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

import mildroute.routers
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures
from mildroute.routers.mild import MildRouter

Array = NDArray[np.float64]

SMALL_MILD = MildRouter(
    alpha=0.01, cv=2, topics=TopicFeatures(clusters=(4,), random_state=0), random_state=0
)

# Settings for speed alone; a router that is not here is tested as it comes.
SMALL: dict[str, dict[str, Any]] = {
    "CascadeRouter": {"router": SMALL_MILD},
    "FrontierRouter": {"router": SMALL_MILD},
    "MildRouter": SMALL_MILD.get_params(deep=False),
} | {
    name: {"alpha": 0.01}
    for name in (
        "CrossEntropyRouter",
        "LDAMRouter",
        "CustomLossRouter",
        "PaperMILDRouter",
        "TDEFRouter",
        "WeightedCrossEntropyRouter",
    )
}


def module_names() -> list[str]:
    return [
        found.name
        for found in pkgutil.walk_packages(mildroute.routers.__path__, "mildroute.routers.")
    ]


def every_router() -> dict[str, type[Any]]:
    """Concrete public routers by name."""
    modules = [importlib.import_module(name) for name in module_names()]
    public = {
        name: getattr(module, name) for module in modules for name in getattr(module, "__all__", ())
    }
    return {
        name: value
        for name, value in sorted(public.items())
        if inspect.isclass(value) and is_router(value)
    }


def is_router(cls: type[Any]) -> bool:
    return (
        issubclass(cls, RouterMixin)
        and issubclass(cls, BaseEstimator)
        and not inspect.isabstract(cls)
    )


def small(kind: type[Any]) -> Any:
    """A router that is not fitted yet."""
    return kind(**SMALL.get(kind.__name__, {}))


def problem(experts: int, rows: int = 80, seed: int = 0) -> tuple[Array, Array]:
    """Vectors of five columns that say much, not all, about who is cheap.

    The seed draws the rows, not the rule.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 5))
    leaning = X @ np.random.default_rng(experts).normal(size=(5, experts))
    return X, 0.4 * random.uniform(size=(rows, experts)) + 0.6 / (1 + np.exp(-2 * leaning))
