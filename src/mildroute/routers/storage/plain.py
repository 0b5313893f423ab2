"""Values as people read them: plain JSON for the summary and the model card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mildroute.errors import ArtifactError

__all__ = ["plain"]

_LARGEST_LIST = 4096
_DEEPEST = 16


def plain(value: Any, path: str = "value", depth: int = 0) -> Any:
    """A value as plain JSON: arrays become lists or, where long, their shape; estimators their name; unusual floats a string.

    Args:
        value: Anything that an artifact may hold.
        path: Where it lies, for messages.
        depth: Levels above it.

    Returns:
        None, a truth value, a number, a string, or a list or dict of those.

    Example:
        >>> plain({"margins": np.array([1.0, 2.0]), "penalty": math.inf})
        {'margins': [1.0, 2.0], 'penalty': 'inf'}
    """
    if depth > _DEEPEST:
        raise ArtifactError(f"{path:.200} lies deeper than {_DEEPEST} levels; does something contain itself?")
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}.{place}", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), path, depth + 1) if value.size <= _LARGEST_LIST else f"array of shape {value.shape}"
    return _plain_leaf(value.item() if isinstance(value, np.generic) else value, path)


def _plain_leaf(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value).__name__
    raise ArtifactError(f"{path:.200} must be a number, a string, a list or a dict, got {type(value).__name__}; convert it.")
