"""Regular expressions.

An answer is right if a pattern matches it, or if what the pattern finds is right.
"""

from __future__ import annotations

import asyncio
import collections
import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.experts.base import Query
from mildroute.judges.base import (
    NO_REFERENCE,
    Judge,
    Verdict,
    VersionedJudge,
    reference_of,
)
from mildroute.judges.exact_match import ExactMatchJudge

__all__ = ["RegexJudge"]


@dataclass(frozen=True)
class RegexJudge(VersionedJudge):
    r"""Right if a pattern matches.

    With a group, right if another judge finds the group's text right.

    A pattern that needs very long on some texts is common and hard to see, so each match has a
    clock. When its time is up there is no verdict: the pattern is at fault, not the answer.

    Args:
        pattern: In the syntax of the package ``regex``, which contains that of :mod:`re`;
            ``query.fields["pattern"]`` comes first.
        ignore_case: Whether case does not count; other flags are written as ``(?s)`` in the
            pattern.
        whole: Whether the pattern must match all of the answer but for spaces around it, and not
            only a part.
        group: Number or name of a group; its text in the last match is compared with the reference.
        compare: The judge that compares it; exact match by default.
        seconds: After which a match is given up.
        max_chars: Length of the longest answer that is tried.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "The capital of France?", reference="Paris")
        >>> asyncio.run(RegexJudge(r"Answer: (\w+)", group=1).judge(query, "Answer: Paris")).score
        1.0
    """

    reading: ClassVar[int] = 2
    pattern: str | None = None
    ignore_case: bool = False
    whole: bool = False
    group: int | str | None = None
    compare: Judge = field(default_factory=ExactMatchJudge)
    seconds: float = 5.0
    max_chars: int = 100_000
    name: str = "regex"

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.seconds < math.inf or self.max_chars < 1:
            raise ArgumentError(
                f"seconds and max_chars must be positive, got {self.seconds!r} and"
                f" {self.max_chars!r}."
            )
        if not isinstance(self.compare, Judge):
            raise ArgumentError(
                f"compare must be a judge, got {self.compare!r}; use get_judge('regex',"
                " compare='numeric') for a name."
            )
        if self.pattern is not None:
            _check(self.pattern, self.group)

    async def judge(self, query: Query, text: str) -> Verdict:
        """Match the answer."""
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        pattern = str(query.fields.get("pattern", self.pattern))
        text = unicodedata.normalize("NFC", text).strip()
        if len(text) > self.max_chars:
            return Verdict(
                None,
                f"the answer has {len(text):,} characters, more than max_chars, {self.max_chars:,}",
            )
        found = await asyncio.to_thread(self._match, unicodedata.normalize("NFC", pattern), text)
        if isinstance(found, Verdict):
            return found
        if found is None:
            return Verdict(0.0, "the pattern does not match")
        return (
            Verdict(1.0, "the pattern matches")
            if self.group is None
            else await self.compare.judge(query, found)
        )

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        pattern = query.fields.get("pattern", self.pattern)
        if not isinstance(pattern, str) or not pattern:
            return "there is no pattern; set it, or give the query a field 'pattern'"
        return (
            ""
            if self.group is None
            else (self.compare.missing_fields(query) if reference_of(query) else NO_REFERENCE)
        )

    def _match(self, pattern: str, text: str) -> Verdict | str | None:
        """The text of the group, or of the match; none without one; a verdict if it gave up."""
        regex = _load_regex()
        try:
            compiled = regex.compile(pattern, regex.IGNORECASE if self.ignore_case else 0)
            # The interpreter's lock is free meanwhile, so the event loop goes on.
            limits = {"timeout": self.seconds, "concurrent": True}
            if self.whole or self.group is None:
                find = compiled.fullmatch if self.whole else compiled.search
                found = find(text, **limits)
            else:
                # the last match where its group matters
                found = next(iter(collections.deque(compiled.finditer(text, **limits), 1)), None)
            matched: str | None = None if found is None else found[self.group or 0]
        except (TimeoutError, MemoryError):
            return Verdict(
                None,
                f"the pattern {pattern[:40]!r} took more than {self.seconds:g} s or too much"
                " memory; make it simpler",
            )
        except (regex.error, IndexError, RecursionError, OverflowError) as error:
            return Verdict(None, f"{type(error).__name__}: {error}"[:200])
        return matched


def _check(pattern: str, group: int | str | None) -> None:
    regex = _load_regex()
    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ArgumentError(
            f"pattern must be a regular expression, got {pattern[:60]!r}: {error}."
        ) from error
    if (
        group is not None
        and group not in compiled.groupindex
        and group not in range(compiled.groups + 1)
    ):
        raise ArgumentError(
            f"group must be a group of the pattern {pattern[:60]!r}, got {group!r}."
        )


def _load_regex() -> Any:
    """The package regex: unlike :mod:`re` it can be stopped, and leaves the loop its turn."""
    try:
        import regex
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package(
            "regex", extra="collect", user="the judge 'regex'"
        ) from missing
    return regex
