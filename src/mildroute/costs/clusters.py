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

# Reasons for linking rows, from the most certain to the loosest.
Link = Literal["prompt", "template", "conversation", "group"]

# Number of clusters that supports a promise. Linking groups needs no further evidence if this many
# clusters remain.
ENOUGH_CLUSTERS = 200
# Between-cluster share of score variance from which a cluster's rows count as sharing their
# outcome. Copies reach 1, and 0.6 if the judge errs on a tenth of the answers; subjects and tasks
# in nine public tables stay below 0.22.
SHARED_OUTCOME = 0.3
# With fewer clusters than this, a loose link has found recurring kinds of prompts rather than
# copies: two templates with known outcomes are a reason to route, not a lack of evidence. For the
# same reason, a template with more than one row in this many is a kind.
_MIN_CLUSTERS = 10
# A loose link is harmless if at least this share of the clusters remains.
_MIN_REMAINING_SHARE = 0.95
# Number of rows at which a template's own scores weigh as much as the scores of all templates with
# the same similarity.
_PRIOR_ROWS = 20


@dataclass(frozen=True)
class Clusters:
    """The cluster of each row of a table.

    Attributes:
        codes: Zero-based cluster index of each row, shape (n,).
        links: The reasons for which rows were linked.
        kinds: Zero-based group index of each row, shape (n,), if groups are kinds of prompts rather
            than clusters; otherwise `None`.
        notes: Sentences about the links.

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
        """Return the number of equal-sized clusters with the same amount of information."""
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
        """Describe the clusters in one sentence; return `None` if every row is its own cluster."""
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
    from one template. They are linked if their scores show a shared outcome, or if so few would
    be linked that it is harmless. Tight similarities are judged before loose ones, and large
    templates by their own scores. Groups are linked by the same evidence if there are at least
    200 of them, or on request. Groups that are not linked, and groups in tables with fewer than
    10 of them, are kinds of prompts, and more prompts of each kind are expected.

    Args:
        texts: n prompts, or `None`.
        groups: Group of each row, shape (n,), or `None`.
        conversations: Conversation of each row, shape (n,), with `None` for rows without one; or
            `None`.
        scores: Score of each expert on each row, shape (n, p), NaN where unknown; without scores,
            all links are accepted.
        whole_groups: Whether to link a group's rows even without evidence.

    Returns:
        The clusters.
    """
    rows = next(len(part) for part in (texts, groups, conversations, scores) if part is not None)
    codes: NDArray[np.intp] = np.arange(rows)
    links: list[Link] = []
    candidates, notes = _candidate_links(texts, conversations)
    for name, labels, is_certain in candidates:
        linked = link(codes, labels)
        if not is_certain and linked.max() < codes.max():
            linked = _links_with_evidence(linked, codes, scores)
        if linked.max() < codes.max():
            codes = linked
            links += [] if name in links else [name]
    kinds = None if groups is None else _label_codes(groups)
    linked = codes if kinds is None else link(codes, kinds)
    if kinds is None or kinds.max() == 0 or linked.max() == codes.max():
        return Clusters(codes, tuple(links), None, notes)
    clusters = Clusters(linked, (*links, "group"), None, notes)
    has_enough_clusters = clusters.effective >= ENOUGH_CLUSTERS
    if whole_groups or has_enough_clusters or _are_copies(linked, codes, scores):
        return clusters
    return Clusters(codes, tuple(links), kinds, notes)


def _candidate_links(
    texts: Sequence[str] | None, conversations: Any
) -> tuple[list[tuple[Link, NDArray[np.intp], bool]], tuple[str, ...]]:
    """Return candidate links, each with a flag for needing no evidence, and notes."""
    candidates: list[tuple[Link, NDArray[np.intp], bool]] = []
    notes: tuple[str, ...] = ()
    if texts is not None:
        candidates.append(
            ("prompt", number_by_first_row([normalize_prompt(text) for text in texts]), True)
        )
        template_codes, notes = template_links(texts)
        candidates += [("template", codes, False) for codes in template_codes]
    if conversations is not None:
        candidates.append(("conversation", _label_codes(conversations), True))
    return candidates, notes


def _effective(codes: NDArray[np.intp]) -> float:
    sizes = np.bincount(codes).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def outcome_similarity(codes: NDArray[np.intp], scores: NDArray[np.float64]) -> float:
    """Return the between-cluster share of score variance.

    This is the ANOVA intraclass correlation, averaged over experts: 1 for copies, 0 for rows that
    were linked at random, and 0 if the scores allow no estimate.

    Args:
        codes: Zero-based cluster index of each row, shape (n,).
        scores: Score of each expert on each row, shape (n, p), NaN where unknown.

    Example:
        >>> outcome_similarity(np.array([0, 0, 1, 1]), np.array([[1.0], [1.0], [0.0], [0.0]]))
        1.0
    """
    within = total = 0.0
    for column in scores.T:
        is_known = ~np.isnan(column)
        squares, degrees = _squares_within(codes[is_known], column[is_known])
        if 1 <= degrees.sum() < is_known.sum() - 1:
            within += squares.sum() / degrees.sum()
            total += column[is_known].var(ddof=1)
    return float(max(1 - within / total, 0.0)) if total > 0 else 0.0


