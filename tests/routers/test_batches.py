from __future__ import annotations

import numpy as np
from scipy import sparse

from mildroute.routers._batches import batches_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 3)) * [1.0, 100.0, 0.0] + [5.0, -7.0, 3.0]


def test_dense_columns_are_brought_to_mean_zero_and_variance_one() -> None:
    rows = batches_of(X).take(np.arange(50))
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(rows.std(axis=0), [1, 1, 0], atol=1e-5)
    assert rows.dtype == np.float32


def test_sparse_rows_keep_their_zeros_and_get_unit_mean_square() -> None:
    thin = X * (RANDOM.random(X.shape) < 0.3)
    rows = batches_of(sparse.csr_array(thin)).take(np.arange(50))
    np.testing.assert_array_equal(rows == 0, thin == 0)
    np.testing.assert_allclose((rows**2).mean(), 1, rtol=1e-5)


def test_a_first_layer_is_turned_back_to_raw_rows() -> None:
    weights, bias = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=2)
    for features in (X, sparse.csr_array(X)):
        batches = batches_of(features)
        raw_weights, raw_bias = batches.for_raw_rows(weights, bias)
        np.testing.assert_allclose(
            features @ raw_weights + raw_bias,
            batches.take(np.arange(50)) @ weights + bias,
            rtol=1e-4,
            atol=1e-4,
        )


def test_rows_of_zeros_and_empty_sparse_rows_divide_by_nothing() -> None:
    for features in (np.zeros((4, 2)), sparse.csr_array((4, 2))):
        np.testing.assert_array_equal(batches_of(features).take(np.arange(4)), 0)
