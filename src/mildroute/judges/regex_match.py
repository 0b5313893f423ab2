"""A judge that matches answers with a regular expression."""

from __future__ import annotations

import asyncio
import collections
import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.experts.base import Query
from mildroute.judges.base import NO_REFERENCE, Judge, Verdict, VersionedJudge, reference_of
from mildroute.judges.exact_match import ExactMatchJudge

__all__ = ["RegexJudge"]


@dataclass(frozen=True)
class RegexJudge(VersionedJudge):
    r"""A judge that scores 1 if a pattern matches.

    If ``group`` is set, another judge scores the text of the group.

    Patterns that take very long on some texts are common and hard to spot, so each match has a
    timeout. After a timeout, there is no verdict, because the pattern is at fault and not the
    answer.

    Args:
        pattern: Pattern in the syntax of the ``regex`` package, which extends that of :mod:`re`;
            ``query.fields["pattern"]`` takes precedence.
        ignore_case: Whether to ignore case; write other flags in the pattern, such as ``(?s)``.
        whole: Whether the pattern must match the whole answer, apart from spaces around it, and not
            only a part.
        group: Number or name of a group; its text in the last match is compared with the reference.
        compare: The judge that compares this text; defaults to an exact match.
        seconds: Timeout of a match.
        max_chars: Maximum length of an answer; longer ones get no verdict.
        name: The judge's name in tables.

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
        """Validate the settings."""
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
            _validate_pattern(self.pattern, self.group)

    async def judge(self, query: Query, text: str) -> Verdict:
        """Match the pattern against the answer."""
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        pattern = str(query.fields.get("pattern", self.pattern))
        text = unicodedata.normalize("NFC", text).strip()
        if len(text) > self.max_chars:
            return Verdict(
                None,
                f"the answer has {len(text):,} characters, more than max_chars, {self.max_chars:,}",
            )
        pattern = unicodedata.normalize("NFC", pattern)
        matched_text = await asyncio.to_thread(self._match, pattern, text)
        if isinstance(matched_text, Verdict):
            return matched_text
        if matched_text is None:
            return Verdict(0.0, "the pattern does not match")
        if self.group is None:
            return Verdict(1.0, "the pattern matches")
        return await self.compare.judge(query, matched_text)

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        pattern = query.fields.get("pattern", self.pattern)
        if not isinstance(pattern, str) or not pattern:
            return "there is no pattern; set it, or give the query a field 'pattern'"
        if self.group is None:
            return ""
        return self.compare.missing_fields(query) if reference_of(query) else NO_REFERENCE

    def _match(self, pattern: str, text: str) -> Verdict | str | None:
        """Return the text of the group or of the match, or ``None`` if there is no match.

        If matching fails or takes too long, return a verdict without a score.
        """
        regex = _load_regex()
        try:
            compiled = regex.compile(pattern, regex.IGNORECASE if self.ignore_case else 0)
            # "concurrent" releases the interpreter's lock, so that the event loop continues.
            options = {"timeout": self.seconds, "concurrent": True}
            if self.whole:
                match = compiled.fullmatch(text, **options)
            elif self.group is None:
                match = compiled.search(text, **options)
            else:
                matches = collections.deque(compiled.finditer(text, **options), maxlen=1)
                match = matches[0] if matches else None
            matched_text: str | None = None if match is None else match[self.group or 0]
        except (TimeoutError, MemoryError):
            return Verdict(
                None,
                f"the pattern {pattern[:40]!r} took more than {self.seconds:g} s or too much"
                " memory; make it simpler",
            )
        except (regex.error, IndexError, RecursionError, OverflowError) as error:
            return Verdict(None, f"{type(error).__name__}: {error}"[:200])
        return matched_text


def _validate_pattern(pattern: str, group: int | str | None) -> None:
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
    """Import the ``regex`` package, whose matches have a timeout and release the GIL."""
    try:
        import regex
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package(
            "regex", extra="collect", user="the judge 'regex'"
        ) from missing
    return regex
