"""The cross-validated search of ``MildRouter``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._calibration import Calibration, calibrate
from mildroute.routers._cross_validation import ALPHAS, Fold, held_out_scores, prepare_folds
from mildroute.routers._deferral_loss import deferral_row_loss
from mildroute.routers._folds import cluster_codes
from mildroute.routers._linear_model import RowLoss
from mildroute.routers._rewards import MARGIN_RULES, MarginRule, margins_by, scaled_rewards
from mildroute.routers._ridge import ridge_on
from mildroute.routers._search_result import SearchResult, held_out_costs, mean_and_error
from mildroute.routers.feature_sets import FeatureSet

UNIFORM = "uniform"
# Reward name of candidates that regress costs instead of minimizing a surrogate.
REGRESSION = "regression"

# Maximum product of rows and squared experts at which differing margins are tried by default.
_LARGEST_MARGIN_SEARCH = 50_000_000


@dataclass
class SearchSpace:
    """The data and options that a search needs to try a candidate.

    Attributes:
        views: Features by name, each of shape (n, d).
        fold: Fold of each row, shape (n,).
        rewards: Names of the rewards to try, in order.
        margins: Margin rules to try, by name; ``"uniform"`` maps to `None`.
        fixed_margins: Margins set by the user, shape (p,), or `None`.
        sample_weight: Shape (n,), or `None`.
        clusters: Index of each row's cluster, shape (n,), or `None`.
    """

    views: dict[FeatureSet, Any]
    costs: NDArray[np.float64]
    fold: NDArray[np.intp]
    decision: str
    rewards: Sequence[str]
    margins: dict[str, MarginRule | None]
    fixed_margins: NDArray[np.float64] | None = None
    alphas: Sequence[float] = ALPHAS
    sample_weight: NDArray[np.float64] | None = None
    clusters: NDArray[np.intp] | None = None
    _rewards: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _folds: dict[FeatureSet, list[Fold]] = field(default_factory=dict)

    @property
    def experts(self) -> int:
        """Return the number of experts p."""
        return self.costs.shape[1]

    @property
    def cost_unit(self) -> float:
        """Return the mean difference between the largest and the smallest cost of a row.

        Dividing by it makes expected costs comparable with scores.
        """
        return max(float(np.average(np.ptp(self.costs, axis=1), weights=self.sample_weight)), 1e-12)

    def reward(self, name: str) -> NDArray[np.float64]:
        """Return rewards of shape (n, p), scaled to a mean row sum of 1."""
        if name not in self._rewards:
            self._rewards[name] = scaled_rewards(self.costs, name, self.sample_weight)
        return self._rewards[name]

    def folds(self, view: FeatureSet) -> list[Fold]:
        """Return the prepared folds of a view, which are cached for other losses."""
        if view not in self._folds:
            self._folds[view] = prepare_folds(self.views[view], self.fold, self.sample_weight)
        return self._folds[view]

    def rho(self, margins: str, reward: str) -> NDArray[np.float64]:
        """Return margins by name, scaled to a mean of 1 so that they do not affect the penalty."""
        if self.fixed_margins is not None:
            return self.fixed_margins
        spec = self.margins[margins]
        if spec is None:
            return np.ones(self.experts)
        unscaled = margins_by(spec, self.reward(reward), self.sample_weight)
        return np.asarray(unscaled / unscaled.mean())

    def loss_of(
        self, reward: str, rho: NDArray[np.float64]
    ) -> Callable[[NDArray[np.intp]], RowLoss]:
        """Return the deferral loss of chosen rows under a reward and margins."""
        return deferral_loss_of(self.reward(reward), rho)


def deferral_loss_of(
    rewards: NDArray[np.float64], rho: NDArray[np.float64]
) -> Callable[[NDArray[np.intp]], RowLoss]:
    """Return the deferral loss of chosen rows.

    It has the form that :func:`~mildroute.routers._cross_validation.held_out_scores` expects.
    """
    return lambda rows: deferral_row_loss(rewards[rows], rho)


def margin_specs(margins: str, shape: tuple[int, int]) -> dict[str, MarginRule | None]:
    """Return the margins to try, by name.

    If there are several, equal margins come first. If their search is affordable, differing margins
    follow, which are powers of the number of wins of each expert. The paper's own m_k are not among
    them; for the gap reward, they are close to the wins.
    """
    if margins == "uniform":
        return {"uniform": None}
    if margins in MARGIN_RULES:
        return {margins: MARGIN_RULES[margins]}
    rows, experts = shape
    if rows * experts**2 > _LARGEST_MARGIN_SEARCH:
        return {"uniform": None}
    # The negative power is included because wider margins for experts that rarely win have the
    # lowest regret at 1:30, see docs/theory/margins.md.
    rules = [
        MarginRule("decided_wins", 1 / 6),
        MarginRule("decided_wins", -1 / 6),
        *(MarginRule("decided_wins", 1 / 3, offset) for offset in (0.0, 0.3, 1.0)),
    ]
    names = [f"wins^{rule.exponent:.2g}+{rule.offset:g}" for rule in rules]
    return {"uniform": None, **dict(zip(names, rules, strict=True))}


def search(problem: SearchSpace) -> list[SearchResult]:
    """Try candidates in stages that share their work; return all of them.

    If there is a choice of rewards, cost regression on every view comes first: its closed form is
    cheap, shows on which view the surrogate losses are worth trying, and is itself a candidate.
    Next come the first reward with equal margins, along the path of penalties on that view, and
    TDEF as its authors use it (complement reward on the raw vector). The other rewards and margins
    come last, near the best penalty.
    """
    candidates = [best_single(problem)]
    first_margins = next(iter(problem.margins))
    views = list(problem.views)
    if len(problem.rewards) > 1:
        regressions = _regressions(problem)
        candidates += regressions
        alone = [candidate for candidate in regressions if candidate.view != "average"]
        views = [_cheapest(alone, problem).view] if alone else views
    for view in views:
        candidates += _along_path(problem, view, problem.rewards[0], first_margins, problem.alphas)
    if "complement" in problem.rewards[1:] and "raw" in problem.views and first_margins == UNIFORM:
        candidates += _along_path(problem, "raw", "complement", first_margins, problem.alphas)
    best = _cheapest(
        [candidate for candidate in candidates[1:] if candidate.reward != REGRESSION], problem
    )
    near = _neighbors(problem.alphas, best.alpha)
    for reward, margins in _variations(problem, first_margins):
        if not any(
            (best.view, reward, margins) == (candidate.view, candidate.reward, candidate.margins)
            for candidate in candidates
        ):
            candidates += _along_path(
                problem,
                best.view,
                reward,
                margins,
                near if margins == first_margins else [best.alpha],
            )
    return candidates


def _cheapest(candidates: list[SearchResult], problem: SearchSpace) -> SearchResult:
    return min(
        candidates, key=lambda candidate: np.average(candidate.paid, weights=problem.sample_weight)
    )


def _regressions(problem: SearchSpace) -> list[SearchResult]:
    """Try cost regression on each view, and on the average of raw vectors and topics.

    The scores are those of rows that the regression was not trained on.
    """
    scores: dict[FeatureSet, NDArray[np.float32]] = {}
    for view in problem.views:
        folds = problem.folds(view)
        if any(part.design.basis is None for part in folds):
            continue  # sparse and very wide features have no closed form
        held_out = np.empty(problem.costs.shape, dtype=np.float32)
        for part in folds:
            fit = ridge_on(
                part.design,
                problem.costs[part.seen],
                part.weight,
                contrasts=True,
                clusters=_part_of(problem.clusters, part.seen),
            )
            held_out[part.held_out] = (
                -fit.predict(problem.views[view][part.held_out]) / problem.cost_unit
            ).astype(np.float32)
        scores[view] = held_out
    if "raw" in scores and "topics" in scores:
        scores["average"] = np.asarray((scores["raw"] + scores["topics"]) / 2, dtype=np.float32)
    equal = np.ones(problem.experts)
    # There is no single penalty to report, because each contrast of each view has its own.
    return [
        _calibrated(
            problem, SearchResult(view, REGRESSION, UNIFORM, 0.0, np.empty(0), held_out, equal)
        )
        for view, held_out in scores.items()
    ]


def _part_of(clusters: NDArray[np.intp] | None, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return the clusters of some rows, renumbered from 0."""
    return None if clusters is None else cluster_codes(clusters[rows], len(rows))


