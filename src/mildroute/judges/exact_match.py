"""Exact match, ignoring differences without meaning: case, spaces, quotes, a period."""

from __future__ import annotations

import asyncio
import collections
import json
import math
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.experts.base import Query
from mildroute.judges._answer_extraction import Marker, markers
from mildroute.judges._latex import BOX, unfold_latex
from mildroute.judges.base import (
    NO_REFERENCE,
    Judge,
    ReadingJudge,
    Verdict,
    VersionedJudge,
    reference_of,
)
from mildroute.text import SPACES, drop_thinking, normalize_text

__all__ = [
    "AnswerPart",
    "ExactMatchJudge",
    "RegexJudge",
    "accepted_answers",
    "parts_of",
    "strip_decoration",
]


AnswerPart = Literal["whole", "last"]

_FENCE = re.compile(r"\A```[\w+-]*\n(.*?)\n?```\Z", re.DOTALL)
_LEAD = re.compile(r"\A(?:#{1,6}|>|[-*\u2022])\s+")
_TRAIL = SPACES + ".,;:!?"
_MAX_MARKS = 50
_PAIRS = ("**", "__", "*", "_", "`", '"', "'", "$")
_ARTICLE = re.compile(r"\A(?:a|an|the)\s+(?=\S)", re.IGNORECASE)
_OPENING = re.compile(
    r"[\W_]*(?:(?:so|thus|therefore|hence|the|my|sure|correct|final)\b[\W_]*)*", re.IGNORECASE
)
_A_COLON = re.compile(r"\Aa\s*:\s+", re.IGNORECASE)
_AFTER_MARKER = re.compile(r"[\s:=]*(?:(?:\*\*|__)(?=\s))?\s*")
_SENTENCE_END = re.compile(r"[.!?]\s")


def strip_decoration(text: str) -> str:
    """Return a text with single spaces, without fence, marks, quotes and punctuation around it."""
    fenced = _FENCE.match(text.strip())
    text = fenced[1] if fenced else text
    for _ in range(_MAX_MARKS):
        before = text
        text = _LEAD.sub("", text.strip()).rstrip(_TRAIL)
        for mark in _PAIRS:
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)]
        if text == before:
            break
    return " ".join(text.split())


def parts_of(text: str, part: AnswerPart = "whole") -> tuple[str, ...]:
    r"""The parts of an answer that may match a reference.

    Args:
        text: What the expert wrote.
        part: ``"whole"``: all of it, without an opening such as "Answer:". ``"last"``: the line, or
            the sentence, after the last such words or in the last box, else the last line.
    """
    text = unfold_latex(normalize_text(drop_thinking(text))).strip()
    found = markers(text)
    if part == "whole":
        opening = next(
            (marker for marker in found if _OPENING.fullmatch(text, 0, marker.start)), None
        )
        return (
            _A_COLON.sub("", text if opening is None else _after(text, opening))
            .replace(BOX, "")
            .strip(),
        )
    chosen = [marker for marker in found if marker.final] or found
    line = _after(text, chosen[-1]).partition("\n")[0] if chosen else text.rpartition("\n")[2]
    line = line.replace(BOX, "").strip()
    return tuple(dict.fromkeys((line, _SENTENCE_END.split(line, maxsplit=1)[0])))


def _after(text: str, marker: Marker) -> str:
    return text[marker.end + len((_AFTER_MARKER.match(text, marker.end) or [""])[0]) :]


def accepted_answers(reference: str) -> tuple[str, ...]:
    """The texts that a reference accepts.

    Those of a JSON list of strings, else the reference itself.
    """
    texts: tuple[str, ...] = (reference,)
    if reference.lstrip().startswith("["):
        try:
            several = json.loads(reference)
        except (ValueError, RecursionError):
            several = None
        if several and isinstance(several, list) and all(isinstance(text, str) for text in several):
            texts = tuple(several)
    return tuple(text for text in texts if normalize_text(text))


@dataclass(frozen=True)
class ExactMatchJudge(ReadingJudge):
    """Right if the answer is the reference, or one of several in a JSON list.

    Spaces, quotes and marks around the answer, punctuation after it and look-alike characters are
    always ignored.

    Args:
        part: The whole answer, or only its last part, as :func:`parts_of` finds it.
        keep_case: Whether case counts.
        keep_accents: Whether accents count.
        keep_articles: Whether "a", "an" or "the" at the beginning counts; if not, "minor" also
            matches "A minor".
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "The capital of France?", reference="Paris")
        >>> asyncio.run(ExactMatchJudge().judge(query, "**paris**."))
        Verdict(score=1.0, reason="read 'paris'", dollars=0.0)
    """

    part: AnswerPart = "whole"
    keep_case: bool = False
    keep_accents: bool = True
    keep_articles: bool = False
    name: str = "exact"

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.part not in ("whole", "last"):
            raise ArgumentError(f"part must be 'whole' or 'last', got {self.part!r}.")

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the answer with all accepted texts."""
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        texts = accepted_answers(query.reference or "")
        parts = parts_of(text, self.part)
        read = {self._key(part) for part in parts if part}
        return Verdict(
            float(not read.isdisjoint(map(self._key, texts))),
            f"read {strip_decoration(parts[0])[:80]!r}",
        )

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        return "" if accepted_answers(query.reference or "") else NO_REFERENCE

    def _key(self, text: str) -> str:
        text = unfold_latex(normalize_text(text)).replace(BOX, "").strip()
        text = strip_decoration(text) or text
        if not self.keep_articles:
            text = _ARTICLE.sub("", text)
        if not self.keep_case:
            text = text.casefold()
        if not self.keep_accents:
            text = "".join(
                character
                for character in unicodedata.normalize("NFD", text)
                if not unicodedata.combining(character)
            )
        return unicodedata.normalize("NFC", text)


# Answers read by a pattern.


@dataclass(frozen=True)
class RegexJudge(VersionedJudge):
    r"""Right if a pattern matches.

    With a group, it is right if another judge finds the group's text right.

    Patterns that take very long on some texts are common and hard to spot, so each match has a
    timeout. After a timeout no verdict is given: the pattern is at fault, not the answer.

    Args:
        pattern: Pattern in the syntax of the package ``regex``, a superset of that of :mod:`re`;
            ``query.fields["pattern"]`` takes precedence.
        ignore_case: Whether to ignore case; write other flags in the pattern, such as ``(?s)``.
        whole: Whether the pattern must match the whole answer, except for spaces around it, rather
            than a part.
        group: Number or name of a group; its text in the last match is compared with the reference.
        compare: The judge that compares it; exact match by default.
        seconds: Timeout of a match.
        max_chars: Length of the longest answer that is matched.
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
            # The interpreter's lock is free meanwhile, so the event loop continues.
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
