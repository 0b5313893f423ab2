"""Cascades: what a look may see, what it pays, and when it is left out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.cascade.features import AnswerDesign, SeenAnswers
from mildroute.routers.cascade.router import CascadePath, CascadeRouter
from mildroute.routers.cascade.stages import _ALPHAS, StageProblem
from mildroute.routers.frontier.router import FrontierRouter

PRICES = np.array([0.001, 0.002, 0.02])
GRID = (0, 5, 10, 20, 50)


def experts(rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], SeenAnswers]:
    """Two cheap experts that are right on two of three rows each, and one that always is.

    Of the first, its answer tells more than the question does; two that are wrong disagree.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    errors = np.zeros((rows, 3))
    errors[:, :2] = rng.random((rows, 2)) < 1 / 3
    doubt = errors[:, 0] + 0.3 * rng.normal(size=rows)
    vectors = np.zeros((rows, 3, 1), dtype=np.float32)
    vectors[:, 0, 0] = doubt
    readings = np.where(errors > 0, 1 + np.arange(3), 0).astype(np.intp)
    return X, errors, SeenAnswers(vectors, readings)


def paid(path: CascadePath, errors: NDArray[np.float64]) -> tuple[float, float]:
    """Mean error and mean dollars."""
    rows = np.arange(len(errors))
    return float(errors[rows, path.experts].mean()), float((path.is_called @ PRICES).mean())


@pytest.fixture(scope="module")
def fitted() -> CascadeRouter:
    X, errors, answers = experts(1500, 0)
    router = CascadeRouter(price_weights=GRID, thorough=False, random_state=0)
    return router.fit(X, errors, prices=PRICES, answers=answers)


def test_a_look_is_far_better_than_routing_where_answers_tell_more(fitted: CascadeRouter) -> None:
    X, errors, answers = experts(4000, 1)
    plain = FrontierRouter(price_weights=GRID, thorough=False, random_state=0)
    plain.fit(*experts(1500, 0)[:2], prices=PRICES)
    for weight in (10.0, 20.0):
        error, dollars = paid(fitted.follow(X, answers, weight), errors)
        chosen = plain.predict(X, weight)
        routed = errors[np.arange(4000), chosen] + weight * PRICES[chosen]
        assert error + weight * dollars < 0.8 * routed.mean()


def test_what_is_promised_is_what_is_paid(fitted: CascadeRouter) -> None:
    X, errors, answers = experts(8000, 2)
    for point in (fitted.for_budget(6.0), fitted.for_quality(0.97)):
        error, dollars = paid(fitted.follow(X, answers, point=point), errors)
        low, high = point.dollars_interval
        assert low < 1000 * dollars < high
        assert 1 - error == pytest.approx(point.score, abs=0.03)
    assert fitted.for_budget(6.0).best == 2, "savings are counted against an expert, not a look"


def test_only_answers_of_experts_that_were_asked_are_read(fitted: CascadeRouter) -> None:
    X, _, answers = experts(500, 3)
    path = fitted.follow(X, answers, 20.0)
    looked = np.flatnonzero(path.is_look)
    asked = {place for stage in fitted.stages_ for place in stage["ask"]}
    poisoned = SeenAnswers(answers.vectors.copy(), answers.readings.copy())
    others = [place for place in range(3) if place not in asked]
    poisoned.vectors[:, others] = np.nan
    poisoned.readings[:, others] = 7
    again = fitted.follow(X, poisoned, 20.0)
    assert len(looked)
    np.testing.assert_array_equal(path.experts, again.experts)
    np.testing.assert_array_equal(path.is_called, again.is_called)


def test_the_expert_that_is_returned_was_called_and_all_of_a_look_are(
    fitted: CascadeRouter,
) -> None:
    X, _, answers = experts(500, 4)
    for weight in GRID:
        path = fitted.follow(X, answers, weight)
        assert path.is_called[np.arange(500), path.experts].all()
        assert (path.is_called.sum(axis=1) <= 3).all()
        assert (path.is_called.sum(axis=1)[~path.is_look] == 1).all()


def test_answers_that_tell_nothing_give_no_better_promises() -> None:
    X, errors, _ = experts(600, 5)
    rng = np.random.default_rng(0)
    noise = SeenAnswers(
        rng.normal(size=(600, 3, 4)).astype(np.float32),
        rng.integers(0, 50, size=(600, 3)),
    )
    router = CascadeRouter(price_weights=GRID, thorough=False, random_state=0)
    router.fit(X, errors, prices=PRICES, answers=noise)
    further, test_errors, _ = experts(6000, 6)
    fresh = SeenAnswers(
        rng.normal(size=(6000, 3, 4)).astype(np.float32),
        rng.integers(0, 50, size=(6000, 3)),
    )
    point = router.for_quality(0.95)
    error, dollars = paid(router.follow(further, fresh, point=point), test_errors)
    # A coin between the cheapest and the best expert keeps 95% for this much.
    assert 1000 * dollars < 20.0 * 1.05
    assert 1 - error > 0.93


