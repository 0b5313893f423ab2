"""Estimates of what routing could save on a table, before a router is fitted.

The estimates are an upper limit, a quick router, and a random mix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.resampling import Interval
from mildroute.exceptions import MildrouteError
from mildroute.fitting.alternatives import simplest_alternative
from mildroute.fitting.result import Line, three_lines
from mildroute.fitting.targets import default_price_weights
from mildroute.fitting.text_router import TextRouter
from mildroute.routers._folds import cluster_codes
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.hull import convex_hull_indices
from mildroute.routers.frontier.measurement import measure_curve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.regression import RegressionRouter

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["Potential", "SavingLevel", "calibrated", "potential_of"]

_LEVELS = (1.0, 0.99, 0.95, 0.9)
_USUAL = 0.95
# Number of rows used: on 1,000 questions of MMLU the quick router takes 4 s of one core, most of it
# for encoders of the folds.
_ROWS = 1000
_FEWEST_ROWS = 50
_CONFIDENCE, _QUERIES = 0.95, 1000
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SavingLevel:
    """The possible savings if a share of the best single expert's score is kept.

    Attributes:
        perfect: Largest possible saving as a share of the baseline's bill, with all outcomes known.
        in_reach: The same with only each expert's chances known, as far as the quick router can
            predict them from inputs, and no outcome. The rest of ``perfect`` is luck, or not
            visible in the inputs. Slightly optimistic for few rows; or `None`.
        router: The same for a quick router that keeps the share with 95% confidence, with its
            interval; or `None`.
    """

    kept: float
    perfect: float
    router: Interval | None
    random_mix: Interval
    in_reach: float | None = None


@dataclass(frozen=True)
class Potential:
    """The possible savings on today's bill, which is that of the most expensive expert.

    Attributes:
        best: Name of the expert with the highest score, a share of which is kept.
        baseline: Name of the most expensive expert.
        levels: Savings by share of the score that is kept.
        lines: Today's bill, the simplest alternative and a quick router at the usual share.
    """

    best: str
    best_score: float
    baseline: str
    baseline_dollars_per_1000: float
    rows: int
    levels: tuple[SavingLevel, ...]
    lines: tuple[Line, ...] = ()


def potential_of(
    table: CostTable, *, seed: int = 0, progress: Callable[[int, int, str], None] | None = None
) -> Potential | None:
    """Estimate what routing could save, on at most 1,000 rows.

    Args:
        table: Table with dollars, and with inputs to try a router.
        seed: Seed of the drawn rows and of the folds.
        progress: Called with steps done, total steps and a short label of the current one.

    Returns:
        The potential; `None` without dollars or if every expert is free.
    """
    if len(table) > _ROWS:
        table = table.take(
            np.sort(np.random.default_rng(seed).choice(len(table), _ROWS, replace=False))
        )
    dollars, scores = table.dollars, table.scores
    if dollars is None:
        return None
    router = _quick_router(table, dollars, seed, progress)
    quick = None if router is None else router.curve
    chances = (
        None
        if router is None
        else np.clip(calibrated(1 - router.expected_errors(scores.shape), scores), 0.0, 1.0)
    )
    singles = (
        measure_curve(
            np.zeros(0),
            np.empty((0, len(table)), dtype=np.intp),
            1 - scores,
            dollars,
            clusters=cluster_codes(table.clusters.codes, len(table)),
        )
        if quick is None
        else quick.single_experts()
    )
    baseline = int(singles.baseline_index - len(singles.weights))
    bill = float(singles.dollars[baseline])
    if bill <= 0:
        return None
    levels = tuple(
        SavingLevel(
            share,
            1 - _least_dollars(scores, dollars, share * (1 - singles.best_error)) / bill,
            None if quick is None else _saved(quick, share),
            _saved(singles, share),
            None if chances is None else _in_reach(chances, dollars, share, singles),
        )
        for share in _LEVELS
    )
    return Potential(
        table.experts[singles.best],
        1 - singles.best_error,
        table.experts[baseline],
        1000 * bill,
        len(table),
        levels,
        _lines(table, singles, quick, baseline, seed),
    )


def _lines(
    table: CostTable,
    singles: CostQualityCurve,
    quick: CostQualityCurve | None,
    baseline: int,
    seed: int,
) -> tuple[Line, ...]:
    """Return today's bill, the simplest alternative and, if it was tried, the quick router."""
    mix = singles.for_quality(_USUAL, _CONFIDENCE, _QUERIES)
    simple = simplest_alternative(table, mix, _USUAL, _CONFIDENCE, _QUERIES, baseline, seed)
    curve = singles if quick is None else quick
    point = curve.for_quality(_USUAL, _CONFIDENCE, _QUERIES)
    lines = three_lines(curve, table.experts, simple, point, _QUERIES)
    return lines if quick is not None else lines[:2]


