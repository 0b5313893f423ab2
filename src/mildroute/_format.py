"""Formatting of values as text and JSON: numbers, plurals, expert names, nested values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from mildroute.exceptions import ArtifactError, ShapeError


def pluralize(count: int, thing: str) -> str:
    """Return a count with thousands separators, and its noun in the singular or plural."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("y") else f"{count:,} {thing}s"


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain-text table: first column left-aligned, the others right-aligned.

    Example:
        >>> print(text_table(["expert", "score"], [["small", "0.71"], ["large", "0.9"]]))
        expert  score
        small    0.71
        large     0.9
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        first, *others = (
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def names_of(experts: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Return the given names, one per expert, or expert_0, expert_1, and so on."""
    if experts is None:
        return tuple(f"expert_{index}" for index in range(count))
    if len(experts) != count:
        raise ShapeError(f"experts must be ({count},), one name per expert, got {len(experts)}.")
    return tuple(str(name) for name in experts)


_MAX_ARRAY_SIZE = 4096
_MAX_DEPTH = 16


def to_jsonable(value: Any, path: str | None = None, depth: int = 0) -> Any:
    """Return a JSON-compatible value, for results, router summaries and model cards.

    Dataclasses and mappings become dicts, tuples and arrays become lists, NaN and infinity become
    `None`.

    Args:
        value: The value.
        path: Position of the value, for error messages. With a path, the value is meant for a
            stored file and is checked: NaN and infinity become strings, long arrays become their
            shape, estimators become their name, and anything else is an error.
        depth: Nesting depth of the value.
    """
    if path is not None and depth > _MAX_DEPTH:
        raise ArtifactError(
            f"{path:.200} is nested more than {_MAX_DEPTH} levels deep; check for a circular"
            " reference."
        )
    if isinstance(value, np.ndarray | np.generic):
        if path is not None and value.size > _MAX_ARRAY_SIZE:
            return f"array of shape {value.shape}"
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(key): to_jsonable(item, *_child_position(path, key, depth))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            to_jsonable(item, *_child_position(path, key, depth)) for key, item in enumerate(value)
        ]
    return _leaf(value, path)


def _child_position(path: str | None, key: Any, depth: int) -> tuple[str | None, int]:
    return None if path is None else f"{path}.{key}", depth + 1


def _leaf(value: Any, path: str | None) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if path is None else str(value)
    if path is None or value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value).__name__
    raise ArtifactError(
        f"{path:.200} must be a number, a string, a list or a dict, got {type(value).__name__};"
        " convert it."
    )


# Numbers from this size on are shown with four significant digits.
_MIN_ROUNDED = 1e9


def format_number(number: float, number_format: str) -> str:
    """Format a number with ``str.format``, without the minus sign if it rounds to zero.

    Return "none" for a missing value, and 90,000 if the format would produce 9e+04.
    """
    if math.isnan(number):
        return "none"
    text = (number_format if abs(number) < _MIN_ROUNDED else "{:.4g}").format(number)
    if "e" in text and abs(number) < _MIN_ROUNDED:
        rounded = float(text)
        large = abs(rounded) >= 1
        return f"{rounded:,.0f}" if large else np.format_float_positional(rounded, trim="-")
    return text[1:] if text.startswith("-") and not text.strip("-0.%") else text


def format_dollars(amount: float) -> str:
    """Format dollars with cents, or with two significant digits below a dollar."""
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}"


def format_score(score: float) -> str:
    """Format a score with two decimals, or three if the third is not zero."""
    return f"{score:.3f}".removesuffix("0")
