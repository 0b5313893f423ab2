"""Conversion of inputs (lists, arrays, series, Arrow columns) to one plain list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["as_list", "as_texts"]


def as_list(inputs: Any) -> list[Any]:
    """Return the rows of a list, tuple, 1-d array, pandas or polars series, or Arrow column."""
    if (
        isinstance(inputs, (str, bytes, Mapping))
        or hasattr(inputs, "columns")
        or not isinstance(inputs, Iterable)
    ):
        raise ArgumentError(
            f"inputs must be a list or one column of inputs, got one {type(inputs).__name__}; wrap"
            " it in a list."
        )
    shape = getattr(inputs, "shape", (1,))
    if len(shape) != 1:
        raise ArgumentError(
            f"inputs must have one axis, one input per row, got shape {tuple(shape)}; take one"
            " column."
        )
    # Convert a column as a whole, because Arrow and NumPy scalars are not Python values.
    convert = getattr(inputs, "to_pylist", None) or getattr(inputs, "tolist", None)
    rows = list(inputs) if convert is None else list(convert())
    if not rows:
        raise ArgumentError("inputs must have at least one row, got none; pass some inputs.")
    return rows


def as_texts(inputs: Any) -> list[str]:
    """Return the rows as plain strings.

    Unpaired surrogates, which no encoder can read, become question marks.
    """
    rows = as_list(inputs)
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise ArgumentError(
                f"every input must be a string, got {type(row).__name__} in row {index}; drop that"
                " row or make it a string."
            )
    return [
        str(row) if row.isascii() else row.encode("utf-8", "replace").decode("utf-8")
        for row in rows
    ]
