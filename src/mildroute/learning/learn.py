"""A learning run, from a gateway's log and feedback to a candidate router and a verdict."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mildroute._format import pluralize
from mildroute._jsonl import check_log
from mildroute.costs.table import CostTable
from mildroute.decision.export import costs_from_log
from mildroute.evaluation.sequential import (
    SequentialComparison,
    compare_sequentially,
    share_of_alpha,
)
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.fitting.fit import FitOptions, fit_table
from mildroute.fitting.result import FittedRouter
from mildroute.fitting.targets import point_of
from mildroute.fitting.text_router import TextRouter
from mildroute.learning.traffic import RouterPair, Row, first_decisions, read_traffic, scored_rows
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["LearnOptions", "LearningResult", "TrainingCut", "learn", "training_cut", "verdict_of"]

# Minimum number of counted decisions before a candidate may be promoted, however good it looks.
_MIN_COUNTED = 200
# Quantile of the training rows' dollars that bounds a cost.
_DOLLAR_QUANTILE = 0.999


@dataclass(frozen=True)
class LearnOptions:
    """The settings of a learning run.

    Args:
        tables: Cost tables to fit on, in addition to the log.
        experts: Names of the experts that can be called; ``None`` means all experts of the log.
        encoder: Encoder, as for :func:`mildroute.fit`.
        target: Target, as for :func:`mildroute.fit`.
        alpha: Probability that any run ever promotes a candidate although none is better, for any
            number of runs.
        min_rows: Number of scored decisions that the first candidate is fitted on.
        min_propensity: Minimum probability with which a decision had to choose an expert that one
            of the routers would choose; other decisions are ignored. With a smaller value, more
            decisions count, but each one has less weight.

    Example:
        >>> LearnOptions(min_rows=500).alpha
        0.05
    """

    tables: tuple[str, ...] = ()
    experts: tuple[str, ...] | None = None
    encoder: Any = None
    target: Target | None = None
    alpha: float = 0.05
    min_rows: int = 200
    min_propensity: float = 0.01

    def __post_init__(self) -> None:
        """Check the values that users can set."""
        for name, value in (("alpha", self.alpha), ("min_propensity", self.min_propensity)):
            if not 0 < value < 1:
                raise ArgumentError(f"{name} must lie between 0 and 1, got {value:g}.")
        if self.min_rows < 1:
            raise ArgumentError(f"min_rows must be at least 1, got {self.min_rows}.")


@dataclass(frozen=True)
class LearningResult:
    """The outcome of a learning run.

    Args:
        action: ``"promote"`` if the candidate is better than the router in use, else ``"keep"``.
        why: The reason in a sentence.
        candidate: The candidate; ``None`` if the log is too short to fit one.
        scored: Number of scored decisions in the log.
        number: Number of the candidate, from 1.
        trained_on: Number of rows that the candidate was fitted on.
        alpha: Error probability of this candidate's verdict, over all runs.
        comparison: The evidence from later decisions; ``None`` without a candidate.
        judged: Number of later decisions, scored or not.

    Example:
        >>> LearningResult("keep", "too few scored decisions").candidate is None
        True
    """

    action: Literal["promote", "keep"]
    why: str
    candidate: FittedRouter | None = None
    scored: int = 0
    number: int = 0
    trained_on: int = 0
    alpha: float = 0.0
    comparison: SequentialComparison | None = None
    judged: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the run."""
        figures: dict[str, Any] = {
            "action": self.action,
            "why": self.why,
            "scored": self.scored,
            "candidate": self.number,
            "trained_on": self.trained_on,
            "judged": self.judged,
        }
        comparison = self.comparison
        if comparison is not None:
            gain = comparison.gain
            figures |= {
                "counted": comparison.rows,
                "differing": comparison.differing,
                "gain": gain.value,
                "gain_low": gain.low,
                "gain_high": gain.high,
                "evidence": comparison.evidence,
                "needed": -math.log(self.alpha),
            }
        return figures


@dataclass(frozen=True)
class TrainingCut:
    """The time that separates decisions for training from decisions for the verdict.

    Args:
        number: Number of the candidate, from 1.
        time: Seconds since 1970; earlier decisions are for training.
    """

    number: int
    time: float


