from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mildroute.routers import _nearest
from mildroute.routers._nearest import nearest_blocks


def collect(*arguments: object, **options: object) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(nearest_blocks(*arguments, **options))  # type: ignore[arg-type]
    return np.vstack([near for _, near, _ in blocks]), np.vstack(
        [squares for _, _, squares in blocks]
    )


def brute_force(queries: np.ndarray, rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    squares = np.array([[((query - row) ** 2).sum() for row in rows] for query in queries])
    near = np.argsort(squares, axis=1, kind="stable")[:, :size]
    return near, np.take_along_axis(squares, near, axis=1)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_neighbors_are_those_of_a_plain_loop(size: int) -> None:
    random = np.random.default_rng(0)
    queries, rows = random.normal(size=(9, 3)), random.normal(size=(40, 3))
    near, squares = collect(queries, rows, size)
    expected_near, expected_squares = brute_force(queries, rows, size)
    np.testing.assert_array_equal(near, expected_near)
    np.testing.assert_allclose(squares, expected_squares, atol=1e-8)


def test_sparse_and_dense_mix_freely() -> None:
    random = np.random.default_rng(0)
    queries, rows = random.normal(size=(9, 3)), random.normal(size=(40, 3))
    expected, _ = collect(queries, rows, 5)
    for left in (queries, sparse.csr_matrix(queries), sparse.csr_array(queries)):
        for right in (rows, sparse.csr_matrix(rows), sparse.csr_array(rows)):
            np.testing.assert_array_equal(collect(left, right, 5)[0], expected)


def test_a_row_left_out_is_not_its_own_neighbor() -> None:
    rows = np.random.default_rng(0).normal(size=(12, 2))
    near, _ = collect(rows, rows, 11, own=np.arange(12))
    assert not (near == np.arange(12)[:, None]).any()


def test_blocks_bound_memory_and_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    queries, rows = random.normal(size=(50, 3)), random.normal(size=(40, 3))
    whole = collect(queries, rows, 5)
    monkeypatch.setattr(_nearest, "_BLOCK_ELEMENTS", 150)
    assert len(list(nearest_blocks(queries, rows, 5))) == 17
    for expected, got in zip(whole, collect(queries, rows, 5), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_equal_rows_are_found_in_order_and_at_a_positive_distance() -> None:
    near, squares = collect(np.ones((1, 3)), np.ones((6, 3)), 6)
    np.testing.assert_array_equal(near, [np.arange(6)])
    assert ((squares > 0) & (squares < 1e-9)).all()
