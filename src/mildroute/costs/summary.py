"""Summaries of tables, as ``mildroute inspect`` shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from mildroute._format import format_dollars, format_score, pluralize, text_table
from mildroute.costs.prices import PriceList
from mildroute.costs.schema import INPUT
from mildroute.costs.table import CostTable
from mildroute.costs.wins import Wins, count_wins, dominated_experts
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["ExpertSummary", "TableSummary", "describe"]

_MAX_GROUPS = 10_000
# Share of the decided rows above which one expert wins nearly everything.
_COLLAPSE = 0.8
_FEW_ROWS = 200


@dataclass(frozen=True)
class ExpertSummary:
    """One expert over all rows.

    Attributes:
        dollars_per_1000: Bill of 1,000 queries, or `None`.
        wins: Share of rows that the expert wins; ties are split equally.
    """

    name: str
    score: float
    dollars_per_1000: float | None
    wins: float
    wins_alone: float


@dataclass(frozen=True)
class TableSummary:
    """The contents of a table, and what routing could gain on it.

    Attributes:
        rows: Number of rows n.
        experts: One entry for each of the p experts.
        price_weight: Price weight for the wins, the best single expert and the oracle.
        best_single: Name of the expert with the lowest mean cost: the best at this price weight.
        best_single_cost: Mean of (1 - score) + price_weight dollars of that expert.
        oracle_score: Mean score if the best expert answered each query.
        oracle_dollars_per_1000: The oracle's bill for 1,000 queries, choosing the cheapest of
            equals, or `None`.
        oracle_cost: The oracle's mean cost.
        possible_gain: Cost of the best single expert minus that of the oracle: the maximum that
            routing can gain.
        decided: Share of rows on which not all experts tie.
        imbalance: Largest share of wins over the smallest positive one.
        groups: Number of rows of each group, largest first; `None` without groups or with over
            10,000.
        repeated_texts: Rows whose text occurs in an earlier row.
        dominated: Experts that another expert beats or equals in score and dollars on every row,
            each with that other expert.
        content_hash: As in ``CostTable``, for a table without repeated rows.
        prices: List prices kept with the table, or `None`.
        repairs: Sentences on what was repaired.
        ignored: Columns that are not part of the format.
        warnings: Sentences on what to check before routing.
        notes: Sentences on what was inferred about the table's columns.

    Example:
        >>> summary = describe({"score:a": [1, 1, 0], "score:b": [0, 1, 1]})
        >>> summary.best_single, round(summary.possible_gain, 3)
        ('a', 0.333)
    """

    rows: int
    experts: tuple[ExpertSummary, ...]
    price_weight: float
    best_single: str
    best_single_cost: float
    oracle_score: float
    oracle_dollars_per_1000: float | None
    oracle_cost: float
    possible_gain: float
    decided: float
    imbalance: float
    groups: dict[str, int] | None
    repeated_texts: int
    dominated: dict[str, str]
    content_hash: str
    prices: PriceList | None
    repairs: tuple[str, ...]
    ignored: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def best_by_score(self) -> ExpertSummary:
        """Return the expert with the highest mean score, the cheapest of equals."""
        return min(
            self.experts,
            key=lambda expert: (-round(expert.score, 12), expert.dollars_per_1000 or 0.0),
        )

    def __str__(self) -> str:
        """Return experts with score, bill and wins, the oracle, and warnings."""
        rows = [
            [
                expert.name,
                format_score(expert.score),
                _bill(expert.dollars_per_1000),
                f"{expert.wins:.0%}",
            ]
            for expert in self.experts
        ]
        oracle = [
            "oracle",
            format_score(self.oracle_score),
            _bill(self.oracle_dollars_per_1000),
            "",
        ]
        table = text_table(["expert", "score", "$ per 1,000", "wins"], [*rows, oracle])
        return "\n".join([pluralize(self.rows, "query"), table, *self.warnings, *self.notes])

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-serializable values.

        Example:
            >>> describe({"score:a": [1], "score:b": [0]}).as_dict()["experts"][1]["wins"]
            0.0
        """
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }
        prices = None if self.prices is None else self.prices.as_dict()
        return values | {
            "experts": [asdict(expert) for expert in self.experts],
            "prices": prices,
            "best_by_score": self.best_by_score.name,
        }


def _bill(dollars: float | None) -> str:
    return "" if dollars is None else format_dollars(dollars)


