"""The general algorithm: its optimum by other solvers, its margins by hand, its choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.routers import CostSensitiveClassifier

Matrix = NDArray[np.float64]


def task(seed: int, rows: int, classes: int) -> tuple[Matrix, NDArray[np.intp], Matrix]:
    """Features in two dimensions, labels with some noise, and costs c(x, k, j) of each row."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), random.integers(classes, size=rows - classes)])
    features = random.normal(size=(rows, 2)) + 1.5 * np.stack(
        [np.cos(labels), np.sin(labels)], axis=1
    )
    return features, labels, random.uniform(0, 2, size=(rows, classes))


def terms_by_definition(scores: Any, label: int, costs: Any, rho: float) -> list[float]:
    """``c_j log(1 + exp((f_j - f_k) / rho))`` of each wrong answer j, in plain Python."""
    return [
        costs[j] * math.log1p(math.exp((scores[j] - scores[label]) / rho))
        for j in range(len(scores))
        if j != label
    ]


def objective(
    weights: Matrix, intercept: Matrix, data: tuple[Any, ...], margins: Any, alpha: float, form: str
) -> float:
    features, labels, costs = data
    total = 0.0
    for row, label, cost in zip(features, labels, costs, strict=True):
        terms = terms_by_definition(row @ weights + intercept, label, cost, margins[label])
        total += max(terms) if form == "max" else math.log(sum(math.exp(term) for term in terms))
    scale = features.var(axis=0).sum()
    return float(total / len(labels) + alpha * scale * (weights**2).sum())


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 4), alpha=st.sampled_from([0.01, 0.3]))
def test_the_smooth_form_reaches_the_optimum_of_another_solver(
    seed: int, classes: int, alpha: float
) -> None:
    data = task(seed, 15, classes)
    model = CostSensitiveClassifier(form="smooth", alpha=alpha)
    model.fit(data[0], data[1], costs=data[2])

    def at(unknown: Matrix) -> float:
        values = unknown.reshape(3, classes)
        return objective(values[:2], values[2], data, model.margins_, alpha, "smooth")

    best = minimize(at, np.zeros(3 * classes), method="BFGS").fun
    ours = objective(model.weights_, model.intercept_, data, model.margins_, alpha, "smooth")
    assert ours == pytest.approx(best, abs=1e-5)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 4))
def test_the_maximum_reaches_the_optimum_of_the_problem_with_slack(seed: int, classes: int) -> None:
    """``min mean(s) + penalty`` with ``s_i >= c_ij log(1 + e^..)``, which is smooth, by SLSQP."""
    rows, alpha = 10, 0.05
    features, labels, costs = data = task(seed, rows, classes)
    model = CostSensitiveClassifier(alpha=alpha).fit(features, labels, costs=costs)
    scale = features.var(axis=0).sum()

    def parts(unknown: Matrix) -> tuple[Matrix, Matrix]:
        return unknown[: 3 * classes].reshape(3, classes), unknown[3 * classes :]

    def value(unknown: Matrix) -> float:
        linear, slack = parts(unknown)
        return float(slack.mean() + alpha * scale * (linear[:2] ** 2).sum())

    def room(unknown: Matrix) -> Matrix:
        linear, slack = parts(unknown)
        found = []
        for place, (row, label) in enumerate(zip(features, labels, strict=True)):
            terms = terms_by_definition(
                row @ linear[:2] + linear[2], label, costs[place], model.margins_[label]
            )
            found += [slack[place] - term for term in terms]
        return np.array(found)

    start = np.concatenate([np.zeros(3 * classes), np.full(rows, 3.0)])
    best = minimize(
        value,
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": room},
        options={"maxiter": 1000, "ftol": 1e-10},
    )
    assert best.success
    ours = objective(model.weights_, model.intercept_, data, model.margins_, alpha, "max")
    gap = 1e-3 * costs.max() * math.log(max(classes - 1, 1))
    assert best.fun - 1e-5 <= ours <= best.fun + gap + 1e-4


