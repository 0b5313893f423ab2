"""The names of a cost table's columns: which ones belong to the format, and to which expert."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mildroute.errors import ArgumentError, TableError

__all__ = ["COUNTS", "DOLLARS", "GROUP", "ID", "INPUT", "LATENCY", "SCORE", "SPLIT", "TIME", "Layout", "layout_of"]

ID, INPUT, GROUP, SPLIT, TIME = "query_id", "input", "group", "split", "time"
SCORE, DOLLARS, LATENCY = "score:", "cost:", "latency:"
COUNTS = ("intokens:", "outtokens:", "inchars:", "outchars:")

_PLAIN = (ID, INPUT, GROUP, SPLIT, TIME)
_PREFIXES = (SCORE, DOLLARS, LATENCY, *COUNTS)


@dataclass(frozen=True)
class Layout:
    """Which columns of a source belong to the table, under their canonical names.

    Attributes:
        experts: Names of the experts, in the order of their score columns.
        sources: Canonical name of each column that is read, and its name in the source.
        ignored: Columns of the source that are not part of the format.
        repairs: What was decided about the columns, in words.

    Example:
        >>> layout_of(["text", "score:a", "score:b", "comment"]).ignored
        ('comment',)
    """

    experts: tuple[str, ...]
    sources: dict[str, str]
    ignored: tuple[str, ...]
    repairs: tuple[str, ...]

    def names(self, prefix: str) -> tuple[str, ...]:
        """Columns with this prefix, in the order of the experts; empty where the table has none."""
        return tuple(prefix + expert for expert in self.experts if prefix + expert in self.sources)


def layout_of(names: Sequence[str], experts: Sequence[str] | None = None) -> Layout:
    """Find the columns of the format among the names of a source.

    Args:
        names: Column names of the source.
        experts: The experts to keep, or none for all of them.

    Returns:
        The layout.

    Example:
        >>> layout_of(["query_id", "text", "score:small", "score:large"]).experts
        ('small', 'large')
    """
    _check_unique(names)
    found = tuple(name.removeprefix(SCORE) for name in names if name.startswith(SCORE))
    _check_experts(found)
    _check_known(names, found)
    kept = found if experts is None else _chosen(experts, found)
    sources = {name: name for name in _PLAIN if name in names}
    repairs: tuple[str, ...] = ()
    if INPUT not in sources and "text" in names:
        sources[INPUT] = "text"
    elif "text" in names:
        repairs = ("columns 'input' and 'text' are both there: 'input' is used",)
    sources = {name: sources[name] for name in _PLAIN if name in sources}
    sources |= {name: name for prefix in _PREFIXES for name in (prefix + expert for expert in kept) if name in names}
    used = set(sources.values())
    return Layout(kept, sources, tuple(name for name in names if name not in used), repairs)


def _check_unique(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(f"column names must be unique, got {name!r} twice; rename or drop one of them.")
        seen.add(name)


def _check_experts(found: tuple[str, ...]) -> None:
    if len(found) < 2:
        got = f"only {found[0]!r}" if found else "none"
        raise TableError(f"a table needs score columns of at least two experts, got {got}; name them 'score:<expert>'.")
    for name in found:
        if not name.strip() or name != name.strip() or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name):
            raise TableError(
                f"expert names must be non-empty, without control characters, line breaks or spaces at their ends, got {name!r}; "
                f"rename column {SCORE + name!r}."
            )


def _check_known(names: Iterable[str], found: tuple[str, ...]) -> None:
    """Costs and latencies belong to all experts or to none; counts to experts that have a score."""
    owners = {prefix: [name.removeprefix(prefix) for name in names if name.startswith(prefix)] for prefix in _PREFIXES[1:]}
    for prefix, owned in owners.items():
        unknown = [expert for expert in owned if expert not in found]
        if unknown:
            raise TableError(
                f"column {prefix + unknown[0]!r} belongs to no expert with a score; add 'score:{_plain(unknown[0])}' or drop the column."
            )
        without = [expert for expert in found if expert not in owned]
        if prefix in {DOLLARS, LATENCY} and owned and without:
            raise TableError(
                f"{prefix!r} columns must be there for all experts or for none, got none for {without[0]!r}; "
                f"add {prefix + without[0]!r} or drop the others."
            )


def _plain(name: str) -> str:
    return repr(name)[1:-1]


def _chosen(experts: Sequence[str], found: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(experts, str):
        raise ArgumentError(f"experts must be a list of names, got the text {experts!r}; put it in a list.")
    kept = tuple(experts)
    unknown = [name for name in kept if name not in found]
    if unknown:
        raise TableError(f"no expert is called {unknown[0]!r}; the table has {', '.join(map(repr, found))}.")
    if len(kept) < 2 or len(set(kept)) < len(kept):
        raise TableError(f"at least two different experts must be kept, got {list(kept)!r}; the table has {', '.join(map(repr, found))}.")
    return kept
