"""Repeated texts in a stream, found by 64-bit fingerprints: eight bytes per row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mildroute._content_hash import digests, fingerprints

__all__ = ["DuplicateCounter", "DuplicateDetector"]


class DuplicateCounter:
    """A counter of rows whose text occurred in an earlier row."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, marks: NDArray[np.uint64]) -> None:
        """Add the digests of the next rows, shape (n, 2)."""
        self._runs.append(fingerprints(marks))

    def repeats(self) -> int:
        """Return the number of rows that repeat an earlier one."""
        if not self._runs:
            return 0
        values = np.concatenate(self._runs)
        values.sort()
        return int(np.count_nonzero(values[1:] == values[:-1]))


class DuplicateDetector:
    """A detector of the first text that repeats an earlier one."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def first_repeat(self, column: pa.ChunkedArray) -> int | None:
        """Return the position of the first text that occurred in an earlier call, or `None`.

        All texts are remembered.
        """
        values = fingerprints(digests(column))
        is_repeat = np.zeros(len(values), dtype=np.bool_)
        for run in self._runs:
            indices = np.searchsorted(run, values)
            is_repeat |= run[np.minimum(indices, len(run) - 1)] == values
        self._remember(np.sort(values))
        return int(is_repeat.argmax()) if is_repeat.any() else None

    def _remember(self, run: NDArray[np.uint64]) -> None:
        """Merge runs of similar size, so that there are never more than about log n of them."""
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)
