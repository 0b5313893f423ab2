"""Clusters: the rows of a table that must be held out and resampled together.

Rows are not independent draws. Copies of a prompt, near-duplicates from one template, turns of one
conversation and rows of one tenant share their outcome. A figure about new prompts is honest only
if whole clusters are held out, and an interval only if whole clusters are resampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.links import link, number_by_first_row
from mildroute.costs.near_duplicates import normalize_prompt, template_links

__all__ = ["Clusters", "find_clusters", "outcome_similarity"]

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
        >>> clusters = find_clusters(["What is 2 + 2?", "what is 2 + 2", "Write a poem."])
        >>> clusters.codes, clusters.unit
        (array([0, 0, 1]), 'prompt')
        >>> clusters.sentence
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
    rows = next(len(part) for part in (texts, groups, conversations, scores) if part is not None)
    codes: NDArray[np.intp] = np.arange(rows)
    links: list[Link] = []
    candidates, notes = _links_of(texts, conversations)
    for name, labels, is_sure in candidates:
        linked = link(codes, labels)
        if linked.max() < codes.max() and (is_sure or _accept_loose_link(linked, codes, scores)):
            codes = linked
            links += [] if name in links else [name]
    kinds = None if groups is None else _label_numbers(groups)
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
        candidates.append(
            ("prompt", number_by_first_row([normalize_prompt(text) for text in texts]), True)
        )
        looser, notes = template_links(texts)
        candidates += [("template", codes, False) for codes in looser]
    if conversations is not None:
        candidates.append(("conversation", _label_numbers(conversations), True))
    return candidates, notes


def _effective(codes: NDArray[np.intp]) -> float:
    sizes = np.bincount(codes).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


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
    variances = []
    clusters = int(codes.max()) + 1
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
        variances.append((float(within), float(values.var(ddof=1)), float(pairs)))
    return variances


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


def _accept_loose_link(
    linked: NDArray[np.intp], codes: NDArray[np.intp], scores: NDArray[np.float64] | None
) -> bool:
    """Return whether a loose link is harmless or supported by the scores."""
    is_harmless = int(linked.max()) + 1 >= _HARMLESS * (int(codes.max()) + 1)
    return is_harmless or _are_copies(linked, codes, scores, is_template=True)


def _label_numbers(labels: Any) -> NDArray[np.intp]:
    """Return numbers for labels; a row without a label gets its own number."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    return number_by_first_row(
        [(row,) if label is None or label == "" else label for row, label in enumerate(values)]
    )
