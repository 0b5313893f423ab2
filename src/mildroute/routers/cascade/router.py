"""A router that calls one or two experts, reads their answers, and may then call another expert.

The decision after a look is a separate deferral problem. Its vectors contain the question and the
answers so far, and an expert that has already been called costs nothing more. Each worthwhile look
becomes an additional column alongside the experts, with its outcomes on rows that it was not
trained on. The front router thus learns when to look in the same way as it learns which expert to
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.routers.base import fitting_threads
from mildroute.routers.cascade.features import SeenAnswers, check_answers, join_answers
from mildroute.routers.cascade.stages import (
    CascadePriceGrid,
    StageLearner,
    choose_modes,
    fit_front,
    name_stage,
)
from mildroute.routers.frontier.folds import cut_vectors, measure_folds
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.price_grid import PriceGridRouters
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.training_rows import Progress, TrainingRows

__all__ = ["CascadePath", "CascadeRouter"]


class CascadePath(NamedTuple):
    """The experts that a cascade used on some rows.

    Attributes:
        experts: Index of the expert whose answer is returned, shape (n,).
        is_called: Whether each expert was called, shape (n, p).
        is_look: Whether answers were seen before the choice, shape (n,).

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

    Its columns are the p experts, each called alone, and m looks. A look calls one expert, or two
    at the same time. It then returns one of their answers, calls one more expert and returns that
    answer, or calls one more and looks again. Routing without a look, single experts and random
    mixes of them remain possible, and targets are met as by a
    :class:`~mildroute.routers.FrontierRouter`.

    Args:
        max_calls: Maximum number of experts called for one row; 1 means routing without a look.
        max_looks: Maximum number of looks to offer.
        max_first: Maximum number of experts whose answers may be looked at, which are those with
            the lowest mean cost at some price weight. Fitting time is proportional to the square of
            this number.
        router: As for :class:`~mildroute.routers.FrontierRouter`, like all further parameters.

    Attributes:
        front_: Router over experts and looks, or `None` if no look is worthwhile.
        modes_: Mode of deciding at each price weight of the grid: -2 means without looks, -1 by
            ``front_``, and any other number always the column with this index.
        routing_curve_: The measured curve of routing without looks.
        looks_: Index of the stage that each look begins with.
        stages_: The stages as plain values: ``ask`` lists the experts whose answers are read,
            ``price_weight`` is the weight at which the cascade continues, ``then`` lists the stages
            that may follow, ``otherwise`` is the expert that a rule calls if the answers differ,
            and ``second_call_rate`` is the share of held-out rows with a further call.
        stage_weights_: Weights for the expected errors and dollars after each stage, shape
            (features, 2 * options); empty for a rule.
        stage_intercepts_: Intercepts of the same, shape (2 * options,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, is_hard = rng.normal(size=(400, 2)), rng.random(400) < 0.3
        >>> errors = np.stack([is_hard, np.zeros(400)], axis=1)
        >>> # Only the first expert's answer reveals that the expert is wrong.
        >>> seen = np.stack([is_hard, np.zeros(400)], axis=1)[:, :, None].astype(np.float32)
        >>> answers = SeenAnswers(seen, np.zeros((400, 2), dtype=np.intp))
        >>> router = CascadeRouter(price_weights=(0, 10, 50, 100))
        >>> router = router.fit(X, errors, prices=np.array([0.001, 0.01]), answers=answers)
        >>> path = router.follow(X, answers, price_weight=50)
        >>> float(path.is_look.mean()), bool((path.experts == is_hard).all())
        (1.0, True)
    """

    _transient: ClassVar[tuple[str, ...]] = (*FrontierRouter._transient, "_columns")
    supports_answers = True
    _columns: TrainingRows | None = None
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
        *,
        sample_weight: Any = None,
        groups: Any = None,
        prices: Any = None,
        experts: Sequence[str] | None = None,
        progress: Progress | None = None,
        answers: SeenAnswers | None = None,
    ) -> Self:
        """Learn from costs, prices and answers.

        Args:
            X: Vectors of questions, shape (n, d), dense if there are answers.
            y: As for every router: costs without the prices, shape (n, p).
            sample_weight: Weight of each row, shape (n,), or `None`; not allowed with answers.
            groups: As for every router.
            prices: As for every router.
            experts: As for every router.
            progress: As for every router.
            answers: Answers of all experts to all rows; without them there are no looks.

        Returns:
            The router itself.
        """
        rows = self.training_rows(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            prices=prices,
            experts=experts,
            answers=answers,
        )
        return self.fit_rows(rows, progress)

    def _fit_rows(self, rows: TrainingRows, progress: Progress | None) -> None:
        if rows.sample_weight is not None and rows.answers is not None:
            raise ArgumentError(
                "a cascade cannot combine sample_weight with answers; repeat rows, or omit it."
            )
        self._forget_looks()
        super()._fit_rows(rows, progress)
        self.routing_curve_ = self.curve_
        if rows.answers is not None:
            self._add_looks(rows, rows.answers)

    def fit_looks(self, rows: TrainingRows) -> Self:
        """Learn only the looks, for a router that was fitted without them in this process.

        Args:
            rows: The rows of that fit, with answers.
        """
        if rows.answers is None:
            raise ArgumentError("looks need answers, got rows without them; pass answers.")
        self._forget_looks()
        with fitting_threads(rows.X, rows.costs.shape[1]):
            self._add_looks(rows, rows.answers)
        return self

    def _forget_looks(self) -> None:
        self.looks_, self.stages_, self.stage_weights_, self.stage_intercepts_ = [], [], [], []
        self.front_, self.modes_, self._columns = None, [], None

    def _add_looks(self, rows: TrainingRows, answers: SeenAnswers) -> None:
        rows = replace(rows, X=check_answers(answers, rows.X, rows.costs))
        if min(self.max_calls - 1, self.max_looks) < 1:
            return
        parts = list(rows.folds or cut_vectors(rows.X, self.random_state, rows.clusters))
        learner = StageLearner(self, rows, answers, parts)
        looks = learner.choose()
        if not looks:
            return
        for look in looks:
            self.looks_.append(learner.keep(look))
        names = [str(name) for name in self.experts_]
        columns = TrainingRows(
            rows.X,
            np.column_stack([rows.costs, *(look.errors for look in looks)]),
            groups=rows.groups,
            prices=np.column_stack([rows.dollars, *(look.dollars for look in looks)]),
            clusters=rows.clusters,
            looks=len(looks),
        )
        template = RegressionRouter(contrasts=True, random_state=self.random_state)
        self._columns = columns
        self.front_ = fit_front(template, columns)
        all_rows = np.arange(len(rows.costs))
        fronts = [
            fit_front(
                template,
                columns.take(np.setdiff1d(all_rows, part.held_out), part.vectors),
            )
            for part in parts
        ]
        plain = [along for along, _, _ in self._folds or ()]
        self.modes_ = choose_modes(self.grid_, plain, fronts, parts, columns)
        along = self._along()
        alongs = [
            CascadePriceGrid(fold_routers, front, self.modes_)
            for fold_routers, front in zip(plain, fronts, strict=True)
        ]
        measured = measure_folds(type(self).__name__, along, alongs, columns, parts)
        self._folds, self.curve_ = measured.folds, asdict(measured.curve)
        self._known_curve = None
        self.experts_ = np.array(
            [*names, *(name_stage(look, names) for look in looks)], dtype=object
        )

    def _along(self) -> PriceGridRouters:
        plain = super()._along()
        return plain if self.front_ is None else CascadePriceGrid(plain, self.front_, self.modes_)

    @property
    def n_experts(self) -> int:
        """Return the number of experts; the columns after them are looks."""
        return len(self.experts_) - len(self.looks_)

    @property
    def outcome_rows(self) -> TrainingRows | None:
        """Return costs and prices of experts and looks on the training rows.

        The looks were not trained on their rows. `None` means that there are no looks, or that the
        router was loaded from an artifact.
        """
        return self._columns

    def follow(
        self,
        X: Any,
        answers: SeenAnswers,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> CascadePath:
        """Return the path of each row, given the answers that experts would give.

        Args:
            X: Vectors of questions, shape (n, d).
            answers: Answers of all p experts; only those of called experts are read.
            price_weight: As for ``predict``.
            point: As for ``predict``.
            request_ids: As for ``predict``.
        """
        return self.walk(
            self.predict(X, price_weight, point=point, request_ids=request_ids), X, answers
        )

    def without_looks(self) -> FrontierRouter:
        """Return the router over the experts, with its own curve and no operating point."""
        parameters = self.get_params(deep=False)
        plain = FrontierRouter(**{name: parameters[name] for name in FrontierRouter().get_params()})
        plain.routers_, plain.grid_ = self.routers_, self.grid_
        plain.curve_, plain.point_, plain._folds = self.routing_curve_, None, None
        plain.experts_ = self.experts_[: self.n_experts]
        plain.n_features_in_ = self.n_features_in_
        return plain

    def walk(self, chosen: NDArray[np.intp], X: Any, answers: SeenAnswers) -> CascadePath:
        """Return the path of each row after its column, an expert or a look, has been chosen.

        Args:
            chosen: Column of each row, shape (n,).
            X: As for ``follow``.
            answers: As for ``follow``.
        """
        vectors, experts = np.asarray(X, dtype=np.float32), self.n_experts
        is_called = np.zeros((len(chosen), experts), dtype=np.bool_)
        # A step below the number of experts is an expert; others are stages.
        steps = np.array(chosen)
        for look, stage in enumerate(self.looks_):
            steps[chosen == experts + look] = experts + stage
        is_look = steps >= experts
        while (steps >= experts).any():
            stage = int(steps.max()) - experts
            rows = np.flatnonzero(steps == experts + stage)
            is_called[np.ix_(rows, self.stages_[stage]["ask"])] = True
            steps[rows] = self.step(stage, vectors[rows], answers.take(rows))
        is_called[np.arange(len(steps)), steps] = True
        return CascadePath(steps, is_called, is_look)

    def step(self, stage: int, X: Any, answers: SeenAnswers) -> NDArray[np.intp]:
        """Return the next step after a stage's answers have been read, shape (n,).

        A value below p is the expert whose answer is returned, after a call if necessary. A larger
        value is p plus the stage to continue with, which needs one more answer.

        Args:
            stage: Index in ``stages_``.
            X: Vectors of questions, shape (n, d).
            answers: Answers of all experts; those that the stage does not need are not read.
        """
        plan = self.stages_[stage]
        ask = plan["ask"]
        if plan["otherwise"] is not None:
            return np.where(answers.agree(*ask), ask[0], plan["otherwise"]).astype(np.intp)
        joined = join_answers(np.asarray(X, dtype=np.float32), answers, ask)
        expected = joined @ self.stage_weights_[stage] + self.stage_intercepts_[stage]
        errors, dollars = np.hsplit(expected, 2)
        chosen = (errors + plan["price_weight"] * dollars).argmin(axis=1)
        experts = self.n_experts
        next_steps = np.array([*range(experts), *(experts + then for then in plan["then"])])
        return np.asarray(next_steps[chosen])
