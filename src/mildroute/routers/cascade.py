"""Cascades: ask one or two experts, look at their answers, then return one or ask another expert.

What follows a look is a deferral problem of its own. Its vectors hold the question and the answers
that were seen, and an expert that has been asked costs nothing more. Each look that is worth it
becomes a further column beside the experts: what it pays, on rows that it has not learned from. So
the router in front learns when to look as it learns whom to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.base import Matrix, expert_names, fitting_threads, named_costs
from mildroute.routers.frontier import FoldVectors, FrontierRouter, cut_into_folds, dollars_of
from mildroute.routers.operating_point import OperatingPoint
from mildroute.routers.regression import RegressionRouter

__all__ = ["CascadePath", "CascadeRouter", "SeenAnswers"]


# Price weights of the grid at which looks are tried: each is a fit of all folds.
_WEIGHTS = 6


class SeenAnswers(NamedTuple):
    """Answers of all experts to some rows, as a cascade sees them.

    Attributes:
        vectors: Features of each answer, shape (n, p, f).
        readings: What each answer says in the end, as a number, shape (n, p); equal numbers of a
            row agree, and one below 0 says nothing.
    """

    vectors: NDArray[np.float32]
    readings: NDArray[np.intp]

    def take(self, rows: Any) -> SeenAnswers:
        """The answers to some of the rows."""
        return SeenAnswers(self.vectors[rows], self.readings[rows])


class CascadePath(NamedTuple):
    """What a cascade did with some rows.

    Attributes:
        experts: Index of the expert whose answer is returned, shape (n,).
        is_called: Whether each expert was asked, shape (n, p).
        is_look: Whether answers were looked at before the choice, shape (n,).
    """

    experts: NDArray[np.intp]
    is_called: NDArray[np.bool_]
    is_look: NDArray[np.bool_]


class CascadeRouter(FrontierRouter):
    """A frontier whose router may look at the answers of one or two experts before it chooses.

    Its columns are the p experts, each asked alone, and m looks: the experts of a look are asked at
    the same time, and then one of their answers is returned or one more expert is asked. Routing
    without a look, single experts and a coin between them stay inside the family, and targets are
    met as by a :class:`~mildroute.routers.frontier.FrontierRouter`.

    Args:
        max_looks: Looks that are offered at most; 0 for none.
        max_first: Experts that may be asked for a look at most: those of lowest mean cost at some
            price weight. Fitting takes time in proportion to their number and its square.
        router: As for :class:`~mildroute.routers.frontier.FrontierRouter`, and all further ones.

    Attributes:
        looks_: The experts that each look asks and the price weight at which it goes on, as plain
            values.
        look_routers_: Its router after the look, over vectors of the question and the answers.

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

    looks_: list[dict[str, Any]]
    look_routers_: list[RegressionRouter | None]

    def __init__(
        self,
        *,
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
        answers: SeenAnswers | None = None,
    ) -> CascadeRouter:
        """Learn from errors, dollars and answers.

        Args:
            X: Vectors of questions, shape (n, d), dense.
            y: Error of each expert on each row (one minus its score), shape (n, p).
            sample_weight: Weight of each row, shape (n,), or none; looks are chosen and learned
                without it.
            prices: Dollars of each expert on each row, shape (n, p), or per expert, shape (p,).
            groups: Group of each training row, shape (n,), or none.
            progress: Called with steps done, steps in all and a word on the next one, or none.
            folds: As for :class:`~mildroute.routers.frontier.FrontierRouter`.
            answers: Of all experts on all rows; without them there are no looks.

        Returns:
            The router itself.
        """
        self.looks_, self.look_routers_ = [], []
        errors = np.asarray(y, dtype=np.float64)
        names = expert_names(y) or [f"expert_{place}" for place in range(errors.shape[-1])]
        paid = prices
        if answers is not None and self.max_looks > 0 and errors.ndim == 2 and len(errors):
            dollars = dollars_of(prices, errors.shape)
            vectors = np.asarray(X, dtype=np.float32)
            _check_answers(answers, vectors, errors)
            with fitting_threads(vectors, errors.shape[1]):
                looks = self._choose(vectors, errors, dollars, answers)
                self._learn(looks, vectors, errors, dollars, answers)
            names = [*names, *(_name(look, names) for look in looks)]
            errors = np.hstack([errors, *(look.errors[:, None] for look in looks)])
            paid = np.hstack([dollars, *(look.dollars[:, None] for look in looks)])
        super().fit(X, named_costs(errors, names), sample_weight, paid, groups, progress, folds)
        return self

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
        chosen = self.predict(X, price_weight, point=point, request_ids=request_ids)
        experts = len(self.experts_) - len(self.looks_)
        vectors = np.asarray(X, dtype=np.float32)
        is_called = np.zeros((len(chosen), experts), dtype=np.bool_)
        for place, look in enumerate(self.looks_):
            rows = np.flatnonzero(chosen == experts + place)
            if len(rows):
                is_called[np.ix_(rows, look["ask"])] = True
                chosen[rows] = self.look(place, vectors[rows], answers.take(rows))
        is_look = np.asarray(is_called.any(axis=1))
        is_called[np.arange(len(chosen)), chosen] = True
        return CascadePath(chosen, is_called, is_look)

    def look(self, place: int, X: Any, answers: SeenAnswers) -> NDArray[np.intp]:
        """The expert whose answer is returned after a look; one that was not asked is asked now.

        Args:
            place: Of the look in ``looks_``.
            X: Vectors of questions, shape (n, d).
            answers: Of all experts; those that the look does not ask are not read.
        """
        found = self.looks_[place]
        if found["otherwise"] is not None:
            return np.where(_agree(answers, found["ask"]), found["ask"][0], found["otherwise"])
        joined = _joined(np.asarray(X, dtype=np.float32), answers, found["ask"])
        router = self.look_routers_[place]
        assert router is not None, "only a rule has none"  # noqa: S101
        return router.predict(joined, found["price_weight"])

    def _choose(
        self, X: Matrix, errors: Matrix, dollars: Matrix, answers: SeenAnswers
    ) -> list[_Look]:
        """The looks that are offered."""
        folds = cut_into_folds(len(X), self.random_state)
        if not folds or errors.shape[1] < 2:
            return []
        grid = np.asarray(self.price_weights, dtype=np.float64)
        weights = grid[np.unique(np.linspace(0, len(grid) - 1, _WEIGHTS).astype(np.intp))]
        if not dollars.any():
            weights = weights[:1]
        alone = errors.mean(axis=0) + weights[:, None] * dollars.mean(axis=0)
        ranked = dict.fromkeys(np.argsort(alone, axis=1).T.ravel().tolist())
        first = sorted([*ranked][: self.max_first])
        # None is the first: what routing by the question alone pays.
        sets: list[tuple[int, ...]] = [(), *((one,) for one in first)]
        if errors.shape[1] > 2:
            sets += combinations(first, 2)
        found = [
            look
            for ask in sets
            for look in _looks(ask, weights, X, errors, dollars, answers, folds, self.random_state)
        ]
        plain, candidates = found[: len(weights)], found[len(weights) :]
        candidates += _rules(first, errors, dollars, answers)
        best = [
            errors[:, place] + weight * dollars[:, place]
            for place, weight in zip(alone.argmin(axis=1), weights, strict=True)
        ]
        routed = [look.costs(weight) for look, weight in zip(plain, weights, strict=True)]
        baselines = [min(pair, key=np.mean) for pair in zip(best, routed, strict=True)]
        return _worthwhile(candidates, baselines, weights, self.max_looks)

    def _learn(
        self,
        looks: list[_Look],
        X: Matrix,
        errors: Matrix,
        dollars: Matrix,
        answers: SeenAnswers,
    ) -> None:
        known: dict[tuple[int, ...], RegressionRouter] = {}
        for look in looks:
            if look.otherwise is None and look.ask not in known:
                known[look.ask] = _after(look.ask, X, errors, dollars, answers, self.random_state)
            self.looks_.append(
                {
                    "ask": list(look.ask),
                    "price_weight": look.weight,
                    "otherwise": look.otherwise,
                }
            )
            self.look_routers_.append(None if look.otherwise is not None else known[look.ask])