def best_single(problem: SearchSpace) -> SearchResult:
    """Return the candidate that ignores its input.

    On each fold, it takes the expert with the lowest mean cost on the other folds.
    """
    scores = np.empty(problem.costs.shape, dtype=np.float32)
    for fold in np.unique(problem.fold):
        seen = problem.fold != fold if problem.views else np.ones(len(problem.fold), dtype=bool)
        scores[problem.fold == fold] = constant_scores(problem, problem.rewards[0], seen)
    rho = np.ones(problem.experts)
    return SearchResult(
        "none",
        problem.rewards[0],
        UNIFORM,
        np.inf,
        held_out_costs(scores, problem.costs, rho, "argmax"),
        scores,
        rho,
    )


def constant_scores(
    problem: SearchSpace, reward: str, seen: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the scores of a router that ignores its input, shape (p,).

    They are the logarithms of the mean rewards, with the maximum moved to the lowest mean cost.
    """
    if problem.experts == 1:
        return np.zeros(1)
    weight = (
        None
        if problem.sample_weight is None or not problem.sample_weight[seen].any()
        else problem.sample_weight[seen]
    )
    mean = np.average(problem.reward(reward)[seen], axis=0, weights=weight)
    return np.log(np.maximum(mean, 1e-12))


def _along_path(
    problem: SearchSpace, view: FeatureSet, reward: str, margins: str, alphas: Sequence[float]
) -> list[SearchResult]:
    rho = problem.rho(margins, reward)
    scores = held_out_scores(
        problem.views[view],
        problem.loss_of(reward, rho),
        problem.experts,
        problem.fold,
        alphas=alphas,
        sample_weight=problem.sample_weight,
        prepared=problem.folds(view),
        paid_by=lambda held_out: mean_and_error(
            held_out_costs(held_out, problem.costs, rho, problem.decision),
            problem.sample_weight,
            problem.clusters,
        ),
    )
    return [
        _calibrated(problem, SearchResult(view, reward, margins, alpha, np.empty(0), held_out, rho))
        for alpha, held_out in zip(alphas, scores, strict=False)
    ]


def _calibrated(problem: SearchSpace, raw: SearchResult) -> SearchResult:
    """Return the candidate with its calibration and the cost of its choices.

    To measure that cost, each half of the rows is calibrated on the other half.
    """
    rewards = problem.reward(problem.rewards[0] if raw.reward == REGRESSION else raw.reward)

    def calibrate_on(rows: NDArray[np.intp]) -> Calibration:
        weight = None if problem.sample_weight is None else problem.sample_weight[rows]
        return calibrate(raw.scores[rows], rewards[rows], raw.rho, weight)

    half = problem.fold % 2 == 0
    scores = np.empty_like(raw.scores)
    for part in (half, ~half):
        scores[part] = calibrate_on(np.flatnonzero(~part)).apply(raw.scores[part])
    paid = held_out_costs(scores, problem.costs, raw.rho, problem.decision)
    calibration = calibrate_on(np.arange(len(half)))
    return replace(raw, scores=scores, paid=paid, calibration=calibration)


def evaluate_fixed(problem: SearchSpace, fixed: SearchResult) -> SearchResult:
    """Return a candidate with fixed settings and its scores on held-out rows."""
    if fixed.view == "none":
        return best_single(problem)
    loss_of = problem.loss_of(fixed.reward, fixed.rho)
    folds, view = problem.folds(fixed.view), problem.views[fixed.view]
    (scores,) = held_out_scores(
        view, loss_of, problem.experts, problem.fold, alphas=[fixed.alpha], prepared=folds
    )
    return replace(
        fixed,
        scores=scores,
        paid=held_out_costs(scores, problem.costs, fixed.rho, problem.decision),
    )


def _variations(problem: SearchSpace, first_margins: str) -> Iterable[tuple[str, str]]:
    """Yield other rewards with the first margins, then other margins with the first reward.

    The combinations form a cross instead of the full grid.
    """
    yield from ((reward, first_margins) for reward in problem.rewards[1:])
    yield from (
        (problem.rewards[0], margins) for margins in problem.margins if margins != first_margins
    )


def _neighbors(alphas: Sequence[float], best: float) -> Sequence[float]:
    index = list(alphas).index(best)
    return alphas[max(0, index - 1) : index + 2]


_NORMAL_95 = 1.959964
