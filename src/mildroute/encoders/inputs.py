"""Inputs as users hold them, lists, arrays, series, Arrow columns, brought to one plain list and checked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["as_list", "as_texts"]


def as_list(inputs: Any) -> list[Any]:
    """The rows of a list, tuple, one-dimensional array, pandas or polars series, or Arrow column.

    Args:
        inputs: n rows, at least one.

    Returns:
        A list of n.

    Example:
        >>> import numpy as np
        >>> as_list(np.array(["a", "b"]))
        ['a', 'b']
    """
    if isinstance(inputs, (str, bytes, Mapping)) or hasattr(inputs, "columns") or not isinstance(inputs, Iterable):
        raise ArgumentError(f"inputs must be a list or one column of inputs, got one {type(inputs).__name__}; wrap it in a list.")
    shape = getattr(inputs, "shape", (1,))
    if len(shape) != 1:
        raise ArgumentError(f"inputs must have one axis, one input a row, got shape {tuple(shape)}; take one column.")
    # Scalars of Arrow and NumPy are no Python values yet, so columns are converted as a whole.
    convert = getattr(inputs, "to_pylist", None) or getattr(inputs, "tolist", None)
    rows = list(inputs) if convert is None else list(convert())
    if not rows:
        raise ArgumentError("inputs must have at least one row, got none; pass some inputs.")
    return rows


def as_texts(inputs: Any) -> list[str]:
    """The rows as plain strings; halves of characters, which no encoder can read, become question marks.

    Args:
        inputs: n strings in anything that :func:`as_list` reads.

    Returns:
        A list of n strings.

    Example:
        >>> as_texts(("one", "two"))
        ['one', 'two']
        >>> as_texts(["one", None])
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: every input must be a string, got NoneType in row 1; drop that row or make it a string.
    """
    rows = as_list(inputs)
    for place, row in enumerate(rows):
        if not isinstance(row, str):
            raise ArgumentError(
                f"every input must be a string, got {type(row).__name__} in row {place}; drop that row or make it a string."
            )
    return [str(row) if row.isascii() else row.encode("utf-8", "replace").decode("utf-8") for row in rows]
