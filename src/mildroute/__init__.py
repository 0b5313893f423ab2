"""Learn which expert should answer, from a table of what each expert cost.

Importing this package loads neither torch nor any optional dependency: ``mildroute.core`` and the
other rooms are imported when they are first used.

Example:
    >>> import mildroute
    >>> mildroute.core.gap_rewards(mildroute.core.as_costs([[1.0, 0.0, 1.0]]))
    tensor([[0., 1., 0.]], dtype=torch.float64)
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0.dev0"

__all__ = [
    "__version__",
    "collecting",
    "core",
    "costs",
    "deep",
    "encoders",
    "engine",
    "errors",
    "evaluation",
    "experts",
    "judges",
    "routers",
]

_ROOMS = frozenset({"collecting", "core", "costs", "deep", "encoders", "engine", "errors", "evaluation", "experts", "judges", "routers"})


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
