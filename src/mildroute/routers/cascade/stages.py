"""The stages of a cascade, which call experts and decide whether their answers are good enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mildroute.routers._order import argmax_last
from mildroute.routers._search_result import mean_and_error
from mildroute.routers.base import posterior_of_costs
from mildroute.routers.cascade.features import MOST_SEEN, AnswerDesign, SeenAnswers, to_dense
from mildroute.routers.frontier.price_grid import PriceGridRouters
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.training_rows import FoldVectors, Matrix, TrainingRows

# Number of price weights of the grid at which looks are tried.
_WEIGHTS = 6
# Penalties of the regressions in units of the features' variance, from strong to weak.
_ALPHAS = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)


class CascadeStage(NamedTuple):
    """A look and its outcomes on held-out rows, shape (n,) each.

    After the look, a regression decides at a price weight, or a rule calls one expert if the
    answers differ.

    Attributes:
        problem: The regression, or `None` for a rule.
        then: Looks that may follow.
    """

    ask: tuple[int, ...]
    weight: float
    errors: NDArray[np.float64]
    dollars: NDArray[np.float64]
    second_call_rate: float
    problem: StageProblem | None = None
    then: tuple[CascadeStage, ...] = ()
    otherwise: int | None = None

    def costs(self, price_weight: float) -> NDArray[np.float64]:
        """Return the cost on each row."""
        return self.errors + price_weight * self.dollars


class StageProblem:
    """A ridge regression of errors and dollars, given some answers.

    Penalties are chosen for the principal components of the errors, as
    :func:`~mildroute.routers._ridge.ridge` does with contrasts.

    Args:
        ask: Experts whose answers are read.
        errors: Error of each option, shape (n, q).
        dollars: Additional dollars of each option, shape (n, q).

    Attributes:
        alphas: Penalty of each target, shape (2q,).
    """

    def __init__(self, ask: tuple[int, ...], errors: Matrix, dollars: Matrix) -> None:
        self.ask = ask
        centered = errors - errors.mean(axis=0)
        self._rotation = np.linalg.eigh(centered.T @ centered)[1]
        self.targets = np.hstack([errors @ self._rotation, dollars])
        self._held_out = np.empty((len(_ALPHAS), *self.targets.shape), dtype=np.float32)
        self.alphas = np.empty(0)

    @staticmethod
    def solve(
        problems: Sequence[StageProblem], design: AnswerDesign, held_out: NDArray[np.intp]
    ) -> None:
        """Predict a fold for problems with the same answers, by regressions on the other folds.

        Solving them together takes as long as solving one.
        """
        ask = problems[0].ask
        targets = np.hstack([problem.targets for problem in problems])
        edges = np.cumsum([problem.targets.shape[1] for problem in problems])[:-1]
        gram = design.regression(ask, targets, design.is_seen)
        columns = design.part(ask, held_out)
        for index, alpha in enumerate(_ALPHAS):
            weights, intercept = gram.solve(alpha)
            expected = columns @ weights.astype(np.float32) + intercept
            for problem, part in zip(problems, np.hsplit(expected, edges), strict=True):
                problem._held_out[index, held_out] = part

    def expected(self) -> tuple[Matrix, Matrix]:
        """Return errors and dollars on held-out rows, shape (n, q) each, and fix the penalties."""
        if not len(self.alphas):
            best = ((self._held_out - self.targets) ** 2).mean(axis=1).argmin(axis=0)
            self.alphas = np.array(_ALPHAS)[best]
            self._held_out = self._held_out[best, :, np.arange(len(best))].T.copy()
        errors, dollars = np.hsplit(self._held_out.astype(np.float64), 2)
        return errors @ self._rotation.T, dollars

    def fit(self, design: AnswerDesign) -> tuple[Matrix, NDArray[np.float64]]:
        """Return weights and intercepts for errors and dollars, learned from all rows."""
        gram = design.regression(self.ask, self.targets, slice(None))
        weights = np.empty((len(gram.mean), len(self.alphas)))
        intercept = np.empty(len(self.alphas))
        for alpha in np.unique(self.alphas):
            is_selected = self.alphas == alpha
            solution, offset = gram.solve(alpha)
            weights[:, is_selected] = solution[:, is_selected]
            intercept[is_selected] = offset[is_selected]
        options = len(self._rotation)
        back = np.eye(2 * options)
        back[:options, :options] = self._rotation.T
        return weights @ back, intercept @ back


# Modes of deciding at a price weight: by the router without looks or by the router with looks. Any
# other mode is the index of a column that is always chosen.
_PLAIN, _FRONT = -2, -1


class CascadePriceGrid(PriceGridRouters):
    """The routers along the grid, some of which may choose a look.

    Args:
        plain: Routers over the experts alone.
        front: Router over experts and looks.
        modes: Mode at each price weight of the grid.
    """

    def __init__(
        self, plain: PriceGridRouters, front: RegressionRouter, modes: Sequence[int]
    ) -> None:
        super().__init__(plain.routers, plain.grid)
        self._plain = plain
        self._front = front
        self._modes = modes

    def posterior(self, X: Any, weights: Any) -> Matrix:
        """Return the posterior over columns, at a price weight or at one per row."""
        price_weights = np.asarray(weights, dtype=np.float64)
        if price_weights.ndim == 0:
            return next(iter(self.posteriors(X, [float(price_weights)])))
        posterior = np.empty((X.shape[0], len(self._front.experts_)))
        for weight in np.unique(price_weights):
            rows = np.flatnonzero(price_weights == weight)
            posterior[rows] = self.posterior(X[rows], weight)
        return posterior

    def posteriors(
        self, X: Any, weights: Sequence[float] | NDArray[np.float64]
    ) -> Iterator[Matrix]:
        """Yield the posterior over columns at each of several price weights.

        A router runs only at the weights at which it decides, because a gateway calls this method
        for every request.
        """
        modes = [self._mode(float(weight)) for weight in weights]
        alone = [weight for weight, mode in zip(weights, modes, strict=True) if mode == _PLAIN]
        plain = iter(self._plain.posteriors(X, alone) if alone else ())
        errors, prices = (None, None) if len(alone) == len(modes) else self._front.expected(X)
        for weight, mode in zip(weights, modes, strict=True):
            if errors is None or mode == _PLAIN:
                posterior = next(plain)
                looks = len(self._front.experts_) - posterior.shape[1]
                yield np.hstack([posterior, np.zeros((len(posterior), looks))])
                continue
            mixed = posterior_of_costs(errors if prices is None else errors + weight * prices)
            if mode != _FRONT:
                mixed *= 0.5
                mixed[:, mode] += 0.5
            yield mixed

    def choices(self, X: Any, weights: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the column of each row at each of many price weights, shape (W, n)."""
        return np.array([argmax_last(posterior) for posterior in self.posteriors(X, weights)])

    def _mode(self, weight: float) -> int:
        """Return the mode at the nearest weight of the grid, on a logarithmic scale."""
        if len(self.grid) == 1:
            return self._modes[0]
        scale, unit = np.log1p(self.grid / self.grid[1]), self.grid[1]
        return self._modes[int(np.abs(scale - np.log1p(weight / unit)).argmin())]


