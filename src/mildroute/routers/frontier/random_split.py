"""The random split between the two vertices of an operating point.

Each request has a draw, a number in [0, 1) that depends only on its id (or its text, or the content
of its row) and on the seed of the router. A retry therefore gets the same expert, and the library,
the gateway and the plug-ins make the same choice. Without exploration, the propensities of a
decision are the probabilities of the vertices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from mildroute._hashing import hash_rows, rehash
from mildroute.exceptions import ArgumentError

__all__ = ["request_draws", "row_draws", "select_vertex"]


@overload
def select_vertex(draws: float, probability: float) -> int: ...
@overload
def select_vertex(draws: NDArray[np.float64], probability: float) -> NDArray[np.intp]: ...
def select_vertex(draws: float | NDArray[np.float64], probability: float) -> int | NDArray[np.intp]:
    """Return 0 for each draw that selects the first vertex, and 1 for the second.

    Args:
        draws: One draw, or an array of them.
        probability: Probability of the first vertex; 1 if there is no second one.
    """
    if isinstance(draws, np.ndarray):
        return (draws >= probability).astype(np.intp)
    return int(draws >= probability)


def request_draws(keys: Iterable[str | bytes], seed: int = 0) -> NDArray[np.float64]:
    """Return a number from 0 to just below 1 for each key, the same in every process.

    Args:
        keys: Ids of requests, or their texts.
        seed: Seed of the numbers; different seeds give unrelated numbers.
    """
    prefix = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=8)
    return np.array([_draw(prefix.copy(), key) for key in keys], dtype=np.float64)


def row_draws(X: Any, seed: int = 0) -> NDArray[np.float64]:
    """Return a number from 0 to just below 1 for each row without an id, shape (n,).

    The number depends on the content of the row and on how many equal rows precede it in ``X``.
    Equal rows thus get unrelated numbers, and a row on its own always gets the same one.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Seed of the numbers; different seeds give unrelated numbers.
    """
    hashes = hash_rows(X, seed)
    repeats = _count_earlier(hashes)
    again = np.flatnonzero(repeats)  # the first of equal rows keeps its hash
    hashes[again] = rehash(hashes[again], repeats[again])
    return np.asarray((hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _count_earlier(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the number of equal values that precede each value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(values)))
    earlier = np.empty(len(values), dtype=np.uint64)
    earlier[order] = np.arange(len(values)) - np.repeat(starts, sizes)
    return earlier


def _draw(digest: hashlib.blake2b, key: str | bytes) -> float:
    if not isinstance(key, (str, bytes)):
        raise ArgumentError(f"request ids must be strings, got {key!r}; convert it with str().")
    digest.update(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)
    # Use 53 bits, so that the largest number is still below 1.
    return (int.from_bytes(digest.digest(), "little") >> 11) * 2.0**-53
