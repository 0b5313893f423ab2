"""A source in any form and with any names, read as runs of raw rows that are ready to check."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.costs.files import SourceFile, is_source, resolve_files
from mildroute.costs.prices import PriceList, prices_in
from mildroute.costs.readers import (
    Schema,
    currency_notes,
    decimal_mark,
    first_rows,
    pivot_to_wide,
    read_batches,
    read_schema,
    to_arrow,
)
from mildroute.costs.schema import (
    ANSWER,
    CONVERSATION,
    COUNTS,
    DOLLARS,
    GROUP,
    ID,
    INPUT,
    LATENCY,
    LOGPROB,
    PLAIN,
    PREFIXES,
    PROPENSITY,
    SCORE,
    SPLIT,
    TIME,
    MatchedColumns,
    TableSchema,
    as_numbers,
    check_unique,
    decoded,
    infer_schema,
    is_canonical,
    is_number,
    is_text,
    listed,
)
from mildroute.costs.validation import (
    LOWEST_SCORES,
    Chunk,
    Missing,
    RepairLog,
    checked_missing,
    missing_score_reason,
)
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["ColumnMapping", "Source", "find_input", "open_source"]


# The role of each column of a source, as the caller specifies it or as names and values suggest.


_EXPERT = "expert"
_NAMES = {
    ID: "query_id id qid question_id prompt_id sample_id example_id",
    INPUT: "input text prompt question query instruction user_input request message problem",
    GROUP: "group",
    CONVERSATION: "conversation conversation_id session_id thread_id",
    SPLIT: "split",
    _EXPERT: "expert model llm model_name expert_name",
}
_MILLISECONDS, _ERROR = "latency_ms:", "error:"
_WORDS = {
    SCORE: "score correct is_correct accuracy grade quality rating",
    DOLLARS: "cost dollars price usd eur gbp fee charge cost_usd total_cost price_usd",
    LATENCY: "latency latency_s latency_sec latency_seconds seconds response_time duration",
    _MILLISECONDS: "latency_ms ms milliseconds response_time_ms duration_ms",
    "intokens:": "intokens input_tokens prompt_tokens tokens_in",
    "outtokens:": "outtokens output_tokens completion_tokens tokens_out",
    "inchars:": "inchars",
    "outchars:": "outchars",
    ANSWER: "answer response model_response",
    LOGPROB: "logprob",
    PROPENSITY: "propensity",
    _ERROR: "error errors loss wrong incorrect fail failed failure wer cer mse rmse mae nll"
    " perplexity distance hallucination toxicity",
}
_PREFIX_OF = {word: prefix for prefix, words in _WORDS.items() for word in words.split()}
_ALL = "|".join(
    word.replace("_", r"[\s_(-]*") for word in sorted(_PREFIX_OF, key=len, reverse=True)
)
_BETWEEN = r"[\s:_\-./|(\[]+"
_FIRST = re.compile(rf"\s*(?P<word>{_ALL}){_BETWEEN}(?P<expert>.*[^\s)\]])[\s)\]]*", re.IGNORECASE)
_LAST = re.compile(rf"\s*(?P<expert>.*?[^\s(\[]){_BETWEEN}(?P<word>{_ALL})[\s)\]]*", re.IGNORECASE)
_SIGN = re.compile(r"[(\[]?[$€£][)\]]?")
# Columns that are not experts, although their names or numbers look like one.
_NO_EXPERTS = {"average", "avg", "best", "max", "mean", "min", "oracle", "overall", "total"}
_NO_EXPERTS |= {"difficulty", "fold", "index", "label", "row", "seed", "target", "temperature"}
_NO_EXPERTS |= {"duplicate", "flag", "flagged", "unnamed_0", "valid", "weight"}
_SAMPLE = 1000


@dataclass(frozen=True)
class ColumnMapping:
    """The caller's description of the columns of a source; the rest is inferred.

    Attributes:
        input: Column of the texts.
        scores: Score column of each expert, or a list of columns named after the experts.
        dollars: Column of the dollars of each expert.
        score_scale: Worst and best score, if they are not 0 and 1.
        latency_unit: 's' or 'ms'.
    """

    input: str | None = None
    scores: Mapping[str, str] | Sequence[str] | None = None
    dollars: Mapping[str, str] | None = None
    score_scale: tuple[float, float] | None = None
    latency_unit: str | None = None

    def __post_init__(self) -> None:
        """Check everything that needs no table."""
        if isinstance(self.scores, str):
            object.__setattr__(self, "scores", [self.scores])
        if self.latency_unit not in (None, "s", "ms"):
            raise ArgumentError(f"latency_unit must be 's' or 'ms', got {self.latency_unit!r}.")
        if self.score_scale is not None and (
            len(self.score_scale) != 2 or self.score_scale[0] == self.score_scale[1]
        ):
            raise ArgumentError(
                "score_scale must be the worst and the best score, such as (0, 100), got"
                f" {self.score_scale!r}."
            )


def match_columns(
    names: Sequence[str],
    sample: Callable[[], pa.Table],
    mapping: ColumnMapping | None = None,
    *,
    experts: Sequence[str] | None = None,
    decimal: str = ".",
) -> MatchedColumns:
    """Find the role of each column, from the caller's mapping and from names and values.

    Args:
        names: Column names of the source.
        sample: Returns some rows, if values are needed.
        mapping: The caller's description of the columns.
        experts: The experts to keep; columns of other experts are then not checked.
        decimal: Decimal mark of numbers that are still text.
    """
    check_unique(names)
    mapping = mapping or ColumnMapping()
    matcher = _Matcher(names, sample, mapping, decimal)
    if matcher.is_long():
        return matcher.long()
    return matcher.wide(are_chosen=experts is not None)


def find_input(table: pa.Table, column: str | None = None) -> str:
    """Return the column that holds the texts of a table.

    Args:
        table: The table; only its first rows are inspected.
        column: Column named by the caller, or `None`.
    """
    names = table.column_names
    matcher = _Matcher(names, lambda: table, ColumnMapping(input=column), ".")
    column_name = matcher.find_input()
    if column_name is None:
        raise TableError(
            f"a column must hold the texts, got the columns {listed(names)}; say which one it is"
            " (input, --input)."
        )
    return column_name


class _Matcher:
    """The columns of one source while they are matched to canonical names."""

    def __init__(
        self,
        names: Sequence[str],
        sample: Callable[[], pa.Table],
        mapping: ColumnMapping,
        decimal: str,
    ) -> None:
        self.names = names
        self.sample = sample
        self.mapping = mapping
        self.decimal = decimal
        self.found: dict[str, str | None] = {}
        self.said: list[str] = []
        self.notes: list[str] = []
        self.scales: dict[str, tuple[float, float]] = {}
        if mapping.score_scale is not None:
            self.scales[SCORE] = mapping.score_scale
        if mapping.latency_unit == "ms":
            self.scales[LATENCY] = (0.0, 1000.0)

    # Long tables.

    def is_long(self) -> bool:
        if any(name.startswith(SCORE) for name in self.names):
            return False
        has_expert = self._called(_EXPERT) is not None
        return (
            has_expert
            and self._score_of_long() is not None
            and (self._called(ID) or self._called(INPUT) or self.mapping.input) is not None
        )

    def _score_of_long(self) -> str | None:
        if self.mapping.scores is not None:
            columns = list(_score_columns(self.mapping.scores).values())
            return self._checked(columns[0]) if len(columns) == 1 else None
        return self._value(SCORE)

    def long(self) -> MatchedColumns:
        score, expert = self._score_of_long(), self._called(_EXPERT)
        roles: dict[str, str | None] = {"score": score}
        if not {_EXPERT, "model"} & set(self.names):
            roles[_EXPERT] = expert
        roles |= self._queries_of_long()
        for prefix, canonical in ((DOLLARS, "dollars"), (LATENCY, "latency")):
            if not {canonical, prefix[:-1]} & set(self.names):
                roles[canonical] = self._value(prefix)
        for prefix in COUNTS:
            roles[prefix[:-1]] = self._value(prefix)
        milliseconds = self._value(_MILLISECONDS)
        if milliseconds is not None and roles.get("latency") is None:
            roles["latency"] = milliseconds
            self.scales[LATENCY] = (0.0, 1000.0)
        for canonical, name in roles.items():
            if name is not None and name != canonical:
                self.found[name] = canonical
                self.said.append(f"{canonical} {name!r}")
        return self._finished("a long table with ", is_long=True)

    def _queries_of_long(self) -> dict[str, str | None]:
        """Match ids and texts; an id that no two rows share identifies rows, not queries."""
        text = self._input()
        if {ID, "query"} & set(self.names):
            is_known = {INPUT, "text"} & set(self.names) or text == "query"
            return {} if is_known and self.mapping.input is None else {INPUT: text}
        key = self._called(ID)
        if key is not None and text is not None:
            column = self.sample().column(key)
            if len(pc.unique(column)) == len(column):
                self.found[key] = None
                key = None
        return {"query": text} if key is None else {ID: key, INPUT: text}

    # Wide tables.

    def wide(self, *, are_chosen: bool) -> MatchedColumns:
        exact = [name for name in self.names if name.startswith(SCORE)]
        if self.mapping.scores is not None:
            self._take_given_scores(exact)
        elif exact:
            self._take_spelled_otherwise(check=not are_chosen)
        else:
            self._guess_scores()
        experts = {name.removeprefix(SCORE) for name in self._canonical(SCORE)}
        self._take_values(experts)
        self._take_texts(is_odd=not exact)
        if self.found or not are_chosen:
            self._note_ignored()
        return self._finished("")

    def _take_given_scores(self, exact: Sequence[str]) -> None:
        columns = _score_columns(self.mapping.scores or ())
        if SCORE not in self.scales:
            self._refuse_errors([name for name in columns.values() if _parts(name)[0] == _ERROR], 1)
        for name in exact:
            self.found[name] = None
        for expert, column in columns.items():
            self.found[self._checked(column)] = SCORE + expert

    def _take_spelled_otherwise(self, *, check: bool) -> None:
        """Match columns such as ``Score:llama``; ``score_llama`` may be a score column, too."""
        for name in self.names:
            prefix, expert = _parts(name)
            if name.startswith(SCORE) or prefix != SCORE or expert.casefold() in _NO_EXPERTS:
                continue
            if re.match(r"\s*score\s*:", name, re.IGNORECASE):
                self.found[name] = SCORE + expert
                self.said.append(f"score of {expert} {name!r}")
            elif check:
                raise TableError(
                    f"score columns are called 'score:<expert>', got {name!r} beside"
                    f" {listed(self._canonical(SCORE), 3)}; rename it to {SCORE + expert!r}, or"
                    " keep the others alone (experts, --experts)."
                )

    def _guess_scores(self) -> None:
        by_name = {}
        for name in self.names:
            prefix, expert = _parts(name)
            if prefix == SCORE and expert.casefold() not in _NO_EXPERTS:
                by_name[name] = expert
        if len(by_name) >= 2:
            self.found |= {name: SCORE + expert for name, expert in by_name.items()}
            experts = ", ".join(by_name.values())
            self.said.append(f"scores of {experts} (columns {listed(by_name, 4)})")
            return
        self._guess_scores_by_values()

    def _guess_scores_by_values(self) -> None:
        ranges = self._ranges()
        names = [name for name, (low, high) in ranges.items() if low >= 0 and high <= 1]
        if self.scales.get(SCORE) is not None:
            low, high = sorted(self.scales[SCORE])
            names = [name for name, ends in ranges.items() if ends[0] >= low and ends[1] <= high]
        if len(names) < 2:
            self._refuse_scale(ranges)
            return
        if all(_is_plain_number(name) for name in names):
            raise TableError(
                f"the first row must hold the names of the columns, got {listed(self.names)}; add"
                " such a row."
            )
        if SCORE not in self.scales and max(ranges[name][1] for name in names) < LOWEST_SCORES:
            largest = max(ranges[name][1] for name in names)
            raise TableError(
                f"columns {listed(names)} have no number above {largest:g} and look like dollars,"
                " not like scores from 0 to 1; say which columns are scores (scores, --score"
                f" COLUMN=EXPERT), the columns are {listed(self.names)}."
            )
        self.found |= {name: SCORE + name.strip() for name in names}
        low, high = self.scales.get(SCORE, (0, 1))
        experts = ", ".join(name.strip() for name in names)
        self.said.append(f"scores of {experts} (columns of numbers from {low:g} to {high:g})")

    def _refuse_scale(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self._refuse_errors([name for name in self.names if _parts(name)[0] == _ERROR], 2)
        if len(ranges) >= 2 and not any(_is_plain_number(name) for name in ranges):
            low = min(low for low, _ in ranges.values())
            high = max(high for _, high in ranges.values())
            best = next((each for each in (5, 10, 100) if high <= each), high)
            # Grades begin at 1, percentages at 0.
            worst = 1 if low >= 1 and best <= 10 else min(low, 0)
            raise TableError(
                f"scores must lie in [0, 1], got columns {listed(ranges)} with numbers from {low:g}"
                f" to {high:g}; if they are scores, give the worst and the best one"
                f" (score_scale=({worst:g}, {best:g}), --score-scale {worst:g}:{best:g})."
            )

    def _refuse_errors(self, errors: Sequence[str], fewest: int) -> None:
        if len(errors) >= fewest:
            raise TableError(
                f"columns {listed(errors)} look like errors, of which less is better; give them as"
                f" scores (--score {errors[0]} ...) with the worst and the best value"
                " (score_scale=(1, 0), --score-scale 1:0)."
            )

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest number of columns that may be experts."""
        sample = self.sample()
        taken = {self._called(role) for role in (ID, GROUP, SPLIT, CONVERSATION)}
        taken.add(self.mapping.input)
        taken |= set((self.mapping.dollars or {}).values())
        return {
            name: ends
            for name in self.names
            if name.strip()
            and name not in taken
            and name != TIME
            and _normalized(name) not in _NO_EXPERTS
            and not _parts(name)[0]
            if (ends := self._range(sample.column(name))) is not None
        }

    def _take_values(self, experts: set[str]) -> None:
        """Match dollars, seconds and counts of known experts under other names."""
        for expert, column in (self.mapping.dollars or {}).items():
            for name in self.names:
                if name == DOLLARS + expert:
                    self.found[name] = None
            self.found[self._checked(column)] = DOLLARS + expert
        expert_of = {_normalized(expert): expert for expert in experts}
        read: dict[str, list[str]] = {}
        for name in self.names:
            prefix, rest = _parts(name)
            expert = expert_of.get(_normalized(rest), rest if ":" in name else "")
            if name in self.found or prefix in ("", SCORE, _ERROR) or not expert:
                continue
            if prefix == _MILLISECONDS:
                prefix = LATENCY
                self.scales[LATENCY] = (0.0, 1000.0)
            if name == prefix + rest or prefix + expert in self._canonical(prefix):
                continue
            self.found[name] = prefix + expert
            read.setdefault(prefix, []).append(name)
        self.said += [f"{prefix[:-1]} {listed(columns, 4)}" for prefix, columns in read.items()]

    def find_input(self) -> str | None:
        return self._input() or self._only_text()

    def _take_texts(self, *, is_odd: bool) -> None:
        text = self.find_input() if is_odd else self._input()
        if text is not None and text not in (INPUT, "text"):
            self.found[text] = INPUT
            if INPUT in self.names:
                self.found[INPUT] = None
            if self.mapping.input is None:
                self.said.insert(0, f"input {text!r}")
        if not is_odd:
            return
        for role in (ID, GROUP, SPLIT, CONVERSATION):
            name = self._called(role)
            if name is None or name == role or name in self.found or not self._fits(role, name):
                continue
            self.found[name] = role
            self.said.append(f"{role} {name!r}")

    def _fits(self, role: str, name: str) -> bool:
        if role != ID:
            return True
        column = self.sample().column(name)
        return len(pc.unique(column)) == len(column) and not column.null_count

    def _input(self) -> str | None:
        if self.mapping.input is not None:
            return self._checked(self.mapping.input)
        return self._called(INPUT)

    def _only_text(self) -> str | None:
        sample = self.sample()
        texts = [
            name
            for name in self.names
            if name.strip()
            and name not in self.found
            and not _parts(name)[0]
            and name != TIME
            and name not in map(self._called, (ID, GROUP, SPLIT, CONVERSATION))
            and is_text(decoded(sample.column(name)).type)
            and self._range(sample.column(name)) is None
        ]
        if len(texts) > 1:
            self.notes.append(
                f"no column is read as input: {listed(texts)} hold text; say which one it is"
                " (input, --input)"
            )
        return texts[0] if len(texts) == 1 else None

    def _note_ignored(self) -> None:
        """Note columns that are not read although they look like those of an expert."""
        read = set(self._canonical(""))
        plain = {*PLAIN, "text"}
        left = [name for name in self.names if name not in self.found and name not in plain]
        left = [name for name in left if not (_parts(name)[0] and name in read and ":" in name)]
        if not left:
            return
        sample = self.sample()
        odd = [
            name
            for name in left
            if name in sample.column_names
            and _normalized(name) not in {*_NO_EXPERTS, *_NAMES[ID].split()}
            and (_parts(name)[0] in (SCORE, DOLLARS) or self._is_share(sample.column(name)))
        ]
        if odd:
            self.notes.append(f"not read, although they look like those of experts: {listed(odd)}")
        if rest := [name for name in left if name not in odd and name.strip()]:
            self.notes.append(f"not read: {listed(rest)}")

    # Both.

    def _range(self, column: pa.ChunkedArray) -> tuple[float, float] | None:
        """Return the lowest and highest number of the first rows; `None` unless all are numbers."""
        first = column.slice(0, _SAMPLE)
        try:
            numbers = as_numbers(first, SCORE, parse=True, decimal=self.decimal)
        except (TableError, pa.ArrowException):
            return None
        values = numbers.drop_null().to_numpy()
        values = values[~np.isnan(values)]
        return (float(values.min()), float(values.max())) if len(values) else None

    def _is_share(self, column: pa.ChunkedArray) -> bool:
        ends = self._range(column)
        return ends is not None and ends[0] >= 0 and ends[1] <= 1 and not column.null_count

    def _canonical(self, prefix: str) -> list[str]:
        names = [self.found.get(name, name) for name in self.names]
        return [name for name in names if name is not None and name.startswith(prefix)]

    def _called(self, role: str) -> str | None:
        """Return the column with a role's name in any spelling, preferring the usual one."""
        spelled = {_normalized(name): name for name in reversed(self.names)}
        words = _NAMES[role].split()
        exact = next((word for word in words if word in self.names), None)
        return exact or next((spelled[word] for word in words if word in spelled), None)

    def _value(self, prefix: str) -> str | None:
        spelled = {_normalized(name): name for name in reversed(self.names)}
        return next((spelled[word] for word in _WORDS[prefix].split() if word in spelled), None)

    def _checked(self, name: str) -> str:
        if name in self.names:
            return name
        spelled = {_normalized(each): each for each in self.names}
        if _normalized(name) in spelled:
            return spelled[_normalized(name)]
        raise TableError(f"no column is called {name!r}; the table has {listed(self.names)}.")

    def _finished(self, start: str, *, is_long: bool = False) -> MatchedColumns:
        read = [f"read as: {start}{'; '.join(self.said)}"] if self.said else []
        return MatchedColumns(self.found, self.scales, (*read, *self.notes), is_long)