def fit_front(template: RegressionRouter, rows: TrainingRows) -> RegressionRouter:
    """Fit the regression that chooses between experts and looks."""
    return clone(template).fit_rows(replace(rows, prices=rows.dollars))


def choose_modes(
    grid: NDArray[np.float64],
    plain: Sequence[PriceGridRouters],
    fronts: Sequence[RegressionRouter],
    parts: Sequence[FoldVectors],
    columns: TrainingRows,
) -> list[int]:
    """Return a mode for each weight: the simplest, unless another costs less on held-out rows.

    The cost must be lower by more than one standard error of the difference.
    """
    shape = (len(grid), len(columns.costs))
    routed, fronted = np.empty(shape, dtype=np.intp), np.empty(shape, dtype=np.intp)
    for along, front, part in zip(plain, fronts, parts, strict=True):
        held_out = part.held_out
        vectors = part.vectors[held_out]
        routed[:, held_out] = along.choices(vectors, grid)
        alone = CascadePriceGrid(along, front, [_FRONT] * len(grid))
        fronted[:, held_out] = alone.choices(vectors, grid)
    rows = np.arange(shape[1])
    modes = []
    for index, weight in enumerate(grid):
        costs = columns.costs_at(weight)
        best = int(costs.mean(axis=0).argmin())
        mode, paid = _PLAIN, costs[rows, routed[index]]
        for other, other_paid in ((best, costs[:, best]), (_FRONT, costs[rows, fronted[index]])):
            saved, error = mean_and_error(paid - other_paid, None, columns.clusters)
            if saved > error:
                mode, paid = other, other_paid
        modes.append(mode)
    return modes


