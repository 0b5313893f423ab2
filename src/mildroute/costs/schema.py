"""The column names of a cost table: which ones belong to the format, and to which expert."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "ANSWER",
    "CONVERSATION",
    "COUNTS",
    "DOLLARS",
    "GROUP",
    "ID",
    "INPUT",
    "LATENCY",
    "LOGPROB",
    "PLAIN",
    "PREFIXES",
    "PROPENSITY",
    "SCORE",
    "SPLIT",
    "TIME",
    "MatchedColumns",
    "TableSchema",
    "check_unique",
    "infer_schema",
    "is_canonical",
    "listed",
]

ID = "query_id"
INPUT = "input"
GROUP = "group"
SPLIT = "split"
TIME = "time"
# Turns of one conversation, which share their beginning.
CONVERSATION = "conversation"
SCORE = "score:"
DOLLARS = "cost:"
LATENCY = "latency:"
COUNTS = ("intokens:", "outtokens:", "inchars:", "outchars:")
# Answers are long and many, so they are read only on request.
ANSWER = "answer:"
# Mean log-probability of an answer's tokens, read together with answers.
LOGPROB = "logprob:"
# Probability that each expert was asked, in tables where not all were.
PROPENSITY = "propensity:"

PLAIN = (ID, INPUT, GROUP, SPLIT, TIME, CONVERSATION)
PREFIXES = (SCORE, DOLLARS, LATENCY, *COUNTS)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a source that belong to the table, under their canonical names.

    Attributes:
        experts: Names of the experts, in the order of their score columns.
        sources: Canonical name of each column that is read, with its name in the source.
        ignored: Columns of the source that are not part of the format.
        scales: Worst and best value of columns, by prefix, if they are not 0 and 1.
    """

    experts: tuple[str, ...]
    sources: dict[str, str]
    ignored: tuple[str, ...]
    repairs: tuple[str, ...]
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return columns with this prefix, in the order of the experts; empty if there are none."""
        return tuple(prefix + expert for expert in self.experts if prefix + expert in self.sources)


@dataclass(frozen=True)
class MatchedColumns:
    """The canonical names of the columns of a source.

    Attributes:
        names: Canonical name of each column that has another name; `None` if it is not read.
        scales: As in ``TableSchema``.
        notes: Sentences on what was guessed.
        is_long: Whether a row is a query and an expert.
    """

    names: Mapping[str, str | None] = field(default_factory=dict)
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_long: bool = False

    def source_names(self, names: Sequence[str]) -> dict[str, str]:
        """Return the source column of each canonical name and of each column that has none."""
        check_unique(names)
        sources: dict[str, str] = {}
        for name in names:
            canonical = self.names.get(name, name)
            if canonical is None:
                continue
            if canonical in sources:
                raise TableError(
                    f"one column may be read as {canonical!r}, got {sources[canonical]!r} and"
                    f" {name!r}; rename or drop one of them."
                )
            sources[canonical] = name
        return sources


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return quoted names, comma-separated, with the number of those not shown."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return (", ".join(quoted[:limit]) or "none") + more


def is_canonical(names: Iterable[str]) -> bool:
    """Return whether all columns of a wide table have canonical names."""
    prefixes = (*PREFIXES, ANSWER, LOGPROB, PROPENSITY)
    return any(name.startswith(SCORE) for name in names) and all(
        name in {*PLAIN, "text"} or name.startswith(prefixes) for name in names
    )


def infer_schema(
    names: Sequence[str],
    experts: Sequence[str] | None = None,
    *,
    answers: bool = False,
    propensities: bool = False,
    matched: MatchedColumns | None = None,
) -> TableSchema:
    """Find the columns of the format among the names of a source.

    Args:
        names: Column names of the source.
        experts: The experts to keep, or `None` for all of them.
        answers: Whether to read the answers of these experts as well, all of which must exist, and
            their log-probabilities, which need not.
        propensities: Whether to read the probabilities of asking the experts if they exist.
        matched: Canonical names of columns that have other names.
    """
    source_of = (matched or MatchedColumns()).source_names(names)
    original_names = names
    names = list(source_of)
    scored = tuple(name.removeprefix(SCORE) for name in names if name.startswith(SCORE))
    _check_experts(scored, original_names)
    _check_prefixes(names, scored)
    selected = scored if experts is None else _select_experts(experts, scored)
    sources = {name: name for name in PLAIN if name in names}
    repairs: tuple[str, ...] = ()
    if INPUT not in sources and "text" in names:
        sources[INPUT] = "text"
    elif "text" in names:
        repairs = ("both columns 'input' and 'text' exist: 'input' is used",)
    sources = {name: sources[name] for name in PLAIN if name in sources}
    if answers:
        _check_answers(names, selected)
    sources |= {
        name: name
        for prefix in (
            *PREFIXES,
            *([PROPENSITY] if propensities else []),
            *([ANSWER, LOGPROB] if answers else []),
        )
        for name in (prefix + expert for expert in selected)
        if name in names
    }
    sources = {name: source_of[source] for name, source in sources.items()}
    used = set(sources.values())
    ignored = tuple(name for name in original_names if name not in used)
    return TableSchema(
        selected, sources, ignored, repairs, {} if matched is None else matched.scales
    )


def check_unique(names: Sequence[str]) -> None:
    """Raise an error if a column occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(
                f"column names must be unique, got {name!r} twice; rename or drop one of them."
            )
        seen.add(name)


