"""Descriptions of tables: win shares, dominated experts, duplicates, and the possible gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute._format import as_dollars, as_score, pluralize, text_table
from mildroute._hashing import ContentHasher, digests
from mildroute.costs.prices import PriceList
from mildroute.costs.schema import DOLLARS, GROUP, ID, INPUT, SCORE
from mildroute.costs.source import Source, open_source
from mildroute.costs.split import DuplicateCounter
from mildroute.costs.table import CostTable
from mildroute.costs.validation import RepairLog, check_holes, check_rows, validate
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "DominanceMatrix",
    "ExpertSummary",
    "TableSummary",
    "WinCounts",
    "describe",
    "warnings_of",
]


# Sentences on what to check before routing on a table.


_COLLAPSE = 0.8
_FEW_ROWS = 200


def warnings_of(summary: Any, collapse: tuple[str, float]) -> tuple[str, ...]:
    """Return warnings about a summary.

    Args:
        summary: A ``TableSummary``.
        collapse: The expert that wins most decided rows, and its share of those rows.
    """
    return tuple(_sentences(summary, *collapse))


def _sentences(summary: Any, leader: str, share: float) -> Iterator[str]:
    if share > _COLLAPSE:
        yield (
            f"collapse risk: {leader!r} wins {share:.0%} of the rows on which the experts differ, "
            "so a plain classifier would always choose it."
        )
    if not summary.decided:
        yield _tied(summary)
    if summary.repeated_ids:
        yield (
            f"{_repeat(summary.repeated_ids)} the query_id of an earlier row; fit and compare"
            " refuse them unless they are identical."
        )
    if summary.repeated_texts:
        yield (
            f"{_repeat(summary.repeated_texts)} the text of an earlier row; a split keeps them on"
            " one side."
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


def _tied(summary: Any) -> str:
    if summary.price_weight or summary.oracle_dollars_per_1000 is None:
        return "all experts tie on every row: there is nothing to learn."
    return (
        "all experts score the same on every row: take the cheapest,"
        f" {summary.best_by_score.name!r}; no router is needed."
    )


def _repeat(count: int) -> str:
    return f"{pluralize(count, 'row')} {'repeats' if count == 1 else 'repeat'}"


# Running sums over rows of scores and dollars: who wins, how often alone, and the oracle's figures.


Matrix = NDArray[np.float64]

_HEAD = 256


class WinCounts:
    """The sums over rows that determine all shares and means.

    An expert wins a row if its cost (1 - score) + price_weight dollars is the lowest; tied experts
    share the win equally. The oracle chooses a winner, and the cheapest one if several tie.

    Attributes:
        scores: Sum of scores, shape (p,).
        dollars: Sum of dollars, shape (p,).
        wins: Sum of shared wins, shape (p,).
        decided_wins: Sum of shared wins over decided rows, shape (p,).
        alone: Number of rows that only this expert wins, shape (p,).
        oracle_dollars: Sum of the oracle's dollars.
    """

    def __init__(self, experts: int, *, price_weight: float) -> None:
        self._price_weight = price_weight
        self.rows = self.decided = 0
        self.scores, self.dollars, self.wins, self.decided_wins = (
            np.zeros(experts) for _ in range(4)
        )
        self.alone = np.zeros(experts, dtype=np.int64)
        self.oracle_score = self.oracle_dollars = 0.0

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows.

        Both matrices have shape (p, n), one row per expert, which is how columns lie in memory.
        """
        costs = 1.0 - scores
        if dollars is not None:
            self.dollars += dollars.sum(axis=1)
            costs += self._price_weight * dollars if self._price_weight else 0.0
        lowest = costs.min(axis=0)
        winners = costs == lowest
        tied = np.add.reduce(winners, axis=0, dtype=np.int32)
        undecided = int(np.count_nonzero(tied == len(scores)))
        shared = winners.astype(np.float64) @ (1.0 / tied)
        self.rows += scores.shape[1]
        self.decided += scores.shape[1] - undecided
        self.scores += scores.sum(axis=1)
        self.wins += shared
        self.decided_wins += shared - undecided / len(scores)
        self.alone += np.count_nonzero(winners & (tied == 1), axis=1)
        self._add_oracle(lowest, dollars, winners)

    def _add_oracle(
        self, lowest: Matrix, dollars: Matrix | None, winners: NDArray[np.bool_]
    ) -> None:
        paid = (
            0.0 if dollars is None else float(np.where(winners, dollars, np.inf).min(axis=0).sum())
        )
        self.oracle_dollars += paid
        self.oracle_score += float(len(lowest) - (lowest.sum() - self._price_weight * paid))


