"""What an experiment found, and which part of it must not depend on where it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.engine.cells import Cell

__all__ = ["Result"]


@dataclass(frozen=True, eq=False)
class Result:
    """Outcome of one cell. Equality looks at the outcome alone, to the bit, and not at time, place and versions.

    Args:
        cell: The experiment.
        loss: Mean cost of the chosen expert on test rows.
        best_single: Mean cost of the expert that is cheapest on the training rows.
        oracle: Mean cost of the best expert of each row.
        shares: How often each expert is chosen, shape (p,).
        optimal: How often each expert is the best one, the first of equals, shape (p,).
        paid: Cost of the chosen expert on each test row, shape (n,).
        note: What the router chose by cross-validation, in words.
        seconds: Processor time of fit and prediction.
        finished: When, in ISO format.
        versions: Versions of what computed it.

    Example:
        >>> from mildroute.engine.cells import Data, Experts
        >>> cell, paid = Cell(Data("toy"), Experts("synthetic", (0.7, 0.3))), np.array([1.0, 0.0])
        >>> slow, fast = (Result(cell, 0.5, 0.6, 0.1, (0.5, 0.5), (0.7, 0.3), paid, seconds=seconds) for seconds in (9, 1))
        >>> slow == fast
        True
    """

    cell: Cell
    loss: float
    best_single: float
    oracle: float
    shares: tuple[float, ...]
    optimal: tuple[float, ...]
    paid: NDArray[np.float64] = field(repr=False)
    note: str = ""
    seconds: float = 0.0
    finished: str = ""
    versions: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether the same cell has come out the same, to the bit."""
        return isinstance(other, Result) and self._outcome() == other._outcome()

    def __hash__(self) -> int:
        """Equal results have equal cells."""
        return hash(self.cell)

    def _outcome(self) -> tuple[Any, ...]:
        figures = np.array([self.loss, self.best_single, self.oracle, *self.shares, *self.optimal, *self.paid])
        return self.cell, len(self.shares), figures.tobytes(), self.note
