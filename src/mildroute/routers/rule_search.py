"""Search for the cheapest one-line rule that keeps a share of the best expert's score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._folds import assign_folds
from mildroute.routers._scripts import SCRIPTS, script_of
from mildroute.routers.simple_rule import Feature, SimpleRule

__all__ = ["MeasuredRule", "best_rule"]

# Number of groups that are tried, the most frequent ones.
_MAX_GROUPS = 50
# Lengths and scripts that separate less than this share of the rows from the others are not tried.
_MIN_SHARE = 0.02
# The lengths tried are round numbers, so that a rule is easy to state and does not change with
# every new row.
_LENGTHS = np.unique(
    [
        round(digits * 10**exponent)
        for exponent in range(7)
        for digits in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    ]
)


# Differences of scores and relative differences of dollars up to this size are rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class MeasuredRule:
    """A rule, with out-of-fold choices of rules from the same search.

    The score and bill of ``choices`` estimate those of the search on new prompts. Do not measure
    ``rule`` on the rows on which it was selected, because it looks too good there.

    Attributes:
        rule: The rule selected on all rows.
        choices: Index of the expert that each row gets from the rule selected without the fold of
            its cluster, shape (n,).
    """

    rule: SimpleRule
    choices: NDArray[np.intp]


def best_rule(
    texts: Sequence[str],
    groups: Sequence[str] | None,
    scores: NDArray[np.float64],
    dollars: NDArray[np.float64],
    *,
    quality: float,
    clusters: NDArray[np.intp] | None = None,
    folds: int = 5,
    seed: int = 0,
) -> MeasuredRule | None:
    """Return the cheapest rule that keeps a share of the best single expert's score.

    A rule qualifies if its mean score exceeds that share of the best expert's by at least one
    standard error of the difference on the same rows, so that it is not selected by luck. The best
    expert is the one with the highest mean score, the cheapest of equals. Rules with the same price
    are ordered by score.

    Args:
        texts: The prompts, length n.
        groups: Group of each prompt, or ``None``.
        scores: Score of each expert on each prompt, shape (n, p), finite.
        dollars: Price of each expert's answer to each prompt, shape (n, p), finite.
        quality: Share of the best single expert's mean score to keep, above 0.
        clusters: Index of each row's cluster, shape (n,); copies of a prompt share one. Clusters
            are never divided between folds, and standard errors treat each as one observation. By
            default, each row is its own cluster.
        folds: Number of folds, at least 2.
        seed: Seed of the folds.

    Returns:
        The rule with its out-of-fold choices. ``None`` if no rule qualifies, or if a single expert
        that qualifies costs no more than the cheapest such rule. If the rows outside a fold yield
        no rule, the choice for the fold is the cheapest single expert that qualifies on them, or
        the best one if none does.

    Example:
        >>> groups = ["math", "chat"] * 50
        >>> scores = np.array([[0.0, 1.0], [1.0, 1.0]] * 50)
        >>> dollars = np.tile([0.001, 0.01], (100, 1))
        >>> measured = best_rule(["?"] * 100, groups, scores, dollars, quality=0.95)
        >>> measured.rule.words(["small", "large"])
        "group 'math' goes to large, everything else to small"
        >>> measured.choices[:4].tolist()
        [1, 0, 1, 0]
    """
    rows = _rule_rows(texts, groups, scores, dollars, clusters)
    if not 0 < quality < np.inf:
        raise ArgumentError(f"quality must be a share above 0, got {quality!r}; 0.95 is usual.")
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ArgumentError(f"folds must be a number of at least 2, got {folds!r}; 5 is usual.")
    if len(texts) == 0:
        return None
    rule, _ = _find_rule(rows, quality)
    if rule is None:
        return None
    fold = assign_folds(int(rows.clusters.max()) + 1, folds, seed)[rows.clusters]
    choices = np.empty(len(fold), dtype=np.intp)
    for current in np.unique(fold):
        seen, held_out = rows.take(fold != current), np.flatnonzero(fold == current).tolist()
        fold_rule, single = _find_rule(seen, quality)
        if fold_rule is None:
            choices[held_out] = single
        else:
            choices[held_out] = fold_rule.apply(
                [texts[row] for row in held_out],
                None if groups is None else [groups[row] for row in held_out],
            )
    return MeasuredRule(rule, choices)


@dataclass(frozen=True)
class _RuleRows:
    """The prompts, reduced to the properties that rules test, with each expert's score and price.

    Attributes:
        names: Name of each group.
        groups: Index of each row's group, -1 for a row without one, shape (n,).
        characters: Length of each text, shape (n,).
        scripts: Index of each text's script, shape (n,).
        scores: Shape (n, p).
        dollars: Shape (n, p).
        clusters: Index of each row's cluster, shape (n,).
    """

    names: tuple[str, ...]
    groups: NDArray[np.intp]
    characters: NDArray[np.intp]
    scripts: NDArray[np.intp]
    scores: NDArray[np.float64]
    dollars: NDArray[np.float64]
    clusters: NDArray[np.intp]

    def take(self, rows: NDArray[Any]) -> _RuleRows:
        """Return some of the rows, by mask or index."""
        return _RuleRows(
            self.names,
            self.groups[rows],
            self.characters[rows],
            self.scripts[rows],
            self.scores[rows],
            self.dollars[rows],
            self.clusters[rows],
        )


@dataclass(frozen=True)
class _Clusters:
    """The runs of rows that share a cluster, after sorting by cluster.

    Attributes:
        starts: First row of each cluster.
        sizes: Number of rows of each cluster.
    """

    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, numbers: NDArray[np.intp]) -> _Clusters:
        """Return the clusters of sorted numbers."""
        _, starts, sizes = np.unique(numbers, return_index=True, return_counts=True)
        return cls(starts, sizes)

    def sums(
        self, selected: NDArray[np.bool_], mask: NDArray[np.bool_], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the sums over matching rows and over the others, for some of the clusters.

        Args:
            selected: Clusters to sum over; at least one.
            mask: Rows that match, shape (n,).
            values: Shape (n, p).

        Returns:
            Two arrays of shape (selected clusters, p).
        """
        rows = np.repeat(selected, self.sizes)
        sizes = self.sizes[selected]
        starts = np.cumsum(sizes) - sizes
        matches, row_values = mask[rows, None], values[rows]
        return (
            np.add.reduceat(np.where(matches, row_values, 0.0), starts, axis=0),
            np.add.reduceat(np.where(matches, 0.0, row_values), starts, axis=0),
        )


