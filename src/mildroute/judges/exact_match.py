"""A judge for exact matches that ignores case, spaces, quotes and a final period."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_markers import Marker, find_markers
from mildroute.judges._latex import BOX, unfold_latex
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict
from mildroute.text import SPACES, drop_thinking, normalize_text

__all__ = ["AnswerPart", "ExactMatchJudge", "accepted_answers", "answer_parts", "strip_decoration"]

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
    """Return a text without the fence, marks, quotes and punctuation around it.

    Runs of spaces become single spaces.
    """
    fence = _FENCE.match(text.strip())
    if fence:
        text = fence[1]
    for _ in range(_MAX_MARKS):
        before = text
        text = _LEAD.sub("", text.strip()).rstrip(_TRAIL)
        for mark in _PAIRS:
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)]
        if text == before:
            break
    return " ".join(text.split())


def answer_parts(text: str, part: AnswerPart = "whole") -> tuple[str, ...]:
    """Return the parts of an answer that may match a reference.

    Args:
        text: The expert's answer.
        part: ``"whole"`` for the answer without an opening such as "Answer:"; ``"last"`` for the
            line and the sentence after the last words of this kind or in the last box, or for the
            last line if there are neither.
    """
    text = unfold_latex(normalize_text(drop_thinking(text))).strip()
    markers = find_markers(text)
    if part == "whole":
        for marker in markers:
            if _OPENING.fullmatch(text, 0, marker.start):
                text = _text_after(text, marker)
                break
        return (_A_COLON.sub("", text).replace(BOX, "").strip(),)
    markers = [marker for marker in markers if marker.final] or markers
    if markers:
        line = _text_after(text, markers[-1]).partition("\n")[0]
    else:
        line = text.rpartition("\n")[2]
    line = line.replace(BOX, "").strip()
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    return tuple(dict.fromkeys((line, sentence)))


def _text_after(text: str, marker: Marker) -> str:
    separator = _AFTER_MARKER.match(text, marker.end)
    return text[separator.end() if separator else marker.end :]


def accepted_answers(reference: str) -> tuple[str, ...]:
    """Return the texts in a reference that is a JSON list of texts, or the reference itself."""
    texts = [reference]
    if reference.lstrip().startswith("["):
        try:
            values = json.loads(reference)
        except (ValueError, RecursionError):
            values = None
        if values and isinstance(values, list) and all(isinstance(value, str) for value in values):
            texts = values
    return tuple(text for text in texts if normalize_text(text))


@dataclass(frozen=True)
class ExactMatchJudge(ReadingJudge):
    """A judge that scores 1 if the answer matches the reference or a text of a JSON list.

    Spaces, quotes and marks around the answer, punctuation after it and differences between
    look-alike characters are always ignored.

    Args:
        part: ``"whole"`` to compare the whole answer; ``"last"`` to compare only its last part, as
            returned by :func:`answer_parts`.
        keep_case: Whether case matters.
        keep_accents: Whether accents matter.
        keep_articles: Whether "a", "an" or "the" at the beginning matters; if not, "minor" also
            matches "A minor".
        name: The judge's name in tables.

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
        """Validate the settings."""
        if self.part not in ("whole", "last"):
            raise ArgumentError(f"part must be 'whole' or 'last', got {self.part!r}.")

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the answer with all accepted texts."""
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        parts = answer_parts(text, self.part)
        expected = {self._comparable(answer) for answer in accepted_answers(query.reference or "")}
        is_match = any(self._comparable(part) in expected for part in parts if part)
        return Verdict(float(is_match), f"read {strip_decoration(parts[0])[:80]!r}")

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        return "" if accepted_answers(query.reference or "") else NO_REFERENCE

    def _comparable(self, text: str) -> str:
        """Return a normalized text, which is the same for all answers that count as equal."""
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
