"""Which option an answer states in the end: explicit statements beat mere mentions, and the last one wins."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mildroute.judges.latex import BOX
from mildroute.judges.markers import ANSWER_WORDS, Marker, markers
from mildroute.judges.mentions import Mention, conceded, listed, meant

__all__ = ["stated"]

_FILLER = re.compile(
    r"(?:[\W_]|(?<![\w'])(?:the|an?|options?|choice|answer|letter|label|number|category|class|sentiment|classified|clearly|definitely"
    r"|probably|most|likely|therefore|thus|indeed|actually|really|simply|just|certainly|obviously|then|is|be|it|it's|its|that|that's"
    r"|without|any|doubt|i|think|believe|guess|would|say|in|my|opinion|la|el|le|das|die|der|not|but|or|nor|and|rather|instead|neither|either|both"
    r"|here|so|hence|as|of|to)(?![\w']))*",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    r"\b(?:so|thus|hence|therefore|it's|it\s+is|that's|that\s+is|must\s+be|leav(?:es|ing)(?:\s+us\s+with)?|left\s+with"
    r"|(?:go|going|went)\s+with|choose|chose|pick|select|say|conclude(?:\s+that)?|i\s+think|i\s+believe|i\s+guess|probably|definitely"
    r"|only|correspond(?:s|ing)\s+to|match(?:es|ing)|lean(?:ing)?\s+towards?|points?\s+to|opt(?:ing)?\s+for|confident\s+in"
    r"|belong(?:s|ing)?\s+to|falls?\s+(?:in|under|into)|labell?ed(?:\s+as)?|(?:classif|categori[sz])\w+(?:\s+\w+)?\s+as)\b",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"""["')\]\s]*(?:[.,;:!?(\n-]|$|\bis\s*(?:[.!;]|$)|\b(?:because|since|as|given|due|it\s+is|remains?|is\s+left|fits|works|satisf\w+"""
    r"""|rather|instead|over|(?:and\s+|but\s+)?not|i\s+(?:think|guess|believe))\b)""",
    re.IGNORECASE,
)
_APPROVED = re.compile(
    r"""["')\]]*(?:
    \s+(?:is|was|are|would\ be|must\ be|has\ to\ be|should\ be|remains|(?:seems|looks|appears|sounds)(?:\ to\ be)?)\s+
        (?:(?!partial)(?:\w+ly|therefore|thus|indeed|also)\s+){0,2}(?:the\s+)?(?:(?:only|most|single|best|one|final|logical)\s+){0,2}
        (?:correct|right|best|better|accurate|answer|suitable|appropriate|one\ that|one\b)
    |\s+(?:fits\ best|makes\ (?:the\ most|more|the\ best)\ sense)
    |\s*[-:?(]\s*(?:yes|true)\b
    |\s*[-:(]\s*(?:this\ is\s+)?(?:the\s+)?(?:correct|right)\b(?:\s+(?:answer|choice|option))?\s*(?:[.!,;)\n]|$)
    |\s*[-:(]?\s*[\u2705\u2713\u2714\u2611]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_CUE = re.compile(r"\b(?:so|thus|hence|therefore|conclusion|conclude|overall|in\s+summary|finally|in\s+short|ultimately)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_FEW_WORDS = 12
_LAST_WORDS = 200
_BLANK = f" \n{BOX}"
_REACH = 80


def stated(text: str, mentions: Sequence[Mention], words: str = ANSWER_WORDS, *, short: int = 40) -> str | None:
    """The option that an answer states, or none if it states none or cannot decide.

    Args:
        text: Plain text.
        mentions: All places that name an option, in order.
        words: Pattern of the words that announce an answer.
        short: Words of a text that need not conclude: its one option counts wherever it is mentioned.

    Returns:
        Its name. Explicit statements ("the answer is B", a line that is only "B", "B is correct", "so B") come before mere mentions.
        Among statements the last one wins, except that where there is a box, a "final answer" or ``####``, only announced answers count.

    Example:
        >>> stated("A is wrong. The answer is B", [Mention(0, 1, "A", 0, letter=True), Mention(26, 27, "B", 1, letter=True)])
        'B'
    """
    lists = listed(text, mentions)
    free = [mention for mention in mentions if mention not in lists]
    groups = meant(text, free)
    said = [
        *_announced(text, mentions, groups, markers(text, words)),
        *_set_apart(text, groups),
        *_approved(text, meant(text, mentions) if lists else groups),
    ]
    if not said:
        return _mentioned(text, groups, short)
    if any(statement.final for statement in said):
        said = [statement for statement in said if statement.announced]
    return _only(max(said, key=lambda statement: statement.at).names)


@dataclass(frozen=True)
class _Statement:
    at: int
    names: frozenset[str]
    announced: bool = False
    final: bool = False


def _announced(
    text: str, mentions: Sequence[Mention], groups: Sequence[Sequence[Mention]], found: Sequence[Marker]
) -> Iterator[_Statement]:
    """Options that follow words such as "the answer is"."""
    kept = {mention for group in groups for mention in group}
    denied = [mention for mention in mentions if mention not in kept]
    for marker in found:
        index = bisect.bisect_left(groups, marker.end, key=lambda group: group[0].start)
        # "the answer A, it is said, is wrong": what is announced stands inside
        inside = index > 0 and groups[index - 1][0].start > marker.start
        if index < len(groups) and not inside and _leads_to(text, marker, groups[index][0], denied):
            yield _Statement(groups[index][0].start, _names(text, groups[index]), announced=True, final=marker.final)


def _leads_to(text: str, marker: Marker, first: Mention, denied: Sequence[Mention]) -> bool:
    if first.start - marker.end > _REACH:
        return False
    low, high = (bisect.bisect_left(denied, at, key=lambda mention: mention.start) for at in (marker.end, first.start))
    gap, at = "", marker.end
    for mention in denied[low:high]:
        gap, at = gap + text[at : mention.start], mention.end
    gap += text[at : first.start]
    if re.search(r"[.?!]\s", gap):
        return False
    return _is_filler(gap) or (not first.letter and len(gap) <= 60 and "\n" not in gap.strip() and not re.search(r"[;?]", gap))


def _set_apart(text: str, groups: Sequence[Sequence[Mention]]) -> Iterator[_Statement]:
    """Options that open the answer, that stand alone on a line or at the end, or that follow words such as "so" and "I choose"."""
    opening = len(text) - len(text.lstrip(_BLANK))
    for group in groups:
        start, end = group[0].start, group[-1].end
        before = text[max(0, start - _REACH) : start]
        names = _names(text, group)
        closes = len(names) == 1 and _closes(text, end, before)
        if closes or _stands_alone(text, start, end, opening, letter=group[0].letter) or _is_concluded(text, end, before):
            yield _Statement(start, names)


_TICKED_LINE = re.compile(r"[^\n]{0,200}[\u2705\u2713\u2714\u2611]\W*?(?:\n|$)")
_DECORATION = re.compile(r"[\W_]*(?:\d{1,2}[.)]\s*)?[\W_]*(?:(?:options?|choices?|letter|the)\s+)?[\W_]*", re.IGNORECASE)
_NOTHING_MORE = re.compile(r"[\W_]*?(?:\n|$)")


def _stands_alone(text: str, start: int, end: int, opening: int, *, letter: bool) -> bool:
    line_start = text.rfind("\n", 0, start) + 1
    if not letter and "=" in text[line_start:start]:
        return False  # a step of a calculation
    if start - line_start >= _REACH or not _DECORATION.fullmatch(text, line_start, start):
        return False
    return bool(_NOTHING_MORE.match(text, end) or (line_start <= opening and _ENDS.match(text, end)))


def _closes(text: str, end: int, before: str) -> bool:
    """After a colon at the end of a line, or a last sentence of its own."""
    if re.search(r":\s*[\"'(\[]*$", before):
        return _NOTHING_MORE.match(text, end) is not None
    ends = re.fullmatch(r"[\W_]*", text[end : end + 20]) is not None
    # an option's own text after its letter, "D. Paris", is no sentence of its own
    return ends and re.search(r"(?:\w\w.*[.?!]\s+|\boption\s+)[\"'(\[]*$", before) is not None


def _is_concluded(text: str, end: int, before: str) -> bool:
    if not _ENDS.match(text, end):
        return False
    return any(
        _is_filler(before[match.end() :]) and not re.search(r"[.?!;]\s", before[match.end() :]) for match in _CONCLUSION.finditer(before)
    )


def _approved(text: str, groups: Sequence[Sequence[Mention]]) -> Iterator[_Statement]:
    """Options that are called right: "B is the correct one"."""
    for group in groups:
        start, end = group[0].start, group[-1].end
        ticked = _TICKED_LINE.match(text, end) is not None and _DECORATION.fullmatch(
            text, max(text.rfind("\n", 0, start) + 1, start - _REACH), start
        )
        if ticked or _APPROVED.match(text, end):
            yield _Statement(start, _names(text, group))


def _mentioned(text: str, groups: Sequence[Sequence[Mention]], short: int) -> str | None:
    """The one option that a short text names, that a long one names by letter and text, or that its conclusion names."""
    loose = [mention for group in groups for mention in group if mention.letter or not conceded(text, mention)]
    sure = [mention for mention in loose if not mention.bare]
    length = len(text.split())
    paired = {
        group[0].name for group in groups if len({mention.letter for mention in group}) == 2 == len({mention.name for mention in group}) + 1
    }
    everywhere = frozenset({mention.name for mention in sure} if length <= short else paired)
    if len(everywhere) == 1:
        return _only(everywhere)
    concluding = _in_conclusion(text, sure)
    if concluding is not None:
        return concluding
    brief = length <= _FEW_WORDS and any(not mention.bare or _ENDS.match(text, mention.end) for mention in loose)
    return _only(frozenset(mention.name for mention in loose)) if brief else None


def _in_conclusion(text: str, sure: Sequence[Mention]) -> str | None:
    """The one option in the last sentence that names any, if it is near the end and concludes, stands apart or ends with the option."""
    if not sure:
        return None
    breaks = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text) + 1]
    last = max(index for index, at in enumerate(breaks) if at <= sure[-1].start)
    start, end = breaks[last], breaks[last + 1]
    sentence = text[start:end].strip()
    apart = text[:start].endswith("\n\n") and not text[end:].strip()
    closing = re.fullmatch(r"[\W_]*", text[sure[-1].end :][:20]) is not None
    # a text that is cut off concludes nothing
    complete = closing or text.rstrip()[-1:] in ".!)]\"'"
    if sentence.endswith("?") or not complete or len(text) - end > _LAST_WORDS or not (apart or closing or _CUE.search(sentence)):
        return None
    return _only(frozenset(mention.name for mention in sure if mention.start >= start))


def _names(text: str, group: Sequence[Mention]) -> frozenset[str]:
    """All names of a group that is a list ("A or B"); the first one where a new clause follows a comma ("B, A is in Italy")."""
    names = frozenset(mention.name for mention in group)
    if len(names) == 1:
        return names
    links = " ".join(text[one.end : other.start] for one, other in itertools.pairwise(group))
    is_list = re.search(r"\b(?:and|or|nor)\b|[&/]", links) or re.match(r"[\"')\]\s]*(?:[.!?\n]|$)", text[group[-1].end :][:20])
    return names if is_list else frozenset({group[0].name})


def _is_filler(gap: str) -> bool:
    return _FILLER.fullmatch(gap) is not None


def _only(names: frozenset[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
