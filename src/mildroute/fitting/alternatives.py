"""The simplest way to lower a bill without a router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.routers._folds import cluster_codes
from mildroute.routers.frontier.curve import FEWEST_TO_PROMISE
from mildroute.routers.frontier.measurement import measure_curve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.random_split import request_draws, select_vertex
from mildroute.routers.rule_search import best_rule
from mildroute.routers.simple_rule import SimpleRule

# Maximum number of rows on which a rule is searched for.
_MAX_ROWS = 20_000


@dataclass(frozen=True)
class Alternative:
    """The cheapest alternative to a router that meets a target: an expert, a mix of two, or a rule.

    Attributes:
        experts: Index of each expert and its share of the requests; empty for a rule.
        rule: The one-line rule, or `None`.

    Example:
        >>> mix = Alternative(((0, 0.25), (1, 0.75)))
        >>> mix.words(["small", "large"])
        '25% to small, 75% to large, at random'
    """

    experts: tuple[tuple[int, float], ...] = ()
    rule: SimpleRule | None = None

    @classmethod
    def from_point(cls, point: OperatingPoint) -> Alternative:
        """Return the mix of single experts that an operating point represents."""
        shares = [(vertex.expert, vertex.probability) for vertex in point.vertices]
        return cls(tuple((expert, share) for expert, share in shares if expert is not None))

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> Alternative:
        """Return the alternative from the result of ``to_plain``."""
        rule = fields["rule"]
        experts = tuple((int(expert), float(share)) for expert, share in fields["experts"])
        return cls(experts, None if rule is None else SimpleRule(**rule))

    def to_plain(self) -> dict[str, Any]:
        """Return plain values that an artifact can hold."""
        rule = None if self.rule is None else asdict(self.rule)
        return {"experts": [list(pair) for pair in self.experts], "rule": rule}

    def words(self, names: Sequence[str]) -> str:
        """Describe the choice of experts in half a sentence."""
        if self.rule is not None:
            return self.rule.words(names)
        if len(self.experts) == 1:
            return f"all to {names[self.experts[0][0]]}"
        percent = min(max(round(100 * self.experts[0][1]), 1), 99)
        first, second = (names[expert] for expert, _ in self.experts)
        return f"{percent}% to {first}, {100 - percent}% to {second}, at random"

    def choose(self, table: CostTable, request_ids: Sequence[str], seed: int) -> NDArray[np.intp]:
        """Return the index of the expert for each row of a table, shape (n,)."""
        if self.rule is not None:
            groups = None if table.groups is None else table.groups.tolist()
            return self.rule.apply(table.inputs or [], groups)
        first, *second = self.experts
        if not second:
            return np.full(len(table), first[0], dtype=np.intp)
        experts = np.array([first[0], second[0][0]], dtype=np.intp)
        return experts[select_vertex(request_draws(request_ids, seed), first[1])]

    def can_read(self, table: CostTable) -> bool:
        """Return whether a table has the columns that the alternative needs."""
        if self.rule is None:
            return True
        return table.groups is not None if self.rule.feature == "group" else True


def simplest_alternative(
    table: CostTable,
    mix: OperatingPoint,
    quality: float | None,
    confidence: float,
    queries: int,
    baseline: int,
    seed: int,
) -> tuple[Alternative, OperatingPoint]:
    """Return the cheapest alternative without a router, and its figures on held-out rows.

    Args:
        table: The training rows, with dollars.
        mix: The mix of single experts that meets the target.
        quality: Share of the best expert's score to keep; `None` for any other kind of target,
            which no rule is searched for.
        confidence: Confidence of the promise.
        queries: Number of queries that the intervals cover.
        baseline: Index of the expert whose bill the user pays today.
        seed: Seed of the folds and of a large table's sample.
    """
    simplest = Alternative.from_point(mix), mix
    if quality is None or table.inputs is None or table.dollars is None:
        return simplest
    # A rule fitted to a few rows says nothing about the next one.
    if table.clusters.effective < FEWEST_TO_PROMISE:
        return simplest
    rows = np.arange(len(table))
    if len(rows) > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _MAX_ROWS, replace=False))
    scores, dollars = table.scores[rows], table.dollars[rows]
    clusters = cluster_codes(table.clusters.codes[rows], len(rows))
    texts = [table.inputs[row] for row in rows]
    groups = None if table.groups is None else table.groups[rows].tolist()
    rule = best_rule(texts, groups, scores, dollars, quality=quality, clusters=clusters, seed=seed)
    if rule is None:
        return simplest
    curve = measure_curve([0.0], rule.choices[None], 1 - scores, dollars, clusters=clusters)
    curve = replace(curve, baseline=baseline)
    required = quality * (1 - curve.best_error_replicates)
    surplus = 1 - curve.error_replicates[:, 0] - required
    is_kept = np.quantile(surplus, 1 - confidence) >= 0
    point = curve.point(0, confidence, queries)
    if not is_kept or point.dollars_per_1000 >= mix.dollars_per_1000:
        return simplest
    return Alternative(rule=rule.rule), point
