from __future__ import annotations

import numpy as np
from scipy import sparse

from mildroute._hashing import hash_rows, rehash


def rows(seed: int = 0, size: tuple[int, int] = (500, 7)) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(size=size) * (random.random(size) < 0.4)


def test_equal_rows_hash_alike_wherever_they_stand() -> None:
    X = rows()
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(hash_rows(X)[order], hash_rows(X[order]))
    np.testing.assert_array_equal(hash_rows(X)[3:4], hash_rows(X[3:4]))


def test_different_rows_differ() -> None:
    X = np.unique(rows(size=(3000, 5)), axis=0)
    assert len(np.unique(hash_rows(X))) == len(X)
    assert hash_rows(np.array([[1.0, 2.0]])) != hash_rows(np.array([[2.0, 1.0]]))


def test_a_sparse_row_hashes_like_its_dense_form_even_with_stored_zeros() -> None:
    X = rows()
    stored = sparse.csr_array(
        (np.array([0.0, 2.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3)
    )
    np.testing.assert_array_equal(hash_rows(sparse.csr_matrix(X)), hash_rows(X))
    np.testing.assert_array_equal(hash_rows(stored), hash_rows(np.array([[0.0, 0.0, 2.0]])))


def test_minus_zero_is_zero_and_single_precision_is_read_as_double() -> None:
    assert hash_rows(np.array([[-0.0, 1.0]])) == hash_rows(np.array([[0.0, 1.0]]))
    X = rows().astype(np.float32)
    np.testing.assert_array_equal(hash_rows(X), hash_rows(X.astype(np.float64)))


def test_blocks_do_not_show() -> None:
    X = rows(size=(3000, 400))
    np.testing.assert_array_equal(
        hash_rows(X), np.concatenate([hash_rows(X[:17]), hash_rows(X[17:])])
    )


def test_another_seed_gives_an_unrelated_hash() -> None:
    X = rows()
    assert not (hash_rows(X, seed=1) == hash_rows(X, seed=2)).any()


def test_hashes_are_even_over_all_bits() -> None:
    hashed = rehash(np.zeros(20_000, dtype=np.uint64), np.arange(20_000, dtype=np.uint64))
    bits = (hashed[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.02