class _Look(NamedTuple):
    """A look, and what it pays on rows that it has not learned from, shape (n,) each.

    After it a router decides at a weight, or by a rule, which asks one expert if answers differ.
    """

    ask: tuple[int, ...]
    weight: float
    otherwise: int | None
    errors: NDArray[np.float64]
    dollars: NDArray[np.float64]

    def costs(self, price_weight: float) -> NDArray[np.float64]:
        """What it costs on each row."""
        return self.errors + price_weight * self.dollars


def _worthwhile(
    candidates: list[_Look],
    baselines: list[NDArray[np.float64]],
    weights: NDArray[np.float64],
    most: int,
) -> list[_Look]:
    """The looks by which costs along the grid fall most, one after the other.

    Only what is better than the baseline of a weight by two standard errors counts there: the best
    of a hundred looks that are worth nothing is better by that much.

    Args:
        candidates: All looks that were tried.
        baselines: Costs of each row at each weight, by routing or by the best single expert.
        weights: Price weights.
        most: Looks that are taken at most.
    """
    gains = np.zeros((len(candidates), len(weights)))
    for column, (weight, baseline) in enumerate(zip(weights, baselines, strict=True)):
        for row, look in enumerate(candidates):
            saved = baseline - look.costs(weight)
            if saved.mean() > 2 * saved.std() / np.sqrt(len(saved)):
                gains[row, column] = saved.mean() / max(float(baseline.mean()), 1e-12)
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


