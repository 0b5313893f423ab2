"""Prompts that are equal up to case and space, come from one template, or are almost equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.links import number_by_first_row

__all__ = ["normalize_prompt", "template_links"]

# Similarities of character 5-grams at which prompts become near-duplicates, from tight to loose.
_LEVELS = (0.95, 0.9, 0.8)
_SHINGLE = 5
# Columns of a fingerprint, and the distance between the columns from which it is sorted.
_COLUMNS = 32
_PER_SORT = 4
# Near-duplicates may differ anywhere, but the ends of a long prompt are enough to compare.
_CHARACTERS = 2000
# Number of rows searched for near-duplicates: 50,000 prompts of 400 characters take 12 s.
_MAX_ROWS = 50_000

_SPACES = re.compile(r"\s+")
# UUIDs and hex, then any token with a digit: order 7FKQ2ZP9, ticket A-1042.
_IDS = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]+)*\b|[0-9a-z]*\d[0-9a-z]*")
_SIGNS = re.compile(r"[\W_]+")


def normalize_prompt(text: str) -> str:
    """Return a prompt without differences of case, white space and punctuation at its ends."""
    folded = _SPACES.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return folded.strip(" .,;:!?\"'") or folded


def _mask_numbers(text: str) -> str:
    """Return a prompt with numbers and ids masked and without punctuation."""
    normalized = normalize_prompt(text)
    return _SIGNS.sub(" ", _IDS.sub("0", normalized)).strip() or normalized


def template_links(texts: Sequence[str]) -> tuple[list[NDArray[np.intp]], tuple[str, ...]]:
    """Link prompts that are equal once masked, and those that are almost equal.

    Also return notes on rows that were not searched.
    """
    masked = [_mask_numbers(text) for text in texts]
    codes = number_by_first_row(masked)
    first = np.unique(codes, return_index=True)[1]
    if len(first) > _MAX_ROWS:
        return [codes], (
            (
                f"near-duplicates were not sought among more than {_MAX_ROWS:,} different prompts;"
                " a column 'group' or 'conversation' tells which rows belong together"
            ),
        )
    near = _near_duplicates([masked[row] for row in first])
    return [codes, *(level[codes] for level in near)], ()


def _near_duplicates(texts: Sequence[str]) -> list[NDArray[np.intp]]:
    """Link texts by the similarity of their sets of character 5-grams, from tight to loose.

    Written by hand because the fingerprints of all texts come from one pass over their characters:
    10,000 questions of MMLU take 2 s on one core.
    """
    marks = _fingerprints(texts)
    left, right, similarity = _neighbors(marks)
    heads = list(range(len(texts)))
    levels = []
    for lowest in _LEVELS:
        is_alike = similarity >= lowest
        for row, other in zip(left[is_alike].tolist(), right[is_alike].tolist(), strict=True):
            _join(heads, row, other, marks, lowest)
        levels.append(np.array([_head_of(heads, row) for row in range(len(heads))]))
    return levels


def _join(heads: list[int], row: int, other: int, marks: NDArray[np.uint32], lowest: float) -> None:
    """Join the components of two rows if the first rows of both are alike as well.

    Without this condition, distinct prompts that resemble each other in pairs would form a chain.
    """
    first, second = sorted((_head_of(heads, row), _head_of(heads, other)))
    if first != second and (marks[first] == marks[second]).mean() >= lowest:
        heads[second] = first


def _head_of(heads: list[int], row: int) -> int:
    """Return the first row of a component, and shorten the way to it."""
    while heads[row] != row:
        heads[row] = heads[heads[row]]
        row = heads[row]
    return row


def _neighbors(
    marks: NDArray[np.uint32],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return pairs of rows whose fingerprints agree most, the most similar ones first.

    Fingerprints are sorted from several columns on, so that neighbors in the order share the
    longest run of equal columns. Words that all prompts of a table share do not hide the copies.
    """
    pairs = []
    for start in range(0, marks.shape[1], _PER_SORT):
        turned = np.ascontiguousarray(np.roll(marks, -start, axis=1))
        keys = turned.view(np.dtype((np.void, turned.dtype.itemsize * marks.shape[1]))).ravel()
        order = np.argsort(keys, kind="stable")
        pairs.append(np.sort(np.stack([order[:-1], order[1:]], axis=1), axis=1))
    left, right = np.unique(np.concatenate(pairs), axis=0).T
    similarity = (marks[left] == marks[right]).mean(axis=1)
    is_near = np.flatnonzero(similarity >= _LEVELS[-1])
    best = is_near[np.argsort(-similarity[is_near], kind="stable")]
    return left[best], right[best], similarity[best]


def _fingerprints(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return the MinHash of the character 5-grams of each text, shape (n, 32)."""
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, size=_COLUMNS, dtype=np.uint64) | np.uint64(1)
    offsets = rng.integers(0, 2**63, size=_COLUMNS, dtype=np.uint64)
    minima = np.empty((len(texts), len(factors)), dtype=np.uint32)
    for start in range(0, len(texts), 2000):
        grams, starts = _shingles(texts[start : start + 2000])
        for index, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
            mixed = ((grams * factor + offset) >> np.uint64(32)).astype(np.uint32)
            minima[start : start + 2000, index] = np.minimum.reduceat(mixed, starts)
    return minima


def _shingles(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Return a number for each run of 5 characters, and the index at which each text begins."""
    half = _CHARACTERS // 2
    # Long texts keep both ends; short ones are padded, so that each text has at least one run.
    cut = [
        (text if len(text) <= _CHARACTERS else text[:half] + text[-half:]).ljust(_SHINGLE)
        for text in texts
    ]
    letters = np.frombuffer("".join(cut).encode("utf-32-le", "surrogatepass"), "<u4")
    letters = letters.astype(np.uint64)
    lengths = np.array([len(text) for text in cut])
    runs = np.zeros(len(letters) - _SHINGLE + 1, dtype=np.uint64)
    for offset in range(_SHINGLE):
        runs = runs * np.uint64(0x100000001B3) + letters[offset : offset + len(runs)]
    # Scrambled, because neighboring sums must not stay neighbors.
    runs ^= runs >> np.uint64(29)
    runs *= np.uint64(0xBF58476D1CE4E5B9)
    runs ^= runs >> np.uint64(32)
    ends = np.cumsum(lengths)
    inside = np.ones(len(letters), dtype=bool)
    for offset in range(1, _SHINGLE):
        inside[ends - offset] = False
    shingles = runs[inside[: len(runs)]]
    counts = lengths - _SHINGLE + 1
    return shingles, np.cumsum(counts) - counts