def _squares_within(
    codes: NDArray[np.intp], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each cluster's sum of squares and degrees of freedom, shape (k,)."""
    n_clusters = int(codes.max(initial=-1)) + 1
    sizes = np.bincount(codes, minlength=n_clusters).astype(np.float64)
    means = np.bincount(codes, values, minlength=n_clusters) / np.maximum(sizes, 1)
    squares = np.bincount(codes, (values - means[codes]) ** 2, n_clusters)
    return squares.astype(np.float64), np.maximum(sizes - 1, 0.0)


def _cluster_means(codes: NDArray[np.intp], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean score of each cluster and expert, NaN where unknown, shape (k, p)."""
    n_clusters = int(codes.max()) + 1
    is_known = ~np.isnan(scores)
    sums, counts = (
        np.stack([np.bincount(codes, column, minlength=n_clusters) for column in values.T], axis=1)
        for values in (np.where(is_known, scores, 0.0), is_known.astype(np.float64))
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _are_copies(
    linked: NDArray[np.intp], codes: NDArray[np.intp], scores: NDArray[np.float64] | None
) -> bool:
    """Return whether the rows that a link would join share their outcome and are not just kinds."""
    if _effective(linked) < _MIN_CLUSTERS:
        return False
    if scores is None:
        return True
    first_rows = np.unique(codes, return_index=True)[1]
    return outcome_similarity(linked[first_rows], _cluster_means(codes, scores)) >= SHARED_OUTCOME


def _links_with_evidence(
    linked: NDArray[np.intp],
    codes: NDArray[np.intp],
    scores: NDArray[np.float64] | None,
) -> NDArray[np.intp]:
    """Return a loose link's components that are harmless or supported by the scores.

    Rows of other components keep their earlier clusters.
    """
    is_kind = np.bincount(linked) * _MIN_CLUSTERS > len(linked)
    linked = _split_components(linked, codes, is_kind)
    if scores is None or int(linked.max()) + 1 >= _MIN_REMAINING_SHARE * (int(codes.max()) + 1):
        return linked
    first_rows = np.unique(codes, return_index=True)[1]
    components = linked[first_rows]
    similarity, pooled = _component_similarity(components, _cluster_means(codes, scores))
    is_split = similarity < SHARED_OUTCOME
    if pooled < SHARED_OUTCOME:
        # Against the pooled evidence, small components would be chosen by chance: on an easy kind
        # of prompt, all experts are right almost everywhere.
        is_split |= np.bincount(components) <= _PRIOR_ROWS
    return _split_components(linked, codes, is_split)


def _split_components(
    linked: NDArray[np.intp], codes: NDArray[np.intp], is_split: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return a link without the components that are to be split."""
    return number_by_first_row(np.where(is_split[linked], codes + len(is_split), linked).tolist())


def _component_similarity(
    codes: NDArray[np.intp], scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return each cluster's outcome similarity, shape (k,), and the pooled one.

    The former are shrunk toward the latter.

    This is the similarity over all experts, or the most similar expert's if chance does not explain
    it: copies of a prompt may share one expert's outcome while other experts' scores are noise.
    Without shared outcomes, the standard deviation of a similarity is one over the square root of
    the number of linked pairs; three standard deviations are subtracted.
    """
    n_clusters = int(codes.max()) + 1
    parts = []
    for column in scores.T:
        is_known = ~np.isnan(column)
        squares, degrees = _squares_within(codes[is_known], column[is_known])
        variance = float(np.var(column[is_known], ddof=1)) if is_known.sum() > 1 else 0.0
        if variance > 0 and 1 <= degrees.sum() < is_known.sum() - 1:
            padding = (0, n_clusters - len(degrees))
            chance_similarity = 3 / np.sqrt((degrees * (degrees + 1)).sum() / 2)
            parts.append(
                (np.pad(squares, padding), np.pad(degrees, padding), variance, chance_similarity)
            )
    if not parts:
        return np.zeros(n_clusters), 0.0
    all_squares = np.sum([squares for squares, *_ in parts], axis=0)
    weighted_degrees = np.sum([degrees * variance for _, degrees, variance, _ in parts], axis=0)
    total = sum(variance for _, _, variance, _ in parts)
    best = _shrunk_similarity(all_squares, weighted_degrees / total, total)
    for squares, degrees, variance, chance_similarity in parts:
        similarity, pooled = _shrunk_similarity(squares, degrees, variance)
        if pooled - chance_similarity > best[1]:
            best = similarity - chance_similarity, pooled - chance_similarity
    return best


def _shrunk_similarity(
    squares: NDArray[np.float64], degrees: NDArray[np.float64], variance: float
) -> tuple[NDArray[np.float64], float]:
    """Return each cluster's similarity, and the pooled one, in which no cluster dominates."""
    ratios = squares / variance
    weights = np.minimum(1.0, _PRIOR_ROWS / np.maximum(degrees, _PRIOR_ROWS))
    within = float((weights * ratios).sum() / (weights * degrees).sum())
    similarity = 1 - (ratios + _PRIOR_ROWS * within) / (degrees + _PRIOR_ROWS)
    return similarity, 1 - within


def _label_codes(labels: Any) -> NDArray[np.intp]:
    """Return zero-based indices of labels; a row without a label gets its own index."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    return number_by_first_row(
        [(row,) if label is None or label == "" else label for row, label in enumerate(values)]
    )