def _looks(
    ask: tuple[int, ...],
    weights: NDArray[np.float64],
    X: Matrix,
    errors: Matrix,
    dollars: Matrix,
    answers: SeenAnswers,
    folds: list[NDArray[np.intp]],
    random_state: int | None,
) -> Iterator[_Look]:
    """The same experts looked at, with each weight for what comes after."""
    chosen = np.empty((len(weights), len(X)), dtype=np.intp)
    for held_out in folds:
        seen = np.setdiff1d(np.arange(len(X)), held_out)
        router = _after(ask, X[seen], errors[seen], dollars[seen], answers.take(seen), random_state)
        joined = _joined(X[held_out], answers.take(held_out), ask)
        for place, weight in enumerate(weights):
            chosen[place, held_out] = router.predict(joined, float(weight))
    asked = dollars[:, list(ask)].sum(axis=1)
    further = _further(dollars, ask)
    rows = np.arange(len(X))
    for weight, choice in zip(weights, chosen, strict=True):
        yield _Look(ask, float(weight), None, errors[rows, choice], asked + further[rows, choice])


def _rules(
    first: Sequence[int], errors: Matrix, dollars: Matrix, answers: SeenAnswers
) -> Iterator[_Look]:
    """Two experts and what they agree on, else a third one: nothing is learned."""
    for ask in combinations(first, 2):
        agrees = _agree(answers, ask)
        asked = dollars[:, list(ask)].sum(axis=1)
        for otherwise in range(errors.shape[1]):
            if otherwise not in ask:
                yield _Look(
                    ask,
                    0.0,
                    otherwise,
                    np.where(agrees, errors[:, ask[0]], errors[:, otherwise]),
                    asked + np.where(agrees, 0.0, dollars[:, otherwise]),
                )


def _agree(answers: SeenAnswers, ask: Sequence[int]) -> NDArray[np.bool_]:
    one, two = (answers.readings[:, place] for place in ask)
    return np.asarray((one == two) & (one >= 0))


def _after(
    ask: tuple[int, ...],
    X: Matrix,
    errors: Matrix,
    dollars: Matrix,
    answers: SeenAnswers,
    random_state: int | None,
) -> RegressionRouter:
    """The router after a look: who has been asked costs nothing more."""
    router = RegressionRouter(contrasts=True, random_state=random_state)
    return router.fit(_joined(X, answers, ask), errors, prices=_further(dollars, ask))


def _further(dollars: Matrix, ask: Sequence[int]) -> Matrix:
    further = np.array(dollars)
    further[:, list(ask)] = 0.0
    return further


def _joined(X: Matrix, answers: SeenAnswers, ask: Sequence[int]) -> NDArray[np.float32]:
    """Vectors of the questions, of the answers that were seen, and whether they agree."""
    parts = [X, *(answers.vectors[:, place] for place in ask)]
    if len(ask) > 1:
        parts.append(np.where(_agree(answers, ask), 1.0, -1.0)[:, None])
    return np.hstack(parts).astype(np.float32)


def _name(look: _Look, names: Sequence[str]) -> str:
    asked = " + ".join(names[place] for place in look.ask)
    if look.otherwise is not None:
        return f"{asked}, else {names[look.otherwise]}"
    return f"look at {asked} (price weight {look.weight:g})"


def _check_answers(answers: SeenAnswers, X: Matrix, errors: Matrix) -> None:
    shape = errors.shape
    if X.ndim != 2 or len(X) != len(errors):
        raise ShapeError(f"X must be ({len(errors)}, d), dense, got shape {X.shape}.")
    if answers.vectors.ndim != 3 or answers.vectors.shape[:2] != shape:
        raise ShapeError(
            f"vectors of answers must be ({shape[0]}, {shape[1]}, f), got shape"
            f" {answers.vectors.shape}."
        )
    if answers.readings.shape != shape:
        raise ShapeError(f"readings must be {shape}, got shape {answers.readings.shape}.")
    if not np.isfinite(answers.vectors).all():
        raise ArgumentError("vectors of answers must be finite, got NaN or infinity.")
