"""Prompts that are equal up to case and space, come from one template, or are almost equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.links import link, number_by_first_row

__all__ = ["normalize_prompt", "template_links"]

# Similarity of character 5-grams at which two prompts become near-duplicates.
_NEAR = 0.8
_SHINGLE = 5
# 8 bands of 4: pairs with a similarity of 0.8 share a band with probability 0.985, and those with
# 0.9 always.
_BANDS = 8
_PER_BAND = 4
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
    return [codes, near[codes]], ()


def _near_duplicates(texts: Sequence[str]) -> NDArray[np.intp]:
    """Link texts whose sets of character 5-grams are about as similar as 0.8, by MinHash.

    Written by hand because the fingerprints of all texts come from one pass over their characters:
    10,000 questions of MMLU take 2 s on one core.
    """
    marks = _fingerprints(texts)
    codes: NDArray[np.intp] = np.arange(len(texts))
    for band in range(_BANDS):
        part = np.ascontiguousarray(marks[:, band * _PER_BAND : (band + 1) * _PER_BAND])
        keys = part.view(np.dtype((np.void, part.dtype.itemsize * _PER_BAND))).ravel()
        _, first, bucket = np.unique(keys, return_index=True, return_inverse=True)
        # Each row is compared with the first of its bucket, so that the work stays linear.
        rows = np.flatnonzero(first[bucket] != np.arange(len(texts)))
        heads = first[bucket[rows]]
        alike = (marks[rows] == marks[heads]).mean(axis=1) >= _NEAR
        if alike.any():
            joined = np.arange(len(texts))
            joined[rows[alike]] = heads[alike]
            codes = link(codes, joined)
    return codes


def _fingerprints(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return the MinHash of the character 5-grams of each text, shape (n, 32)."""
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, size=_BANDS * _PER_BAND, dtype=np.uint64) | np.uint64(1)
    offsets = rng.integers(0, 2**63, size=_BANDS * _PER_BAND, dtype=np.uint64)
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
