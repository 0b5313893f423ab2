"""Detection of prompts that are equal up to case and spaces, share a template, or almost match."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.links import number_by_first_row

__all__ = ["normalize_prompt", "template_links"]

# Minimum similarities of near-duplicates, in character 5-grams, from tight to loose.
_MIN_SIMILARITIES = (0.95, 0.9, 0.8)
# Characters per n-gram.
_GRAM_LENGTH = 5
# Number of columns in a fingerprint.
_COLUMNS = 32
# Distance between the columns at which sorts start.
_COLUMNS_PER_SORT = 4
# Maximum characters of a prompt to compare; of longer prompts, both ends are compared.
_MAX_CHARACTERS = 2000
# Maximum number of prompts to search for near-duplicates; 50,000 of 400 characters take 12 s.
_MAX_ROWS = 50_000

_SPACES = re.compile(r"\s+")
# UUIDs and hex, then any token with a digit: order 7FKQ2ZP9, ticket A-1042.
_IDS = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]+)*\b|[0-9a-z]*\d[0-9a-z]*")
_PUNCTUATION = re.compile(r"[\W_]+")


def normalize_prompt(text: str) -> str:
    """Return a prompt in lower case, with single spaces and without punctuation at its ends."""
    folded = _SPACES.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return folded.strip(" .,;:!?\"'") or folded


def _mask_numbers(text: str) -> str:
    """Return a prompt with masked numbers and ids, and without punctuation."""
    normalized = normalize_prompt(text)
    return _PUNCTUATION.sub(" ", _IDS.sub("0", normalized)).strip() or normalized


def template_links(texts: Sequence[str]) -> tuple[list[NDArray[np.intp]], tuple[str, ...]]:
    """Link prompts that are equal after masking, and prompts that are almost equal.

    Also return a note if near-duplicates were not searched for.
    """
    masked = [_mask_numbers(text) for text in texts]
    codes = number_by_first_row(masked)
    first_rows = np.unique(codes, return_index=True)[1]
    if len(first_rows) > _MAX_ROWS:
        return [codes], (
            (
                f"near-duplicates are not searched for among more than {_MAX_ROWS:,} different"
                " prompts; add a 'group' or 'conversation' column to link rows"
            ),
        )
    levels = _near_duplicates([masked[row] for row in first_rows])
    return [codes, *(level[codes] for level in levels)], ()


def _near_duplicates(texts: Sequence[str]) -> list[NDArray[np.intp]]:
    """Link texts by the similarity of their sets of character 5-grams, from tight to loose.

    Written by hand, because one pass over the characters computes all fingerprints: 10,000 MMLU
    questions take 2 s on one core.
    """
    fingerprints = _fingerprints(texts)
    left, right, similarity = _neighbors(fingerprints)
    first_row_of = list(range(len(texts)))
    levels = []
    for min_similarity in _MIN_SIMILARITIES:
        is_similar = similarity >= min_similarity
        for row, other in zip(left[is_similar].tolist(), right[is_similar].tolist(), strict=True):
            _join(first_row_of, row, other, fingerprints, min_similarity)
        levels.append(
            np.array([_find_first_row(first_row_of, row) for row in range(len(first_row_of))])
        )
    return levels


def _join(
    first_row_of: list[int],
    row: int,
    other: int,
    fingerprints: NDArray[np.uint32],
    min_similarity: float,
) -> None:
    """Join two rows' components if the first rows of both are similar as well.

    Without this condition, distinct prompts that are similar in pairs would form a chain.
    """
    first, second = sorted(
        (_find_first_row(first_row_of, row), _find_first_row(first_row_of, other))
    )
    if first != second and (fingerprints[first] == fingerprints[second]).mean() >= min_similarity:
        first_row_of[second] = first


def _find_first_row(first_row_of: list[int], row: int) -> int:
    """Return the first row of a component, and shorten the path to it."""
    while first_row_of[row] != row:
        first_row_of[row] = first_row_of[first_row_of[row]]
        row = first_row_of[row]
    return row


def _neighbors(
    fingerprints: NDArray[np.uint32],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return the pairs of rows with the most similar fingerprints, most similar first.

    Sorting starts at several different columns, so that neighbors in sorted order share the longest
    run of equal columns. Words that all prompts share do not hide copies.
    """
    pairs = []
    for start in range(0, fingerprints.shape[1], _COLUMNS_PER_SORT):
        rotated = np.ascontiguousarray(np.roll(fingerprints, -start, axis=1))
        keys = rotated.view(
            np.dtype((np.void, rotated.dtype.itemsize * fingerprints.shape[1]))
        ).ravel()
        order = np.argsort(keys, kind="stable")
        pairs.append(np.sort(np.stack([order[:-1], order[1:]], axis=1), axis=1))
    left, right = np.unique(np.concatenate(pairs), axis=0).T
    similarity = (fingerprints[left] == fingerprints[right]).mean(axis=1)
    is_near = np.flatnonzero(similarity >= _MIN_SIMILARITIES[-1])
    sorted_pairs = is_near[np.argsort(-similarity[is_near], kind="stable")]
    return left[sorted_pairs], right[sorted_pairs], similarity[sorted_pairs]


def _fingerprints(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return each text's MinHash of character 5-grams, shape (n, 32)."""
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, size=_COLUMNS, dtype=np.uint64) | np.uint64(1)
    offsets = rng.integers(0, 2**63, size=_COLUMNS, dtype=np.uint64)
    fingerprints = np.empty((len(texts), len(factors)), dtype=np.uint32)
    for start in range(0, len(texts), 2000):
        grams, starts = _gram_hashes(texts[start : start + 2000])
        for index, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
            mixed = ((grams * factor + offset) >> np.uint64(32)).astype(np.uint32)
            fingerprints[start : start + 2000, index] = np.minimum.reduceat(mixed, starts)
    return fingerprints


def _gram_hashes(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Return a hash for each 5-gram, and the index of each text's first hash."""
    half = _MAX_CHARACTERS // 2
    # Keep both ends of a long text, and pad a short one, so that each text has at least one 5-gram.
    clipped = [
        (text if len(text) <= _MAX_CHARACTERS else text[:half] + text[-half:]).ljust(_GRAM_LENGTH)
        for text in texts
    ]
    letters = np.frombuffer("".join(clipped).encode("utf-32-le", "surrogatepass"), "<u4")
    letters = letters.astype(np.uint64)
    lengths = np.array([len(text) for text in clipped])
    hashes = np.zeros(len(letters) - _GRAM_LENGTH + 1, dtype=np.uint64)
    for offset in range(_GRAM_LENGTH):
        hashes = hashes * np.uint64(0x100000001B3) + letters[offset : offset + len(hashes)]
    # Scramble the hashes, so that similar 5-grams do not have similar hashes.
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(32)
    ends = np.cumsum(lengths)
    is_within_text = np.ones(len(letters), dtype=bool)
    for offset in range(1, _GRAM_LENGTH):
        is_within_text[ends - offset] = False
    gram_hashes = hashes[is_within_text[: len(hashes)]]
    counts = lengths - _GRAM_LENGTH + 1
    return gram_hashes, np.cumsum(counts) - counts
