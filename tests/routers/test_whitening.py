"""Features in their own eigenbasis."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mildroute.routers._whitening import whiten

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 4)) @ RANDOM.normal(size=(4, 4)) + [10, 0, -3, 1]
TIMES = np.arange(50) % 3


def test_columns_are_centred_and_uncorrelated_with_the_largest_variance_first() -> None:
    design = whiten(X)
    np.testing.assert_allclose(design.columns.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(
        design.columns.T @ design.columns / len(X), np.diag(design.variances), atol=1e-10
    )
    assert (np.diff(design.variances) <= 0).all()


def test_the_basis_leads_back_to_the_features() -> None:
    design = whiten(X)
    np.testing.assert_allclose(design.columns @ design.basis.T + design.mean, X)


def test_weights_of_the_features_give_the_scores_of_the_columns() -> None:
    design, solution = whiten(X), np.random.default_rng(1).normal(size=(4, 3))
    weights = design.weights_of(solution)
    np.testing.assert_allclose((X - design.mean) @ weights, design.columns @ solution)


def test_the_scale_is_the_mean_squared_distance_from_the_mean() -> None:
    assert whiten(X).scale == pytest.approx(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert whiten(1000 * X).scale == pytest.approx(1e6 * whiten(X).scale)


def test_directions_without_variance_are_left_out() -> None:
    twice = np.hstack([X, X[:, :1] + X[:, 1:2], np.full((50, 1), 1e6)])
    assert whiten(twice).columns.shape == (50, 4)


@pytest.mark.parametrize(
    "features",
    [np.ones((5, 3)), np.ones((1, 3)), np.full((80, 3), 0.7), np.full((80, 3), 123.456)],
    ids=["ones", "one row", "0.7", "123.456"],
)
def test_features_that_never_vary_leave_no_column(features: np.ndarray) -> None:
    design = whiten(features)
    assert design.columns.shape == (len(features), 0)
    assert design.scale == 1
    np.testing.assert_array_equal(design.weights_of(np.zeros((0, 2))), np.zeros((3, 2)))


def test_a_row_of_weight_two_is_a_row_twice() -> None:
    weighted, repeated = whiten(X, TIMES.astype(float)), whiten(np.repeat(X, TIMES, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.variances, repeated.variances)
    np.testing.assert_allclose(np.abs(weighted.basis), np.abs(repeated.basis), atol=1e-9)


def test_a_sparse_row_of_weight_two_is_a_row_twice() -> None:
    weighted, repeated = (
        whiten(sparse.csr_array(X), TIMES.astype(float)),
        whiten(sparse.csr_array(np.repeat(X, TIMES, axis=0))),
    )
    assert weighted.scale == pytest.approx(repeated.scale)


def test_leading_directions_are_those_of_enough_variance() -> None:
    design = whiten(X)
    leading = design.leading(design.variances[1])
    assert leading.columns.shape == (50, 2)
    np.testing.assert_array_equal(leading.basis, design.basis[:, :2])
    np.testing.assert_array_equal(leading.variances, design.variances[:2])


def test_the_dtype_is_that_of_the_columns() -> None:
    assert whiten(X, dtype=np.float32).columns.dtype == np.float32
    assert whiten(X.astype(np.float32)).columns.dtype == np.float64
    assert whiten(sparse.csr_array(X), dtype=np.float32).columns.dtype == np.float32


def test_sparse_features_stay_as_they_are() -> None:
    design = whiten(sparse.csr_array(X))
    assert sparse.issparse(design.columns)
    assert design.basis is None
    assert design.leading(np.inf) is design
    np.testing.assert_array_equal(design.columns.toarray(), X)
    np.testing.assert_array_equal(design.mean, np.zeros(4))
    np.testing.assert_allclose(design.variances, (X**2).mean(axis=0))


def test_very_wide_features_stay_as_they_are() -> None:
    wide = np.random.default_rng(0).normal(size=(3, 2049))
    design = whiten(wide)
    assert design.basis is None
    np.testing.assert_array_equal(design.columns, wide)
    np.testing.assert_array_equal(design.weights_of(wide.T), wide.T)