def _rule_rows(
    texts: Sequence[str],
    groups: Sequence[str] | None,
    scores: NDArray[np.float64],
    dollars: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
) -> _RuleRows:
    """Check the arguments and reduce the prompts to numbers."""
    scores, dollars = np.asarray(scores, dtype=np.float64), np.asarray(dollars, dtype=np.float64)
    count = len(texts)
    if scores.ndim != 2 or len(scores) != count or scores.shape[1] == 0:
        raise ShapeError(
            f"scores must be ({count}, p), one row per prompt, got shape {scores.shape}."
        )
    if dollars.shape != scores.shape:
        raise ShapeError(f"dollars must be {scores.shape} like scores, got shape {dollars.shape}.")
    if not np.isfinite(scores).all() or not np.isfinite(dollars).all() or (dollars < 0).any():
        raise ArgumentError(
            "scores and dollars must be finite, and dollars not negative; got a value that is not."
            " Omit rows that some expert did not answer."
        )
    for name, values in (("groups", groups), ("clusters", clusters)):
        if values is not None and len(values) != count:
            raise ShapeError(f"{name} must be ({count},), one per row, got {len(values)}.")
    numbers: dict[str, int] = {}
    codes = [
        -1 if group is None else numbers.setdefault(str(group), len(numbers))
        for group in ([None] * count if groups is None else groups)
    ]
    own = np.arange(count) if clusters is None else np.asarray(clusters)
    return _RuleRows(
        tuple(numbers),
        np.array(codes, dtype=np.intp),
        np.array([len(text) for text in texts], dtype=np.intp),
        np.array([SCRIPTS.index(script_of(text)) for text in texts], dtype=np.intp),
        scores,
        dollars,
        np.unique(own, return_inverse=True)[1].astype(np.intp),
    )


def _find_rule(rows: _RuleRows, quality: float) -> tuple[SimpleRule | None, int]:
    """Return the cheapest rule that qualifies and costs less than each qualifying expert.

    Returns:
        The rule, or ``None``, and the cheapest single expert that qualifies, or the best one.
    """
    rows = rows.take(np.argsort(rows.clusters, kind="stable"))
    clusters = _Clusters.of(rows.clusters)
    best = _best_single(rows)
    splits = [*_group_splits(rows), *_length_splits(rows), *_script_splits(rows)]
    if len(clusters.sizes) < 2 or not splits:
        return None, best
    # Each expert's score above the required share of the best one's; rules qualify by its mean.
    surplus = rows.scores - quality * rows.scores[:, [best]]
    rounding = _ROUNDING * (float(np.abs(rows.scores).max()) or 1.0)
    everywhere = np.ones((1, len(surplus)), dtype=bool)
    single_errors = np.diag(_standard_errors(everywhere, surplus, clusters)[0])
    qualified = surplus.mean(axis=0) >= single_errors - rounding
    # The best expert keeps all of its own score, even if few rows measure that score.
    qualified[best] |= quality <= 1
    bills = rows.dollars.mean(axis=0)
    single = int(np.argmin(np.where(qualified, bills, np.inf))) if qualified.any() else best
    limit = bills[single] * (1 - _ROUNDING) if qualified.any() else np.inf

    masks = np.array([mask for _, _, mask in splits])
    surpluses = _pair_means(masks, surplus)
    dollars = _pair_means(masks, rows.dollars)
    possible = (surpluses >= -rounding) & (dollars < limit)
    possible &= ~np.eye(surplus.shape[1], dtype=bool)
    tried = possible.any(axis=(1, 2))
    errors = _standard_errors(masks[tried], surplus, clusters)
    possible[tried] &= surpluses[tried] >= errors - rounding
    if not possible.any():
        return None, single
    # Round, because the same sum in another order differs in its last digits.
    by_price = np.round(dollars[possible] / (_ROUNDING * (bills.max() or 1.0)))
    by_score = -np.round(surpluses[possible] / rounding)
    first = np.lexsort((by_score, by_price))[0]
    split, inside, outside = (int(index) for index in np.argwhere(possible)[first])
    feature, value, _ = splits[split]
    return SimpleRule(feature, value, inside, outside), single


