"""The search behind the default router: features, reward, margins and penalty by cross-validated deferral loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.calibration import Calibration, calibrate
from mildroute.routers.candidates import Candidate, mean_and_error, paid_on_held_out
from mildroute.routers.logistic import deferral_row_loss
from mildroute.routers.path import PENALTIES, Fold, held_out_scores, prepare_folds
from mildroute.routers.rewards import THEORY, MarginRule, margins_by, scaled_rewards
from mildroute.routers.ridge import ridge_on
from mildroute.routers.solver import RowLoss
from mildroute.routers.views import View

__all__ = ["REGRESSION", "Problem", "best_single", "constant_scores", "margin_specs", "measured", "search"]

UNIFORM = "uniform"
REGRESSION = "regression"
"""Stands for the reward of a candidate that regresses costs instead of minimizing a surrogate loss."""

_LARGEST_MARGIN_SEARCH = 50_000_000
"""Rows times experts squared beyond which differing margins are tried only where asked for."""


@dataclass
class Problem:
    """Everything the search needs to try a candidate.

    Attributes:
        views: Features by name, each of shape (n, d).
        costs: Shape (n, p).
        fold: Fold of each row, shape (n,).
        decision: How scores become a choice.
        rewards: Names of the rewards to try, the first one first.
        margins: Rules of the margins to try by name; ``"uniform"`` maps to none.
        fixed_margins: Margins given by the user, shape (p,), or none.
        penalties: From strong to weak.
        sample_weight: Shape (n,), or none.

    Example:
        >>> X, costs, fold = np.arange(8.0)[:, None], np.eye(2).repeat(4, axis=0), np.arange(8) % 2
        >>> problem = Problem({"raw": X}, costs, fold, "consistent", ["gap"], {"uniform": None}, penalties=[0.01])
        >>> problem.experts, problem.rho("uniform", "gap")
        (2, array([1., 1.]))
    """

    views: dict[View, Any]
    costs: NDArray[np.float64]
    fold: NDArray[np.intp]
    decision: str
    rewards: Sequence[str]
    margins: dict[str, MarginRule | None]
    fixed_margins: NDArray[np.float64] | None = None
    penalties: Sequence[float] = PENALTIES
    sample_weight: NDArray[np.float64] | None = None
    _rewards: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _folds: dict[View, list[Fold]] = field(default_factory=dict)

    @property
    def experts(self) -> int:
        """Number of experts p."""
        return self.costs.shape[1]

    @property
    def cost_unit(self) -> float:
        """Mean difference between the largest and the smallest cost of a row, which makes expected costs comparable with scores."""
        return max(float(np.average(np.ptp(self.costs, axis=1), weights=self.sample_weight)), 1e-12)

    def reward(self, name: str) -> NDArray[np.float64]:
        """Rewards of shape (n, p), scaled to a mean row sum of 1."""
        if name not in self._rewards:
            self._rewards[name] = scaled_rewards(self.costs, name, self.sample_weight)
        return self._rewards[name]

    def folds(self, view: View) -> list[Fold]:
        """Prepared folds of a view, kept for the next loss that is tried on it."""
        if view not in self._folds:
            self._folds[view] = prepare_folds(self.views[view], self.fold, self.sample_weight)
        return self._folds[view]

    def rho(self, margins: str, reward: str) -> NDArray[np.float64]:
        """Margins by name, scaled to a mean of 1 so that they do not move the penalty."""
        if self.fixed_margins is not None:
            return self.fixed_margins
        spec = self.margins[margins]
        if spec is None:
            return np.ones(self.experts)
        return margins_by(spec, self.reward(reward), self.sample_weight)

    def loss_of(self, reward: str, rho: NDArray[np.float64]) -> Callable[[NDArray[np.intp]], RowLoss]:
        """Deferral loss of chosen rows under a reward and margins."""
        return deferral_loss_of(self.reward(reward), rho)


def deferral_loss_of(rewards: NDArray[np.float64], rho: NDArray[np.float64]) -> Callable[[NDArray[np.intp]], RowLoss]:
    """The deferral loss of chosen rows, as :func:`~mildroute.routers.path.held_out_scores` wants it."""
    return lambda rows: deferral_row_loss(rewards[rows], rho)


def margin_specs(margins: str, shape: tuple[int, int]) -> dict[str, MarginRule | None]:
    """Margins to try by name: equal ones first, and the theory's where their search is affordable.

    Example:
        >>> list(margin_specs("cv", (1000, 3)))[:2], list(margin_specs("cv", (1_000_000, 100)))
        (['uniform', 'm^0.17+0'], ['uniform'])
    """
    if margins == "uniform":
        return {"uniform": None}
    if margins == "theory":
        return {"theory": THEORY}
    rows, experts = shape
    if rows * experts**2 > _LARGEST_MARGIN_SEARCH:
        return {"uniform": None}
    # A negative power: margins that are wider for experts that win seldom have the lowest regret at 1:30, see docs/theory/margins.md.
    tried = [MarginRule(1 / 6), MarginRule(-1 / 6), *(THEORY._replace(offset=offset) for offset in (0.0, 0.3, 1.0))]
    return {"uniform": None, **{f"m^{spec.exponent:.2g}+{spec.offset:g}": spec for spec in tried}}


def search(problem: Problem) -> list[Candidate]:
    """Try candidates in stages that share their work; all of them come back.

    Where rewards are to be chosen, cost regression on every view comes first: in closed form it costs little, tells which view is worth
    the surrogate losses, and is a candidate itself. Then the first reward with equal margins along the path of penalties on that view, and
    TDEF as its authors use it (complement reward on the raw vector); then, near the best penalty, the other rewards and margins.

    Example:
        >>> X, costs, fold = np.arange(8.0)[:, None], np.eye(2).repeat(4, axis=0), np.arange(8) % 2
        >>> problem = Problem({"raw": X}, costs, fold, "consistent", ["gap"], {"uniform": None}, penalties=[0.01])
        >>> [candidate.view for candidate in search(problem)]
        ['none', 'raw']
    """
    found = [best_single(problem)]
    first_margins = next(iter(problem.margins))
    views = list(problem.views)
    if len(problem.rewards) > 1:
        regressions = _regressions(problem)
        found += regressions
        alone = [candidate for candidate in regressions if candidate.view != "average"]
        views = [_cheapest(alone, problem).view] if alone else views
    for view in views:
        found += _along_path(problem, view, problem.rewards[0], first_margins, problem.penalties)
    if "complement" in problem.rewards[1:] and "raw" in problem.views and first_margins == UNIFORM:
        found += _along_path(problem, "raw", "complement", first_margins, problem.penalties)
    best = _cheapest([candidate for candidate in found[1:] if candidate.reward != REGRESSION], problem)
    near = _neighbours(problem.penalties, best.penalty)
    for reward, margins in _variations(problem, first_margins):
        if not any((best.view, reward, margins) == (tried.view, tried.reward, tried.margins) for tried in found):
            found += _along_path(problem, best.view, reward, margins, near if margins == first_margins else [best.penalty])
    return found


def _cheapest(candidates: list[Candidate], problem: Problem) -> Candidate:
    return min(candidates, key=lambda candidate: np.average(candidate.paid, weights=problem.sample_weight))


def _regressions(problem: Problem) -> list[Candidate]:
    """Cost regression on each view, and on raw vectors and topics averaged, with scores of rows that it has not seen."""
    scores: dict[View, NDArray[np.float32]] = {}
    for view in problem.views:
        folds = problem.folds(view)
        if any(part.design.basis is None for part in folds):
            continue  # sparse and very wide features have no closed form
        held_out = np.empty(problem.costs.shape, dtype=np.float32)
        for part in folds:
            fit = ridge_on(part.design, problem.costs[part.seen], part.weight, contrasts=True)
            held_out[part.held_out] = (-fit.predict(problem.views[view][part.held_out]) / problem.cost_unit).astype(np.float32)
        scores[view] = held_out
    if "raw" in scores and "topics" in scores:
        scores["average"] = np.asarray((scores["raw"] + scores["topics"]) / 2, dtype=np.float32)
    equal = np.ones(problem.experts)
    # No penalty of its own to tell: each contrast of each view has one.
    return [
        _calibrated(problem, Candidate(view, REGRESSION, UNIFORM, 0.0, np.empty(0), held_out, equal)) for view, held_out in scores.items()
    ]


def best_single(problem: Problem) -> Candidate:
    """The candidate that ignores its input: on each fold, the expert with the lowest mean cost on the others.

    Example:
        >>> X, costs, fold = np.arange(8.0)[:, None], np.tile([0.2, 0.5], (8, 1)), np.arange(8) % 2
        >>> problem = Problem({"raw": X}, costs, fold, "consistent", ["gap"], {"uniform": None}, penalties=[0.01])
        >>> float(best_single(problem).paid.mean().round(3))
        0.2
    """
    scores = np.empty(problem.costs.shape, dtype=np.float32)
    for fold in np.unique(problem.fold):
        seen = problem.fold != fold if problem.views else np.ones(len(problem.fold), dtype=bool)
        scores[problem.fold == fold] = constant_scores(problem, problem.rewards[0], seen)
    rho = np.ones(problem.experts)
    return Candidate("none", problem.rewards[0], UNIFORM, np.inf, paid_on_held_out(scores, problem.costs, rho, "argmax"), scores, rho)


def constant_scores(problem: Problem, reward: str, seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scores of a router that sees nothing, shape (p,): logarithms of the mean rewards, the largest for the lowest mean cost.

    Example:
        >>> X, costs, fold = np.arange(8.0)[:, None], np.eye(2).repeat(4, axis=0), np.arange(8) % 2
        >>> problem = Problem({"raw": X}, costs, fold, "consistent", ["gap"], {"uniform": None}, penalties=[0.01])
        >>> int(constant_scores(problem, "gap", np.arange(8) < 4).argmax())
        1
    """
    if problem.experts == 1:
        return np.zeros(1)
    weight = None if problem.sample_weight is None or not problem.sample_weight[seen].any() else problem.sample_weight[seen]
    mean = np.average(problem.reward(reward)[seen], axis=0, weights=weight)
    return np.log(np.maximum(mean, 1e-12))


