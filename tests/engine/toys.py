"""Small cells that need no files."""

from __future__ import annotations

import numpy as np

from mildroute.engine.cells import Cell, Costs, Data, Experts, Method
from mildroute.engine.results import Result

METHODS = ("tdef", "mild", "mild-consistent", "ce")


def toy_cell(method: str = "tdef", seed: int = 0, *, kind: str = "synthetic", costs: Costs | None = None) -> Cell:
    return Cell(Data("toy", train=150), Experts(kind, (0.7, 0.2, 0.1)), costs or Costs(), Method(method), seed)


def toy_cells(count: int) -> list[Cell]:
    """Cells that differ in method, seed, experts and costs."""
    cells = []
    for place in range(count):
        costs = Costs((0.7, 0.2, 0.1), noise=0.2) if place % 3 == 0 else Costs()
        cells.append(toy_cell(METHODS[place % len(METHODS)], place, kind="real" if place % 5 == 0 else "synthetic", costs=costs))
    return cells


def made_up(cell: Cell, paid: tuple[float, ...] = (0.0, 1.0, 0.0, 1.0)) -> Result:
    """A result that nobody computed."""
    loss = sum(paid) / len(paid)
    shares = tuple(1 / cell.experts.count for _ in range(cell.experts.count))
    return Result(cell, loss, 0.9, 0.1, shares, shares, np.array(paid), "made up", 1.0, "2026-01-02T03:04:05+00:00", '{"python": "3.11"}')
