"""Clusters: the rows of a table that must be held out and resampled together.

Rows are not independent draws. Copies of a prompt, near-duplicates from one template, turns of one
conversation and rows of one tenant share their outcome. A figure about new prompts is honest only
if whole clusters are held out, and an interval only if whole clusters are resampled.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clusters", "find_clusters", "link", "outcome_similarity"]

# Ways in which rows can be linked, from the surest to the loosest.
Link = Literal["prompt", "template", "conversation", "group"]

# Number of clusters that supports a promise. A link that leaves this many needs no further
# evidence.
ENOUGH_CLUSTERS = 200
# Share of the variance of scores between clusters above which rows of a cluster count as sharing
# their outcome. Copies reach 1; copies under a judge that errs on a tenth of the answers, 0.6;
# subjects and tasks of nine public tables stay below 0.22.
SHARED_OUTCOME = 0.3
# With fewer clusters than this, a loose link has found kinds of prompts, which recur, and not
# copies: two templates with known outcomes are a reason to route, not a lack of evidence.
_FEWEST_CLUSTERS = 10
# A loose link that leaves at least this share of the clusters is harmless.
_HARMLESS = 0.8

# Similarity of character 5-grams at which two prompts become near-duplicates.
_NEAR = 0.8
_SHINGLE = 5
# 8 bands of 4: pairs with a similarity of 0.8 share a band with probability 0.985, and those with
# 0.9 always.
_BANDS, _PER_BAND = 8, 4
# Near-duplicates may differ anywhere, but the ends of a long prompt are enough to compare.
_CHARACTERS = 2000
# Number of rows searched for near-duplicates: 50,000 prompts of 400 characters take 12 s.
_MOST_ROWS = 50_000

_SPACES = re.compile(r"\s+")
# UUIDs and hex, then any token with a digit: order 7FKQ2ZP9, ticket A-1042.
_IDS = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]+)*\b|[0-9a-z]*\d[0-9a-z]*")
_SIGNS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Clusters:
    """The cluster of each row of a table.

    Attributes:
        codes: Number of each row's cluster, from 0, shape (n,).
        links: How rows were linked.
        kinds: Number of each row's group if groups are kinds of prompts rather than clusters,
            shape (n,), or `None`.
        notes: Sentences on the links.

    Example:
        >>> found = find_clusters(["What is 2 + 2?", "what is 2 + 2", "Write a poem."])
        >>> found.codes, found.unit
        (array([0, 0, 1]), 'prompt')
        >>> found.sentence
        '3 rows are 2 different prompts; everything is cross-validated by prompt'
    """

    codes: NDArray[np.intp]
    links: tuple[Link, ...] = ()
    kinds: NDArray[np.intp] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of clusters."""
        return int(self.codes.max()) + 1 if len(self.codes) else 0

    @property
    def effective(self) -> float:
        """Return the number of equally large clusters that would carry as much information."""
        return _effective(self.codes)

    @property
    def are_rows(self) -> bool:
        """Return whether every row is its own cluster."""
        return len(self) == len(self.codes)

    @property
    def unit(self) -> str:
        """Return one word for a cluster."""
        last = self.links[-1] if self.links else "prompt"
        return "prompt" if last == "template" else str(last)

    @property
    def sentence(self) -> str | None:
        """Return one sentence on the clusters, or `None` if every row is its own."""
        if self.are_rows:
            return None
        different = "different " if self.unit == "prompt" else ""
        return (
            f"{len(self.codes):,} rows are {len(self):,} {different}{self.unit}"
            f"{'' if len(self) == 1 else 's'}; everything is cross-validated by {self.unit}"
        )