def test_two_classes_with_equal_costs_are_logistic_regression() -> None:
    features, labels, _ = task(3, 80, 2)
    alpha = 0.05
    ours = CostSensitiveClassifier(margins="uniform", alpha=alpha).fit(features, labels)
    # |w_0|^2 + |w_1|^2 is half of |w_1 - w_0|^2, since the weights are opposite.
    scale = features.var(axis=0).sum()
    other = LogisticRegression(C=1 / (len(labels) * alpha * scale), tol=1e-10).fit(features, labels)
    np.testing.assert_allclose(ours.weights_[:, 1] - ours.weights_[:, 0], other.coef_[0], atol=1e-4)
    np.testing.assert_allclose(
        ours.decision_function(features), other.decision_function(features), atol=1e-3
    )


def test_theory_margins_by_hand() -> None:
    """Eight rows with a squared norm of 1 + 7, and one with 1 + 0: cube roots 4 and 1."""
    X = np.array([[math.sqrt(7.0)]] * 4 + [[-math.sqrt(7.0)]] * 4 + [[0.0]])
    model = CostSensitiveClassifier().fit(X, [0] * 8 + [1])
    np.testing.assert_allclose(model.margins_, [1.6, 0.4])
    weighted = CostSensitiveClassifier().fit(X, [0] * 8 + [1], sample_weight=[1.0] * 8 + [64.0])
    np.testing.assert_allclose(weighted.margins_, [1.0, 1.0])
    given_margins = CostSensitiveClassifier(margins=[3.0, 1.0]).fit(X, [0] * 8 + [1])
    np.testing.assert_allclose(given_margins.margins_, [1.5, 0.5])


def test_where_labels_cannot_be_told_apart_the_cheap_confusion_is_chosen() -> None:
    """Labels a and b are equally likely; taking b for a costs ten times as much as the reverse."""
    X, y = np.zeros((20, 1)), np.array(["a", "b"] * 10)
    for costs, answer in (([[0, 1], [10, 0]], "b"), ([[0, 10], [1, 0]], "a")):
        model = CostSensitiveClassifier(costs, margins="uniform").fit(X, y)
        assert model.predict([[0.0]]).tolist() == [answer]
    rows = np.where(y[:, None] == "b", [10.0, 0.0], [0.0, 1.0])
    assert CostSensitiveClassifier().fit(X, y, costs=rows).predict([[0.0]]).tolist() == ["b"]


def test_it_is_an_estimator_of_scikit_learn() -> None:
    check_estimator(CostSensitiveClassifier(form="smooth"), on_skip=None)


@pytest.mark.parametrize(
    ("options", "y", "costs", "error", "message"),
    [
        ({}, [0, 0, 0], None, ArgumentError, "at least 2 classes"),
        ({"form": "hinge"}, [0, 1, 0], None, ArgumentError, "max or smooth, got 'hinge'"),
        ({"alpha": 0.0}, [0, 1, 0], None, ArgumentError, "alpha must be positive"),
        ({"margins": "wins"}, [0, 1, 0], None, ArgumentError, "theory, uniform or 2 numbers"),
        ({"margins": [1.0, 0.0]}, [0, 1, 0], None, ArgumentError, "2 positive numbers"),
        ({"costs": [[0, 1]]}, [0, 1, 0], None, ShapeError, r"\(2, 2\), got shape \(1, 2\)"),
        ({}, [0, 1, 0], [[0, 1]], ShapeError, r"\(3, 2\), got shape \(1, 2\)"),
        ({"costs": [[0, -1], [1, 0]]}, [0, 1, 0], None, CostError, "not negative, got -1.0"),
    ],
)
def test_bad_arguments_are_refused(
    options: dict[str, Any], y: list[int], costs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        CostSensitiveClassifier(**options).fit([[0.0], [1.0], [2.0]], y, costs=costs)