class CascadeSettings(Protocol):
    """The parameters of a cascade router that its stages read, and the router that stores them."""

    price_weights: Sequence[float]
    max_calls: int
    max_looks: int
    max_first: int
    stages_: list[dict[str, Any]]
    stage_weights_: list[NDArray[Any]]
    stage_intercepts_: list[NDArray[np.float64]]


class StageLearner:
    """A learner that evaluates looks on rows that they were not trained on."""

    def __init__(
        self,
        router: CascadeSettings,
        rows: TrainingRows,
        answers: SeenAnswers,
        parts: Sequence[FoldVectors],
    ) -> None:
        self._router = router
        self._X = rows.X
        self._errors = rows.costs
        self._dollars = dollars = rows.dollars
        self._clusters = rows.clusters
        self._answers = answers
        self._parts = [
            (part.held_out, to_dense(part.vectors), part.answers or answers) for part in parts
        ]
        grid = np.asarray(router.price_weights, dtype=np.float64)
        spread = np.unique(np.linspace(0, len(grid) - 1, _WEIGHTS).astype(np.intp))
        self._weights = [float(weight) for weight in (grid[spread] if dollars.any() else grid[:1])]
        self._first = self._worth_asking()
        self._stages: dict[int, int] = {}

    def choose(self) -> list[CascadeStage]:
        """Return the looks to offer."""
        experts = self._errors.shape[1]
        if not self._parts or experts < 2:
            return []
        most = min(MOST_SEEN, self._router.max_calls - 1, experts - 1)
        plain = self._problem(())
        pairs = [self._problem(pair) for pair in combinations(self._first, 2) if most > 1]
        shallow = [self._problem((one,)) for one in self._first]
        self._cross_fit([plain, *pairs, *shallow])
        routed = [self._look(plain, weight) for weight in self._weights]
        both = [self._look(problem, weight) for problem in pairs for weight in self._weights]
        candidates = [
            self._look(problem, weight) for problem in shallow for weight in self._weights
        ]
        if both:
            candidates += both + self._deeper(both)
        if experts > MOST_SEEN:
            candidates += self._rules()
        baselines, most = self._baselines(routed), self._router.max_looks
        return _worthwhile(candidates, baselines, self._weights, most, self._clusters)

    def keep(self, look: CascadeStage) -> int:
        """Fit a look and those that may follow on all rows; return the index of its stage."""
        if id(look) in self._stages:
            return self._stages[id(look)]
        then = [self.keep(further) for further in look.then]
        weights, intercept = np.empty((0, 0)), np.empty(0)
        if look.problem is not None:
            weights, intercept = look.problem.fit(self._whole)
        router = self._router
        stage = {"ask": list(look.ask), "price_weight": look.weight}
        stage["second_call_rate"] = look.second_call_rate
        router.stages_.append(stage | {"then": then, "otherwise": look.otherwise})
        router.stage_weights_.append(weights)
        router.stage_intercepts_.append(intercept)
        self._stages[id(look)] = len(router.stages_) - 1
        return self._stages[id(look)]

    @property
    def _whole(self) -> AnswerDesign:
        if not hasattr(self, "_design"):
            none = np.empty(0, dtype=np.intp)
            self._design = AnswerDesign(self._X, self._answers, self._first, none)
        return self._design

    def _worth_asking(self) -> list[int]:
        alone = self._errors.mean(axis=0) + np.outer(self._weights, self._dollars.mean(axis=0))
        ranked = dict.fromkeys(np.argsort(alone, axis=1).T.ravel().tolist())
        return sorted([*ranked][: self._router.max_first])

    def _problem(self, ask: tuple[int, ...], then: Sequence[CascadeStage] = ()) -> StageProblem:
        further = np.array(self._dollars)
        further[:, list(ask)] = 0.0
        asked = self._dollars[:, list(ask)].sum(axis=1)
        return StageProblem(
            ask,
            np.column_stack([self._errors, *(look.errors for look in then)]),
            np.column_stack([further, *(look.dollars - asked for look in then)]),
        )

    def _cross_fit(self, problems: Sequence[StageProblem]) -> None:
        groups: dict[tuple[int, ...], list[StageProblem]] = {}
        for problem in problems:
            groups.setdefault(problem.ask, []).append(problem)
        for held_out, X, answers in self._parts:
            design = AnswerDesign(X, answers, self._first, held_out)
            for group in groups.values():
                StageProblem.solve(group, design, held_out)

    def _look(
        self, problem: StageProblem, weight: float, then: tuple[CascadeStage, ...] = ()
    ) -> CascadeStage:
        """Measure a look that takes the option with the lowest expected cost."""
        errors, dollars = problem.expected()
        chosen = (errors + weight * dollars).argmin(axis=1)
        asked = self._dollars[:, list(problem.ask)]
        further = np.array(self._dollars)
        further[:, list(problem.ask)] = 0.0
        rows = np.arange(len(chosen))
        paid = np.column_stack([self._errors, *(look.errors for look in then)])
        bill = np.column_stack(
            [further + asked.sum(axis=1, keepdims=True), *(look.dollars for look in then)]
        )
        further_rate = float((~np.isin(chosen, problem.ask)).mean())
        return CascadeStage(
            problem.ask, weight, paid[rows, chosen], bill[rows, chosen], further_rate, problem, then
        )

    def _deeper(self, both: list[CascadeStage]) -> list[CascadeStage]:
        """Return looks at one answer, then possibly a second one, then possibly a third expert."""
        options = []
        for one in self._first:
            for weight in self._weights:
                then = tuple(look for look in both if one in look.ask and look.weight == weight)
                options.append((self._problem((one,), then), weight, then))
        self._cross_fit([problem for problem, _, _ in options])
        return [self._look(*option) for option in options]

    def _rules(self) -> Iterator[CascadeStage]:
        """Yield rules that call two experts, and a third one if they disagree, without learning."""
        errors, dollars = self._errors, self._dollars
        for ask in combinations(self._first, MOST_SEEN):
            agree = self._answers.agree(*ask)
            asked = dollars[:, list(ask)].sum(axis=1)
            for otherwise in range(errors.shape[1]):
                if otherwise not in ask and self._router.max_calls > MOST_SEEN:
                    paid = np.where(agree, errors[:, ask[0]], errors[:, otherwise])
                    bill = asked + np.where(agree, 0.0, dollars[:, otherwise])
                    rate = float((~agree).mean())
                    yield CascadeStage(ask, 0.0, paid, bill, rate, otherwise=otherwise)

    def _baselines(self, routed: list[CascadeStage]) -> list[NDArray[np.float64]]:
        """Return each row's cost by the best single expert or by routing, whichever is lower."""
        baselines = []
        for look, weight in zip(routed, self._weights, strict=True):
            costs = self._errors + weight * self._dollars
            best = costs[:, costs.mean(axis=0).argmin()]
            baselines.append(min(best, look.costs(weight), key=np.mean))
        return baselines