def learn(
    log: str | Path, current: TextRouter | None = None, options: LearnOptions | None = None
) -> LearningResult:
    """Fit a candidate on a log and judge it on the decisions after those that it was fitted on.

    A run keeps no state. The log alone determines which candidate a run fits: the first one is
    fitted on the first ``min_rows`` scored decisions, and each further one on twice as many as the
    one before, so that a candidate is always fitted on at least half of the log. Until the log has
    doubled again, runs judge the same candidate on more and more decisions, and the evidence is
    valid no matter how often it is checked. Candidates share the error probability ``alpha``.

    Args:
        log: Folder of the decision log, or the URL that it is shipped to.
        current: The router in use; without one, a candidate must beat the first choices in the log.
        options: Settings of the run.

    Returns:
        The verdict, with the candidate and its figures.

    Example:
        >>> learn("no/such/log")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: the log 'no/such/log' is not a folder; check the path.
    """
    options = options or LearnOptions()
    check_log(log)
    rows = read_traffic(log)
    scored = scored_rows(rows)
    cut = training_cut([row["time"] for row in scored], options.min_rows)
    if cut is None:
        why = (
            f"{pluralize(len(scored), 'decision')} with a text and a score, but the first fit needs"
            f" {options.min_rows:,}; texts need log_prompts, and scores need feedback or sampling"
        )
        return LearningResult("keep", why, scored=len(scored))
    try:
        table = _training_table(log, cut.time, options)
        fitted = fit_table(table, FitOptions(encoder=options.encoder, target=options.target))
    except MildrouteError as error:
        return LearningResult("keep", f"no candidate can be fitted: {error}", scored=len(scored))
    later = [row for row in rows if row["time"] >= cut.time]
    alpha = share_of_alpha(options.alpha, cut.number)
    comparison = _compare(fitted.router, current, later, table, alpha, options)
    action, why = verdict_of(comparison, alpha)
    return LearningResult(
        action,
        why,
        candidate=fitted,
        scored=len(scored),
        number=cut.number,
        trained_on=len(table),
        alpha=alpha,
        comparison=comparison,
        judged=len(first_decisions(later, options.target)),
    )


def training_cut(times: Sequence[float], min_rows: int) -> TrainingCut | None:
    """Return the end of the latest candidate's training rows; ``None`` before the first one.

    Args:
        times: Time of each scored decision, in chronological order.
        min_rows: Number of scored decisions for the first candidate.

    Example:
        >>> training_cut([float(second) for second in range(900)], 200)
        TrainingCut(number=3, time=800.0)
    """
    if len(times) <= min_rows:
        return None
    doublings = int(math.log2((len(times) - 1) / min_rows))
    return TrainingCut(doublings + 1, times[min_rows * 2**doublings])


def verdict_of(
    comparison: SequentialComparison, alpha: float
) -> tuple[Literal["promote", "keep"], str]:
    """Return whether to promote a candidate, and the reason.

    Args:
        comparison: Comparison of the candidate with the router in use.
        alpha: Error probability of the verdict, over all checks.

    Example:
        >>> verdict_of(compare_sequentially([0.5, 0.0] * 200, 2.0), 0.03)[0]
        'promote'
    """
    gain = comparison.gain
    saving = (
        f"it saves {gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}] a request on"
        f" {pluralize(comparison.rows, 'decision')}"
    )
    if not comparison.rows:
        return "keep", "no later decision shows what the candidate would cost"
    if not comparison.differing:
        return "keep", "the candidate decides like the router in use"
    if comparison.is_worse(alpha):
        return "keep", f"{saving}: the router in use is better"
    if comparison.rows < _MIN_COUNTED or not comparison.is_better(alpha):
        return "keep", f"{saving}: no gain can be shown yet"
    return "promote", f"{saving}, at an error of {alpha:.4f} over all runs"


def _training_table(log: str | Path, end: float, options: LearnOptions) -> CostTable:
    """Return the given tables and the log's rows before a time."""
    import pyarrow.compute as pc

    parts = [CostTable.read(table, missing="keep").arrow for table in options.tables]
    arrow = costs_from_log(log, only_with_text=True).arrow
    parts.append(arrow.filter(pc.less(arrow.column("time"), end)))
    tables = []
    for part in parts:
        names = [name for name in options.experts or () if f"score:{name}" in part.column_names]
        tables.append(CostTable.from_data(part, experts=names or None, missing="keep"))
    return functools.reduce(CostTable.concat, tables)


def _compare(
    candidate: TextRouter,
    current: TextRouter | None,
    rows: Sequence[Row],
    table: CostTable,
    alpha: float,
    options: LearnOptions,
) -> SequentialComparison:
    """Compare the candidate with the router in use on decisions that it has not seen."""
    weight = (0.0 if current is None else _exchange_rate(current)) or _exchange_rate(candidate)
    # The bound must not depend on the decisions that are compared.
    dollars = (
        0.0 if table.dollars is None else float(np.nanquantile(table.dollars, _DOLLAR_QUANTILE))
    )
    pair = RouterPair(
        candidate, current, weight, 1 + weight * dollars, options.min_propensity, options.target
    )
    return compare_sequentially(*pair.gains(rows), alpha=alpha)


def _exchange_rate(router: TextRouter) -> float:
    """Return the error that a dollar is worth at a router's operating point; 0 without prices."""
    point = point_of(router, None)
    if point is None or not isinstance(router.router_, FrontierRouter):
        return 0.0
    return float(router.router_.curve.exchange_rate(point))
