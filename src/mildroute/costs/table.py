"""The cost table: scores, dollars and latencies of each expert on each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from mildroute._content_hash import content_hash
from mildroute._format import pluralize
from mildroute.costs.clusters import Clusters, find_clusters
from mildroute.costs.dollars import (
    call_dollars,
    dollars_of,
    names_columns,
    per_call,
    with_dollars,
)
from mildroute.costs.files import is_source, resolve_files
from mildroute.costs.missing_scores import validate_missing
from mildroute.costs.options import ColumnMapping, ReadOptions
from mildroute.costs.prices import PriceList, metadata_of
from mildroute.costs.readers import read_whole
from mildroute.costs.reading import read_table
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import (
    ANSWER,
    CONVERSATION,
    DOLLARS,
    GROUP,
    ID,
    INPUT,
    LATENCY,
    LOGPROB,
    PROPENSITY,
    SCORE,
    SPLIT,
    infer_schema,
    listed,
)
from mildroute.costs.split import split_rows
from mildroute.costs.validation import drop_duplicates
from mildroute.costs.writing import write_table
from mildroute.exceptions import ArgumentError, MissingExtraError, TableError

__all__ = ["ColumnOptions", "CostTable"]


# Maximum value of a dollar or a second, as for price weights of routers: products stay finite.
_MAX_WEIGHT = 1e15

# Dollars of calls: a price list, the path of one, or for each expert dollars per call, the name of
# a column that holds them, or (input, output) per million tokens.
Prices = PriceList | str | Path | Mapping[str, Any]


class ColumnOptions(TypedDict, total=False):
    """The roles and units of a source's columns, all optional, as :meth:`CostTable.from_any`."""

    input: str | None
    scores: Mapping[str, str] | Sequence[str] | None
    prices: Prices | None
    score_scale: tuple[float, float] | None
    latency_unit: str | None
    output_tokens: float | Mapping[str, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class CostTable:
    """An immutable table of each expert's score, dollars and latency on each query.

    Values are checked on reading. Build a table with ``read`` (files), ``from_data`` (tables in
    memory) or ``from_long``. A source has the columns ``query_id``, ``input`` (or ``text``),
    optional ``group``, ``split``, ``time``, and for each expert ``score:<expert>`` in [0, 1],
    optional ``cost:<expert>`` in dollars, ``latency:<expert>`` in seconds, ``intokens:``,
    ``outtokens:``, ``inchars:`` and ``outchars:<expert>``, and, read on request,
    ``answer:<expert>`` and ``logprob:<expert>``.

    Attributes:
        arrow: The columns in Arrow, under their canonical names and types.
        experts: Names of the p experts.
        prices: List prices stored with the table, or `None`.
        repairs: Sentences on what was repaired while reading.
        ignored: Columns of the source that are not part of the format.
        notes: Sentences on what was inferred about the source's columns.

    Example:
        >>> table = CostTable.from_data({"input": ["2+2?", "prove it"],
        ...                       "score:small": [1, 0], "score:large": [1, 1],
        ...                       "cost:small": [0.001, 0.001], "cost:large": [0.01, 0.01]})
        >>> table.costs(price_weight=10).tolist()
        [[0.01, 0.1], [1.01, 0.1]]
        >>> table.repairs
        ('no query_id column: rows are numbered from 0',)
    """

    arrow: pa.Table
    experts: tuple[str, ...] = ()
    prices: PriceList | None = None
    repairs: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise an error for tables that only the class methods can build."""
        if not isinstance(self.arrow, pa.Table) or not self.experts:
            call = "read(path)" if is_source(self.arrow) else "from_data(data)"
            raise TableError(
                "a CostTable is made from canonical columns and the names of experts, got"
                f" {type(self.arrow).__name__}; call CostTable.{call}."
            )

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        experts: Sequence[str] | None = None,
        missing: str = "raise",
        answers: bool = False,
        **columns: Unpack[ColumnOptions],
    ) -> CostTable:
        """Read Parquet, CSV, TSV, Excel or JSON lines.

        The source is a file, a folder of shards, a pattern, a URL, or a list of them.

        Args:
            source: The source to read, in wide or long form.
            experts: The experts to keep, in this order, or `None` for all.
            missing: How to treat a missing score: 'raise' an error, count it as 'zero', 'drop' the
                row, or 'keep' it as NaN: the expert was not called, and ``fit`` estimates its
                costs.
            answers: Whether to read ``answer:<expert>`` as well, which a cascade needs, and
                ``logprob:<expert>`` if present.
            **columns: Roles and units of columns, as for ``from_any``.

        Returns:
            The table; its ``notes`` say what was guessed.

        Example:
            >>> CostTable.read("no/such.parquet")
            Traceback (most recent call last):
            mildroute.exceptions.TableError: 'no/such.parquet' does not exist; check the path.
        """
        if not is_source(source):
            raise TableError(
                f"read takes a path, a URL or a list of them, got {type(source).__name__}; use"
                " CostTable.from_data for tables in memory."
            )
        return cls.from_any(source, experts=experts, missing=missing, answers=answers, **columns)[0]

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        experts: Sequence[str] | None = None,
        missing: str = "raise",
        answers: bool = False,
        **columns: Unpack[ColumnOptions],
    ) -> CostTable:
        """Take a table in memory.

        The table may be from Arrow, pandas, polars, a Hugging Face dataset, a dict of columns or a
        list of dicts, in wide or long form.

        Args:
            data: The table.
            experts: The experts to keep, in this order, or `None` for all.
            missing: As for ``read``.
            answers: As for ``read``.
            **columns: Roles and units of columns, as for ``from_any``.

        Returns:
            The table; its ``notes`` say what was guessed.

        Example:
            >>> columns = {"query_id": ["q"], "score:a": [1], "score:b": [None]}
            >>> CostTable.from_data(columns, missing="zero").scores
            array([[1., 0.]])
        """
        if is_source(data):
            raise TableError(
                f"from_data takes a table in memory, got {data!r}; use CostTable.read for files."
            )
        return cls.from_any(data, experts=experts, missing=missing, answers=answers, **columns)[0]

    @classmethod
    def from_any(
        cls,
        data: Any,
        *,
        input: str | None = None,  # noqa: A002
        scores: Mapping[str, str] | Sequence[str] | None = None,
        prices: Prices | None = None,
        experts: Sequence[str] | None = None,
        missing: str = "raise",
        answers: bool = False,
        score_scale: tuple[float, float] | None = None,
        latency_unit: str | None = None,
        output_tokens: float | Mapping[str, float] | None = None,
    ) -> tuple[CostTable, tuple[str, ...]]:
        """Take a table from a path or from memory, regardless of its column names.

        Args:
            data: An argument of ``read`` or ``from_data``, or a ``CostTable``.
            input: Column of the texts.
            scores: Score columns: a list of them, or the column of each expert.
            prices: For each expert: dollars per call, the name of a column that holds them, or
                (input, output) per million tokens; or a ``PriceList``, or the path of one.
            experts: As for ``read``.
            missing: As for ``read``.
            answers: As for ``read``.
            score_scale: Worst and best score, such as (0, 100), or (1, 0) if lower is better.
            latency_unit: Unit of latencies: 's' or 'ms'.
            output_tokens: As for ``with_prices``.

        Returns:
            The table, and sentences on what was inferred.

        Example:
            >>> rows = [{"Prompt": "2+2?", "gpt": "Y", "llama": "N"}]
            >>> table, notes = CostTable.from_any(rows, prices={"gpt": 0.01, "llama": 0.001})
            >>> table.scores.tolist(), table.dollars.tolist()
            ([[1.0, 0.0]], [[0.01, 0.001]])
            >>> notes[0]
            "read as: input 'Prompt'; scores of gpt, llama (columns of numbers from 0 to 1)"
        """
        dollars = prices if names_columns(prices) else None
        columns = (input, scores, dollars, score_scale, latency_unit)
        mapping = None if columns == (None,) * 5 else ColumnMapping(*columns)
        if isinstance(data, CostTable):
            if mapping is not None:
                raise ArgumentError(
                    "the columns of a CostTable have their names already; give input, scores,"
                    " columns of dollars and units where the table is read."
                )
            table = data if experts is None else data.select(experts)
        else:
            options = ReadOptions(experts, validate_missing(missing), answers, mapping)
            table = cls._from_source(data, options)
        others = set(prices) - set(table.experts) if isinstance(prices, Mapping) else set()
        if others and experts is None:
            raise TableError(
                f"prices name {listed(sorted(map(str, others)))}, got the experts"
                f" {listed(table.experts)}; correct the names, or say which columns hold scores"
                " (scores)."
            )
        if prices is not None and dollars is None:
            table = table.with_prices(
                prices, output_tokens=output_tokens, per="call" if per_call(prices) else "1M"
            )
        return table, table.notes

    @classmethod
    def from_long(
        cls, data: Any, *, experts: Sequence[str] | None = None, missing: str = "raise"
    ) -> CostTable:
        """Take a long table, one row per query and expert, from files or from memory.

        Args:
            data: Columns ``query_id`` (or ``query``), ``expert`` (or ``model``), ``score``,
                optional ``dollars`` (or ``cost``), ``latency``, ``input`` (or ``text``), ``group``,
                ``split``, ``time``.
            experts: The experts to keep, in this order, or `None` for all.
            missing: As for ``read``; pairs of query and expert without a row are missing.

        Returns:
            The table.

        Example:
            >>> answers = {"query": ["q", "q"], "expert": ["a", "b"], "score": [1, 0]}
            >>> CostTable.from_long({**answers, "dollars": [0.1, 0.2]}).dollars
            array([[0.1, 0.2]])
        """
        return cls._from_source(data, ReadOptions(experts, validate_missing(missing)))

    @classmethod
    def read_new_expert(cls, source: Any, others: Sequence[str]) -> CostTable:
        """Read the scores of an expert that a table does not have yet.

        Args:
            source: As for ``read``, in wide form, with the columns of the new expert; those of
                other experts may be present as well.
            others: Names of the experts of the table.

        Returns:
            A partial table with the new expert first and one of the others second.
        """
        raw = read_whole(resolve_files(source))
        experts = [name[len(SCORE) :] for name in raw.column_names if name.startswith(SCORE)]
        new = [name for name in experts if name not in others]
        if len(new) != 1:
            raise TableError(
                "the scores of a new expert need one column 'score:<expert>' that the table does"
                f" not have, got {len(new)}: {', '.join(map(repr, new)) or 'none'}; add experts one"
                " at a time."
            )
        for prefix in (SCORE, DOLLARS):
            if prefix + new[0] in raw.column_names and prefix + others[0] not in raw.column_names:
                raw = raw.append_column(prefix + others[0], pa.nulls(raw.num_rows, pa.float64()))
        return cls.from_data(raw, experts=[new[0], others[0]], missing="keep")

    @classmethod
    def _from_source(cls, data: Any, options: ReadOptions) -> CostTable:
        content = read_table(data, options)
        return cls(
            content.arrow,
            content.layout.experts,
            content.prices,
            content.log.sentences(),
            content.layout.ignored,
            content.notes,
        )

    def __len__(self) -> int:
        """Return the number of queries."""
        return self.rows

    def __repr__(self) -> str:
        """Return the size and the names."""
        return (
            f"CostTable({pluralize(self.rows, 'row')}, {pluralize(len(self.experts), 'expert')}:"
            f" {', '.join(self.experts)})"
        )

    @property
    def rows(self) -> int:
        """Return the number of queries n."""
        return int(self.arrow.num_rows)

    @cached_property
    def query_ids(self) -> list[str]:
        """Return the unique id of each query, length n."""
        return list(self.arrow.column(ID).to_pylist())

    @cached_property
    def inputs(self) -> list[str] | None:
        """Return the text of each query, length n, or `None`."""
        return (
            list(self.arrow.column(INPUT).to_pylist()) if INPUT in self.arrow.column_names else None
        )

    @cached_property
    def groups(self) -> NDArray[np.object_] | None:
        """Return the group of each query as text, shape (n,), or `None`."""
        return (
            np.array(self.arrow.column(GROUP).to_pylist(), dtype=object)
            if GROUP in self.arrow.column_names
            else None
        )

    @cached_property
    def conversations(self) -> list[str] | None:
        """Return each query's conversation, length n, empty if it has none; or `None`."""
        if CONVERSATION not in self.arrow.column_names:
            return None
        return list(self.arrow.column(CONVERSATION).to_pylist())

    @cached_property
    def clusters(self) -> Clusters:
        """Return the rows that must be held out and resampled together.

        These are copies of a prompt, near-duplicates, turns of one conversation and, if their rows
        share outcomes, groups.
        """
        return self._find_clusters()

    def with_whole_groups(self) -> CostTable:
        """Return the table with its groups as clusters: figures are then about new groups."""
        if self.groups is None:
            raise TableError(
                "whole groups need the column 'group', got none; add it, or leave by='group' out."
            )
        table = replace(self)
        table.__dict__["clusters"] = self._find_clusters(whole_groups=True)
        return table

    def _find_clusters(self, *, whole_groups: bool = False) -> Clusters:
        return find_clusters(
            self.inputs, self.groups, self.conversations, self.scores, whole_groups=whole_groups
        )

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """Return the score of each expert on each query, shape (n, p), in [0, 1]; read-only.

        In a partial table, NaN marks experts that were not called.
        """
        return self._matrix(SCORE)

    @property
    def is_partial(self) -> bool:
        """Return whether some expert was not called on some query."""
        return bool(np.isnan(self.scores).any())

    @cached_property
    def propensities(self) -> NDArray[np.float64] | None:
        """Return the probability of calling each expert on each query, shape (n, p), or `None`.

        NaN if unknown. Propensities are read if missing scores are kept.
        """
        return self._matrix(PROPENSITY) if self._has(PROPENSITY) else None

    @cached_property
    def dollars(self) -> NDArray[np.float64] | None:
        """Return the dollars of each expert on each query, shape (n, p), or `None`; read-only."""
        return self._matrix(DOLLARS) if self._has(DOLLARS) else None

    @cached_property
    def latencies(self) -> NDArray[np.float64] | None:
        """Return the seconds of each expert on each query, shape (n, p), or `None`; read-only."""
        return self._matrix(LATENCY) if self._has(LATENCY) else None

    def answers(self, expert: str) -> list[str]:
        """Return the answers of an expert, length n; raise a TableError if they were not read.

        Example:
            >>> columns = {"score:a": [1], "score:b": [1], "answer:a": ["4"], "answer:b": ["four"]}
            >>> CostTable.from_data(columns, answers=True).answers("b")
            ['four']
        """
        if not self._has(ANSWER):
            raise TableError(
                f"the answers of {expert!r} are needed, got none; read the table with answers=True,"
                " and collect it with --answers."
            )
        return list(self.arrow.column(ANSWER + expert).to_pylist())

    def logprobs(self, expert: str) -> NDArray[np.float64] | None:
        """Return the mean log-probability of an expert's answer tokens, shape (n,), or `None`.

        NaN if unknown. Log-probabilities are read together with answers.

        Example:
            >>> columns = {"score:a": [1], "score:b": [1], "answer:a": ["4"], "answer:b": ["four"]}
            >>> CostTable.from_data(columns | {"logprob:a": [-0.5]}, answers=True).logprobs("a")
            array([-0.5])
        """
        name = LOGPROB + expert
        return self.arrow.column(name).to_numpy() if name in self.arrow.column_names else None

    @cached_property
    def content_hash(self) -> str:
        """Return the SHA-256 of the content, which is the same for every file format."""
        return content_hash(self.arrow)

    def costs(
        self, *, price_weight: float = 0.0, latency_weight: float = 0.0, error_weight: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the cost of each expert on each query.

        A cost is
        ``error_weight * (1 - score) + price_weight * dollars + latency_weight * seconds``.

        Args:
            price_weight: Value of a dollar in errors.
            latency_weight: Value of a second in errors.
            error_weight: Weight of the error.

        Returns:
            Costs, shape (n, p), as a new writable array.

        Example:
            >>> CostTable.from_data({"input": ["q"], "score:a": [1.0], "score:b": [0.25]}).costs()
            array([[0.  , 0.75]])
        """
        for name, weight in (
            ("price_weight", price_weight),
            ("latency_weight", latency_weight),
            ("error_weight", error_weight),
        ):
            if not 0 <= weight <= _MAX_WEIGHT:
                raise ArgumentError(f"{name} must be from 0 to {_MAX_WEIGHT:g}, got {weight}.")
        total = error_weight * (1.0 - self.scores)
        for weight, values, column, way_out in (
            (
                price_weight,
                self.dollars,
                DOLLARS,
                "add them, or give a price list (with_prices, --prices)",
            ),
            (latency_weight, self.latencies, LATENCY, "add them to the source"),
        ):
            if weight and values is None:
                raise TableError(
                    f"a weight of {weight:g} needs the columns '{column}<expert>', got none;"
                    f" {way_out}."
                )
            if weight and values is not None:
                total += weight * values
        return total

    def take(self, rows: ArrayLike) -> CostTable:
        """Return some of the rows, by number or by a boolean mask of length n.

        Example:
            >>> columns = {"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]}
            >>> CostTable.from_data(columns).take([1]).query_ids
            ['q']
        """
        chosen = np.asarray(rows)
        if chosen.dtype == bool and chosen.shape == (self.rows,):
            chosen = np.flatnonzero(chosen)
        fits = chosen.ndim == 1 and len(chosen) > 0 and np.issubdtype(chosen.dtype, np.integer)
        if (
            not fits
            or chosen.min() < 0
            or chosen.max() >= self.rows
            or len(np.unique(chosen)) < len(chosen)
        ):
            raise ArgumentError(
                f"rows must be different row numbers from 0 to {self.rows - 1}, at least one, or a"
                f" mask of length {self.rows}."
            )
        return replace(self, arrow=self.arrow.take(pa.array(chosen)))

    def concat(self, other: CostTable) -> CostTable:
        """Return the rows of this table followed by those of another, such as a gateway's log.

        An expert of only one table counts as not called on the rows of the other. Columns other
        than ids, inputs, groups and those of experts are dropped.

        Example:
            >>> table = CostTable.from_data({"query_id": ["p"], "score:a": [1], "score:b": [0]})
            >>> logged = {"query_id": ["q"], "score:a": [1], "score:b": [None]}
            >>> table.concat(CostTable.from_data(logged, missing="keep")).scores
            array([[ 1.,  0.],
                   [ 1., nan]])
        """
        experts = tuple(dict.fromkeys((*self.experts, *other.experts)))
        both = (self, other)
        texts = {
            name: pa.chunked_array(
                [chunk for table in both for chunk in table.arrow.column(name).chunks]
            )
            for name in (ID, INPUT, GROUP, CONVERSATION)
            if all(name in table.arrow.column_names for table in both)
        }
        numbers = {
            prefix + name: np.concatenate([table._column(prefix, name) for table in both])
            for prefix in (SCORE, DOLLARS, LATENCY, PROPENSITY)
            if prefix == PROPENSITY or all(table._has(prefix) for table in both)
            for name in experts
        }
        arrow = drop_duplicates(pa.table(texts | numbers), RepairLog())
        return CostTable(arrow, experts, self.prices or other.prices)

    def _column(self, prefix: str, expert: str) -> NDArray[np.float64]:
        """Return a column of numbers; NaN for an expert that the table does not have."""
        if expert not in self.experts:
            return np.full(self.rows, 0.0 if prefix == PROPENSITY else np.nan)
        if prefix == PROPENSITY and not self._has(prefix):
            asked = ~np.isnan(self._column(SCORE, expert))
            return np.full(self.rows, asked.mean())
        return np.asarray(self.arrow.column(prefix + expert).to_numpy())

    def select(self, experts: Sequence[str]) -> CostTable:
        """Return some of the experts, in this order.

        Example:
            >>> scores = {"score:a": [1], "score:b": [0], "score:c": [0]}
            >>> CostTable.from_data({"query_id": ["q"], **scores}).select(["c", "a"]).experts
            ('c', 'a')
        """
        layout = infer_schema(
            self.arrow.column_names, experts, answers=self._has(ANSWER), propensities=True
        )
        return replace(self, arrow=self.arrow.select(list(layout.sources)), experts=layout.experts)

    def with_expert(
        self,
        name: str,
        scores: ArrayLike,
        dollars: ArrayLike | None = None,
        latencies: ArrayLike | None = None,
    ) -> CostTable:
        """Return the table with one more expert, after the others.

        Args:
            name: Name of the expert.
            scores: The expert's score on each query, shape (n,).
            dollars: The expert's dollars on each query, shape (n,), if the table has dollars.
            latencies: The expert's seconds on each query, shape (n,), if the table has latencies.

        Example:
            >>> table = CostTable.from_data({"score:a": [1, 0], "score:b": [0, 0]})
            >>> table.with_expert("c", [1, 1]).scores[:, 2]
            array([1., 1.])
        """
        arrow = self.arrow
        for prefix, values in ((SCORE, scores), (DOLLARS, dollars), (LATENCY, latencies)):
            if self._has(prefix):
                arrow = arrow.append_column(
                    prefix + name, pa.array(np.asarray(values, dtype=np.float64))
                )
        return replace(self, arrow=arrow, experts=(*self.experts, name))

    def without_latencies(self) -> CostTable:
        """Return the table without ``latency:<expert>``, which a new expert may not have."""
        names = [name for name in self.arrow.column_names if not name.startswith(LATENCY)]
        return replace(self, arrow=self.arrow.select(names))

    def with_estimates(self, scores: ArrayLike, dollars: ArrayLike | None = None) -> CostTable:
        """Return the table with its gaps filled by these scores, and dollars if it has any.

        Doubly robust scores are no longer between 0 and 1.
        """
        arrow = self.arrow
        for prefix, matrix in ((SCORE, scores), (DOLLARS, dollars)):
            if matrix is not None:
                for name, column in zip(self.experts, np.asarray(matrix).T, strict=True):
                    index = arrow.column_names.index(prefix + name)
                    arrow = arrow.set_column(index, prefix + name, pa.array(column))
        return replace(self, arrow=arrow)

    def split(
        self, test: float = 0.2, *, by: str = "random", seed: int = 0
    ) -> tuple[CostTable, CostTable]:
        """Split into train and test tables; no id, text or cluster is on both sides.

        Args:
            test: Share of the rows to test.
            by: 'random', 'group' (whole groups), 'time' (the latest rows are the test side) or
                'column' (``split`` holds train or test).
            seed: Seed of the random order.

        Returns:
            The train table and the test table.

        Example:
            >>> scores = {"score:a": [1] * 5, "score:b": [0] * 5}
            >>> table = CostTable.from_data({"input": list("abcde"), **scores})
            >>> [len(side) for side in table.split(0.4)]
            [3, 2]
        """
        codes = self.clusters.codes if by in ("random", "group") else None
        train, tested = split_rows(self.arrow, test, by=by, seed=seed, clusters=codes)
        sides = self.take(train), self.take(tested)
        moved = sides[1].arrow.column(SPLIT).to_pylist().count("train") if by == "column" else 0
        if not moved:
            return sides
        repairs = (
            *self.repairs,
            f"{pluralize(moved, 'row')} labeled 'train' moved to the test side, where the same text"
            " is labeled 'test'",
        )
        return replace(sides[0], repairs=repairs), replace(sides[1], repairs=repairs)

    def with_prices(
        self,
        prices: PriceList | Mapping[str, Any] | str | Path,
        *,
        output_tokens: float | Mapping[str, float] | None = None,
        per: str = "1M",
    ) -> CostTable:
        """Compute dollars from token or character counts, replacing any existing ones.

        Args:
            prices: Prices of all experts: a list, the path of one, or an argument of
                ``PriceList.of``.
            output_tokens: Tokens of an answer if the table has no counts; one number, or one for
                each expert.
            per: Unit of the numbers in a mapping: '1M' or '1K' tokens, or a 'call'.

        Returns:
            A table with ``cost:<expert>`` columns that keeps the prices.

        Example:
            >>> table = CostTable.from_data({"input": ["abcd"], "score:a": [1], "score:b": [0]})
            >>> table.with_prices(PriceList.of({"a": 1.0, "b": 10.0}), output_tokens=99).dollars
            array([[0.0001, 0.001 ]])
        """
        price_list = None if per == "call" else PriceList.from_any(prices, per=per)
        dollars = (
            call_dollars(prices, self.experts, self.rows)
            if price_list is None
            else dollars_of(self.arrow, self.experts, price_list, output_tokens)
        )
        return replace(self, arrow=with_dollars(self.arrow, dollars), prices=price_list)

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame, under their canonical names.

        Example:
            >>> table = CostTable.from_data({"query_id": ["q"], "score:a": [1], "score:b": [0]})
            >>> list(table.to_pandas().columns)
            ['query_id', 'score:a', 'score:b']
        """
        try:
            return self.arrow.to_pandas()
        except ModuleNotFoundError as missing:
            raise MissingExtraError("to_pandas needs pandas; run: pip install pandas") from missing

    def save(self, target: str | Path, *, shards: int = 1) -> Path | str:
        """Write Parquet, CSV or JSON lines, depending on the suffix.

        Without a suffix, the target becomes a folder of Parquet shards. Only Parquet keeps the
        prices.

        Example:
            >>> import tempfile
            >>> table = CostTable.from_data({"query_id": ["q"], "score:a": [1], "score:b": [0]})
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = CostTable.read(table.save(Path(folder, "t.parquet")))
            >>> again.content_hash == table.content_hash
            True
        """
        return write_table(
            self.arrow.replace_schema_metadata(metadata_of(self.prices) or None),
            target,
            shards=shards,
        )

    def _has(self, prefix: str) -> bool:
        return prefix + self.experts[0] in self.arrow.column_names

    def _matrix(self, prefix: str) -> NDArray[np.float64]:
        matrix = np.empty((self.rows, len(self.experts)))
        for index, expert in enumerate(self.experts):
            matrix[:, index] = self.arrow.column(prefix + expert).to_numpy()
        matrix.flags.writeable = False
        return matrix