def _check_experts(experts: tuple[str, ...], names: Sequence[str]) -> None:
    if len(experts) < 2:
        got = f"only {experts[0]!r}" if experts else "none"
        raise TableError(
            f"a table needs score columns of at least two experts, got {got} among the columns"
            f" {listed(names)}; name them 'score:<expert>', or say which they are (scores, --score"
            " COLUMN=EXPERT)."
        )
    for name in experts:
        if (
            not name.strip()
            or name != name.strip()
            or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name)
        ):
            raise TableError(
                "expert names must be non-empty, without control characters, line breaks or spaces"
                f" at their ends, got {name!r}; rename column {SCORE + name!r}."
            )


def _check_prefixes(names: Iterable[str], experts: tuple[str, ...]) -> None:
    """Check that each prefix covers all experts or no expert, and counts only scored experts."""
    owners = {
        prefix: [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        for prefix in PREFIXES[1:]
    }
    for prefix, owned in owners.items():
        unknown = [expert for expert in owned if expert not in experts]
        if unknown:
            raise TableError(
                f"column {prefix + unknown[0]!r} belongs to no expert with a score; add"
                f" {SCORE + unknown[0]!r} or drop the column."
            )
        without = [expert for expert in experts if expert not in owned]
        if prefix in {DOLLARS, LATENCY} and owned and without:
            raise TableError(
                f"{prefix!r} columns must exist for all experts or for none, but are missing for"
                f" {without[0]!r}; add {prefix + without[0]!r} or drop the others."
            )


def _check_answers(names: Sequence[str], experts: tuple[str, ...]) -> None:
    without = [expert for expert in experts if ANSWER + expert not in names]
    if without:
        raise TableError(
            f"the answers of all experts are needed, got no column {ANSWER + without[0]!r}; collect"
            " with --answers, or keep experts that have answers."
        )


def _select_experts(experts: Sequence[str], scored: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(experts, str):
        raise ArgumentError(
            f"experts must be a list of names, got the text {experts!r}; put it in a list."
        )
    selected = tuple(experts)
    unknown = [name for name in selected if name not in scored]
    if unknown:
        raise TableError(
            f"no expert is called {unknown[0]!r}; the table has {', '.join(map(repr, scored))}."
        )
    if len(selected) < 2 or len(set(selected)) < len(selected):
        raise TableError(
            f"at least two different experts must be kept, got {list(selected)!r}; the table has"
            f" {', '.join(map(repr, scored))}."
        )
    return selected