def _along_path(problem: Problem, view: View, reward: str, margins: str, penalties: Sequence[float]) -> list[Candidate]:
    rho = problem.rho(margins, reward)
    scores = held_out_scores(
        problem.views[view],
        problem.loss_of(reward, rho),
        problem.experts,
        problem.fold,
        penalties=penalties,
        sample_weight=problem.sample_weight,
        prepared=problem.folds(view),
        paid_by=lambda held_out: mean_and_error(paid_on_held_out(held_out, problem.costs, rho, problem.decision), problem.sample_weight),
    )
    return [
        _calibrated(problem, Candidate(view, reward, margins, penalty, np.empty(0), held_out, rho))
        for penalty, held_out in zip(penalties, scores, strict=False)
    ]


def _calibrated(problem: Problem, raw: Candidate) -> Candidate:
    """The candidate with its calibration, and what it pays where each half of the rows is calibrated on the other."""
    rewards = problem.reward(problem.rewards[0] if raw.reward == REGRESSION else raw.reward)

    def on(rows: NDArray[np.intp]) -> Calibration:
        weight = None if problem.sample_weight is None else problem.sample_weight[rows]
        return calibrate(raw.scores[rows], rewards[rows], raw.rho, weight)

    half = problem.fold % 2 == 0
    scores = np.empty_like(raw.scores)
    for part in (half, ~half):
        scores[part] = on(np.flatnonzero(~part)).apply(raw.scores[part])
    paid = paid_on_held_out(scores, problem.costs, raw.rho, problem.decision)
    return replace(raw, scores=scores, paid=paid, calibration=on(np.arange(len(half))))


