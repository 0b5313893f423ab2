"""Figures over seeds: means, paired differences to TDEF with intervals, sign tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, t

from benchmarks.paper.config import ExperimentConfig, Method
from benchmarks.paper.paper_tables import Line, PaperTable, Printed, printed_figures
from benchmarks.paper.run import Result
from mildroute.exceptions import ArgumentError

__all__ = [
    "CAUSES",
    "Gap",
    "LineFigures",
    "Sign",
    "Spread",
    "agreement",
    "cause_of",
    "figures_of",
    "gap_between",
    "results_of",
    "sign_of",
    "spread_of",
]


# Figures over seeds: means, paired differences to TDEF with intervals, sign tests.


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
    """Lines that a method wins and loses, how many by more than noise, and the sign test.

    The test is two-sided.

    Example:
        >>> sign_of([Gap(-0.1, -0.2, -0.01)] * 5).p_value
        0.0625
    """

    better: int
    worse: int
    p_value: float
    significantly_better: int
    significantly_worse: int


def spread_of(results: Sequence[Result]) -> Spread:
    """Mean and standard deviation of the loss over seeds.

    Args:
        results: One a seed.

    Returns:
        The figures; the deviation of one seed is 0.

    Example:
        >>> from benchmarks.paper.config import ExperimentConfig, Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> spread_of([Result(cell, loss, 1, 0, (), (), np.empty(0)) for loss in (0.25, 0.75)]).mean
        0.5
    """
    losses = np.array([result.loss for result in results])
    return Spread(
        float(losses.mean()), float(losses.std(ddof=1)) if len(losses) > 1 else 0.0, len(losses)
    )


def gap_between(ours: Mapping[int, Result], other: Mapping[int, Result]) -> Gap:
    """Difference of the mean loss over the seeds that both have, row by row.

    Where all seeds share their test rows (images), both the rows and the seeds are a sample: the
    variances of the mean over rows and over seeds add up, which is careful, since what is random in
    both counts twice. Where each seed tests on a fold of its own (tables of answers), the rows
    alone are.

    Args:
        ours: Results by seed.
        other: Results by seed.

    Returns:
        Difference and interval.

    Example:
        >>> from benchmarks.paper.config import ExperimentConfig, Data, Experts
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


# From stored results to the figures of a table.


BASELINE = "tdef"


@dataclass(frozen=True)
class LineFigures:
    """What was found on one line of a table.

    Args:
        line: The line.
        spreads: Loss of each method that has results.
        gaps: Difference of each of them to TDEF, TDEF itself left out.
        best_single: Mean cost of the single expert that was best on the training rows.
        oracle: Mean cost of the best expert of each row.
        optimal: How often each expert is the best one, the first of equals.
        shares: How often each method chooses each expert.
        printed: The paper's figures by the paper's name of the method.

    Example:
        >>> LineFigures.__name__  # made by figures_of
        'LineFigures'
    """

    line: Line
    spreads: dict[str, Spread]
    gaps: dict[str, Gap]
    best_single: float
    oracle: float
    optimal: tuple[float, ...]
    shares: dict[str, tuple[float, ...]]
    printed: dict[str, Printed]


def results_of(
    line: Line, method: str, results: Mapping[str, Result], seeds: int
) -> dict[int, Result]:
    """Stored results of a method on a line, by seed.

    Args:
        line: The line.
        method: Name of the method.
        results: Results by key.
        seeds: How many seeds to look for.

    Returns:
        Those that are there.

    Example:
        >>> from benchmarks.paper.paper_tables import TABLES
        >>> results_of(TABLES["1a"].lines[0], "tdef", {}, 5)
        {}
    """
    keys = {
        seed: (
            ExperimentConfig(
                line.data, line.experts, line.costs, Method(method, line.network), seed
            ).key
        )
        for seed in range(seeds)
    }
    return {seed: results[key] for seed, key in keys.items() if key in results}


def figures_of(table: PaperTable, results: Mapping[str, Result], seeds: int) -> list[LineFigures]:
    """Figures of the lines of a table on which TDEF has results.

    Args:
        table: The table.
        results: Results by key.
        seeds: How many seeds to look for.

    Returns:
        One a line.

    Example:
        >>> from benchmarks.paper.paper_tables import TABLES
        >>> figures_of(TABLES["1a"], {}, 5)
        []
    """
    found = [_line_figures(table, line, results, seeds) for line in table.lines]
    return [each for each in found if each is not None]


