"""The solver finds the optimum of the objective as it is written, whatever the units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from mildroute.losses.functional import deferral_loss
from mildroute.routers._linear_model import OPTIMAL, ROUGH, LinearSolution, RowLoss, minimize_linear
from mildroute.routers._whitening import whiten
from mildroute.routers.mild import MildRouter
from mildroute.routers.surrogate import with_autograd
from tests.support.routers import problem

Array = NDArray[np.float64]

MARGINS = {"equal": np.ones(3), "differing": np.array([0.5, 1.0, 1.5])}


def rewards_of(costs: Array) -> Array:
    return costs.max(axis=1, keepdims=True) - costs


def loss_of(costs: Array, margins: Array) -> RowLoss:
    rewards, rho = torch.from_numpy(rewards_of(costs)), torch.from_numpy(margins)
    return with_autograd(
        lambda scores: deferral_loss(
            scores, rewards.to(scores.dtype), rho.to(scores.dtype), reduction="none"
        )
    )


def solve(X: Any, costs: Array, margins: Array, **settings: Any) -> LinearSolution:
    settings = {"alpha": 0.01, **settings}
    return minimize_linear(
        whiten(X, settings.get("sample_weight")),
        loss_of(costs, margins),
        costs.shape[1],
        **settings,
    )


def written_out(X: Array, costs: Array, margins: Array, alpha: float) -> Callable[[Array], float]:
    """Mean over rows of sum_k reward_k log sum_j exp((f_j - f_k) / rho_k), plus penalty * mean |x -
    mean|^2 * |W|^2.
    """
    rewards, ridge = rewards_of(costs), alpha * X.var(axis=0).sum()

    def objective(flat: Array) -> float:
        weights, intercept = (
            flat[: -costs.shape[1]].reshape(X.shape[1], -1),
            flat[-costs.shape[1] :],
        )
        scores = X @ weights + intercept
        gaps = scores[:, None, :] - scores[:, :, None]
        surprise = np.log(np.exp(gaps / margins[:, None]).sum(axis=2))
        return float((rewards * surprise).sum(axis=1).mean() + ridge * (weights**2).sum())

    return objective


@pytest.mark.parametrize("margins", MARGINS.values(), ids=MARGINS)
def test_the_optimum_is_that_of_a_generic_minimiser(margins: Array) -> None:
    X, costs = problem(3, rows=40)
    X += 1  # the intercept has work to do
    fit = solve(X, costs, margins, tolerance=1e-10)
    objective = written_out(X, costs, margins, 0.01)
    generic = minimize(objective, np.zeros(18), method="BFGS", options={"gtol": 1e-7}, tol=1e-14)
    assert objective(np.concatenate([fit.weights.ravel(), fit.intercept])) == pytest.approx(
        fit.objective, abs=1e-12
    )
    assert fit.objective == pytest.approx(generic.fun, abs=1e-9)
    np.testing.assert_allclose(fit.weights.ravel(), generic.x[:-3], atol=1e-6)
    np.testing.assert_allclose(
        fit.intercept - fit.intercept.mean(), generic.x[-3:] - generic.x[-3:].mean(), atol=1e-6
    )


def test_the_gradient_norm_is_reported() -> None:
    fit = solve(*problem(3), MARGINS["equal"])
    assert 0 < fit.gradient_norm <= OPTIMAL
    assert solve(*problem(3), MARGINS["equal"], tolerance=ROUGH).gradient_norm > fit.gradient_norm


def test_a_warm_start_leads_to_the_same_optimum_in_fewer_steps() -> None:
    X, costs = problem(3)
    cold = solve(X, costs, MARGINS["differing"], tolerance=1e-9)
    neighbor = solve(X, costs, MARGINS["differing"], alpha=0.011)
    warm = solve(X, costs, MARGINS["differing"], start=neighbor.solution, tolerance=1e-9)
    np.testing.assert_allclose(warm.scores(X), cold.scores(X), atol=1e-6)
    assert warm.iterations < cold.iterations
    assert solve(X, costs, MARGINS["differing"], start=cold.solution).iterations <= 1


def test_a_warm_start_may_have_fewer_directions() -> None:
    X, costs = problem(3)
    rough = solve(X, costs, MARGINS["equal"], alpha=3.0, tolerance=ROUGH)
    assert len(rough.solution) < X.shape[1] + 1
    warm, cold = (
        solve(X, costs, MARGINS["equal"], start=start, tolerance=1e-9)
        for start in (rough.solution, None)
    )
    np.testing.assert_allclose(warm.scores(X), cold.scores(X), atol=1e-6)


def test_a_rough_solution_is_close_to_the_optimum() -> None:
    X, costs = problem(3)
    rough, exact = (
        solve(X, costs, MARGINS["equal"], tolerance=tolerance) for tolerance in (ROUGH, OPTIMAL)
    )
    assert np.mean(rough.scores(X).argmax(axis=1) == exact.scores(X).argmax(axis=1)) > 0.95
    assert rough.objective == pytest.approx(exact.objective, rel=1e-2)


@pytest.mark.parametrize("margins", MARGINS.values(), ids=MARGINS)
def test_the_unit_of_the_features_does_not_matter(margins: Array) -> None:
    X, costs = problem(3)
    one, other = (
        solve(X, costs, margins, tolerance=1e-9),
        solve(1000 * X, costs, margins, tolerance=1e-9),
    )
    np.testing.assert_allclose(other.scores(1000 * X), one.scores(X), atol=1e-6)


def test_neither_unit_matters_to_a_router() -> None:
    X, costs = problem(3)
    router = MildRouter(features="raw", reward="gap", margins="theory", alpha=0.01)
    expected = router.fit(X, costs).predict_proba(X)
    np.testing.assert_allclose(
        router.fit(1000 * X, costs).predict_proba(1000 * X), expected, atol=1e-5
    )
    np.testing.assert_allclose(router.fit(X, 7 * costs).predict_proba(X), expected, atol=1e-5)


def test_shifted_features_give_the_same_scores() -> None:
    X, costs = problem(3)
    one, other = (
        solve(X, costs, MARGINS["equal"], tolerance=1e-9),
        solve(X + 100, costs, MARGINS["equal"], tolerance=1e-9),
    )
    np.testing.assert_allclose(other.scores(X + 100), one.scores(X), atol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_row_of_weight_two_is_a_row_twice(kind: Any) -> None:
    X, costs = problem(3)
    times = np.arange(len(X)) % 3
    weighted = solve(
        kind(X), costs, MARGINS["differing"], sample_weight=times.astype(float), tolerance=1e-9
    )
    repeated = solve(
        kind(np.repeat(X, times, axis=0)),
        np.repeat(costs, times, axis=0),
        MARGINS["differing"],
        tolerance=1e-9,
    )
    np.testing.assert_allclose(weighted.scores(X), repeated.scores(X), atol=1e-6)


def test_sparse_features_of_mean_zero_give_the_same_scores() -> None:
    X, costs = problem(3)
    X -= X.mean(axis=0)
    dense, thin = (
        solve(X, costs, MARGINS["equal"], tolerance=1e-9),
        solve(sparse.csr_array(X), costs, MARGINS["equal"], tolerance=1e-9),
    )
    np.testing.assert_allclose(thin.scores(X), dense.scores(X), atol=1e-6)


def test_features_that_never_vary_leave_the_intercept() -> None:
    X, costs = np.ones((40, 2)), problem(3, rows=40)[1]
    fit = solve(X, costs, MARGINS["equal"], tolerance=1e-10)
    shares = rewards_of(costs).sum(axis=0)
    np.testing.assert_allclose(
        np.exp(fit.scores(X[:1])[0]) / np.exp(fit.scores(X[:1])[0]).sum(),
        shares / shares.sum(),
        atol=1e-6,
    )


def test_a_large_penalty_leaves_the_intercept() -> None:
    X, costs = problem(3)
    fit = solve(X, costs, MARGINS["equal"], alpha=1e6)
    np.testing.assert_allclose(fit.weights, 0, atol=1e-5)


def test_giving_up_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="stopped after 2 steps"):
        assert solve(*problem(3), MARGINS["equal"], max_iterations=2).iterations == 2


def test_an_expert_that_never_wins_is_no_reason_to_give_up() -> None:
    """Its intercept has no optimum; what the scores decide is settled long before."""
    random = np.random.default_rng(2)
    X = random.normal(size=(80, 5))
    winner = (X @ random.normal(size=(5, 11))).argmax(axis=1)
    assert len(np.unique(winner)) < 11
    fit = solve(X, 1 - np.eye(11)[winner], np.ones(11), alpha=3e-5)
    np.testing.assert_array_equal(fit.scores(X).argmax(axis=1), winner)
