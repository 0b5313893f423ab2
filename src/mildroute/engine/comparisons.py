"""Figures over seeds: means, paired differences to TDEF with intervals, sign tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, t

from mildroute.engine.results import Result
from mildroute.errors import ArgumentError

__all__ = ["Gap", "Sign", "Spread", "gap_between", "sign_of", "spread_of"]

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds, as the paper prints them.

    Example:
        >>> Spread(0.5, 0.01, 5).seeds
        5
    """

    mean: float
    sd: float
    seeds: int


@dataclass(frozen=True)
class Gap:
    """A paired difference with its 95% interval; below zero the first method is better.

    Example:
        >>> Gap(-0.1, -0.2, -0.01).verdict, Gap(0.1, -0.1, 0.3).verdict
        ('better', 'open')
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``"better"``, ``"worse"`` or, where the interval covers zero, ``"open"``."""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "open"


@dataclass(frozen=True)
class Sign:
    """How many lines a method wins and loses, the two-sided sign test, and how many by more than noise.

    Example:
        >>> sign_of([Gap(-0.1, -0.2, -0.01)] * 5).p_value
        0.0625
    """

    better: int
    worse: int
    p_value: float
    surely_better: int
    surely_worse: int


def spread_of(results: Sequence[Result]) -> Spread:
    """Mean and standard deviation of the loss over seeds.

    Args:
        results: One a seed.

    Returns:
        The figures; the deviation of one seed is 0.

    Example:
        >>> from mildroute.engine.cells import Cell, Data, Experts
        >>> cell = Cell(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> spread_of([Result(cell, loss, 1, 0, (), (), np.empty(0)) for loss in (0.25, 0.75)]).mean
        0.5
    """
    losses = np.array([result.loss for result in results])
    return Spread(float(losses.mean()), float(losses.std(ddof=1)) if len(losses) > 1 else 0.0, len(losses))


def gap_between(ours: Mapping[int, Result], other: Mapping[int, Result]) -> Gap:
    """Difference of the mean loss over the seeds that both have, row by row.

    Where all seeds share their test rows (images), both the rows and the seeds are a sample: the variances of the mean over rows and
    over seeds add up, which is careful, since what is random in both counts twice. Where each seed tests on a fold of its own (tables of
    answers), the rows alone are.

    Args:
        ours: Results by seed.
        other: Results by seed.

    Returns:
        Difference and interval.

    Example:
        >>> from mildroute.engine.cells import Cell, Data, Experts
        >>> cell = Cell(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> one, two = (Result(cell, 0, 1, 0, (), (), np.array(paid)) for paid in ([0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.5, 1.0]))
        >>> gap_between({0: one}, {0: two}).value
        -0.375
    """
    seeds = sorted(set(ours) & set(other))
    if not seeds:
        raise ArgumentError("two methods must share a seed to be compared, got none; run the missing cells first.")
    differences = [ours[seed].paid - other[seed].paid for seed in seeds]
    if ours[seeds[0]].cell.experts.kind == "table":
        rows = np.concatenate(differences)
        return _gap(float(rows.mean()), _squared_error(rows), 0.0, len(rows), 1)
    matrix = np.stack(differences)
    over_rows, over_seeds = _squared_error(matrix.mean(axis=0)), _squared_error(matrix.mean(axis=1))
    return _gap(float(matrix.mean()), over_rows, over_seeds, matrix.shape[1], len(seeds))


def sign_of(gaps: Sequence[Gap]) -> Sign:
    """Count the lines on which a method is better; those without any difference count for nobody.

    Args:
        gaps: One a line.

    Returns:
        Counts and the sign test.

    Example:
        >>> sign_of([Gap(-0.1, -0.2, -0.01), Gap(0.0, 0.0, 0.0)]).better
        1
    """
    better, worse = sum(gap.value < 0 for gap in gaps), sum(gap.value > 0 for gap in gaps)
    p_value = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    verdicts = [gap.verdict for gap in gaps]
    return Sign(better, worse, p_value, verdicts.count("better"), verdicts.count("worse"))


def _squared_error(values: NDArray[np.float64]) -> float:
    """Squared standard error of the mean of values, shape (n,)."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0


def _gap(value: float, over_rows: float, over_seeds: float, rows: int, seeds: int) -> Gap:
    """Interval by Student's t with the degrees of freedom of Welch and Satterthwaite."""
    total = over_rows + over_seeds
    if total == 0:
        return Gap(value, value, value)
    weight = over_rows**2 / max(1, rows - 1) + over_seeds**2 / max(1, seeds - 1)
    half = float(t.ppf((1 + _CONFIDENCE) / 2, total**2 / weight)) * total**0.5
    return Gap(value, value - half, value + half)
