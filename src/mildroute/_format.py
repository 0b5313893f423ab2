"""Values for people and for JSON: numbers, plurals, expert names, plain trees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from mildroute.exceptions import ArtifactError, ShapeError

# Numbers of things in words.


def pluralize(count: int, thing: str) -> str:
    """So many of a thing.

    Args:
        count: How many.
        thing: One of them.

    Returns:
        The number with thousands set apart, and the thing in singular or plural.

    Example:
        >>> pluralize(1, "row"), pluralize(1200, "row"), pluralize(2, "query")
        ('1 row', '1,200 rows', '2 queries')
    """
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("y") else f"{count:,} {thing}s"


# Names of experts where the caller gives them, and plain numbers where not.


def names_of(experts: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names, one per expert, checked against their number.

    Example:
        >>> names_of(None, 2)
        ('expert_0', 'expert_1')
    """
    if experts is None:
        return tuple(f"expert_{index}" for index in range(count))
    if len(experts) != count:
        raise ShapeError(f"experts must be ({count},), one name per expert, got {len(experts)}.")
    return tuple(str(name) for name in experts)


# Results as plain values that any JSON reader takes.


def as_plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples and arrays as lists, and numbers that JSON does not know (NaN, infinity) as None.

    Example:
        >>> from mildroute.evaluation.intervals import Interval
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


# Values as people read them: plain JSON for the summary and the model card.


_LARGEST_LIST = 4096
_DEEPEST = 16


def to_jsonable(value: Any, path: str = "value", depth: int = 0) -> Any:
    """A value as plain JSON: arrays become lists or, where long, their shape; estimators their name; unusual floats a string.

    Args:
        value: Anything that an artifact may hold.
        path: Where it lies, for messages.
        depth: Levels above it.

    Returns:
        None, a truth value, a number, a string, or a list or dict of those.

    Example:
        >>> to_jsonable({"margins": np.array([1.0, 2.0]), "penalty": math.inf})
        {'margins': [1.0, 2.0], 'penalty': 'inf'}
    """
    if depth > _DEEPEST:
        raise ArtifactError(f"{path:.200} lies deeper than {_DEEPEST} levels; does something contain itself?")
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item, f"{path}.{place}", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        return to_jsonable(value.tolist(), path, depth + 1) if value.size <= _LARGEST_LIST else f"array of shape {value.shape}"
    return _plain_leaf(value.item() if isinstance(value, np.generic) else value, path)


def _plain_leaf(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value).__name__
    raise ArtifactError(f"{path:.200} must be a number, a string, a list or a dict, got {type(value).__name__}; convert it.")


# Numbers as people read them.


_LARGEST_IN_FULL = 1e9
"""Numbers from here on are shown by their first digits."""


def format_number(number: float, form: str) -> str:
    """A number in a form of ``str.format``, without the minus sign of what rounds to zero; "none" for what has no value.

    Example:
        >>> format_number(-0.0001, "{:.1%}"), format_number(-0.01, "{:.1%}"), format_number(float("nan"), "{:.1%}")
        ('0.0%', '-1.0%', 'none')
    """
    if math.isnan(number):
        return "none"
    text = (form if abs(number) < _LARGEST_IN_FULL else "{:.4g}").format(number)
    return text[1:] if text.startswith("-") and not text.strip("-0.%") else text


def as_dollars(amount: float) -> str:
    """Cents for a dollar and above, two significant digits below.

    Example:
        >>> as_dollars(1234.5), as_dollars(0.01234), as_dollars(0)
        ('$1,234.50', '$0.012', '$0.00')
    """
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}"


def as_score(score: float) -> str:
    """Three decimals at most, without the leading zero.

    Example:
        >>> as_score(0.83), as_score(0.8284), as_score(1.0)
        ('.83', '.828', '1.0')
    """
    text = f"{score:.3f}"
    text = text.removesuffix("0")
    return text.removeprefix("0") if text.startswith("0") else text.removesuffix("0")
