"""Measurements as they stand in a table of text: numbers with spaces or commas between become a vector."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.base import Encoder
from mildroute.errors import ArgumentError

__all__ = ["NumberEncoder"]

_SEPARATORS = re.compile(r"[\s,;\[\]]+")


class NumberEncoder(Encoder):
    """Reads inputs such as ``"5.1 3.5 1.4"`` or ``"[5.1, 3.5, 1.4]"`` as vectors; all rows have the same length.

    Each number is centred and divided by its standard deviation on the training rows.

    Attributes:
        means_: Mean of each number, shape (d,).
        scales_: Standard deviation of each number, 1 where it never changes, shape (d,).

    Example:
        >>> NumberEncoder().fit_transform(["0 5", "2 5"])
        array([[-1.,  0.],
               [ 1.,  0.]], dtype=float32)
    """

    means_: NDArray[np.float64]
    scales_: NDArray[np.float64]

    def _fit(self, rows: list[Any]) -> None:
        numbers = _numbers(rows, None)
        self.means_, spread = numbers.mean(axis=0), numbers.std(axis=0)
        self.scales_ = np.where(spread > 0, spread, 1.0)

    def _encode(self, rows: list[Any]) -> Any:
        return ((_numbers(rows, len(self.means_)) - self.means_) / self.scales_).astype(np.float32)


def _numbers(rows: list[str], width: int | None) -> NDArray[np.float64]:
    parsed = [_vector(row, place) for place, row in enumerate(rows)]
    wanted = len(parsed[0]) if width is None else width
    for place, vector in enumerate(parsed):
        if len(vector) != wanted:
            raise ArgumentError(f"every input must have {wanted} numbers, got {len(vector)} in row {place}; pad or drop that row.")
    return np.array(parsed, dtype=np.float64).reshape(len(parsed), wanted)


def _vector(row: str, place: int) -> list[float]:
    try:
        values = [float(part) for part in _SEPARATORS.split(row) if part]
    except ValueError as error:
        raise ArgumentError(f"every input must be numbers with spaces or commas between, got row {place}: {error}.") from error
    if not values or not np.isfinite(values).all():
        raise ArgumentError(f"every input must have finite numbers, got {row!r:.60} in row {place}; drop that row.")
    return values
