"""Summaries of tables in one pass and bounded memory, as ``mildroute inspect`` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute._content_hash import ContentHasher, digests
from mildroute._format import format_dollars, format_score, pluralize, text_table
from mildroute.costs.duplicates import DuplicateCounter
from mildroute.costs.missing_scores import validate_missing
from mildroute.costs.options import ReadOptions
from mildroute.costs.prices import PriceList
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import DOLLARS, GROUP, ID, INPUT, SCORE
from mildroute.costs.source import Source, open_source
from mildroute.costs.table import CostTable
from mildroute.costs.validation import check_holes, check_rows, validate
from mildroute.costs.wins import DominanceMatrix, WinCounts
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["ExpertSummary", "TableSummary", "describe"]

_ROWS = 16_384
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
    options = ReadOptions(experts, validate_missing(missing), rows=_ROWS)
    opened = open_source(data, options)
    if isinstance(source, CostTable):
        log = RepairLog(list(source.repairs))
        opened = Source(opened.layout, source.prices, log, opened.chunks, source.notes)
    has_dollars = bool(opened.layout.names(DOLLARS))
    if price_weight and not has_dollars:
        raise TableError(
            f"a price weight of {price_weight:g} needs the columns 'cost:<expert>', got none; add"
            " them, or give a price list."
        )
    return _SummaryPass(opened, price_weight, has_dollars).summary()


class _SummaryPass:
    """One pass over the rows of a table.

    SHA-256 runs alongside on a second thread, because it releases the interpreter's lock.
    """

    def __init__(self, source: Source, price_weight: float, has_dollars: bool) -> None:
        self.source = source
        self.price_weight = price_weight
        self.has_dollars = has_dollars
        experts = len(source.layout.experts)
        self.wins = WinCounts(experts, price_weight=price_weight)
        self.dominance = DominanceMatrix(experts)
        self.ids = DuplicateCounter()
        self.texts = DuplicateCounter()
        self.groups: dict[str, int] = {}
        self.hasher = ContentHasher()

    def summary(self) -> TableSummary:
        with ThreadPoolExecutor(1) as executor:
            pending: Future[None] | None = None
            for table in self._tables():
                marks = {
                    name: digests(table.column(name))
                    for name in (ID, INPUT)
                    if name in table.column_names
                }
                previous, pending = pending, executor.submit(self.hasher.update, table, marks)
                self._add(table, marks)
                if previous is not None:
                    previous.result()
            if pending is not None:
                pending.result()
        check_rows(self.wins.rows, self.source.log)
        check_holes(self.wins.rows, len(self.source.layout.experts), self.source.log)
        return self._summarize()

    def _tables(self) -> Iterator[pa.Table]:
        for chunk in self.source.chunks:
            yield validate(chunk, self.source.log)

    def _add(self, table: pa.Table, marks: dict[str, NDArray[np.uint64]]) -> None:
        if not table.num_rows:
            return
        scores = self._matrix(table, SCORE)
        dollars = self._matrix(table, DOLLARS) if self.has_dollars else None
        self.wins.add(scores, dollars)
        self.dominance.add(scores, dollars)
        self.ids.add(marks[ID])
        if INPUT in marks:
            self.texts.add(marks[INPUT])
        if GROUP in table.column_names and len(self.groups) <= _MAX_GROUPS:
            for entry in pc.value_counts(table.column(GROUP)).to_pylist():
                self.groups[entry["values"]] = self.groups.get(entry["values"], 0) + entry["counts"]

    def _matrix(self, table: pa.Table, prefix: str) -> NDArray[np.float64]:
        return np.stack(
            [table.column(name).to_numpy() for name in self.source.layout.names(prefix)]
        )

    def _summarize(self) -> TableSummary:
        wins = self.wins
        names = self.source.layout.experts
        costs = 1.0 - wins.scores / wins.rows + self.price_weight * wins.dollars / wins.rows
        oracle_cost = (
            1.0
            - wins.oracle_score / wins.rows
            + self.price_weight * wins.oracle_dollars / wins.rows
        )
        positive = wins.wins[wins.wins > 0]
        share = float(wins.decided_wins.max() / wins.decided) if wins.decided else 0.0
        summary = TableSummary(
            rows=wins.rows,
            experts=tuple(self._expert(index, name) for index, name in enumerate(names)),
            price_weight=float(self.price_weight),
            best_single=names[
                int(np.lexsort((wins.dollars, costs.round(12)))[0])
            ],  # the cheapest of equals, then the first
            best_single_cost=float(costs.min()),
            oracle_score=wins.oracle_score / wins.rows,
            oracle_dollars_per_1000=(
                1000 * wins.oracle_dollars / wins.rows if self.has_dollars else None
            ),
            oracle_cost=float(oracle_cost),
            possible_gain=max(float(costs.min() - oracle_cost), 0.0),
            decided=wins.decided / wins.rows,
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
        leader = names[int(wins.decided_wins.argmax())]
        return replace(summary, warnings=tuple(_warnings(summary, leader, share)))

    def _groups(self) -> dict[str, int] | None:
        """Return groups, largest first, or `None` above the limit at which counting stopped."""
        few = 0 < len(self.groups) <= _MAX_GROUPS
        return (
            dict(sorted(self.groups.items(), key=lambda pair: (-pair[1], pair[0]))) if few else None
        )

    def _expert(self, index: int, name: str) -> ExpertSummary:
        wins = self.wins
        return ExpertSummary(
            name=name,
            score=float(wins.scores[index] / wins.rows),
            dollars_per_1000=(
                float(1000 * wins.dollars[index] / wins.rows) if self.has_dollars else None
            ),
            wins=float(wins.wins[index] / wins.rows),
            wins_alone=float(wins.alone[index] / wins.rows),
        )


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
    if summary.repeated_ids:
        yield (
            f"{_rows_that_repeat(summary.repeated_ids)} the query_id of an earlier row; fit and"
            " compare refuse them unless they are identical."
        )
    if summary.repeated_texts:
        yield (
            f"{_rows_that_repeat(summary.repeated_texts)} the text of an earlier row; a split keeps"
            " them on one side."
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


def _rows_that_repeat(count: int) -> str:
    return f"{pluralize(count, 'row')} {'repeats' if count == 1 else 'repeat'}"
