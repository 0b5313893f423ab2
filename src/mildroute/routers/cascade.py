"""Cascades: ask one or two experts, look at their answers, then return one or ask another expert.

What follows a look is a deferral problem of its own. Its vectors hold the question and the answers
that were seen, and an expert that has been asked costs nothing more. Each look that is worth it
becomes a further column beside the experts: what it pays, on rows that it has not learned from. So
the router in front learns when to look as it learns whom to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import combinations, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import issparse
from sklearn.base import clone

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._cross_validation import cluster_codes
from mildroute.routers._decision import argmax_last
from mildroute.routers._search import mean_and_error
from mildroute.routers.base import Matrix, fitting_threads, posterior_of_costs
from mildroute.routers.frontier import (
    FoldVectors,
    FrontierRouter,
    RoutersAlong,
    TrainingRows,
    cut_vectors,
    dollars_of,
    measure_folds,
)
from mildroute.routers.operating_point import OperatingPoint
from mildroute.routers.regression import RegressionRouter

__all__ = ["CascadePath", "CascadeRouter", "SeenAnswers"]


# Price weights of the grid at which looks are tried.
_WEIGHTS = 6
# Penalties of the regressions in units of the features' variance, from strong to weak.
_ALPHAS = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)
# Answers that are looked at together at most.
_MOST_SEEN = 2


class SeenAnswers(NamedTuple):
    """Answers of all experts to some rows, as a cascade sees them.

    Attributes:
        vectors: Features of each answer, shape (n, p, f).
        readings: What each answer says in the end, as a number, shape (n, p); equal numbers of a
            row agree, and one below 0 says nothing.

    Example:
        >>> readings = np.array([[0, 0], [0, 1], [-1, -1]])
        >>> SeenAnswers(np.zeros((3, 2, 1), dtype=np.float32), readings).agree(0, 1)
        array([ True, False, False])
    """

    vectors: NDArray[np.float32]
    readings: NDArray[np.intp]

    def take(self, rows: Any) -> SeenAnswers:
        """The answers to some of the rows."""
        return SeenAnswers(self.vectors[rows], self.readings[rows])

    def agree(self, one: int, other: int) -> NDArray[np.bool_]:
        """Whether two experts say the same, shape (n,)."""
        said = self.readings[:, one]
        return np.asarray((said == self.readings[:, other]) & (said >= 0))


class CascadePath(NamedTuple):
    """What a cascade did with some rows.

    Attributes:
        experts: Index of the expert whose answer is returned, shape (n,).
        is_called: Whether each expert was asked, shape (n, p).
        is_look: Whether answers were looked at before the choice, shape (n,).

    Example:
        >>> # The first row asks expert 0 and returns its answer, the second then asks expert 1.
        >>> is_called = np.array([[True, False], [True, True]])
        >>> path = CascadePath(np.array([0, 1]), is_called, np.array([True, True]))
        >>> float(path.is_called.sum(axis=1).mean())
        1.5
    """

    experts: NDArray[np.intp]
    is_called: NDArray[np.bool_]
    is_look: NDArray[np.bool_]


class CascadeRouter(FrontierRouter):
    """A frontier whose router may look at the answers of one or two experts before it chooses.

    Its columns are the p experts, each asked alone, and m looks. A look asks one expert, or two at
    the same time, and then returns one of their answers, asks one more expert and returns its
    answer, or asks one more and looks again. Routing without a look, single experts and a coin
    between them stay inside the family, and targets are met as by a
    :class:`~mildroute.routers.frontier.FrontierRouter`.

    Args:
        max_calls: Experts that are asked for one row at most; 1 is routing without a look.
        max_looks: Looks that are offered at most.
        max_first: Experts that may be looked at, at most: those of lowest mean cost at some price
            weight. Fitting takes time in proportion to the square of their number.
        router: As for :class:`~mildroute.routers.frontier.FrontierRouter`, and all further ones.

    Attributes:
        front_: Router over experts and looks, or none where no look is worth it.
        modes_: How to decide at each price weight of the grid: -2 without looks, -1 by ``front_``,
            else always for the column of this index.
        routing_curve_: The curve that routing without looks was measured to have.
        looks_: Index of the stage that each look begins with.
        stages_: What is asked and looked at, as plain values: ``ask`` the experts whose answers are
            seen, ``price_weight`` the weight at which it continues, ``then`` the stages that may
            follow, ``otherwise`` the expert that a rule asks if the answers differ,
            ``second_call_rate`` the share of held-out rows on which it asked for more.
        stage_weights_: Of the expected errors and dollars after each stage, shape (features, 2 *
            options); empty for a rule.
        stage_intercepts_: Shape (2 * options,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, is_hard = rng.normal(size=(400, 2)), rng.random(400) < 0.3
        >>> errors = np.stack([is_hard, np.zeros(400)], axis=1)
        >>> # Only the answer of the first expert tells that it does not know.
        >>> seen = np.stack([is_hard, np.zeros(400)], axis=1)[:, :, None].astype(np.float32)
        >>> answers = SeenAnswers(seen, np.zeros((400, 2), dtype=np.intp))
        >>> router = CascadeRouter(price_weights=(0, 10, 50, 100))
        >>> router = router.fit(X, errors, prices=np.array([0.001, 0.01]), answers=answers)
        >>> path = router.follow(X, answers, price_weight=50)
        >>> float(path.is_look.mean()), bool((path.experts == is_hard).all())
        (1.0, True)
    """

    _transient: ClassVar[tuple[str, ...]] = (*FrontierRouter._transient, "_columns")
    _columns: TrainingRows | None
    front_: RegressionRouter | None
    modes_: list[int]
    routing_curve_: dict[str, Any]
    looks_: list[int]
    stages_: list[dict[str, Any]]
    stage_weights_: list[NDArray[np.float64]]
    stage_intercepts_: list[NDArray[np.float64]]

    def __init__(
        self,
        *,
        max_calls: int = 3,
        max_looks: int = 4,
        max_first: int = 5,
        router: Any = None,
        price_weights: Sequence[float] = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
        price_weight: float = 0.0,
        thorough: Any = "auto",
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            router=router,
            price_weights=price_weights,
            price_weight=price_weight,
            thorough=thorough,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.max_calls = max_calls
        self.max_looks = max_looks
        self.max_first = max_first

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        prices: Any = None,
        groups: Any = None,
        progress: Callable[[int, int, str], None] | None = None,
        folds: Sequence[FoldVectors] | None = None,
        clusters: Any = None,
        answers: SeenAnswers | None = None,
    ) -> CascadeRouter:
        """Learn from errors, dollars and answers.

        Args:
            X: Vectors of questions, shape (n, d), dense where there are answers.
            y: Error of each expert on each row (one minus its score), shape (n, p).
            sample_weight: Weight of each row, shape (n,), or none; not beside answers.
            prices: Dollars of each expert on each row, shape (n, p), or per expert, shape (p,).
            groups: Group of each training row, shape (n,), or none.
            progress: Called with steps done, steps in all and a word on the next one, or none.
            folds: As for :class:`~mildroute.routers.frontier.FrontierRouter`; each may have
                answers of its own.
            answers: Of all experts on all rows; without them there are no looks.
            clusters: As for :class:`~mildroute.routers.frontier.FrontierRouter`.

        Returns:
            The router itself.
        """
        if sample_weight is not None and answers is not None:
            raise ArgumentError(
                "a cascade takes no sample_weight beside answers; repeat rows, or leave it out."
            )
        self._forget_looks()
        super().fit(X, y, sample_weight, prices, groups, progress, folds, clusters)
        self.routing_curve_ = self.curve_
        if answers is not None:
            self.fit_looks(X, y, prices, groups, folds, answers, clusters)
        return self

    def fit_looks(
        self,
        X: Any,
        y: Any,
        prices: Any,
        groups: Any,
        folds: Sequence[FoldVectors] | None,
        answers: SeenAnswers,
        clusters: Any = None,
    ) -> CascadeRouter:
        """Learn looks alone, for a router that has been fitted without in this process.

        The arguments are those of ``fit``, and the rows the same.
        """
        if not hasattr(self, "routing_curve_"):
            self.routing_curve_ = self.curve_
        self._forget_looks()
        errors = np.asarray(y, dtype=np.float64)
        vectors = _check_answers(answers, X, errors)
        dollars = dollars_of(prices, errors.shape)
        if min(self.max_calls - 1, self.max_looks) > 0:
            codes = cluster_codes(clusters, len(errors))
            rows = TrainingRows(vectors, errors, dollars, None, groups, clusters=codes)
            with fitting_threads(vectors, errors.shape[1]):
                self._add_looks(rows, answers, folds)
        return self

    def _forget_looks(self) -> None:
        self.looks_, self.stages_, self.stage_weights_, self.stage_intercepts_ = [], [], [], []
        self.front_, self.modes_, self._columns = None, [], None

    def _add_looks(
        self, rows: TrainingRows, answers: SeenAnswers, folds: Sequence[FoldVectors] | None
    ) -> None:
        parts = list(folds or cut_vectors(rows.X, self.random_state, rows.clusters))
        learner = _Learner(self, rows, answers, parts)
        looks = learner.choose()
        if not looks:
            return
        for look in looks:
            self.looks_.append(learner.keep(look))
        names = [str(name) for name in self.experts_]
        columns = TrainingRows(
            rows.X,
            np.column_stack([rows.errors, *(look.errors for look in looks)]),
            np.column_stack([rows.dollars, *(look.dollars for look in looks)]),
            None,
            rows.groups,
            len(looks),
            rows.clusters,
        )
        template = RegressionRouter(contrasts=True, random_state=self.random_state)
        self._columns = columns
        self.front_ = _fit_front(template, columns)
        everything = np.arange(len(rows.errors))
        fronts = [
            _fit_front(
                template,
                columns.take(np.setdiff1d(everything, part.held_out), part.vectors),
            )
            for part in parts
        ]
        plain = [along for along, _, _ in self._folds or ()]
        self.modes_ = _choose_modes(self.grid_, plain, fronts, parts, columns)
        along = self._along()
        alongs = [
            _CascadeAlong(before, front, self.modes_)
            for before, front in zip(plain, fronts, strict=True)
        ]
        measured = measure_folds(type(self).__name__, along, alongs, columns, parts)
        self._folds, self.curve_ = measured.folds, asdict(measured.curve)
        self.__dict__.pop("_known_curve", None)
        self.experts_ = np.array([*names, *(_name(look, names) for look in looks)], dtype=object)

    def _along(self) -> RoutersAlong:
        plain = super()._along()
        return plain if self.front_ is None else _CascadeAlong(plain, self.front_, self.modes_)

    @property
    def n_experts(self) -> int:
        """Number of experts; the columns behind them are looks."""
        return len(self.experts_) - len(self.looks_)

    @property
    def columns(self) -> TrainingRows | None:
        """Errors and dollars of experts and looks on the training rows, held out for looks.

        None where there are no looks, and after a router has been stored.
        """
        return getattr(self, "_columns", None)

    def follow(
        self,
        X: Any,
        answers: SeenAnswers,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> CascadePath:
        """What becomes of each row, given the answers that experts would give.

        Args:
            X: Vectors of questions, shape (n, d).
            answers: Of all p experts; only those that are asked are looked at.
            price_weight: As for ``predict``.
            point: As for ``predict``.
            request_ids: As for ``predict``.
        """
        return self.walk(
            self.predict(X, price_weight, point=point, request_ids=request_ids), X, answers
        )

    def without_looks(self) -> FrontierRouter:
        """The router over experts alone, with its own curve and without an operating point."""
        names = FrontierRouter().get_params(deep=False)
        found = FrontierRouter(**{name: getattr(self, name) for name in names})
        found.routers_, found.grid_ = self.routers_, self.grid_
        found.curve_, found.point_, found._folds = self.routing_curve_, None, None
        found.experts_ = self.experts_[: self.n_experts]
        found.n_features_in_ = self.n_features_in_
        return found

    def walk(self, chosen: NDArray[np.intp], X: Any, answers: SeenAnswers) -> CascadePath:
        """What becomes of each row after its column, an expert or a look, has been chosen.

        Args:
            chosen: Column of each row, shape (n,).
            X: As for ``follow``.
            answers: As for ``follow``.
        """
        vectors, experts = np.asarray(X, dtype=np.float32), self.n_experts
        is_called = np.zeros((len(chosen), experts), dtype=np.bool_)
        # Below the number of experts it is one of them, else a stage.
        at = np.array(chosen)
        for place, stage in enumerate(self.looks_):
            at[chosen == experts + place] = experts + stage
        is_look = at >= experts
        while (at >= experts).any():
            stage = int(at.max()) - experts
            rows = np.flatnonzero(at == experts + stage)
            is_called[np.ix_(rows, self.stages_[stage]["ask"])] = True
            at[rows] = self.step(stage, vectors[rows], answers.take(rows))
        is_called[np.arange(len(at)), at] = True
        return CascadePath(at, is_called, is_look)

    def step(self, stage: int, X: Any, answers: SeenAnswers) -> NDArray[np.intp]:
        """What to do after a stage's answers have been seen, shape (n,).

        Below p it is the expert whose answer is returned, and that is asked if it has not been;
        from p on, p plus the stage to continue with, which asks for one answer more.

        Args:
            stage: Its index in ``stages_``.
            X: Vectors of questions, shape (n, d).
            answers: Of all experts; those that the stage does not ask are not read.
        """
        found = self.stages_[stage]
        ask = found["ask"]
        if found["otherwise"] is not None:
            return np.where(answers.agree(*ask), ask[0], found["otherwise"]).astype(np.intp)
        joined = _joined(np.asarray(X, dtype=np.float32), answers, ask)
        expected = joined @ self.stage_weights_[stage] + self.stage_intercepts_[stage]
        errors, dollars = np.hsplit(expected, 2)
        chosen = (errors + found["price_weight"] * dollars).argmin(axis=1)
        experts = self.n_experts
        after = np.array([*range(experts), *(experts + then for then in found["then"])])
        return np.asarray(after[chosen])


class _Look(NamedTuple):
    """A look, and what it pays on rows that it has not learned from, shape (n,) each.

    After it a regression decides at a weight, or by a rule, which asks one expert if answers
    differ.

    Attributes:
        problem: The regression, or none for a rule.
        then: Looks that it may continue with.
    """

    ask: tuple[int, ...]
    weight: float
    errors: NDArray[np.float64]
    dollars: NDArray[np.float64]
    second_call_rate: float
    problem: _Problem | None = None
    then: tuple[_Look, ...] = ()
    otherwise: int | None = None

    def costs(self, price_weight: float) -> NDArray[np.float64]:
        """What it costs on each row."""
        return self.errors + price_weight * self.dollars


class _Problem:
    """What to expect after answers were seen: a ridge regression of errors and dollars.

    Penalties are chosen for the principal components of the errors, as
    :func:`~mildroute.routers._ridge.ridge` does with contrasts.

    Args:
        ask: Experts whose answers are seen.
        errors: Error of each option, shape (n, q).
        dollars: Further dollars of each option, shape (n, q).

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
    def solve(problems: Sequence[_Problem], design: _Design, held_out: NDArray[np.intp]) -> None:
        """Predict a fold of problems after the same answers by regressions on the others.

        To solve them together takes as long as to solve one.
        """
        ask = problems[0].ask
        targets = np.hstack([problem.targets for problem in problems])
        edges = np.cumsum([problem.targets.shape[1] for problem in problems])[:-1]
        gram = design.regression(ask, targets, design.is_seen)
        columns = design.part(ask, held_out)
        for place, alpha in enumerate(_ALPHAS):
            weights, intercept = gram.solve(alpha)
            expected = columns @ weights.astype(np.float32) + intercept
            for problem, part in zip(problems, np.hsplit(expected, edges), strict=True):
                problem._held_out[place, held_out] = part

    def expected(self) -> tuple[Matrix, Matrix]:
        """Errors and dollars on held-out rows, shape (n, q) each; the penalties are taken."""
        if not len(self.alphas):
            best = ((self._held_out - self.targets) ** 2).mean(axis=1).argmin(axis=0)
            self.alphas = np.array(_ALPHAS)[best]
            self._held_out = self._held_out[best, :, np.arange(len(best))].T.copy()
        errors, dollars = np.hsplit(self._held_out.astype(np.float64), 2)
        return errors @ self._rotation.T, dollars

    def fit(self, design: _Design) -> tuple[Matrix, NDArray[np.float64]]:
        """Weights and intercepts of errors and dollars, learned from all rows."""
        gram = design.regression(self.ask, self.targets, slice(None))
        weights = np.empty((len(gram.mean), len(self.alphas)))
        intercept = np.empty(len(self.alphas))
        for alpha in np.unique(self.alphas):
            taken = self.alphas == alpha
            solution, offset = gram.solve(alpha)
            weights[:, taken], intercept[taken] = solution[:, taken], offset[taken]
        options = len(self._rotation)
        back = np.eye(2 * options)
        back[:options, :options] = self._rotation.T
        return weights @ back, intercept @ back


class _Moments(NamedTuple):
    """First and second moments of features and targets."""

    mean: NDArray[np.float64]
    covariance: Matrix
    target_mean: NDArray[np.float64]
    moments: Matrix

    def solve(self, alpha: float) -> tuple[Matrix, NDArray[np.float64]]:
        """Weights, shape (d, q), and intercepts at a penalty."""
        covariance = self.covariance.copy()
        covariance.flat[:: len(covariance) + 1] += alpha * (float(np.trace(covariance)) or 1.0)
        weights = solve(covariance, self.moments, assume_a="pos", check_finite=False)
        return weights, self.target_mean - self.mean @ weights


class _Design:
    """Vectors of questions, answers and agreements side by side, and their products.

    The products of one matrix serve all sets of experts that may be looked at: to look at one is to
    take some of its columns.

    Args:
        first: Experts that may be looked at.
        held_out: Rows that are not learned from.
    """

    def __init__(
        self,
        X: NDArray[np.float32],
        answers: SeenAnswers,
        first: Sequence[int],
        held_out: NDArray[np.intp],
    ) -> None:
        pairs = list(combinations(first, _MOST_SEEN))
        blocks = [X, *(answers.vectors[:, place] for place in first)]
        blocks += [_agreement(answers, pair) for pair in pairs]
        self._columns = np.hstack(blocks).astype(np.float32)
        edges = np.cumsum([0, *(block.shape[1] for block in blocks)])
        spans = [np.arange(*edge) for edge in pairwise(edges)]
        self._question = spans[0]
        self._answers = dict(zip(first, spans[1:], strict=False))
        self._agreements = dict(zip(pairs, spans[1 + len(first) :], strict=True))
        self.is_seen = np.ones(len(X), dtype=np.bool_)
        self.is_seen[held_out] = False
        seen = self._columns[self.is_seen]
        self._mean = seen.mean(axis=0, dtype=np.float64)
        centered = seen - self._mean.astype(np.float32)
        self._covariance = (centered.T @ centered).astype(np.float64) / len(seen)

    def part(self, ask: tuple[int, ...], rows: Any) -> NDArray[np.float32]:
        """Some rows and the columns that are seen after some experts have been asked."""
        return np.asarray(self._columns[rows][:, self._places(ask)])

    def regression(self, ask: tuple[int, ...], targets: Matrix, rows: Any) -> _Moments:
        """Moments of the rows that are learned from."""
        places = self._places(ask)
        columns, seen = self.part(ask, rows), targets[rows]
        target_mean = seen.mean(axis=0)
        centered = (seen - target_mean).astype(np.float32)
        return _Moments(
            self._mean[places],
            self._covariance[np.ix_(places, places)],
            target_mean,
            (columns.T @ centered).astype(np.float64) / len(seen),
        )

    def _places(self, ask: tuple[int, ...]) -> NDArray[np.intp]:
        parts = [self._question, *(self._answers[place] for place in ask)]
        if len(ask) == _MOST_SEEN:
            parts.append(self._agreements[ask])
        return np.concatenate(parts)


# How to decide at a price weight: by the router without looks, by the router that knows them too,
# or always for one column, which has its own index.
_PLAIN, _FRONT = -2, -1


class _CascadeAlong(RoutersAlong):
    """Routers along the grid, some of which may choose a look.

    Args:
        plain: Routers over the experts alone.
        front: Router over experts and looks.
        modes: How to decide at each price weight of the grid.
    """

    def __init__(self, plain: RoutersAlong, front: RegressionRouter, modes: Sequence[int]) -> None:
        super().__init__(plain.routers, plain.grid)
        self._plain = plain
        self._front = front
        self._modes = modes

    def posterior(self, X: Any, weights: Any) -> Matrix:
        """Posterior over columns, at a price weight or at one per row."""
        wanted = np.asarray(weights, dtype=np.float64)
        if wanted.ndim == 0:
            return next(iter(self.posteriors(X, [float(wanted)])))
        found = np.empty((X.shape[0], len(self._front.experts_)))
        for weight in np.unique(wanted):
            rows = np.flatnonzero(wanted == weight)
            found[rows] = self.posterior(X[rows], weight)
        return found

    def posteriors(
        self, X: Any, weights: Sequence[float] | NDArray[np.float64]
    ) -> Iterator[Matrix]:
        """Posterior over columns at each of several price weights.

        Each router is asked only where it decides: a gateway calls this for every request.
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
            found = posterior_of_costs(errors if prices is None else errors + weight * prices)
            if mode != _FRONT:
                found *= 0.5
                found[:, mode] += 0.5
            yield found

    def choices(self, X: Any, weights: NDArray[np.float64]) -> NDArray[np.intp]:
        """Column of each row at each of many price weights, shape (W, n)."""
        return np.array([argmax_last(posterior) for posterior in self.posteriors(X, weights)])

    def _mode(self, weight: float) -> int:
        """That of the nearest weight of the grid, on a logarithmic scale."""
        if len(self.grid) == 1:
            return self._modes[0]
        scale, unit = np.log1p(self.grid / self.grid[1]), self.grid[1]
        return self._modes[int(np.abs(scale - np.log1p(weight / unit)).argmin())]


def _fit_front(template: RegressionRouter, rows: TrainingRows) -> RegressionRouter:
    return clone(template).fit(
        rows.X, rows.errors, prices=rows.dollars, groups=rows.groups, clusters=rows.clusters
    )


def _choose_modes(
    grid: NDArray[np.float64],
    plain: Sequence[RoutersAlong],
    fronts: Sequence[RegressionRouter],
    parts: Sequence[FoldVectors],
    columns: TrainingRows,
) -> list[int]:
    """How to decide at each weight: what is simpler, unless another costs less on held-out rows.

    Less by more than one standard error of the difference.
    """
    shape = (len(grid), len(columns.errors))
    routed, fronted = np.empty(shape, dtype=np.intp), np.empty(shape, dtype=np.intp)
    for along, front, part in zip(plain, fronts, parts, strict=True):
        held_out = part.held_out
        vectors = part.vectors[held_out]
        routed[:, held_out] = along.choices(vectors, grid)
        alone = _CascadeAlong(along, front, [_FRONT] * len(grid))
        fronted[:, held_out] = alone.choices(vectors, grid)
    rows = np.arange(shape[1])
    modes = []
    for place, weight in enumerate(grid):
        costs = columns.costs(weight)
        best = int(costs.mean(axis=0).argmin())
        mode, paid = _PLAIN, costs[rows, routed[place]]
        for other, found in ((best, costs[:, best]), (_FRONT, costs[rows, fronted[place]])):
            saved, error = mean_and_error(paid - found, None, columns.clusters)
            if saved > error:
                mode, paid = other, found
        modes.append(mode)
    return modes


class _Learner:
    """Tries looks on rows that they have not learned from."""

    def __init__(
        self,
        router: CascadeRouter,
        rows: TrainingRows,
        answers: SeenAnswers,
        parts: Sequence[FoldVectors],
    ) -> None:
        self._router = router
        self._X = rows.X
        self._errors = rows.errors
        self._dollars = dollars = rows.dollars
        self._clusters = rows.clusters
        self._answers = answers
        self._parts = [
            (part.held_out, _dense(part.vectors), part.answers or answers) for part in parts
        ]
        grid = np.asarray(router.price_weights, dtype=np.float64)
        spread = np.unique(np.linspace(0, len(grid) - 1, _WEIGHTS).astype(np.intp))
        self._weights = [float(weight) for weight in (grid[spread] if dollars.any() else grid[:1])]
        self._first = self._worth_asking()
        self._stages: dict[int, int] = {}

    def choose(self) -> list[_Look]:
        """The looks that are offered."""
        experts = self._errors.shape[1]
        if not self._parts or experts < 2:
            return []
        most = min(_MOST_SEEN, self._router.max_calls - 1, experts - 1)
        plain = self._problem(())
        pairs = [self._problem(pair) for pair in combinations(self._first, 2) if most > 1]
        shallow = [self._problem((one,)) for one in self._first]
        self._cross_fit([plain, *pairs, *shallow])
        routed = [self._look(plain, weight) for weight in self._weights]
        both = [self._look(problem, weight) for problem in pairs for weight in self._weights]
        found = [self._look(problem, weight) for problem in shallow for weight in self._weights]
        if both:
            found += both + self._deeper(both)
        if experts > _MOST_SEEN:
            found += self._rules()
        baselines, most = self._baselines(routed), self._router.max_looks
        return _worthwhile(found, baselines, self._weights, most, self._clusters)

    def keep(self, look: _Look) -> int:
        """Learn a look and those that it continues with from all rows; the index of its stage."""
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
    def _whole(self) -> _Design:
        if not hasattr(self, "_design"):
            none = np.empty(0, dtype=np.intp)
            self._design = _Design(self._X, self._answers, self._first, none)
        return self._design

    def _worth_asking(self) -> list[int]:
        alone = self._errors.mean(axis=0) + np.outer(self._weights, self._dollars.mean(axis=0))
        ranked = dict.fromkeys(np.argsort(alone, axis=1).T.ravel().tolist())
        return sorted([*ranked][: self._router.max_first])

    def _problem(self, ask: tuple[int, ...], then: Sequence[_Look] = ()) -> _Problem:
        further = np.array(self._dollars)
        further[:, list(ask)] = 0.0
        asked = self._dollars[:, list(ask)].sum(axis=1)
        return _Problem(
            ask,
            np.column_stack([self._errors, *(look.errors for look in then)]),
            np.column_stack([further, *(look.dollars - asked for look in then)]),
        )

    def _cross_fit(self, problems: Sequence[_Problem]) -> None:
        groups: dict[tuple[int, ...], list[_Problem]] = {}
        for problem in problems:
            groups.setdefault(problem.ask, []).append(problem)
        for held_out, X, answers in self._parts:
            design = _Design(X, answers, self._first, held_out)
            for group in groups.values():
                _Problem.solve(group, design, held_out)

    def _look(self, problem: _Problem, weight: float, then: tuple[_Look, ...] = ()) -> _Look:
        """What is paid where the option of lowest expected cost is taken."""
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
        return _Look(
            problem.ask, weight, paid[rows, chosen], bill[rows, chosen], further_rate, problem, then
        )

    def _deeper(self, both: list[_Look]) -> list[_Look]:
        """One answer first, then perhaps a second one, and perhaps an expert more."""
        options = []
        for one in self._first:
            for weight in self._weights:
                then = tuple(look for look in both if one in look.ask and look.weight == weight)
                options.append((self._problem((one,), then), weight, then))
        self._cross_fit([problem for problem, _, _ in options])
        return [self._look(*option) for option in options]

    def _rules(self) -> Iterator[_Look]:
        """Two experts and what they agree on, else a third one: nothing is learned."""
        errors, dollars = self._errors, self._dollars
        for ask in combinations(self._first, _MOST_SEEN):
            agree = self._answers.agree(*ask)
            asked = dollars[:, list(ask)].sum(axis=1)
            for otherwise in range(errors.shape[1]):
                if otherwise not in ask and self._router.max_calls > _MOST_SEEN:
                    paid = np.where(agree, errors[:, ask[0]], errors[:, otherwise])
                    bill = asked + np.where(agree, 0.0, dollars[:, otherwise])
                    rate = float((~agree).mean())
                    yield _Look(ask, 0.0, paid, bill, rate, otherwise=otherwise)

    def _baselines(self, routed: list[_Look]) -> list[NDArray[np.float64]]:
        """Costs of each row by the best single expert or by routing, whichever is lower."""
        found = []
        for look, weight in zip(routed, self._weights, strict=True):
            costs = self._errors + weight * self._dollars
            best = costs[:, costs.mean(axis=0).argmin()]
            found.append(min(best, look.costs(weight), key=np.mean))
        return found


def _worthwhile(
    candidates: list[_Look],
    baselines: list[NDArray[np.float64]],
    weights: Sequence[float],
    most: int,
    clusters: NDArray[np.intp] | None,
) -> list[_Look]:
    """The looks by which costs along the grid fall most, one after the other.

    Only what is better than the baseline of a weight by two standard errors counts there: the best
    of a hundred looks that are worth nothing is better by that much.

    Args:
        candidates: All looks that were tried.
        baselines: Costs of each row at each weight, by routing or by the best single expert.
        weights: Price weights.
        most: Looks that are taken at most.
        clusters: Number of each row's cluster, shape (n,), or `None`.
    """
    gains = np.zeros((len(candidates), len(weights)))
    for column, (weight, baseline) in enumerate(zip(weights, baselines, strict=True)):
        for row, look in enumerate(candidates):
            saved, error = mean_and_error(baseline - look.costs(weight), None, clusters)
            if saved > 2 * error:
                gains[row, column] = saved / max(float(baseline.mean()), 1e-12)
    found: list[_Look] = []
    covered = np.zeros(len(weights))
    while len(found) < most:
        further = np.maximum(gains - covered, 0.0).sum(axis=1)
        if not further.size or further.max() <= 0:
            break
        place = int(further.argmax())
        found.append(candidates[place])
        covered = np.maximum(covered, gains[place])
    return found


def _agreement(answers: SeenAnswers, pair: Sequence[int]) -> NDArray[np.float32]:
    return np.where(answers.agree(*pair), 1.0, -1.0).astype(np.float32)[:, None]


def _joined(X: Matrix, answers: SeenAnswers, ask: Sequence[int]) -> NDArray[np.float32]:
    """Vectors of the questions, of the answers that were seen, and whether they agree."""
    parts = [X, *(answers.vectors[:, place] for place in ask)]
    if len(ask) == _MOST_SEEN:
        parts.append(_agreement(answers, ask))
    return np.hstack(parts).astype(np.float32)


def _name(look: _Look, names: Sequence[str]) -> str:
    asked = " + ".join(names[place] for place in look.ask)
    if look.otherwise is not None:
        return f"{asked}, else {names[look.otherwise]}"
    again = "perhaps another, then " if look.then else ""
    return f"{asked}, then {again}decide at {look.weight:g}"


def _dense(X: Any) -> NDArray[np.float32]:
    if issparse(X):
        raise ArgumentError(
            f"a cascade needs dense vectors, got a sparse matrix of shape {X.shape}; take a"
            " ReducedEncoder."
        )
    return np.asarray(X, dtype=np.float32)


def _check_answers(answers: SeenAnswers, X: Any, errors: Matrix) -> NDArray[np.float32]:
    shape, vectors = errors.shape, _dense(X)
    if vectors.ndim != 2 or len(vectors) != len(errors):
        raise ShapeError(f"X must be ({len(errors)}, d), got shape {vectors.shape}.")
    if answers.vectors.ndim != 3 or answers.vectors.shape[:2] != shape:
        raise ShapeError(
            f"vectors of answers must be ({shape[0]}, {shape[1]}, f), got shape"
            f" {answers.vectors.shape}."
        )
    if answers.readings.shape != shape:
        raise ShapeError(f"readings must be {shape}, got shape {answers.readings.shape}.")
    if not np.isfinite(answers.vectors).all():
        raise ArgumentError("vectors of answers must be finite, got NaN or infinity.")
    return vectors
