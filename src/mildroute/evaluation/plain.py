"""Results as plain values that any JSON reader takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["as_plain"]


def as_plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples and arrays as lists, and numbers that JSON does not know (NaN, infinity) as None.

    Example:
        >>> from mildroute.evaluation.replicates import Interval
        >>> as_plain({"a": (Interval(0.5, 0.25, float("nan")),)})
        {'a': [{'value': 0.5, 'low': 0.25, 'high': None, 'confidence': 0.95}]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
