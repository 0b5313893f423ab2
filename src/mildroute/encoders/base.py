"""The base class of encoders, and how inputs of any form become a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mildroute.exceptions import ArgumentError

__all__ = ["Encoder", "as_list", "as_texts"]


# Inputs as users hold them, lists, arrays, series, Arrow columns, brought to one plain list and
# checked once.


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
            f"inputs must have one axis, one input a row, got shape {tuple(shape)}; take one"
            " column."
        )
    # Scalars of Arrow and NumPy are no Python values yet, so columns are converted as a whole.
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
    for place, row in enumerate(rows):
        if not isinstance(row, str):
            raise ArgumentError(
                f"every input must be a string, got {type(row).__name__} in row {place}; drop that"
                " row or make it a string."
            )
    return [
        str(row) if row.isascii() else row.encode("utf-8", "replace").decode("utf-8")
        for row in rows
    ]


# What every encoder shares: a scikit-learn transformer that reads inputs, checks them once and
# leaves scratch behind.


class Encoder(TransformerMixin, BaseEstimator):
    """Makes vectors of inputs.

    An encoder implements ``_fit(rows)`` and ``_encode(rows)``, which returns float32 vectors, dense
    or as a CSR matrix, shape (n, d). What ``_encode`` needs lies in plain fitted attributes, so
    that an artifact can carry it; what it builds from those for speed is named in ``_transient``,
    and is neither stored nor pickled.

    Example:
        >>> import numpy as np
        >>> class Length(Encoder):
        ...     def _fit(self, rows):
        ...         self.longest_ = max(map(len, rows))
        ...     def _encode(self, rows):
        ...         return np.array([[len(row) / self.longest_] for row in rows], dtype=np.float32)
        >>> Length().fit_transform(["ab", "a"])
        array([[1. ],
               [0.5]], dtype=float32)
    """

    _transient: ClassVar[tuple[str, ...]] = ()
    # Whether vectors of the rows it was fitted on differ from vectors of new rows; a router is then
    # measured with an encoder per fold.
    learns_from_rows: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002
        """Learn from n inputs; ``y`` is ignored."""
        self._forget()
        self._fit(self._read(X))
        return self

    def transform(self, X: Any) -> Any:
        """Vectors of n inputs, float32, shape (n, d)."""
        check_is_fitted(self)
        return self._encode(self._read(X))

    def _read(self, X: Any) -> list[Any]:
        return list(as_texts(X))

    def _fit(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def _encode(self, rows: list[Any]) -> Any:
        raise NotImplementedError

    def _forget(self) -> None:
        for name in self._transient:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """Sessions and the like stay in this process."""
        return {
            name: value
            for name, value in super().__getstate__().items()
            if name not in self._transient
        }

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: an encoder takes one column of inputs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