def _score_columns(scores: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return the score column of each expert."""
    if isinstance(scores, Mapping):
        return {str(expert): column for expert, column in scores.items()}
    return {_parts(name)[1] if _parts(name)[0] == SCORE else name: name for name in scores}


def _normalized(name: str) -> str:
    return "_".join(re.findall(r"[^\W_]+", name.casefold()))


def _parts(name: str) -> tuple[str, str]:
    """Return prefix and expert of a column such as ``score:a``, ``Score_a`` or ``a cost ($)``."""
    for prefix in (*PREFIXES, ANSWER, LOGPROB, PROPENSITY):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    plain = _SIGN.sub("", name).rstrip("? ")
    match = _FIRST.fullmatch(plain) or _LAST.fullmatch(plain)
    if match is None:
        return "", ""
    return _PREFIX_OF[_normalized(match["word"])], match["expert"].strip()


def _is_plain_number(name: str) -> bool:
    return is_number(name.strip().lower())


# Opening files and tables in memory.


@dataclass(frozen=True)
class Source:
    """A source whose columns are known and whose rows have not been read yet.

    Attributes:
        prices: Prices stored with the file, or `None`.
        log: Repairs so far; complete once all parts have been checked.
        notes: Sentences on what was guessed about the columns.
    """

    layout: TableSchema
    prices: PriceList | None
    log: RepairLog
    parts: Iterator[Chunk]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reading:
    """The options for reading a source."""

    experts: Sequence[str] | None
    missing: Missing
    rows: int
    answers: bool
    mapping: ColumnMapping | None

    def match(
        self, names: Sequence[str], sample: Callable[[], pa.Table], decimal: str
    ) -> MatchedColumns:
        if self.mapping is None and is_canonical(names):
            return MatchedColumns()
        how: dict[str, Any] = {"experts": self.experts, "decimal": decimal}
        return match_columns(names, sample, self.mapping, **how)

    def schema(self, names: Sequence[str], matched: MatchedColumns) -> TableSchema:
        return infer_schema(
            names,
            self.experts,
            answers=self.answers,
            propensities=self.missing == "keep",
            matched=matched,
        )


def open_source(
    source: Any,
    *,
    experts: Sequence[str] | None = None,
    missing: str = "raise",
    rows: int = 65_536,
    answers: bool = False,
    mapping: ColumnMapping | None = None,
) -> Source:
    """Open files or a table in memory.

    Args:
        source: An argument of ``CostTable.read`` or ``CostTable.from_data``.
        experts: The experts to keep, or `None` for all.
        missing: How a missing score counts.
        rows: Approximate number of rows of a part.
        answers: Whether to read the answers of experts as well.
        mapping: The caller's description of the columns; the rest is inferred.

    Returns:
        The open source. A long table is held in memory as a whole.
    """
    how = _Reading(experts, checked_missing(missing), rows, answers, mapping)
    if not is_source(source):
        return _in_memory(to_arrow(source), how)
    files = resolve_files(source)
    schema = read_schema(files[0])
    if not schema.names:
        raise TableError(
            f"{files[0].shown!r} is empty; a table needs a header and at least one row."
        )
    decimal = decimal_mark(schema)
    matched = how.match(schema.names, lambda: _sample(files[0], schema), decimal)
    has_texts = files[0].kind in ("csv", "xlsx")
    notes = (*schema.notes, *currency_notes(schema))
    if matched.is_long:
        return _in_memory(read_whole(files), how, parse=has_texts, decimal=decimal, notes=notes)
    layout = how.schema(schema.names, matched)
    schemas = [schema, *map(read_schema, files[1:])]
    _check_agreement(files, schemas, layout, lambda names: how.schema(names, matched))
    log = RepairLog(list(layout.repairs))
    unasked = missing_score_reason(schema.names, schema.metadata)
    first = Chunk(
        pa.table({}), layout, how.missing, has_texts or bool(matched.names), 0, unasked, decimal
    )
    parts = _of_files(files, schemas, first, rows)
    return Source(layout, prices_in(schema.metadata), log, parts, (*notes, *matched.notes))


def _in_memory(
    table: pa.Table,
    how: _Reading,
    *,
    parse: bool = False,
    decimal: str = ".",
    notes: tuple[str, ...] = (),
) -> Source:
    log = RepairLog()
    names = _column_names(table)
    prices = prices_in(dict(table.schema.metadata or {}))
    matched = how.match(names, lambda: table, decimal)
    parse = parse or bool(matched.names)
    if matched.is_long:
        table = _renamed(table, matched)
        table = pivot_to_wide(table, log, parse=parse, decimal=decimal)
        matched = replace(matched, names={})
        names, parse = table.column_names, False
    layout = how.schema(names, matched)
    log.notes += layout.repairs
    unasked = missing_score_reason(names, table.schema.metadata or {})
    parts = (
        Chunk(table.slice(start, how.rows), layout, how.missing, parse, start, unasked, decimal)
        for start in range(0, table.num_rows, how.rows)
    )
    return Source(layout, prices, log, parts, (*notes, *matched.notes))


def _renamed(table: pa.Table, matched: MatchedColumns) -> pa.Table:
    source_of = matched.source_names(table.column_names)
    return pa.table({name: table.column(source) for name, source in source_of.items()})


def _sample(file: SourceFile, schema: Schema) -> pa.Table:
    """Return the first rows of a file."""
    if schema.sample is not None:
        return schema.sample
    return first_rows(file, _SAMPLE)


def _column_names(table: pa.Table) -> list[str]:
    try:
        return list(table.column_names)
    except UnicodeDecodeError:
        raise TableError(
            "column names must be UTF-8 text, got other bytes; rename the columns."
        ) from None


def read_whole(files: Sequence[SourceFile]) -> pa.Table:
    """Return all rows and columns of files, unchanged."""
    tables = [table for file in files for table in read_batches([file], None, rows=2**20)]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise TableError(
            f"the shards of {files[0].shown!r} and its neighbors have columns of different types;"
            " convert them first."
        ) from None


def _check_agreement(
    files: Sequence[SourceFile],
    schemas: Sequence[Schema],
    layout: TableSchema,
    infer: Callable[[Sequence[str]], TableSchema],
) -> None:
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        other = infer(schema.names).sources if schema.names else {}
        odd = sorted(set(other.values()) ^ set(layout.sources.values()))
        if odd:
            raise TableError(
                f"all shards must have the same columns, got {odd[0]!r} in only one of"
                f" {files[0].shown!r} and {file.shown!r}; read them apart or write them again."
            )


def _of_files(
    files: Sequence[SourceFile], schemas: Sequence[Schema], first: Chunk, rows: int
) -> Iterator[Chunk]:
    layout, first_row = first.layout, 0
    columns = list(layout.sources.values())
    for _, group in groupby(
        zip(files, schemas, strict=True), key=lambda pair: _types(pair[1], columns)
    ):
        alike = [file for file, _ in group]
        for raw in read_batches(alike, columns, rows=rows):
            yield replace(first, raw=_conformed(raw, layout, first_row), first_row=first_row)
            first_row += raw.num_rows


def _types(schema: Schema, wanted: Sequence[str]) -> list[str]:
    """Return the types of the wanted columns: shards of equal types can be read ahead as one."""
    types = dict(zip(schema.names, schema.types, strict=True))
    return [types[name] for name in wanted]


def _conformed(raw: pa.Table, layout: TableSchema, first_row: int) -> pa.Table:
    """Return a run of JSON lines with the columns of the layout.

    A run may lack a key, which is a missing value, or add one, which would otherwise be lost.
    """
    expected = {*layout.sources.values(), *layout.ignored}
    new = [name for name in raw.column_names if name not in expected]
    if new:
        raise TableError(
            f"column {new[0]!r} first appears after row {first_row}; give the first line all keys."
        )
    for name in layout.sources.values():
        if name not in raw.column_names:
            raw = raw.append_column(name, pa.nulls(raw.num_rows))
    return raw