def find_clusters(
    texts: Sequence[str] | None,
    groups: Any = None,
    conversations: Any = None,
    scores: NDArray[np.float64] | None = None,
    *,
    whole_groups: bool = False,
) -> Clusters:
    """Find the rows that must be held out together.

    Rows with the same prompt, up to case and white space, are linked, and so are turns of one
    conversation. Prompts that differ only in numbers, ids and punctuation, or in few words, come
    from one template. They are linked if their scores show a shared outcome, or if so few of them
    are linked that it is harmless. Groups are linked by the same evidence if there are at least 200
    of them, or on request. Groups that are not linked, and groups in tables with fewer than 10 of
    them, are kinds of prompts, and more prompts of each kind are expected.

    Args:
        texts: n prompts, or `None`.
        groups: Group of each row, shape (n,), or `None`.
        conversations: Conversation of each row, shape (n,), or `None`; missing ones are `None`.
        scores: Score of each expert on each row, shape (n, p), NaN where unknown; without scores
            all links are taken.
        whole_groups: Whether to link the rows of a group even without evidence.

    Returns:
        The clusters.
    """
    rows = next(len(each) for each in (texts, groups, conversations, scores) if each is not None)
    codes: NDArray[np.intp] = np.arange(rows)
    links: list[Link] = []
    candidates, notes = _links_of(texts, conversations)
    for name, labels, is_sure in candidates:
        linked = link(codes, labels)
        if linked.max() < codes.max() and (is_sure or _is_taken(linked, codes, scores)):
            codes = linked
            links += [] if name in links else [name]
    kinds = None if groups is None else _given(groups)
    linked = codes if kinds is None else link(codes, kinds)
    if kinds is None or kinds.max() == 0 or linked.max() == codes.max():
        return Clusters(codes, tuple(links), None, notes)
    clusters = Clusters(linked, (*links, "group"), None, notes)
    enough = clusters.effective >= ENOUGH_CLUSTERS
    if whole_groups or enough or _are_copies(linked, codes, scores):
        return clusters
    return Clusters(codes, tuple(links), kinds, notes)


def _links_of(
    texts: Sequence[str] | None, conversations: Any
) -> tuple[list[tuple[Link, NDArray[np.intp], bool]], tuple[str, ...]]:
    """Return candidate links, each with whether it needs no evidence, and notes."""
    candidates: list[tuple[Link, NDArray[np.intp], bool]] = []
    notes: tuple[str, ...] = ()
    if texts is not None:
        candidates.append(("prompt", _first_seen([_plain(text) for text in texts]), True))
        looser, notes = _templates(texts)
        candidates += [("template", codes, False) for codes in looser]
    if conversations is not None:
        candidates.append(("conversation", _given(conversations), True))
    return candidates, notes


def _effective(codes: NDArray[np.intp]) -> float:
    sizes = np.bincount(codes).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def link(left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the connected components of two numberings: rows equal under either share a number.

    Example:
        >>> link(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]))
        array([0, 0, 0, 1])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = int(left.max()) + int(right.max()) + 2
    edges = (np.ones(len(left), dtype=np.int8), (left, right + int(left.max()) + 1))
    number = connected_components(coo_array(edges, shape=(nodes, nodes)), directed=False)[1]
    return _first_seen(number[left])


def outcome_similarity(codes: NDArray[np.intp], scores: NDArray[np.float64]) -> float:
    """Return the share of the variance of scores that lies between clusters.

    This is the intraclass correlation of the analysis of variance, averaged over experts: 1 for
    copies, 0 for rows that were linked at random, and 0 if the scores allow no estimate.

    Args:
        codes: Number of each row's cluster, shape (n,).
        scores: Score of each expert on each row, shape (n, p), NaN where unknown.

    Example:
        >>> outcome_similarity(np.array([0, 0, 1, 1]), np.array([[1.0], [1.0], [0.0], [0.0]]))
        1.0
    """
    parts = np.array(_variances(codes, scores)).reshape(-1, 3)
    within, total = parts[:, 0].sum(), parts[:, 1].sum()
    return float(max(1 - within / total, 0.0)) if total > 0 else 0.0


def _surest_similarity(codes: NDArray[np.intp], scores: NDArray[np.float64]) -> float:
    """Return the outcome similarity of the expert that shows most of it, less what luck explains.

    Copies of a prompt may share the outcome of one expert beside others whose scores are noise.
    Without shared outcomes, a similarity has a standard deviation of one over the root of the
    number of linked pairs; three of them are taken off.
    """
    similarities = [
        1 - within / total - 3 / np.sqrt(pairs)
        for within, total, pairs in _variances(codes, scores)
        if total > 0
    ]
    return max(similarities, default=0.0)


