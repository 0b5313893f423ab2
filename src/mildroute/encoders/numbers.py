"""The number encoder: measurements in a column of text, as vectors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.base import Encoder
from mildroute.exceptions import ArgumentError

__all__ = ["NumberEncoder"]

_SEPARATORS = re.compile(r"[\s,;\[\]]+")


class NumberEncoder(Encoder):
    """An encoder of texts that hold numbers, such as ``"5.1 3.5 1.4"`` or ``"[5.1, 3.5, 1.4]"``.

    All rows have the same length. Each number is centered and divided by its standard deviation on
    the training rows.

    Attributes:
        means_: Mean of each number, shape (d,).
        scales_: Standard deviation of each number, or 1 if it is constant, shape (d,).

    Example:
        >>> NumberEncoder().fit_transform(["0 5", "2 5"])
        array([[-1.,  0.],
               [ 1.,  0.]], dtype=float32)
    """

    means_: NDArray[np.float64]
    scales_: NDArray[np.float64]

    def _fit(self, rows: list[Any]) -> None:
        numbers = _parse_rows(rows, None)
        self.means_ = numbers.mean(axis=0)
        deviations = numbers.std(axis=0)
        self.scales_ = np.where(deviations > 0, deviations, 1.0)

    def _encode(self, rows: list[Any]) -> Any:
        numbers = _parse_rows(rows, len(self.means_))
        return ((numbers - self.means_) / self.scales_).astype(np.float32)


def _parse_rows(rows: list[str], width: int | None) -> NDArray[np.float64]:
    vectors = [_parse_row(row, index) for index, row in enumerate(rows)]
    expected = len(vectors[0]) if width is None else width
    for index, vector in enumerate(vectors):
        if len(vector) != expected:
            raise ArgumentError(
                f"every input must have {expected} numbers, got {len(vector)} in row {index}; pad"
                " or drop that row."
            )
    return np.array(vectors, dtype=np.float64).reshape(len(vectors), expected)


def _parse_row(row: str, index: int) -> list[float]:
    try:
        values = [float(part) for part in _SEPARATORS.split(row) if part]
    except ValueError as error:
        raise ArgumentError(
            "every input must hold numbers separated by spaces or commas, got row"
            f" {index}: {error}."
        ) from error
    if not values or not np.isfinite(values).all():
        raise ArgumentError(
            f"every input must have finite numbers, got {row!r:.60} in row {index}; drop that row."
        )
    return values