def describe(
    source: Any,
    *,
    price_weight: float = 0.0,
    experts: Sequence[str] | None = None,
    missing: str = "raise",
) -> TableSummary:
    """Summarize a table.

    Args:
        source: A ``CostTable``, or an argument of ``CostTable.read`` or ``CostTable.from_data``.
        price_weight: Value of a dollar in errors.
        experts: The experts to keep, or `None` for all.
        missing: As for ``CostTable.read``.

    Returns:
        The summary.

    Example:
        >>> describe({"score:a": [1, 0], "score:b": [0, 1]}).oracle_score
        1.0
    """
    if not np.isfinite(price_weight) or price_weight < 0:
        raise ArgumentError(f"price_weight must be finite and not negative, got {price_weight}.")
    table, _ = CostTable.from_any(source, experts=experts, missing=missing)
    if price_weight and table.dollars is None:
        raise TableError(
            f"a price weight of {price_weight:g} needs the columns 'cost:<expert>', got none; add"
            " them, or give a price list."
        )
    wins = count_wins(table.scores, table.dollars, price_weight)
    costs = table.costs(price_weight=price_weight).mean(axis=0)
    dollars = np.zeros(len(costs)) if table.dollars is None else table.dollars.mean(axis=0)
    # The cheapest of equals, then the first.
    best = int(np.lexsort((dollars, costs.round(12)))[0])
    positive = wins.wins[wins.wins > 0]
    dominated = dominated_experts(table.scores, table.dollars)
    summary = TableSummary(
        rows=table.rows,
        experts=_summarize_experts(table, wins),
        price_weight=float(price_weight),
        best_single=table.experts[best],
        best_single_cost=float(costs.min()),
        oracle_score=wins.oracle_score,
        oracle_dollars_per_1000=None if table.dollars is None else 1000 * wins.oracle_dollars,
        oracle_cost=wins.oracle_cost,
        possible_gain=max(float(costs.min()) - wins.oracle_cost, 0.0),
        decided=wins.decided / table.rows,
        imbalance=float(positive.max() / positive.min()),
        groups=_count_groups(table),
        repeated_texts=_count_repeated_texts(table),
        dominated={table.experts[one]: table.experts[other] for one, other in dominated.items()},
        content_hash=table.content_hash,
        prices=table.prices,
        repairs=table.repairs,
        ignored=table.ignored,
        notes=table.notes,
    )
    leader = table.experts[int(wins.decided_wins.argmax())]
    share = float(wins.decided_wins.max() / wins.decided) if wins.decided else 0.0
    return replace(summary, warnings=tuple(_warnings(summary, leader, share)))


def _summarize_experts(table: CostTable, wins: Wins) -> tuple[ExpertSummary, ...]:
    bills = None if table.dollars is None else 1000 * table.dollars.mean(axis=0)
    return tuple(
        ExpertSummary(
            name=name,
            score=float(table.scores[:, index].mean()),
            dollars_per_1000=None if bills is None else float(bills[index]),
            wins=float(wins.wins[index] / table.rows),
            wins_alone=float(wins.alone[index] / table.rows),
        )
        for index, name in enumerate(table.experts)
    )


def _count_repeated_texts(table: CostTable) -> int:
    if INPUT not in table.arrow.column_names:
        return 0
    return int(table.rows - pc.count_distinct(table.arrow.column(INPUT)).as_py())


def _count_groups(table: CostTable) -> dict[str, int] | None:
    """Return the rows of each group, largest first; `None` without groups or with too many."""
    if table.groups is None:
        return None
    counts = Counter(table.groups.tolist())
    if len(counts) > _MAX_GROUPS:
        return None
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _warnings(summary: TableSummary, leader: str, share: float) -> Iterator[str]:
    """Yield sentences on what to check before routing on a table.

    ``leader`` is the expert that wins most decided rows, and ``share`` its share of them.
    """
    if share > _COLLAPSE:
        yield (
            f"collapse risk: {leader!r} wins {share:.0%} of the rows on which the experts differ, "
            "so a plain classifier would always choose it."
        )
    if not summary.decided:
        yield _tie_warning(summary)
    repeated = summary.repeated_texts
    if repeated:
        yield (
            f"{pluralize(repeated, 'row')} {'repeats' if repeated == 1 else 'repeat'} the text of"
            " an earlier row; a split keeps them on one side."
        )
    for expert, other in summary.dominated.items():
        more_expensive = (
            " and never more expensive" if summary.oracle_dollars_per_1000 is not None else ""
        )
        yield (
            f"{expert!r} is dominated: {other!r} is never worse{more_expensive} on any row, so no"
            f" router needs {expert!r}."
        )
    if summary.oracle_dollars_per_1000 is None:
        yield (
            "the table has no dollars: quality alone is compared; add cost:<expert> columns or use"
            " with_prices()."
        )
    if summary.rows < _FEW_ROWS:
        yield (
            f"only {pluralize(summary.rows, 'row')}: intervals will be wide; {_FEW_ROWS} or more"
            " are advisable."
        )


def _tie_warning(summary: TableSummary) -> str:
    if summary.price_weight or summary.oracle_dollars_per_1000 is None:
        return "all experts tie on every row: there is nothing to learn."
    return (
        "all experts score the same on every row: take the cheapest,"
        f" {summary.best_by_score.name!r}; no router is needed."
    )
