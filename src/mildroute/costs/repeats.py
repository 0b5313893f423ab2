"""Repeated texts in a stream, by 64-bit fingerprints: eight bytes a row, however long the texts are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mildroute.costs.text_digests import digests, fingerprints

__all__ = ["RepeatCounter", "Seen"]


class RepeatCounter:
    """Counts rows whose text stood in an earlier row.

    Example:
        >>> counter = RepeatCounter()
        >>> counter.add(digests(pa.chunked_array([["a", "b"]]))); counter.add(digests(pa.chunked_array([["a"]])))
        >>> counter.repeats()
        1
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, marks: NDArray[np.uint64]) -> None:
        """Add the digests of the next rows, shape (n, 2)."""
        self._runs.append(fingerprints(marks))

    def repeats(self) -> int:
        """Rows that repeat an earlier one."""
        if not self._runs:
            return 0
        values = np.concatenate(self._runs)
        values.sort()
        return int(np.count_nonzero(values[1:] == values[:-1]))


class Seen:
    """Remembers texts and finds the first that comes again.

    Example:
        >>> seen = Seen()
        >>> early, late = pa.chunked_array([["a", "b"]]), pa.chunked_array([["c", "b"]])
        >>> seen.first_repeat(early), seen.first_repeat(late)
        (None, 1)
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def first_repeat(self, column: pa.ChunkedArray) -> int | None:
        """Place of the first text that was there in an earlier call, or none; all are remembered."""
        values = fingerprints(digests(column))
        known: Any = np.zeros(len(values), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, values)
            known |= run[np.minimum(places, len(run) - 1)] == values
        self._remember(np.sort(values))
        return int(known.argmax()) if known.any() else None

    def _remember(self, run: NDArray[np.uint64]) -> None:
        """Runs of like size are merged, so there are never more than about log n of them."""
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)