def _quick_router(
    table: CostTable,
    dollars: NDArray[np.float64],
    seed: int,
    progress: Callable[[int, int, str], None] | None,
) -> FrontierRouter | None:
    """Return a ridge regression with its folds, or `None` if the data is too small."""
    if table.inputs is None or len(table) < _FEWEST_ROWS:
        return None
    quick = RegressionRouter(contrasts=True, random_state=seed)
    router = TextRouter(
        router=FrontierRouter(
            router=quick, price_weights=default_price_weights(dollars), random_state=seed
        )
    )
    if progress is not None:
        progress(0, 1, f"a quick router on {len(table):,} queries")
    try:
        router.fit(
            table.inputs,
            1 - table.scores,
            groups=table.groups,
            clusters=table.clusters.codes,
            prices=dollars,
            progress=progress,
        )
    except MildrouteError:
        return None  # the default encoder cannot read these inputs, but the table may still be fine
    fitted: FrontierRouter = router.router_
    return fitted


def calibrated(
    forecasts: NDArray[np.float64], outcomes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return forecasts of each expert on each row, shape (n, p), by models fitted without the row.

    A line for each expert maps expected to actual values. Its slope is below 1 if expectations vary
    too much, which a choice among them would mistake for savings.

    Example:
        >>> calibrated(np.array([[0.0], [1.0]]), np.array([[0.4], [0.6]]))[:, 0].round(2)
        array([0.4, 0.6])
    """
    away = forecasts - forecasts.mean(axis=0)
    spread = (away**2).mean(axis=0)
    together = (away * outcomes).mean(axis=0)
    slope = np.where(spread > 0, np.maximum(together, 0.0) / np.where(spread > 0, spread, 1.0), 0.0)
    return np.asarray(outcomes.mean(axis=0) + slope * away)


def _in_reach(
    chances: NDArray[np.float64],
    dollars: NDArray[np.float64],
    share: float,
    singles: CostQualityCurve,
) -> float:
    """Return the share of the baseline's bill saved by the best choice on chances alone.

    The score of a choice has the same mean for any dependence between experts, so their chances
    are enough.
    """
    target_score = share * float(chances[:, singles.best].mean())
    bill = float(singles.dollars[singles.baseline_index])
    return 1 - _least_dollars(chances, dollars, target_score) / bill


def _saved(curve: CostQualityCurve, share: float) -> Interval:
    point: OperatingPoint = curve.for_quality(share, _CONFIDENCE, _QUERIES)
    return Interval(point.saved, *point.saved_interval)


def _least_dollars(
    scores: NDArray[np.float64], dollars: NDArray[np.float64], quality: float
) -> float:
    """Return the lowest mean dollars of any choice whose mean score reaches the one wanted.

    Rows are split if necessary. Every row begins with its cheapest expert; then the steps along the
    rows' hulls that buy the most score per dollar are taken.
    """
    rows = len(scores)
    spent, reached, steps = 0.0, 0.0, []
    for score, bill in zip(scores.tolist(), dollars.tolist(), strict=True):
        vertices = convex_hull_indices(bill, score)
        spent, reached = spent + bill[vertices[0]], reached + score[vertices[0]]
        steps += [
            (bill[after] - bill[before], score[after] - score[before])
            for before, after in pairwise(vertices)
        ]
    for extra, gained in sorted(steps, key=lambda step: step[0] / step[1]):
        missing = quality * rows - reached
        if missing <= _ROUNDING * rows:
            break
        share = min(1.0, missing / gained)
        spent, reached = spent + share * extra, reached + share * gained
    return spent / rows
