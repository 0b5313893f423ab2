"""Measurement of a method along a grid of price weights on held-out folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._folds import assign_folds, count_units
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.measurement import measure_curve
from mildroute.routers.frontier.price_grid import PriceGridRouters
from mildroute.routers.training_rows import FoldVectors, TrainingRows

__all__ = [
    "FEWEST_ROWS",
    "MeasuredMethod",
    "cut_into_folds",
    "cut_vectors",
    "measure_folds",
    "refit_without",
]

# Number of price weights between two neighbors of the grid at which the held-out curve is measured.
_POINTS_BETWEEN = 4
# Minimum number of rows for a measurement on held-out folds.
FEWEST_ROWS = 10


@dataclass(frozen=True)
class MeasuredMethod:
    """A method with its held-out curve."""

    name: str
    along: PriceGridRouters
    folds: list[tuple[PriceGridRouters, NDArray[np.intp], Any]]
    curve: CostQualityCurve


def refit_without(
    template: Any, along: PriceGridRouters, rows: TrainingRows, part: FoldVectors
) -> PriceGridRouters:
    """Return routers that were not trained on a fold."""
    seen = np.setdiff1d(np.arange(len(rows.costs)), part.held_out)
    return along.refitted(template, rows.take(seen, part.vectors))


def measure_folds(
    name: str,
    along: PriceGridRouters,
    folds: Sequence[PriceGridRouters],
    rows: TrainingRows,
    parts: Sequence[FoldVectors],
) -> MeasuredMethod:
    """Measure a method on rows that its routers were not trained on.

    Args:
        name: Name of the method.
        along: Routers trained on all rows; they are measured if there are no folds.
        folds: For each fold, routers that were not trained on it.
        rows: All rows.
        parts: The folds.
    """
    weights = _measured_weights(along.grid)
    choices = np.empty((len(weights), len(rows.costs)), dtype=np.intp)
    refits = np.empty((len(parts), len(weights)))
    share = (
        np.full(len(rows.costs), 1 / len(rows.costs))
        if rows.sample_weight is None
        else rows.sample_weight / rows.sample_weight.sum()
    )
    measured = []
    for index, (copy, part) in enumerate(zip(folds, parts, strict=True)):
        all_choices = copy.choices(part.vectors, weights)
        choices[:, part.held_out] = all_choices[:, part.held_out]
        refits[index] = np.take_along_axis(rows.dollars, all_choices.T, axis=1).T @ share
        measured.append((copy, part.held_out, part.vectors[part.held_out]))
    if not parts:
        choices[:] = along.choices(rows.X, weights)
        measured = [(along, np.arange(len(rows.costs)), rows.X)]
    curve = measure_curve(
        weights,
        choices,
        rows.costs,
        rows.dollars,
        rows.sample_weight,
        refits if len(parts) > 1 else None,
        rows.looks,
        rows.clusters,
    )
    return MeasuredMethod(name, along, measured, curve)


def _measured_weights(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the grid and weights between its points, evenly spaced on a logarithmic scale."""
    if len(grid) == 1:
        return grid
    scale = np.log1p(grid / grid[1])
    between = np.linspace(0, 1, _POINTS_BETWEEN + 1, endpoint=False)
    inner = grid[1] * np.expm1(scale[:-1, None] + np.diff(scale)[:, None] * between)
    inner[:, 0] = grid[:-1]
    return np.concatenate([inner.ravel(), grid[-1:]])


def cut_into_folds(
    rows: int, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> list[NDArray[np.intp]]:
    """Return the indices of the rows of each fold; no folds if there are too few rows.

    Args:
        rows: Number of rows n.
        random_state: Seed of the folds.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`; whole clusters are
            held out.
    """
    units = count_units(clusters, rows)
    if rows < FEWEST_ROWS or units < 2:
        return []
    # With few rows, a router fitted without a fifth of them is clearly worse than the final one;
    # ten folds halve that gap.
    folds = 10 if FEWEST_ROWS**2 <= units < 1000 else 5
    fold = assign_folds(rows, folds, random_state, clusters=clusters)
    return [np.flatnonzero(fold == current) for current in range(fold.max() + 1)]


def cut_vectors(
    X: Any, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> list[FoldVectors]:
    """Divide vectors into folds; each vector must be independent of the other rows."""
    held_out = cut_into_folds(X.shape[0], random_state, clusters)
    return [FoldVectors(rows, X) for rows in held_out]