def _worthwhile(
    candidates: list[CascadeStage],
    baselines: list[NDArray[np.float64]],
    weights: Sequence[float],
    most: int,
    clusters: NDArray[np.intp] | None,
) -> list[CascadeStage]:
    """Return the looks that lower costs along the grid the most, chosen one by one.

    To count at a weight, a look must beat its baseline by two standard errors: the best of a
    hundred worthless looks beats it by about that much.

    Args:
        candidates: All looks that were tried.
        baselines: Costs of each row at each weight, by routing or by the best single expert.
        weights: Price weights.
        most: Maximum number of looks.
        clusters: Number of each row's cluster, shape (n,), or `None`.
    """
    gains = np.zeros((len(candidates), len(weights)))
    for column, (weight, baseline) in enumerate(zip(weights, baselines, strict=True)):
        for row, look in enumerate(candidates):
            saved, error = mean_and_error(baseline - look.costs(weight), None, clusters)
            if saved > 2 * error:
                gains[row, column] = saved / max(float(baseline.mean()), 1e-12)
    chosen: list[CascadeStage] = []
    covered = np.zeros(len(weights))
    while len(chosen) < most:
        further = np.maximum(gains - covered, 0.0).sum(axis=1)
        if not further.size or further.max() <= 0:
            break
        best = int(further.argmax())
        chosen.append(candidates[best])
        covered = np.maximum(covered, gains[best])
    return chosen


def name_stage(look: CascadeStage, names: Sequence[str]) -> str:
    """Return the name of a look, such as ``"small, else large"``."""
    asked = " + ".join(names[expert] for expert in look.ask)
    if look.otherwise is not None:
        return f"{asked}, else {names[look.otherwise]}"
    again = "perhaps another, then " if look.then else ""
    return f"{asked}, then {again}decide at {look.weight:g}"