class DominanceMatrix:
    """The pairs of experts in which the first dominates the second.

    The first is never worse in score, never more expensive, and better on some row.
    """

    def __init__(self, experts: int) -> None:
        self._never_worse = ~np.eye(experts, dtype=bool)
        self._better = np.zeros((experts, experts), dtype=bool)

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows of shape (p, n).

        A few rows settle most pairs; only the remaining pairs are compared on all rows.
        """
        for rows in (slice(0, _HEAD), slice(_HEAD, None)):
            for one, other in zip(*np.nonzero(self._never_worse), strict=True):
                self._compare(
                    int(one),
                    int(other),
                    scores[:, rows],
                    None if dollars is None else dollars[:, rows],
                )

    def _compare(self, one: int, other: int, scores: Matrix, dollars: Matrix | None) -> None:
        never_worse = bool((scores[one] >= scores[other]).all()) and (
            dollars is None or bool((dollars[one] <= dollars[other]).all())
        )
        self._never_worse[one, other] = never_worse
        if never_worse and not self._better[one, other]:
            self._better[one, other] = bool((scores[one] > scores[other]).any()) or (
                dollars is not None and bool((dollars[one] < dollars[other]).any())
            )

    def dominated(self) -> dict[int, int]:
        """Return each dominated expert and one that dominates it."""
        pairs = self._never_worse & self._better
        return {
            int(other): int(pairs[:, other].argmax()) for other in np.flatnonzero(pairs.any(axis=0))
        }


# The contents of a cost table, in one pass and bounded memory, as ``mildroute inspect`` shows them.


_ROWS = 16_384
_MOST_GROUPS = 10_000


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
        repeated_ids: Rows whose id occurs in an earlier row.
        repeated_texts: Rows whose text occurs in an earlier row.
        missing_scores: Missing scores, which count as the caller specified.
        dropped_rows: Rows that were dropped for a missing score.
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
    repeated_ids: int
    repeated_texts: int
    missing_scores: int
    dropped_rows: int
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
                as_score(expert.score),
                _bill(expert.dollars_per_1000),
                f"{expert.wins:.0%}",
            ]
            for expert in self.experts
        ]
        oracle = ["oracle", as_score(self.oracle_score), _bill(self.oracle_dollars_per_1000), ""]
        table = text_table(["expert", "score", "$ per 1,000", "wins"], [*rows, oracle])
        return "\n".join([pluralize(self.rows, "query"), table, *self.warnings, *self.notes])

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-serializable values.

        Example:
            >>> describe({"score:a": [1], "score:b": [0]}).as_dict()["experts"][1]["wins"]
            0.0
        """
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }
        prices = None if self.prices is None else self.prices.as_dict()
        return plain | {
            "experts": [asdict(expert) for expert in self.experts],
            "prices": prices,
            "best_by_score": self.best_by_score.name,
        }


def _bill(dollars: float | None) -> str:
    return "" if dollars is None else as_dollars(dollars)


def describe(
    source: Any,
    *,
    price_weight: float = 0.0,
    experts: Sequence[str] | None = None,
    missing: str = "raise",
) -> TableSummary:
    """Read, check, hash and summarize a table in one pass.

    Args:
        source: A ``CostTable``, or an argument of ``CostTable.read`` or ``CostTable.from_data``.
        price_weight: Value of a dollar in errors.
        experts: The experts to keep, or `None` for all.
        missing: As for ``CostTable.read``.

    Returns:
        The summary. Repeated ids are counted here, not rejected.

    Example:
        >>> describe({"score:a": [1, 0], "score:b": [0, 1]}).oracle_score
        1.0
    """
    if not np.isfinite(price_weight) or price_weight < 0:
        raise ArgumentError(f"price_weight must be finite and not negative, got {price_weight}.")
    data = source.arrow if isinstance(source, CostTable) else source
    rows = open_source(data, experts=experts, missing=missing, rows=_ROWS)
    if isinstance(source, CostTable):
        log = RepairLog(list(source.repairs))
        rows = Source(rows.layout, source.prices, log, rows.parts, source.notes)
    has_dollars = bool(rows.layout.names(DOLLARS))
    if price_weight and not has_dollars:
        raise TableError(
            f"a price weight of {price_weight:g} needs the columns 'cost:<expert>', got none; add"
            " them, or give a price list."
        )
    return _Pass(rows, price_weight, has_dollars).summary()


