"""The role of each column of a source, as the caller maps it or as names and values suggest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.costs.conversion import as_numbers, decoded, is_number, is_text
from mildroute.costs.options import ColumnMapping
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
    check_unique,
    is_canonical,
    listed,
)
from mildroute.exceptions import TableError

__all__ = ["LOWEST_SCORES", "find_input", "match_columns"]

# Scores that are all below this are probably dollars.
LOWEST_SCORES = 0.1

_EXPERT = "expert"
_NAMES = {
    ID: "query_id id qid question_id prompt_id sample_id example_id",
    INPUT: "input text prompt question query instruction user_input request message problem",
    GROUP: "group",
    CONVERSATION: "conversation conversation_id session_id thread_id",
    SPLIT: "split",
    _EXPERT: "expert model llm model_name expert_name",
}
_MILLISECONDS = "latency_ms:"
_ERROR = "error:"
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


def match_columns(
    names: Sequence[str],
    sample: Callable[[], pa.Table],
    mapping: ColumnMapping | None = None,
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
    if mapping is None and is_canonical(names):
        return MatchedColumns()
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

    # Each column with another name, and its canonical name; None if it is not read.
    canonical: dict[str, str | None]
    # Half-sentences on the columns that were matched, and whole ones on those that were not.
    findings: list[str]
    notes: list[str]

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
        self.canonical = {}
        self.findings = []
        self.notes = []
        self.scales: dict[str, tuple[float, float]] = {}
        if mapping.score_scale is not None:
            self.scales[SCORE] = mapping.score_scale
        if mapping.latency_unit == "ms":
            self.scales[LATENCY] = (0.0, 1000.0)

    def is_long(self) -> bool:
        if any(name.startswith(SCORE) for name in self.names):
            return False
        has_expert = self._named(_EXPERT) is not None
        return (
            has_expert
            and self._score_of_long() is not None
            and (self._named(ID) or self._named(INPUT) or self.mapping.input) is not None
        )

    def _score_of_long(self) -> str | None:
        if self.mapping.scores is not None:
            columns = list(_score_columns(self.mapping.scores).values())
            return self._require_column(columns[0]) if len(columns) == 1 else None
        return self._value_column(SCORE)

    def long(self) -> MatchedColumns:
        roles: dict[str, str | None] = {"score": self._score_of_long()}
        if not {_EXPERT, "model"} & set(self.names):
            roles[_EXPERT] = self._named(_EXPERT)
        roles |= self._queries_of_long()
        for prefix, canonical in ((DOLLARS, "dollars"), (LATENCY, "latency")):
            if not {canonical, prefix[:-1]} & set(self.names):
                roles[canonical] = self._value_column(prefix)
        for prefix in COUNTS:
            roles[prefix[:-1]] = self._value_column(prefix)
        milliseconds = self._value_column(_MILLISECONDS)
        if milliseconds is not None and roles.get("latency") is None:
            roles["latency"] = milliseconds
            self.scales[LATENCY] = (0.0, 1000.0)
        for canonical, name in roles.items():
            if name is not None and name != canonical:
                self.canonical[name] = canonical
                self.findings.append(f"{canonical} {name!r}")
        return self._matched("a long table with ", is_long=True)

    def _queries_of_long(self) -> dict[str, str | None]:
        """Match ids and texts; an id that no two rows share identifies rows, not queries."""
        text = self._input_column()
        if {ID, "query"} & set(self.names):
            is_known = {INPUT, "text"} & set(self.names) or text == "query"
            return {} if is_known and self.mapping.input is None else {INPUT: text}
        key = self._named(ID)
        if key is not None and text is not None:
            column = self.sample().column(key)
            if len(pc.unique(column)) == len(column):
                self.canonical[key] = None
                key = None
        return {"query": text} if key is None else {ID: key, INPUT: text}

    def wide(self, *, are_chosen: bool) -> MatchedColumns:
        exact = [name for name in self.names if name.startswith(SCORE)]
        if self.mapping.scores is not None:
            self._take_mapped_scores(exact)
        elif exact:
            self._take_spelled_otherwise(check=not are_chosen)
        else:
            self._guess_scores()
        experts = {name.removeprefix(SCORE) for name in self._canonical_names(SCORE)}
        self._take_values(experts)
        self._take_texts(is_odd=not exact)
        if self.canonical or not are_chosen:
            self._note_ignored()
        return self._matched("")

    def _take_mapped_scores(self, exact: Sequence[str]) -> None:
        columns = _score_columns(self.mapping.scores or ())
        if SCORE not in self.scales:
            self._refuse_errors([name for name in columns.values() if _parts(name)[0] == _ERROR], 1)
        for name in exact:
            self.canonical[name] = None
        for expert, column in columns.items():
            self.canonical[self._require_column(column)] = SCORE + expert

    def _take_spelled_otherwise(self, *, check: bool) -> None:
        """Match columns such as ``Score:llama``; ``score_llama`` may be a score column, too."""
        for name in self.names:
            prefix, expert = _parts(name)
            if name.startswith(SCORE) or prefix != SCORE or expert.casefold() in _NO_EXPERTS:
                continue
            if re.match(r"\s*score\s*:", name, re.IGNORECASE):
                self.canonical[name] = SCORE + expert
                self.findings.append(f"score of {expert} {name!r}")
            elif check:
                raise TableError(
                    f"score columns are called 'score:<expert>', got {name!r} beside"
                    f" {listed(self._canonical_names(SCORE), 3)}; rename it to {SCORE + expert!r},"
                    " or keep the others alone (experts, --experts)."
                )

    def _guess_scores(self) -> None:
        by_name = {}
        for name in self.names:
            prefix, expert = _parts(name)
            if prefix == SCORE and expert.casefold() not in _NO_EXPERTS:
                by_name[name] = expert
        if len(by_name) >= 2:
            self.canonical |= {name: SCORE + expert for name, expert in by_name.items()}
            experts = ", ".join(by_name.values())
            self.findings.append(f"scores of {experts} (columns {listed(by_name, 4)})")
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
        self.canonical |= {name: SCORE + name.strip() for name in names}
        low, high = self.scales.get(SCORE, (0, 1))
        experts = ", ".join(name.strip() for name in names)
        self.findings.append(f"scores of {experts} (columns of numbers from {low:g} to {high:g})")

    def _refuse_scale(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self._refuse_errors([name for name in self.names if _parts(name)[0] == _ERROR], 2)
        if len(ranges) >= 2 and not any(_is_plain_number(name) for name in ranges):
            low = min(low for low, _ in ranges.values())
            high = max(high for _, high in ranges.values())
            best = next((scale for scale in (5, 10, 100) if high <= scale), high)
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
        taken = {self._named(role) for role in (ID, GROUP, SPLIT, CONVERSATION)}
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
                    self.canonical[name] = None
            self.canonical[self._require_column(column)] = DOLLARS + expert
        expert_of = {_normalized(expert): expert for expert in experts}
        read: dict[str, list[str]] = {}
        for name in self.names:
            prefix, rest = _parts(name)
            expert = expert_of.get(_normalized(rest), rest if ":" in name else "")
            if name in self.canonical or prefix in ("", SCORE, _ERROR) or not expert:
                continue
            if prefix == _MILLISECONDS:
                prefix = LATENCY
                self.scales[LATENCY] = (0.0, 1000.0)
            if name == prefix + rest or prefix + expert in self._canonical_names(prefix):
                continue
            self.canonical[name] = prefix + expert
            read.setdefault(prefix, []).append(name)
        self.findings += [f"{prefix[:-1]} {listed(columns, 4)}" for prefix, columns in read.items()]

    def find_input(self) -> str | None:
        return self._input_column() or self._only_text()

    def _take_texts(self, *, is_odd: bool) -> None:
        text = self.find_input() if is_odd else self._input_column()
        if text is not None and text not in (INPUT, "text"):
            self.canonical[text] = INPUT
            if INPUT in self.names:
                self.canonical[INPUT] = None
            if self.mapping.input is None:
                self.findings.insert(0, f"input {text!r}")
        if not is_odd:
            return
        for role in (ID, GROUP, SPLIT, CONVERSATION):
            name = self._named(role)
            if name is None or name == role or name in self.canonical or not self._fits(role, name):
                continue
            self.canonical[name] = role
            self.findings.append(f"{role} {name!r}")

    def _fits(self, role: str, name: str) -> bool:
        if role != ID:
            return True
        column = self.sample().column(name)
        return len(pc.unique(column)) == len(column) and not column.null_count

    def _input_column(self) -> str | None:
        if self.mapping.input is not None:
            return self._require_column(self.mapping.input)
        return self._named(INPUT)

    def _only_text(self) -> str | None:
        sample = self.sample()
        texts = [
            name
            for name in self.names
            if name.strip()
            and name not in self.canonical
            and not _parts(name)[0]
            and name != TIME
            and name not in map(self._named, (ID, GROUP, SPLIT, CONVERSATION))
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
        read = set(self._canonical_names(""))
        plain = {*PLAIN, "text"}
        unread = [name for name in self.names if name not in self.canonical and name not in plain]
        unread = [name for name in unread if not (_parts(name)[0] and name in read and ":" in name)]
        if not unread:
            return
        sample = self.sample()
        odd = [
            name
            for name in unread
            if name in sample.column_names
            and _normalized(name) not in {*_NO_EXPERTS, *_NAMES[ID].split()}
            and (_parts(name)[0] in (SCORE, DOLLARS) or self._is_share(sample.column(name)))
        ]
        if odd:
            self.notes.append(f"not read, although they look like those of experts: {listed(odd)}")
        if rest := [name for name in unread if name not in odd and name.strip()]:
            self.notes.append(f"not read: {listed(rest)}")

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

    def _canonical_names(self, prefix: str) -> list[str]:
        names = [self.canonical.get(name, name) for name in self.names]
        return [name for name in names if name is not None and name.startswith(prefix)]

    def _named(self, role: str) -> str | None:
        """Return the column with a role's name in any spelling, preferring the usual one."""
        spelled = {_normalized(name): name for name in reversed(self.names)}
        words = _NAMES[role].split()
        exact = next((word for word in words if word in self.names), None)
        return exact or next((spelled[word] for word in words if word in spelled), None)

    def _value_column(self, prefix: str) -> str | None:
        spelled = {_normalized(name): name for name in reversed(self.names)}
        return next((spelled[word] for word in _WORDS[prefix].split() if word in spelled), None)

    def _require_column(self, name: str) -> str:
        if name in self.names:
            return name
        spelled = {_normalized(column): column for column in self.names}
        if _normalized(name) in spelled:
            return spelled[_normalized(name)]
        raise TableError(f"no column is called {name!r}; the table has {listed(self.names)}.")

    def _matched(self, start: str, *, is_long: bool = False) -> MatchedColumns:
        read = [f"read as: {start}{'; '.join(self.findings)}"] if self.findings else []
        return MatchedColumns(self.canonical, self.scales, (*read, *self.notes), is_long)


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
