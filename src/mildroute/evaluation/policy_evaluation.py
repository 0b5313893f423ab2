"""Evaluation of one choice of experts: all figures with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._format import names_of, to_jsonable
from mildroute.evaluation.arrays import Choice, Matrix, as_choice, as_matrix
from mildroute.evaluation.expert_usage import effective_experts, expert_shares, oracle_shares
from mildroute.evaluation.figures import FIGURES, figure_columns, gap_of_means
from mildroute.evaluation.metrics import best_single, oracle, regret
from mildroute.evaluation.posterior_calibration import brier_score, calibration_error
from mildroute.evaluation.resampling import (
    BootstrapSamples,
    Interval,
    Means,
    bootstrap_means,
    group_codes,
)
from mildroute.evaluation.specialist_recall import recall_counts
from mildroute.exceptions import ArgumentError

__all__ = ["Evaluation", "ExpertRow", "GroupRow", "LostRow", "evaluate_choices"]

_LOST_ROWS = 10


@dataclass(frozen=True)
class ExpertRow:
    """One expert: its share of choices, its share of wins, and its results alone."""

    name: str
    share: float
    oracle_share: float
    recall: Interval
    cost: float
    score: float
    dollars_per_1000: float | None


@dataclass(frozen=True)
class GroupRow:
    """One group of queries.

    The row compares the costs of the router, the best single expert of the whole table, and the
    oracle.
    """

    name: str
    rows: int
    deferral_loss: Interval
    best_single_loss: float
    oracle_loss: float
    score: float
    dollars_per_1000: float | None
    most_chosen: str


@dataclass(frozen=True)
class LostRow:
    """A query on which the router loses a lot."""

    row: int
    chosen: str
    best: str
    regret: float


@dataclass(frozen=True)
class Evaluation:
    """The costs and scores of one choice of experts on held-out rows.

    Attributes:
        rows: Number of rows.
        experts: Names of the experts.
        reference: The best single expert: the one named, or the best in hindsight.
        deferral_loss: Mean cost of the chosen experts.
        regret: Mean cost beyond the oracle's.
        best_single_loss: Mean cost of the reference.
        oracle_loss: Mean cost of the oracle.
        difference: Deferral loss minus that of the reference; below 0 the router is better.
        gap_closed: Share of the way from the reference to the oracle.
        score: Mean score.
        dollars_per_1000: Bill of 1,000 queries, if dollars are known.
        worst_recall: Lowest recall of an expert that wins at least one row.
        exactly_one_right_recall: Recall on rows where exactly one expert is right.
        effective_experts: Effective number of experts chosen.
        oracle_effective_experts: Effective number of experts that the oracle chooses.
        calibration_error: Calibration error of the posterior, if there is one.
        brier_score: Brier score of the posterior, if there is one.
        per_expert: One row per expert.
        per_group: One row per group, by name, if there are groups.
        lost: The rows with the largest regret, in descending order; rows without regret are not
            listed.

    Example:
        >>> costs, scores = [[0, 1], [1, 0], [1, 0]], [[1, 0], [0, 1], [0, 1]]
        >>> evaluation = evaluate_choices([0, 1, 0], costs, scores=scores)
        >>> figures = evaluation.deferral_loss, evaluation.gap_closed
        >>> [round(figure.value, 3) for figure in figures], evaluation.lost[0].row
        ([0.333, 0.0], 2)
    """

    rows: int
    experts: tuple[str, ...]
    reference: str
    deferral_loss: Interval
    regret: Interval
    best_single_loss: Interval
    oracle_loss: Interval
    difference: Interval
    gap_closed: Interval
    score: Interval
    dollars_per_1000: Interval | None
    worst_recall: Interval
    exactly_one_right_recall: Interval
    effective_experts: Interval
    oracle_effective_experts: float
    calibration_error: float | None
    brier_score: float | None
    per_expert: tuple[ExpertRow, ...]
    per_group: tuple[GroupRow, ...]
    lost: tuple[LostRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain values for JSON; missing values are `None`."""
        plain: dict[str, Any] = to_jsonable(self)
        return plain


