"""Words that announce an answer: "the answer is", "final answer:", a box."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mildroute.judges._latex import BOX

T = TypeVar("T")

# A pattern of the words that announce an answer if a colon, "is" or the like follows.
ANSWER_WORDS = (
    r"answers?(?!\s+(?:questions?|sheets?|keys?|choices|options))|ans\.?"
    r"|(?:correct|right|best|true|false|chosen|selected|preferred|final|my|likely)\s+(?:answer\s+)?"
    r"(?:choice|option|letter|one|statement|label|alternative)"
    r"|(?<=\n)[ ]?(?:choice|option\ chosen)"
    r"|respuesta|r\u00e9ponse|antwort|risposta|resposta|\u043e\u0442\u0432\u0435\u0442"
)

_FINAL = re.compile(
    rf"{BOX}|(?:(?<=\n)|\A)[ ]?####(?!#)"
    r"|\bfinal\s+(?:answer|choice|label|verdict|decision|grade)\b[\"' ]*"
    r"(?:(?:is|was|be|would\s+be|should\s+be)\b|[:=\n]|->|-|(?=\W*\w{1,2}\W*(?:\n|\Z)))",
    re.IGNORECASE,
)
_CONNECTOR = (
    r"(?:[:\u2192\uff1a]|->|=>|-(?=\s)|\b(?:is|was|be|es|ist|est|\u00e8|\u00e9|lautet|remains)\b)"
)
_HEADING = re.compile(
    r"(?:(?<=\n)|\A)[^\w\n]{0,20}(?:the\s+)?(?:correct\s+|final\s+)?(?:answer|ans|choice)\b(?:[^\w\n]{0,20}\n|\.?\s+(?=\W*\w\b))",
    re.IGNORECASE,
)
_CJK = re.compile(
    r"(?:\u7b54\u6848|\u6b63\u89e3|\u7b54\u3048|\u9009\u62e9|\u60c5\u611f|\uc815\ub2f5)\s*(?:\u662f|\u4e3a|\u306f|\uc740|[:\uff1a])?"
)
_OTHERS = re.compile(
    r"\b(?:other|alternative|remaining|wrong|incorrect|possible)\s+$", re.IGNORECASE
)


@dataclass(frozen=True)
class Marker:
    """The position of words that announce an answer.

    Args:
        start: Index of the first character.
        end: Index after the last character.
        final: Whether they announce a final answer: a box, "final answer" or ``####``.
    """

    start: int
    end: int
    final: bool


def find_markers(text: str, words: str = ANSWER_WORDS) -> list[Marker]:
    """Return the positions of all words that announce an answer, in order.

    Args:
        text: Normalized text.
        words: Pattern of the words that announce an answer if a colon, "is" or the like follows.
    """
    announced = re.compile(
        rf"(?<![^\W_])(?:{words})(?![^\W_])[\"']*(?:[^.:;=\n?!\u2192]{{0,60}}?\s*{_CONNECTOR}|[^.:;=\n?!\d]{{0,12}}?=)",
        re.IGNORECASE,
    )
    markers = [Marker(match.start(), match.end(), True) for match in _FINAL.finditer(text)]
    for pattern in (announced, _HEADING, _CJK):
        markers += [Marker(match.start(), match.end(), False) for match in pattern.finditer(text)]
    return sorted(
        (
            marker
            for marker in markers
            if not _OTHERS.search(text, max(0, marker.start - 16), marker.start)
        ),
        key=lambda marker: marker.end,
    )


def first_and_last(matches: Sequence[T]) -> Sequence[T]:
    """Return at most 1,000 matches: the first 100 and the last 900.

    Judging one match takes some tenths of a millisecond, and a text that repeats a number may have
    10,000 matches.
    """
    return matches if len(matches) <= 1000 else [*matches[:100], *matches[-900:]]