def test_without_answers_it_is_the_frontier() -> None:
    X, errors, _ = experts(300, 7)
    cascade = CascadeRouter(price_weights=GRID, thorough=False, random_state=0)
    frontier = FrontierRouter(price_weights=GRID, thorough=False, random_state=0)
    cascade.fit(X, errors, prices=PRICES)
    frontier.fit(X, errors, prices=PRICES)
    assert cascade.looks_ == []
    np.testing.assert_array_equal(cascade.predict(X, 10), frontier.predict(X, 10))


def test_answers_of_another_shape_are_refused() -> None:
    X, errors, answers = experts(60, 8)
    router = CascadeRouter(price_weights=GRID, thorough=False)
    with pytest.raises(ShapeError, match="vectors of answers must be"):
        router.fit(X, errors, prices=PRICES, answers=answers.take(slice(0, 50)))
    with pytest.raises(ShapeError, match="readings must be"):
        router.fit(
            X, errors, prices=PRICES, answers=SeenAnswers(answers.vectors, answers.readings[:, :2])
        )
    holes = SeenAnswers(np.full((60, 3, 1), np.nan, dtype=np.float32), answers.readings)
    with pytest.raises(ArgumentError, match="must be finite"):
        router.fit(X, errors, prices=PRICES, answers=holes)


def test_held_out_predictions_are_those_of_a_ridge_regression_without_the_fold() -> None:
    """`StageProblem` takes its products from one matrix; here each fold is fitted by itself."""
    X, errors, answers = experts(300, 9)
    vectors = X.astype(np.float32)
    dollars = np.outer(1 + np.abs(X[:, 0]), PRICES)
    folds = [np.arange(start, 300, 3) for start in range(3)]
    further = dollars.copy()
    further[:, [0, 1]] = 0.0  # what has been asked costs nothing more
    problem = StageProblem((0, 1), errors, further)
    for held_out in folds:
        StageProblem.solve([problem], AnswerDesign(vectors, answers, [0, 1, 2], held_out), held_out)
    expected_errors, expected_dollars = problem.expected()

    agree = np.where(answers.readings[:, 0] == answers.readings[:, 1], 1.0, -1.0)
    design = np.column_stack([X, answers.vectors[:, 0], answers.vectors[:, 1], agree])
    centered = errors - errors.mean(axis=0)
    rotation = np.linalg.eigh(centered.T @ centered)[1]
    targets = np.hstack([errors @ rotation, further])
    slow = np.array([ridge_out_of_fold(design, targets, folds, alpha) for alpha in _ALPHAS])
    best = ((slow - targets) ** 2).mean(axis=1).argmin(axis=0)
    np.testing.assert_array_equal(problem.alphas, np.array(_ALPHAS)[best])
    kept = np.stack([slow[place, :, column] for column, place in enumerate(best)], axis=1)
    np.testing.assert_allclose(expected_errors, kept[:, :3] @ rotation.T, atol=1e-4)
    np.testing.assert_allclose(expected_dollars, kept[:, 3:], atol=1e-4)

    weights, intercepts = problem.fit(
        AnswerDesign(vectors, answers, [0, 1, 2], np.empty(0, np.intp))
    )
    joined = design @ weights + intercepts
    rotated = np.empty_like(targets)
    for column, alpha in enumerate(problem.alphas):
        rotated[:, column] = ridge(design, targets[:, [column]], design, alpha)[:, 0]
    np.testing.assert_allclose(joined[:, :3], rotated[:, :3] @ rotation.T, atol=1e-4)
    np.testing.assert_allclose(joined[:, 3:], rotated[:, 3:], atol=1e-4)


def ridge(
    seen: NDArray[np.float64], targets: NDArray[np.float64], new: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Scikit-learn's, with a penalty in units of the features' summed variance."""
    penalty = alpha * seen.var(axis=0).sum() * len(seen)
    return np.asarray(Ridge(penalty).fit(seen, targets).predict(new)).reshape(len(new), -1)


def ridge_out_of_fold(
    design: NDArray[np.float64],
    targets: NDArray[np.float64],
    folds: list[NDArray[np.intp]],
    alpha: float,
) -> NDArray[np.float64]:
    found = np.empty_like(targets)
    for held_out in folds:
        seen = np.setdiff1d(np.arange(len(design)), held_out)
        found[held_out] = ridge(design[seen], targets[seen], design[held_out], alpha)
    return found