def measured(problem: Problem, fixed: Candidate) -> Candidate:
    """A candidate that was not searched for, with the scores of rows that it has not seen.

    Example:
        >>> X, costs, fold = np.arange(8.0)[:, None], np.eye(2).repeat(4, axis=0), np.arange(8) % 2
        >>> problem = Problem({"raw": X}, costs, fold, "consistent", ["gap"], {"uniform": None}, penalties=[0.01])
        >>> fixed = Candidate("raw", "gap", "uniform", 0.01, np.full(8, np.nan), np.zeros((8, 2), np.float32), np.ones(2))
        >>> bool(measured(problem, fixed).paid.mean() < 0.2)
        True
    """
    if fixed.view == "none":
        return best_single(problem)
    loss_of = problem.loss_of(fixed.reward, fixed.rho)
    folds, view = problem.folds(fixed.view), problem.views[fixed.view]
    (scores,) = held_out_scores(view, loss_of, problem.experts, problem.fold, penalties=[fixed.penalty], prepared=folds)
    return replace(fixed, scores=scores, paid=paid_on_held_out(scores, problem.costs, fixed.rho, problem.decision))


def _variations(problem: Problem, first_margins: str) -> Iterable[tuple[str, str]]:
    """Other rewards with the first margins, then other margins with the first reward: a cross, not a box."""
    yield from ((reward, first_margins) for reward in problem.rewards[1:])
    yield from ((problem.rewards[0], margins) for margins in problem.margins if margins != first_margins)


def _neighbours(penalties: Sequence[float], best: float) -> Sequence[float]:
    place = list(penalties).index(best)
    return penalties[max(0, place - 1) : place + 2]