class _Pass:
    """One pass over the rows.

    SHA-256 runs alongside on a second thread, because it releases the interpreter's lock.
    """

    def __init__(self, source: Source, price_weight: float, has_dollars: bool) -> None:
        self.source, self.price_weight, self.has_dollars = source, price_weight, has_dollars
        count = len(source.layout.experts)
        self.tally, self.dominance = (
            WinCounts(count, price_weight=price_weight),
            DominanceMatrix(count),
        )
        self.ids, self.texts, self.groups = DuplicateCounter(), DuplicateCounter(), dict[str, int]()
        self.hasher = ContentHasher()

    def summary(self) -> TableSummary:
        with ThreadPoolExecutor(1) as beside:
            pending: Future[None] | None = None
            for table in self._tables():
                marks = {
                    name: digests(table.column(name))
                    for name in (ID, INPUT)
                    if name in table.column_names
                }
                previous, pending = pending, beside.submit(self.hasher.update, table, marks)
                self._add(table, marks)
                if previous is not None:
                    previous.result()
            if pending is not None:
                pending.result()
        check_rows(self.tally.rows, self.source.log)
        check_holes(self.tally.rows, len(self.source.layout.experts), self.source.log)
        return self._finished()

    def _tables(self) -> Iterator[pa.Table]:
        for part in self.source.parts:
            yield validate(part, self.source.log)

    def _add(self, table: pa.Table, marks: dict[str, NDArray[np.uint64]]) -> None:
        if not table.num_rows:
            return
        scores = self._matrix(table, SCORE)
        dollars = self._matrix(table, DOLLARS) if self.has_dollars else None
        self.tally.add(scores, dollars)
        self.dominance.add(scores, dollars)
        self.ids.add(marks[ID])
        if INPUT in marks:
            self.texts.add(marks[INPUT])
        if GROUP in table.column_names and len(self.groups) <= _MOST_GROUPS:
            for entry in pc.value_counts(table.column(GROUP)).to_pylist():
                self.groups[entry["values"]] = self.groups.get(entry["values"], 0) + entry["counts"]

    def _matrix(self, table: pa.Table, prefix: str) -> NDArray[np.float64]:
        return np.stack(
            [table.column(name).to_numpy() for name in self.source.layout.names(prefix)]
        )

    def _finished(self) -> TableSummary:
        tally, names = self.tally, self.source.layout.experts
        costs = 1.0 - tally.scores / tally.rows + self.price_weight * tally.dollars / tally.rows
        oracle_cost = (
            1.0
            - tally.oracle_score / tally.rows
            + self.price_weight * tally.oracle_dollars / tally.rows
        )
        positive = tally.wins[tally.wins > 0]
        share = float(tally.decided_wins.max() / tally.decided) if tally.decided else 0.0
        summary = TableSummary(
            rows=tally.rows,
            experts=tuple(self._expert(index, name) for index, name in enumerate(names)),
            price_weight=float(self.price_weight),
            best_single=names[
                int(np.lexsort((tally.dollars, costs.round(12)))[0])
            ],  # the cheapest of equals, then the first
            best_single_cost=float(costs.min()),
            oracle_score=tally.oracle_score / tally.rows,
            oracle_dollars_per_1000=(
                1000 * tally.oracle_dollars / tally.rows if self.has_dollars else None
            ),
            oracle_cost=float(oracle_cost),
            possible_gain=max(float(costs.min() - oracle_cost), 0.0),
            decided=tally.decided / tally.rows,
            imbalance=float(positive.max() / positive.min()),
            groups=self._groups(),
            repeated_ids=self.ids.repeats(),
            repeated_texts=self.texts.repeats(),
            missing_scores=self.source.log.counts.get("zero", 0),
            dropped_rows=self.source.log.counts.get("dropped", 0),
            dominated={
                names[one]: names[other] for one, other in self.dominance.dominated().items()
            },
            content_hash=self.hasher.hexdigest(),
            prices=self.source.prices,
            repairs=self.source.log.sentences(),
            ignored=self.source.layout.ignored,
            notes=self.source.notes,
        )
        return replace(
            summary, warnings=warnings_of(summary, (names[int(tally.decided_wins.argmax())], share))
        )

    def _groups(self) -> dict[str, int] | None:
        """Return groups, largest first, or `None` above the limit at which counting stopped."""
        few = 0 < len(self.groups) <= _MOST_GROUPS
        return (
            dict(sorted(self.groups.items(), key=lambda pair: (-pair[1], pair[0]))) if few else None
        )

    def _expert(self, place: int, name: str) -> ExpertSummary:
        tally = self.tally
        return ExpertSummary(
            name=name,
            score=float(tally.scores[place] / tally.rows),
            dollars_per_1000=(
                float(1000 * tally.dollars[place] / tally.rows) if self.has_dollars else None
            ),
            wins=float(tally.wins[place] / tally.rows),
            wins_alone=float(tally.alone[place] / tally.rows),
        )
