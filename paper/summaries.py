"""Mean losses over seeds, and paired differences to TDEF with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from mildroute.exceptions import ArgumentError
from paper.config import ExperimentConfig, Method
from paper.results import Result
from paper.tables import Line, PaperTable, Printed, printed_figures

__all__ = [
    "Gap",
    "LineFigures",
    "Tally",
    "figures_of",
    "gap_between",
    "gap_over_sets",
    "results_of",
    "tally_of",
]

# The method that the others are compared with.
BASELINE = "tdef"
_CONFIDENCE = 0.95


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
        """Return ``"better"``, ``"worse"``, or ``"open"`` if the interval covers zero."""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "open"


@dataclass(frozen=True)
class Tally:
    """The number of lines on which a method is better or worse, and of those that are significant.

    A line is significant if its interval excludes zero. Lines share images, so their number is no
    test of significance.

    Example:
        >>> tally_of([Gap(-0.1, -0.2, -0.01), Gap(0.1, -0.1, 0.3)])
        Tally(lines=2, better=1, worse=1, significantly_better=1, significantly_worse=0)
    """

    lines: int
    better: int
    worse: int
    significantly_better: int
    significantly_worse: int


def gap_between(ours: Mapping[int, Result], other: Mapping[int, Result]) -> Gap:
    """Return the difference of the mean loss over the seeds that both methods have.

    Differences are paired by row. If all seeds share their test rows (images), both rows and seeds
    are samples, and the variances of their means add up. That is conservative, since noise in both
    counts twice. If each seed tests on a fold of its own (tables of answers), only the rows are.

    Args:
        ours: Results by seed.
        other: Results by seed.

    Example:
        >>> from paper.config import ExperimentConfig, Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> paid = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.5, 1.0]])
        >>> one, two = (Result(cell, 0, 1, 0, (), (), each) for each in paid)
        >>> gap_between({0: one}, {0: two}).value
        -0.375
    """
    seeds = sorted(set(ours) & set(other))
    if not seeds:
        raise ArgumentError(
            "two methods must share a seed to be compared, got none; run the missing cells first."
        )
    differences = [ours[seed].paid - other[seed].paid for seed in seeds]
    if ours[seeds[0]].cell.experts.kind == "table":
        return gap_over_sets([np.concatenate(differences)[None]])
    return gap_over_sets([np.stack(differences)])


def gap_over_sets(matrices: Sequence[NDArray[np.float64]]) -> Gap:
    """Return the mean difference over several data sets, whose rows are independent samples.

    Lines of one data set share their rows, so average them first.

    Args:
        matrices: Paired differences of each data set, shape (seeds, rows).

    Example:
        >>> gap_over_sets([np.array([[-1.0, 1.0, -1.0]]), np.array([[1.0, 0.0]])]).value
        0.08333333333333334
    """
    count = len(matrices)
    over_rows = [_squared_error(matrix.mean(axis=0)) / count**2 for matrix in matrices]
    over_seeds = [_squared_error(matrix.mean(axis=1)) / count**2 for matrix in matrices]
    errors = np.array([*over_rows, *over_seeds])
    degrees = np.array(
        [max(1, matrix.shape[1] - 1) for matrix in matrices]
        + [max(1, matrix.shape[0] - 1) for matrix in matrices]
    )
    return _gap(float(np.mean([matrix.mean() for matrix in matrices])), errors, degrees)


def tally_of(gaps: Sequence[Gap]) -> Tally:
    """Count the lines on which a method is better or worse; equal ones count as neither.

    Args:
        gaps: Difference of each line.
    """
    verdicts = [gap.verdict for gap in gaps]
    return Tally(
        len(gaps),
        sum(gap.value < 0 for gap in gaps),
        sum(gap.value > 0 for gap in gaps),
        verdicts.count("better"),
        verdicts.count("worse"),
    )


def _squared_error(values: NDArray[np.float64]) -> float:
    """Return the squared standard error of the mean of values, shape (n,)."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0


