"""The option that an answer states: explicit statements beat mentions, and the last one counts."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mildroute.judges._answer_markers import ANSWER_WORDS, Marker, find_markers, first_and_last
from mildroute.judges._latex import BOX
from mildroute.judges._option_mentions import Mention, affirmed_groups, is_conceded, list_items

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
    \s+(?:is|was|are|would\ be|must\ be|has\ to\ be|should\ be|remains
        |(?:seems|looks|appears|sounds)(?:\ to\ be)?)\s+
        (?:(?!partial)(?:\w+ly|therefore|thus|indeed|also)\s+){0,2}(?:the\s+)?
        (?:(?:only|most|single|best|one|final|logical)\s+){0,2}
        (?:correct|right|best|better|accurate|answer|suitable|appropriate|one\ that|one\b)
    |\s+(?:fits\ best|makes\ (?:the\ most|more|the\ best)\ sense)
    |\s*[-:?(]\s*(?:yes|true)\b
    |\s*[-:(]\s*(?:this\ is\s+)?(?:the\s+)?(?:correct|right)\b
        (?:\s+(?:answer|choice|option))?\s*(?:[.!,;)\n]|$)
    |\s*[-:(]?\s*[\u2705\u2713\u2714\u2611]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_CUE = re.compile(
    r"\b(?:so|thus|hence|therefore|conclusion|conclude|overall|in\s+summary|finally|in\s+short|ultimately)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_FEW_WORDS = 12
_LAST_CHARS = 200
_BLANK = f" \n{BOX}"
_REACH = 80
_TICKED_LINE = re.compile(r"[^\n]{0,200}[\u2705\u2713\u2714\u2611]\W*?(?:\n|$)")
_DECORATION = re.compile(
    r"[\W_]*(?:\d{1,2}[.)]\s*)?[\W_]*(?:(?:options?|choices?|letter|the)\s+)?[\W_]*", re.IGNORECASE
)
_NOTHING_MORE = re.compile(r"[\W_]*?(?:\n|$)")


def stated_option(
    text: str, mentions: Sequence[Mention], words: str = ANSWER_WORDS, *, short: int = 40
) -> str | None:
    """Return the option that an answer states, or ``None`` if it states none or several.

    Explicit statements ("the answer is B", a line that is only "B", "B is correct", "so B") take
    precedence over mere mentions. The last statement counts, but if there is a box, a "final
    answer" or ``####``, only announced answers are considered.

    Args:
        text: Normalized text.
        mentions: All mentions of an option, in order.
        words: Pattern of the words that announce an answer.
        short: Maximum number of words of a text that needs no conclusion; if it mentions only one
            option, that option counts wherever it is.

    Returns:
        The option's name.
    """
    mentions = first_and_last(mentions)
    listed = list_items(text, mentions)
    groups = affirmed_groups(text, [mention for mention in mentions if mention not in listed])
    statements = [
        *_announced_options(text, mentions, groups, first_and_last(find_markers(text, words))),
        *_separate_options(text, groups),
        *_approved_options(text, affirmed_groups(text, mentions) if listed else groups),
    ]
    if not statements:
        return _mentioned_option(text, groups, short)
    if any(statement.final for statement in statements):
        statements = [statement for statement in statements if statement.announced]
    return _single_name(max(statements, key=lambda statement: statement.start).names)


@dataclass(frozen=True)
class _Statement:
    """A statement that names options.

    Args:
        start: Index of the first character.
        names: The options' names.
        announced: Whether words such as "the answer is" precede it.
        final: Whether these words announce a final answer.
    """

    start: int
    names: frozenset[str]
    announced: bool = False
    final: bool = False


def _announced_options(
    text: str,
    mentions: Sequence[Mention],
    groups: Sequence[Sequence[Mention]],
    markers: Sequence[Marker],
) -> Iterator[_Statement]:
    """Yield the options that follow words such as "the answer is"."""
    affirmed = {mention for group in groups for mention in group}
    denied = [mention for mention in mentions if mention not in affirmed]
    for marker in markers:
        index = bisect.bisect_left(groups, marker.end, key=lambda group: group[0].start)
        # In "the answer A, it is said, is wrong" the announced option is inside the marker.
        is_inside = index > 0 and groups[index - 1][0].start > marker.start
        if (
            index < len(groups)
            and not is_inside
            and _leads_to(text, marker, groups[index][0], denied)
        ):
            yield _Statement(
                groups[index][0].start,
                _group_names(text, groups[index]),
                announced=True,
                final=marker.final,
            )


def _leads_to(text: str, marker: Marker, first: Mention, denied: Sequence[Mention]) -> bool:
    if first.start - marker.end > _REACH:
        return False
    low, high = (
        bisect.bisect_left(denied, position, key=lambda mention: mention.start)
        for position in (marker.end, first.start)
    )
    gap = ""
    position = marker.end
    for mention in denied[low:high]:
        gap += text[position : mention.start]
        position = mention.end
    gap += text[position : first.start]
    if re.search(r"[.?!]\s", gap):
        return False
    return _is_filler(gap) or (
        not first.letter
        and len(gap) <= 60
        and "\n" not in gap.strip()
        and not re.search(r"[;?]", gap)
    )


def _separate_options(text: str, groups: Sequence[Sequence[Mention]]) -> Iterator[_Statement]:
    """Yield the options that are set apart from the text around them.

    Such an option begins the answer, is alone on a line or at the end, or follows words such as
    "so" and "I choose".
    """
    opening = len(text) - len(text.lstrip(_BLANK))
    for group in groups:
        start = group[0].start
        end = group[-1].end
        before = text[max(0, start - _REACH) : start]
        names = _group_names(text, group)
        if (
            (len(names) == 1 and _closes_text(text, end, before))
            or _stands_alone(text, start, end, opening, letter=group[0].letter)
            or _is_concluded(text, end, before)
        ):
            yield _Statement(start, names)


def _stands_alone(text: str, start: int, end: int, opening: int, *, letter: bool) -> bool:
    line_start = text.rfind("\n", 0, start) + 1
    if not letter and "=" in text[line_start:start]:
        return False  # The line is a step of a calculation.
    if start - line_start >= _REACH or not _DECORATION.fullmatch(text, line_start, start):
        return False
    return bool(
        _NOTHING_MORE.match(text, end) or (line_start <= opening and _ENDS.match(text, end))
    )


def _closes_text(text: str, end: int, before: str) -> bool:
    """Return whether an option follows a colon and ends its line, or forms the last sentence."""
    if re.search(r":\s*[\"'(\[]*$", before):
        return _NOTHING_MORE.match(text, end) is not None
    is_last = re.fullmatch(r"[\W_]*", text[end : end + 20]) is not None
    # The text of an option after its letter, as in "D. Paris", is not a sentence.
    return is_last and re.search(r"(?:\w\w.*[.?!]\s+|\boption\s+)[\"'(\[]*$", before) is not None


def _is_concluded(text: str, end: int, before: str) -> bool:
    if not _ENDS.match(text, end):
        return False
    return any(
        _is_filler(before[match.end() :]) and not re.search(r"[.?!;]\s", before[match.end() :])
        for match in _CONCLUSION.finditer(before)
    )


def _approved_options(text: str, groups: Sequence[Sequence[Mention]]) -> Iterator[_Statement]:
    """Yield the options that are called right, as in "B is the correct one"."""
    for group in groups:
        start = group[0].start
        end = group[-1].end
        ticked = _TICKED_LINE.match(text, end) is not None and _DECORATION.fullmatch(
            text, max(text.rfind("\n", 0, start) + 1, start - _REACH), start
        )
        if ticked or _APPROVED.match(text, end):
            yield _Statement(start, _group_names(text, group))


def _mentioned_option(text: str, groups: Sequence[Sequence[Mention]], short: int) -> str | None:
    """Return the only option that a text mentions, or ``None``.

    In a short text, any mention counts. In a long one, only the option's letter next to its text or
    a mention in the conclusion counts.
    """
    mentions = [
        mention
        for group in groups
        for mention in group
        if mention.letter or not is_conceded(text, mention)
    ]
    marked = [mention for mention in mentions if not mention.bare]
    length = len(text.split())
    paired = {
        group[0].name
        for group in groups
        if len({mention.letter for mention in group})
        == 2
        == len({mention.name for mention in group}) + 1
    }
    names = frozenset({mention.name for mention in marked} if length <= short else paired)
    if len(names) == 1:
        return _single_name(names)
    conclusion = _concluding_option(text, marked)
    if conclusion is not None:
        return conclusion
    is_brief = length <= _FEW_WORDS and any(
        not mention.bare or _ENDS.match(text, mention.end) for mention in mentions
    )
    return _single_name(frozenset(mention.name for mention in mentions)) if is_brief else None


def _concluding_option(text: str, mentions: Sequence[Mention]) -> str | None:
    """Return the only option in the last sentence that mentions any option, or ``None``.

    The sentence must be near the end. It must contain a word such as "so", be a paragraph of its
    own, or end with the option.
    """
    if not mentions:
        return None
    breaks = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text) + 1]
    last = max(index for index, position in enumerate(breaks) if position <= mentions[-1].start)
    start = breaks[last]
    end = breaks[last + 1]
    sentence = text[start:end].strip()
    is_apart = text[:start].endswith("\n\n") and not text[end:].strip()
    is_closing = re.fullmatch(r"[\W_]*", text[mentions[-1].end :][:20]) is not None
    # A truncated text has no conclusion.
    is_complete = is_closing or text.rstrip()[-1:] in ".!)]\"'"
    if (
        sentence.endswith("?")
        or not is_complete
        or len(text) - end > _LAST_CHARS
        or not (is_apart or is_closing or _CUE.search(sentence))
    ):
        return None
    return _single_name(frozenset(mention.name for mention in mentions if mention.start >= start))


def _group_names(text: str, group: Sequence[Mention]) -> frozenset[str]:
    """Return all names of a group that is a list ("A or B").

    If a comma begins a new clause, as in "B, A is in Italy", only the first name is returned.
    """
    names = frozenset(mention.name for mention in group)
    if len(names) == 1:
        return names
    links = " ".join(text[one.end : other.start] for one, other in itertools.pairwise(group))
    is_list = re.search(r"\b(?:and|or|nor)\b|[&/]", links) or re.match(
        r"[\"')\]\s]*(?:[.!?\n]|$)", text[group[-1].end :][:20]
    )
    return names if is_list else frozenset({group[0].name})


def _is_filler(gap: str) -> bool:
    return _FILLER.fullmatch(gap) is not None


def _single_name(names: frozenset[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