@dataclass(frozen=True)
class _Case:
    """The checked arguments."""

    choice: Choice
    costs: Matrix
    scores: Matrix
    dollars: Matrix | None
    names: tuple[str, ...]
    base: int
    looks: int

    @property
    def experts(self) -> int:
        """Return the number of experts; the columns after them are looks of a cascade."""
        return len(self.names) - self.looks

    @property
    def oracle_shares(self) -> NDArray[np.float64]:
        """Return shares of each column: an oracle needs no look, even if one costs as little."""
        return np.append(oracle_shares(self.costs[:, : self.experts]), np.zeros(self.looks))


def evaluate_choices(
    choice: Any,
    costs: Any,
    scores: Any,
    dollars: Any = None,
    posterior: Any = None,
    groups: Any = None,
    *,
    experts: Sequence[str] | None = None,
    reference: int | None = None,
    looks: int = 0,
    clusters: Any = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Measure a choice of experts on rows that the router was not trained on.

    Args:
        choice: Chosen experts, shape (n,).
        costs: Costs that the router minimizes, shape (n, p).
        scores: Score of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p), or `None`.
        posterior: Posterior over experts, shape (n, p), or `None`.
        groups: Group of each row, shape (n,), or `None`; each gets its own row.
        experts: Names of the experts.
        reference: The best single expert as chosen on training rows; defaults to the best in
            hindsight, which is slightly optimistic.
        looks: Number of columns at the end that are looks of a cascade: they can be chosen, but an
            oracle cannot send rows to them.
        clusters: Cluster of each row, shape (n,): whole clusters are resampled. Defaults to the
            groups, so that intervals are about new groups, or else to the rows.
        confidence: Confidence of each interval.
        seed: Seed of the bootstrap.

    Returns:
        The evaluation.

    Example:
        >>> costs, scores, dollars = [[0, 1], [1, 0]], [[1, 0], [0, 1]], [[0.001, 0.002]] * 2
        >>> evaluation = evaluate_choices([0, 1], costs, scores, dollars=dollars)
        >>> evaluation.score.value, evaluation.dollars_per_1000.value, evaluation.gap_closed.value
        (1.0, 1.5, 1.0)
    """
    case = _check_arguments(choice, costs, scores, dollars, experts, reference, looks)
    won, hits = recall_counts(case.costs, case.choice)
    columns = figure_columns(case.costs, case.choice, case.base, case.scores, case.dollars)
    columns |= _expert_columns(case, won, hits)
    units = groups if clusters is None else clusters
    drawn = bootstrap_means(columns, units, seed=seed)
    figures = {name: drawn.interval(statistic, confidence) for name, statistic in FIGURES.items()}
    count = len(case.names)
    return Evaluation(
        rows=len(case.costs),
        experts=case.names,
        reference=case.names[case.base],
        **figures,
        gap_closed=drawn.interval(gap_of_means, confidence),
        dollars_per_1000=None if case.dollars is None else drawn.interval("dollars", confidence),
        worst_recall=drawn.interval(lambda mean: _worst(mean, case.experts), confidence),
        exactly_one_right_recall=drawn.interval(
            lambda mean: mean["alone found"] / mean["alone"], confidence
        ),
        effective_experts=drawn.interval(lambda mean: _effective(mean, count), confidence),
        oracle_effective_experts=effective_experts(case.oracle_shares),
        calibration_error=None if posterior is None else calibration_error(posterior, case.costs),
        brier_score=None if posterior is None else brier_score(posterior, case.costs),
        per_expert=_expert_rows(case, drawn, confidence),
        per_group=() if groups is None else _group_rows(case, groups, clusters, confidence, seed),
        lost=_lost_rows(case),
    )


def _check_arguments(
    choice: Any,
    costs: Any,
    scores: Any,
    dollars: Any,
    experts: Sequence[str] | None,
    reference: int | None,
    looks: int,
) -> _Case:
    matrix = as_matrix(costs)
    shape = (matrix.shape[0], matrix.shape[1])
    names = names_of(experts, shape[1])
    if reference is not None and not 0 <= reference < shape[1]:
        raise ArgumentError(
            f"reference must be the index of an expert, from 0 to {shape[1] - 1}, got {reference}."
        )
    money = None if dollars is None else as_matrix(dollars, "dollars", shape)
    base = best_single(matrix, money) if reference is None else reference
    return _Case(
        as_choice(choice, *shape),
        matrix,
        as_matrix(scores, "scores", shape),
        money,
        names,
        base,
        looks,
    )


def _expert_columns(
    case: _Case, won: NDArray[np.bool_], hits: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    right = case.scores >= 0.5
    alone = right[:, : case.experts].sum(axis=1) == 1
    columns: dict[str, NDArray[Any]] = {
        "alone": alone,
        "alone found": alone & right[np.arange(len(right)), case.choice],
    }
    for index in range(won.shape[1]):
        columns[f"won {index}"], columns[f"found {index}"] = won[:, index], hits[:, index]
        columns[f"chosen {index}"] = case.choice == index
    return columns


def _recall(index: int, mean: Means) -> NDArray[np.float64]:
    return np.asarray(mean[f"found {index}"] / mean[f"won {index}"])


def _worst(mean: Means, experts: int) -> NDArray[np.float64]:
    recalls = np.stack([_recall(index, mean) for index in range(experts)])
    is_known = np.isfinite(recalls)
    return np.where(is_known.any(axis=0), np.where(is_known, recalls, np.inf).min(axis=0), np.nan)


def _effective(mean: Means, experts: int) -> NDArray[np.float64]:
    shares = np.clip(np.stack([mean[f"chosen {index}"] for index in range(experts)]), 1e-300, None)
    return np.asarray(np.exp(-(shares * np.log(shares)).sum(axis=0)))


def _expert_rows(case: _Case, drawn: BootstrapSamples, confidence: float) -> tuple[ExpertRow, ...]:
    shares, best = expert_shares(case.choice, len(case.names)), case.oracle_shares
    rows = []
    for index, name in enumerate(case.names):
        recall = drawn.interval(partial(_recall, index), confidence)
        cost, score = float(case.costs[:, index].mean()), float(case.scores[:, index].mean())
        bill = None if case.dollars is None else float(1000 * case.dollars[:, index].mean())
        rows.append(
            ExpertRow(name, float(shares[index]), float(best[index]), recall, cost, score, bill)
        )
    return tuple(rows)


def _group_rows(
    case: _Case, groups: Any, clusters: Any, confidence: float, seed: int
) -> tuple[GroupRow, ...]:
    codes = group_codes(groups, len(case.costs))
    first = np.unique(codes, return_index=True)[1]
    units = np.arange(len(codes)) if clusters is None else np.asarray(clusters)
    rows = [
        _group_row(case, str(groups[start]), np.flatnonzero(codes == code), units, confidence, seed)
        for code, start in enumerate(first)
    ]
    return tuple(sorted(rows, key=lambda row: row.name))


def _group_row(
    case: _Case,
    name: str,
    rows: NDArray[np.intp],
    units: NDArray[Any],
    confidence: float,
    seed: int,
) -> GroupRow:
    choice, costs = case.choice[rows], case.costs[rows]
    every = np.arange(len(rows))
    return GroupRow(
        name=name,
        rows=len(rows),
        deferral_loss=bootstrap_means(
            {"cost": costs[every, choice]}, units[rows], seed=seed
        ).interval("cost", confidence),
        best_single_loss=float(costs[:, case.base].mean()),
        oracle_loss=float(costs.min(axis=1).mean()),
        score=float(case.scores[rows, choice].mean()),
        dollars_per_1000=(
            None if case.dollars is None else float(1000 * case.dollars[rows, choice].mean())
        ),
        most_chosen=case.names[int(np.bincount(choice).argmax())],
    )


def _lost_rows(case: _Case) -> tuple[LostRow, ...]:
    lost = regret(case.costs, case.choice)
    best = oracle(case.costs, case.dollars)
    worst = np.argsort(-lost, kind="stable")[:_LOST_ROWS]
    return tuple(
        LostRow(int(row), case.names[case.choice[row]], case.names[best[row]], float(lost[row]))
        for row in worst
        if lost[row] > 0
    )