def _variances(
    codes: NDArray[np.intp], scores: NDArray[np.float64]
) -> list[tuple[float, float, float]]:
    """Return the variance within clusters, the whole variance and the linked pairs of each expert.

    Experts whose scores allow no estimate are left out.
    """
    found, clusters = [], int(codes.max()) + 1
    for column in scores.T:
        is_known = ~np.isnan(column)
        label, values = codes[is_known], column[is_known]
        sizes = np.bincount(label, minlength=clusters)
        spare = len(values) - np.count_nonzero(sizes)
        if spare < 1 or spare >= len(values) - 1:
            continue
        means = np.bincount(label, values, minlength=clusters) / np.maximum(sizes, 1)
        within = ((values - means[label]) ** 2).sum() / spare
        pairs = (sizes * (sizes - 1)).sum() / 2
        found.append((float(within), float(values.var(ddof=1)), float(pairs)))
    return found


def _are_copies(
    linked: NDArray[np.intp],
    codes: NDArray[np.intp],
    scores: NDArray[np.float64] | None,
    *,
    is_template: bool = False,
) -> bool:
    """Return whether rows that a link would join share their outcome, and are more than kinds."""
    if _effective(linked) < _FEWEST_CLUSTERS:
        return False
    if scores is None:
        return True
    count = int(codes.max()) + 1
    is_known = ~np.isnan(scores)
    sums, counts = (
        np.stack([np.bincount(codes, column, minlength=count) for column in values.T], axis=1)
        for values in (np.where(is_known, scores, 0.0), is_known.astype(np.float64))
    )
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    first = np.unique(codes, return_index=True)[1]
    similarity = outcome_similarity(linked[first], means)
    if is_template:
        similarity = max(similarity, _surest_similarity(linked[first], means))
    return similarity >= SHARED_OUTCOME


def _is_taken(
    linked: NDArray[np.intp], codes: NDArray[np.intp], scores: NDArray[np.float64] | None
) -> bool:
    """Return whether a loose link is harmless or supported by the scores."""
    is_harmless = int(linked.max()) + 1 >= _HARMLESS * (int(codes.max()) + 1)
    return is_harmless or _are_copies(linked, codes, scores, is_template=True)


def _first_seen(keys: Any) -> NDArray[np.intp]:
    """Return numbers for keys in the order of their first row."""
    numbers: dict[Any, int] = {}
    values = keys.tolist() if isinstance(keys, np.ndarray) else keys
    return np.array([numbers.setdefault(key, len(numbers)) for key in values], dtype=np.intp)


def _given(labels: Any) -> NDArray[np.intp]:
    """Return numbers for labels; a row without a label gets its own number."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    return _first_seen(
        [(row,) if label is None or label == "" else label for row, label in enumerate(values)]
    )


def _plain(text: str) -> str:
    """Return a prompt without differences of case, white space and punctuation at its ends."""
    folded = _SPACES.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return folded.strip(" .,;:!?\"'") or folded


def _masked(text: str) -> str:
    """Return a prompt with numbers and ids masked and without punctuation."""
    plain = _plain(text)
    return _SIGNS.sub(" ", _IDS.sub("0", plain)).strip() or plain


def _templates(texts: Sequence[str]) -> tuple[list[NDArray[np.intp]], tuple[str, ...]]:
    """Link prompts that are equal once masked, and those that are almost equal.

    Also return notes on rows that were not searched.
    """
    masked = [_masked(text) for text in texts]
    codes = _first_seen(masked)
    first = np.unique(codes, return_index=True)[1]
    if len(first) > _MOST_ROWS:
        return [codes], (
            (
                f"near-duplicates were not sought among more than {_MOST_ROWS:,} different prompts;"
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
    # Both ends of a long text; a short one is padded, so that each text has at least one run.
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
