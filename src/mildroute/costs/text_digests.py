"""128-bit digests of many texts at once, several times faster than a cryptographic hash of their bytes.

A digest is a pair of linear sums, modulo 2^64, of the words of a text: once as they are, once with their bytes in reverse, under fixed
random coefficients. One sum alone would hardly see differences in high bytes, which multiplication only moves further up; together they
tell any two texts apart but for a chance below 2^-64. They notice every accident, and are no proof against a deliberate forgery.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["digests", "fingerprints", "text_fingerprints"]

_WIDTHS = (64, 256, 1024, 4096, 16_384, 65_536)
_WORD = 8
_BLOCK_ROWS, _BLOCK_BYTES = 32_768, 2**20  # padded texts of a block stay in the cache
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def digests(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """A pair of 64-bit numbers for each text; the same in every process, chunk and batch.

    Args:
        column: Strings, large or not, length n.

    Returns:
        Shape (n, 2).

    Example:
        >>> digests(pa.chunked_array([["a", "b"], ["a"]])).shape
        (3, 2)
    """
    runs = [_of_block(chunk.slice(start, _BLOCK_ROWS)) for chunk in column.chunks for start in range(0, len(chunk), _BLOCK_ROWS)]
    return np.concatenate(runs) if runs else np.empty((0, 2), np.uint64)


def fingerprints(marks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Digests as one 64-bit number each, shape (n,): a chance repeat among ten million texts has probability below 3 in a million.

    Example:
        >>> same = fingerprints(digests(pa.chunked_array([["a", "b", "a"]])))
        >>> bool(same[0] == same[2]), bool(same[0] == same[1])
        (True, False)
    """
    mixed = marks[:, 1] * _GOLDEN
    mixed ^= mixed >> np.uint64(32)
    return np.asarray(mixed + marks[:, 0])


def text_fingerprints(table: Any) -> NDArray[np.int64]:
    """Fingerprints of a table's inputs as signed numbers, which an artifact can hold.

    Args:
        table: A ``CostTable`` with inputs.

    Returns:
        Shape (n,).

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.of({"input": ["a", "b"], "score:a": [1, 0], "score:b": [0, 1]})
        >>> text_fingerprints(table).shape
        (2,)
    """
    return fingerprints(digests(table.arrow.column("input"))).view(np.int64)


def _of_block(block: pa.Array) -> NDArray[np.uint64]:
    """The way is chosen by the length of each text, so that its digest does not depend on what stands beside it."""
    lengths = np.diff(offsets_of(block))
    shortest, longest = (bisect_left(_WIDTHS, int(length)) for length in (lengths.min(), lengths.max()))
    if shortest == longest:
        return _of_class(block, lengths, longest)
    classes = np.searchsorted(_WIDTHS, lengths)
    values = np.empty((len(block), 2), np.uint64)
    for number in np.unique(classes):
        rows = classes == number
        values[rows] = _of_class(block.filter(pa.array(rows)), lengths[rows], int(number))
    return values


def _of_class(texts: pa.Array, lengths: NDArray[Any], number: int) -> NDArray[np.uint64]:
    if number == len(_WIDTHS):
        hashed = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts.to_pylist())
        return np.frombuffer(hashed, "<u8").reshape(-1, 2).astype(np.uint64)
    width = max(_WORD, -(-int(lengths.max()) // _WORD) * _WORD)
    step = max(1, _BLOCK_BYTES // width)
    runs = [_sums(_padded(texts.slice(start, step), width), lengths[start : start + step]) for start in range(0, len(texts), step)]
    return runs[0] if len(runs) == 1 else np.concatenate(runs)


def _padded(texts: pa.Array, width: int) -> NDArray[np.uint64]:
    """Texts as rows of words, filled up with zeros, which add nothing to a sum."""
    padded = pc.ascii_rpad(texts, width, padding="\0")
    words = np.frombuffer(padded.buffers()[2], "<u8", count=len(texts) * width // _WORD)
    return words.reshape(len(texts), -1).astype(np.uint64, copy=False)


def _sums(words: NDArray[np.uint64], lengths: NDArray[Any]) -> NDArray[np.uint64]:
    forward, backward = _COEFFICIENTS[:, : words.shape[1]]
    # a cast to the other byte order is many times faster than byteswap(), and einsum than a product of integer matrices
    reverse = words.astype(words.dtype.newbyteorder()).view(words.dtype)
    sums = np.empty((len(words), 2), np.uint64)
    np.einsum("ij,j->i", words, forward, out=sums[:, 0])
    np.einsum("ij,j->i", reverse, backward, out=sums[:, 1])
    sums += (lengths.astype(np.uint64) * _GOLDEN)[:, None]
    return sums


def offsets_of(texts: pa.Array) -> NDArray[Any]:
    """Where each text begins in the buffer, and where the last one ends; shape (n + 1,)."""
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    return np.frombuffer(texts.buffers()[1], kind)[texts.offset : texts.offset + len(texts) + 1]


def _coefficients(count: int) -> NDArray[np.uint64]:
    """Odd numbers that look random (splitmix64); they belong to the definition of the digest and never change."""
    state = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) | np.uint64(1)


_COEFFICIENTS = _coefficients(2 * _WIDTHS[-1] // _WORD).reshape(2, -1)
