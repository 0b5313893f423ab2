"""Exact match, up to differences without meaning: case, spaces, quotes, a full stop."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_extraction import Marker, markers
from mildroute.judges._normalize import BOX, SPACES, plain, unfolded, without_thinking
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict

__all__ = ["AnswerPart", "ExactMatchJudge", "accepted_answers", "parts_of", "strip_decoration"]


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
    """A text without the fence, marks, quotes and punctuation around it, and with single spaces."""
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
    text = unfolded(plain(without_thinking(text))).strip()
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
    return tuple(text for text in texts if plain(text))


@dataclass(frozen=True)
class ExactMatchJudge(ReadingJudge):
    """Right if the answer is the reference, or one of several in a JSON list.

    Spaces, quotes and marks around the answer, punctuation after it and look-alike characters never
    count.

    Args:
        part: All of the answer, or only what it says last, as :func:`parts_of` finds it.
        keep_case: Whether case counts.
        keep_accents: Whether accents count.
        keep_articles: Whether "a", "an" or "the" at the beginning counts; if not, "minor" is "A
            minor", too.
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
        text = unfolded(plain(text)).replace(BOX, "").strip()
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