def _line_figures(
    table: PaperTable, line: Line, results: Mapping[str, Result], seeds: int
) -> LineFigures | None:
    known = {method: results_of(line, method, results, seeds) for method in table.methods}
    known = {method: by_seed for method, by_seed in known.items() if by_seed}
    if BASELINE not in known:
        return None
    baseline = list(known[BASELINE].values())
    printed = {
        each.method: each
        for each in printed_figures().values()
        if (each.table, each.row) == (table.frozen or table.name, line.printed)
    }
    return LineFigures(
        line=line,
        spreads={method: spread_of(list(by_seed.values())) for method, by_seed in known.items()},
        gaps={
            method: gap_between(by_seed, known[BASELINE])
            for method, by_seed in known.items()
            if method != BASELINE
        },
        best_single=float(np.mean([result.best_single for result in baseline])),
        oracle=float(np.mean([result.oracle for result in baseline])),
        optimal=tuple(np.mean([result.optimal for result in baseline], axis=0).tolist()),
        shares={
            method: tuple(np.mean([each.shares for each in by_seed.values()], axis=0).tolist())
            for method, by_seed in known.items()
        },
        printed=printed,
    )


# Why a line does not come out as printed: short causes, each tied to figures that are measured.


# Loss within which a router counts as no better than the best single expert.
_CLOSE = 0.01

# What the short names in the tables mean.
CAUSES = {
    "decision": (
        "With unequal margins the largest score is not the best choice, even at the optimum. The"
        " very same scores, decoded to the posterior that they stand for, pay clearly less. See"
        " [the decision rule](theory/decision.md)."
    ),
    "single": (
        "TDEF already pays what the best single expert pays. A more expensive expert must be right"
        " more often by the whole difference of the fees, an equally expensive one must be right"
        " where the best one is wrong, and no method here finds enough such rows."
    ),
    "noise": "The difference of MILD tuned to TDEF is within noise: its interval covers zero.",
    "reward": (
        "MILD tuned is clearly worse than TDEF. Its margins are nearly equal, so what is left is"
        " its reward, the sum of the others' costs, which is nearly uniform for several experts: a"
        " likely cause, not a proven one."
    ),
    "open": "Not explained.",
}


def agreement(figures: LineFigures, method: str) -> str:
    """Whether a method beats TDEF, as the paper says of MILD.

    Args:
        figures: A line.
        method: Name of the method.

    Returns:
        ``"yes"``, ``"no"``, or with a question mark where the interval covers zero; ``"-"`` without
        results.

    Example:
        >>> agreement.__name__
        'agreement'
    """
    gap = figures.gaps.get(method)
    if gap is None:
        return "-"
    if gap.value == 0:
        return "equal"
    return ("yes" if gap.value < 0 else "no") + ("?" if gap.verdict == "open" else "")


def cause_of(figures: LineFigures) -> str:
    """Short names of the causes for which a line does not come out as printed; empty where it does.

    Args:
        figures: A line.

    Returns:
        Keys of :data:`CAUSES` with commas between, that of MILD printed first, or an empty string.

    Example:
        >>> sorted(CAUSES)
        ['decision', 'noise', 'open', 'reward', 'single']
    """
    return ", ".join(filter(None, [_cause_of_printed(figures), _cause_of_tuned(figures)]))


def _cause_of_printed(figures: LineFigures) -> str:
    """Why MILD as printed is worse than TDEF, where it is."""
    printed, decoded = figures.gaps.get("mild"), figures.gaps.get("mild-decoded")
    if printed is None or printed.verdict != "worse":
        return ""
    # Intervals of two differences to the same baseline that do not even touch.
    return "decision" if decoded is not None and decoded.high < printed.low else "open"


def _cause_of_tuned(figures: LineFigures) -> str:
    """Why tuning it does not make it better than TDEF, where it does not."""
    tuned = figures.gaps.get("mild-tuned")
    if tuned is None or tuned.verdict == "better":
        return ""
    if figures.spreads["tdef"].mean > figures.best_single - _CLOSE:
        return "single"
    return "noise" if tuned.verdict == "open" else "reward"
