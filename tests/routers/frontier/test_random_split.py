from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError
from mildroute.routers.frontier.random_split import request_draws, row_draws, select_vertex


def rows() -> np.ndarray:
    random = np.random.default_rng(0)
    return random.normal(size=(500, 7)) * (random.random((500, 7)) < 0.4)


def test_a_draw_below_the_probability_selects_the_first_vertex() -> None:
    assert select_vertex(np.array([0.0, 0.29, 0.3, 0.9]), 0.3).tolist() == [0, 0, 1, 1]
    assert [select_vertex(draw, 0.3) for draw in (0.29, 0.3)] == [0, 1]
    # Without a second vertex, the first one has probability 1.
    assert select_vertex(1 - 2.0**-53, 1.0) == 0


def test_request_ids_must_be_texts() -> None:
    with pytest.raises(ArgumentError, match="request ids must be strings, got 7"):
        request_draws([7])  # type: ignore[list-item]


def test_different_rows_keep_their_draws_in_any_order_and_alone() -> None:
    X = np.unique(rows(), axis=0)
    order = np.random.default_rng(1).permutation(len(X))
    draws = row_draws(X, seed=3)
    np.testing.assert_array_equal(row_draws(X[order], seed=3), draws[order])
    np.testing.assert_array_equal(row_draws(sparse.csr_matrix(X), seed=3), draws)
    for row in range(0, len(X), 100):
        np.testing.assert_array_equal(row_draws(X[row : row + 1], seed=3), draws[row : row + 1])
    assert row_draws(X[:0]).shape == (0,)


def test_equal_rows_have_draws_of_their_own() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 2.0]], 5_000, axis=0)
    draws = row_draws(X)
    assert len(np.unique(draws)) == len(X)
    assert ((draws >= 0) & (draws < 1)).all()
    for part in (draws[:5_000], draws[5_000:]):
        np.testing.assert_allclose(np.histogram(part, 4, (0, 1))[0], 1_250, atol=125)
        assert abs(np.corrcoef(part[1:], part[:-1])[0, 1]) < 0.06
    # As a set the draws do not depend on where the equal rows stand.
    order = np.random.default_rng(1).permutation(len(X))
    again = row_draws(X[order])
    np.testing.assert_array_equal(np.sort(again[order < 5_000]), np.sort(draws[:5_000]))