def _best_single(rows: _RuleRows) -> int:
    """Return the index of the expert with the highest mean score, the cheapest of equals."""
    scores, dollars = rows.scores.mean(axis=0), rows.dollars.mean(axis=0)
    equal = scores >= scores.max() - _ROUNDING * np.abs(scores).max()
    return int(np.argmin(np.where(equal, dollars, np.inf)))


_Split: TypeAlias = tuple[Feature, str | int, NDArray[np.bool_]]


def _group_splits(rows: _RuleRows) -> list[_Split]:
    """Separate each frequent group from the others, the most frequent first."""
    counts = np.bincount(rows.groups[rows.groups >= 0], minlength=len(rows.names))
    frequent = np.argsort(-counts, kind="stable")[:_MAX_GROUPS]
    return [
        ("group", rows.names[group], rows.groups == group)
        for group in frequent
        if 0 < counts[group] < len(rows.groups)
    ]


def _length_splits(rows: _RuleRows) -> list[_Split]:
    """Separate long texts from short ones at each length with enough texts on both sides.

    If several lengths separate the same rows, only the middle one is used.
    """
    below = np.searchsorted(np.sort(rows.characters), _LENGTHS, side="right")
    shares = below / len(rows.characters)
    enough = np.minimum(shares, 1 - shares) >= _MIN_SHARE
    thresholds = []
    for count in np.unique(below[enough]):
        equal = _LENGTHS[below == count]
        thresholds.append(int(equal[len(equal) // 2]))
    return [("characters", length, rows.characters > length) for length in thresholds]


def _script_splits(rows: _RuleRows) -> list[_Split]:
    """Separate each script that enough rows have, if enough rows have another one."""
    shares = np.bincount(rows.scripts, minlength=len(SCRIPTS)) / max(1, len(rows.scripts))
    return [
        ("script", script, rows.scripts == index)
        for index, script in enumerate(SCRIPTS)
        if min(shares[index], 1 - shares[index]) >= _MIN_SHARE
    ]


def _pair_means(masks: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean for each split and pair of experts, shape (splits, inside, outside).

    Args:
        masks: Rows that match, for each split, shape (splits, n).
        values: Value of each expert on each row, shape (n, p).
    """
    inside = masks.astype(np.float64) @ values
    outside = values.sum(axis=0) - inside
    return (inside[:, :, None] + outside[:, None, :]) / len(values)


def _standard_errors(
    masks: NDArray[np.bool_], values: NDArray[np.float64], clusters: _Clusters
) -> NDArray[np.float64]:
    """Return the standard error of each mean of ``_pair_means``, over clusters.

    With ``I`` and ``O`` for a cluster's sum of the rows that match and of the others, and ``s`` for
    its share of all rows, the variance is the sum of ``(I - s * sum(I) + O - s * sum(O)) ** 2``.
    Multiplied out, the products ``I * O`` need only the clusters that a split divides; if clusters
    are copies of prompts, there are almost none.

    Args:
        masks: Rows that match, for each split, shape (splits, n).
        values: Value of each expert on each row, shape (n, p), sorted by cluster.
        clusters: At least two clusters.
    """
    totals = np.add.reduceat(values, clusters.starts, axis=0)
    shares = clusters.sizes / len(values)
    matches = np.add.reduceat(masks, clusters.starts, axis=1, dtype=np.intp)
    sums, squares, shared = [], [], []
    for whole in (matches == clusters.sizes, matches == 0):
        weights = whole.astype(np.float64)
        sums.append(weights @ totals)
        squares.append(weights @ totals**2)
        shared.append(weights @ (shares[:, None] * totals))
    products = np.zeros((len(masks), values.shape[1], values.shape[1]))
    divided = (matches > 0) & (matches < clusters.sizes)
    for split in np.flatnonzero(divided.any(axis=1)):
        parts = clusters.sums(divided[split], masks[split], values)
        for side, part in enumerate(parts):
            sums[side][split] += part.sum(axis=0)
            squares[side][split] += (part**2).sum(axis=0)
            shared[side][split] += shares[divided[split]] @ part
        products[split] = parts[0].T @ parts[1]
    evenness = (shares**2).sum()
    inside, outside = (
        squares[side] - 2 * sums[side] * shared[side] + sums[side] ** 2 * evenness
        for side in (0, 1)
    )
    products -= sums[0][:, :, None] * shared[1][:, None, :]
    products -= shared[0][:, :, None] * sums[1][:, None, :]
    products += sums[0][:, :, None] * sums[1][:, None, :] * evenness
    variances = inside[:, :, None] + outside[:, None, :] + 2 * products
    correction = len(totals) / (len(totals) - 1)
    return np.sqrt(np.maximum(correction * variances, 0.0)) / len(values)