def _gap(value: float, errors: NDArray[np.float64], degrees: NDArray[np.intp]) -> Gap:
    """Return the interval by Student's t with Welch-Satterthwaite degrees of freedom."""
    total = float(errors.sum())
    if total == 0:
        return Gap(value, value, value)
    freedom = total**2 / float((errors**2 / degrees).sum())
    half = float(t.ppf((1 + _CONFIDENCE) / 2, freedom)) * total**0.5
    return Gap(value, value - half, value + half)


@dataclass(frozen=True)
class LineFigures:
    """The figures of one line of a table.

    Args:
        line: The line.
        losses: Mean loss of each method that has results.
        gaps: Difference of each other method to TDEF.
        best_single: Mean cost of the single expert that was best on the training rows.
        oracle: Mean cost of the best expert of each row.
        optimal: Share of the rows on which each expert is the best one, the first in a tie.
        shares: Share of the rows on which each method chooses each expert.
        printed: The paper's figures, by the paper's name of the method.

    Example:
        >>> LineFigures.__name__  # made by figures_of
        'LineFigures'
    """

    line: Line
    losses: dict[str, float]
    gaps: dict[str, Gap]
    best_single: float
    oracle: float
    optimal: tuple[float, ...]
    shares: dict[str, tuple[float, ...]]
    printed: dict[str, Printed]

    def printed_loss(self, method: str) -> float | None:
        """Return the loss that the paper prints for a method, or `None`."""
        return self.printed[method].loss if method in self.printed else None


def results_of(
    line: Line, method: str, results: Mapping[str, Result], seeds: int
) -> dict[int, Result]:
    """Return the stored results of a method on a line, by seed.

    Args:
        line: The line.
        method: Name of the method.
        results: Results by key.
        seeds: Number of seeds.

    Example:
        >>> from paper.tables import TABLES
        >>> results_of(TABLES["1a"].lines[0], "tdef", {}, 5)
        {}
    """
    keys = {
        seed: ExperimentConfig(line.data, line.experts, line.costs, Method(method), seed).key
        for seed in range(seeds)
    }
    return {seed: results[key] for seed, key in keys.items() if key in results}


def figures_of(table: PaperTable, results: Mapping[str, Result], seeds: int) -> list[LineFigures]:
    """Return the figures of the lines of a table on which TDEF has results.

    Args:
        table: The table.
        results: Results by key.
        seeds: Number of seeds.

    Example:
        >>> from paper.tables import TABLES
        >>> figures_of(TABLES["1a"], {}, 5)
        []
    """
    figures = [_line_figures(table, line, results, seeds) for line in table.lines]
    return [each for each in figures if each is not None]


def _line_figures(
    table: PaperTable, line: Line, results: Mapping[str, Result], seeds: int
) -> LineFigures | None:
    by_method = {method: results_of(line, method, results, seeds) for method in table.methods}
    by_method = {method: by_seed for method, by_seed in by_method.items() if by_seed}
    if BASELINE not in by_method:
        return None
    baseline = list(by_method[BASELINE].values())
    printed = {
        each.method: each
        for each in printed_figures().values()
        if (each.table, each.row) == (table.name, line.printed)
    }
    return LineFigures(
        line=line,
        losses={
            method: float(np.mean([each.loss for each in by_seed.values()]))
            for method, by_seed in by_method.items()
        },
        gaps={
            method: gap_between(by_seed, by_method[BASELINE])
            for method, by_seed in by_method.items()
            if method != BASELINE
        },
        best_single=float(np.mean([result.best_single for result in baseline])),
        oracle=float(np.mean([result.oracle for result in baseline])),
        optimal=tuple(np.mean([result.optimal for result in baseline], axis=0).tolist()),
        shares={
            method: tuple(np.mean([each.shares for each in by_seed.values()], axis=0).tolist())
            for method, by_seed in by_method.items()
        },
        printed=printed,
    )
