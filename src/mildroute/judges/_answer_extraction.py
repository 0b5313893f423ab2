"""Which option an answer states in the end."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mildroute.judges._latex import BOX

T = TypeVar("T")


def first_and_last(matches: Sequence[T]) -> Sequence[T]:
    """Return at most 1,000 matches: the first 100 and the last 900.

    Judging one takes some tenths of a millisecond, and a text that repeats a number has 10,000.
    """
    return matches if len(matches) <= 1000 else [*matches[:100], *matches[-900:]]


# Words that announce an answer: "the answer is", "final answer:", a box.


# A pattern of the words that announce an answer.
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
    """Words that announce an answer.

    Args:
        final: Whether they announce the last word: a box, "final answer" or ``####``.
    """

    start: int
    end: int
    final: bool


def markers(text: str, words: str = ANSWER_WORDS) -> list[Marker]:
    r"""All places that announce an answer, in order.

    Args:
        text: Plain text.
        words: Pattern of the words that announce one when a colon, "is" or the like follows.
    """
    announced = re.compile(
        rf"(?<![^\W_])(?:{words})(?![^\W_])[\"']*(?:[^.:;=\n?!\u2192]{{0,60}}?\s*{_CONNECTOR}|[^.:;=\n?!\d]{{0,12}}?=)",
        re.IGNORECASE,
    )
    found = [Marker(match.start(), match.end(), True) for match in _FINAL.finditer(text)]
    for pattern in (announced, _HEADING, _CJK):
        found += [Marker(match.start(), match.end(), False) for match in pattern.finditer(text)]
    return sorted(
        (
            marker
            for marker in found
            if not _OTHERS.search(text, max(0, marker.start - 16), marker.start)
        ),
        key=lambda marker: marker.end,
    )


# Where an answer names one of several options, and which of these mentions are meant: "not A, so
# B" means B.


# Characters of words that are set apart by spaces; Chinese and Japanese are not.
WORD = "0-9A-Za-z\u00c0-\u024f\u0370-\u04ff"

# The answer "no", but not the "no" of "there is no doubt".
NO = (
    rf"(?:\A|(?<=\n)|(?<=[.!?:]\s))no(?![{WORD}])"
    rf"|(?<![{WORD}])no(?=\W*(?:\Z|[.,;:!?)\n]|\b(?:because|since|as)\b))"
)

_WINDOW = 80
_MAX_LEAD = 40
_LINK = re.compile(
    r"""[)\]"'\s]*(?:,|/|&|\b(?:and|or|nor|and/or)\b|,\s*(?:and|or|nor)\b)\s*(?:(?:options?|choices?|maybe|perhaps|even)\s+)?[(\["']*"""
)
_DENIAL_BEFORE = re.compile(
    r"""(?:
    \b(?:not|never|neither|nor|\w+n't|cannot|none\ of|(?:everything|anything|all|any)\ but
        |rather\ than|instead\ of|unlike|far\ from|except(?:\ for)?|excluding|other\ than|avoid\w*
        |ignor\w+|skip|eliminat\w+|rul\w+\ out|exclud\w+|reject\w*|discard\w*|wrong|incorrect)\b
        (?:\s+(?:be|been|by|with|from|the|a|an|options?|choices?|answers?|is|it|it's|this|that|to
        |as|always|really|quite|either|both|sure|certain|whether|if|call|say|called|labell?ed
        |classified|considered|\w+ly))*
    |\b(?:no|non|un|nothing|hardly|barely|without)\b(?:\s+(?:the|a|an|real|\w+ly))*
    )[\s"'(\[-]{0,4}$""",
    re.IGNORECASE | re.VERBOSE,
)
_DENIAL_AFTER = re.compile(
    r"""["')\]]*\s*(?:
    (?:(?:is|are|was|were|seems?|looks?|would\ be|can\ be|could\ be|must\ be|being)\s+)
        (?:(?:both|all|also|clearly|definitely|simply|just|therefore|thus|obviously|certainly
        |most\ likely|too|only\ partially)\s+)*
        (?:not\b|wrong|incorrect|false|ruled\ out|eliminated|out\b|impossible|unlikely|tempting
        |invalid|excluded|irrelevant|unrelated|a\ distractor)
    |(?:isn't|aren't|wasn't|weren't|doesn't|don't|didn't|can't|cannot|won't|wouldn't|does\ not
        |do\ not|did\ not|fails?\b)
    |[-:(]*\s*(?:(?:is\s+)?(?:wrong|incorrect)\b|ruled\ out\b|eliminated\b)
    |\s*[-:?(]\s*(?:no|nope|false)\s*(?:[,.;)\n]|$)
    |[-:(]?\s*[\u274c\u2717\u2718\u2716\u2715]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_CONCESSION = re.compile(
    r"\b(?:although|though|while|whereas|despite|in\s+spite\s+of|on\s+the\s+other\s+hand)\b[^.;\n]*$",
    re.IGNORECASE,
)
_LINE_LEAD = re.compile(r"[\W_]*(?:(?:options?|choices?)\s+)?[\W_]*", re.IGNORECASE)


@dataclass(frozen=True)
class Mention:
    """A place that names an option.

    Args:
        letter: Whether it is the option's letter, not its text.
        bare: Whether nothing around the letter shows that it is one.
    """

    start: int
    end: int
    name: str
    rank: int
    letter: bool = False
    bare: bool = False


def chains(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """Mentions in groups, each joined by commas, "and" or "or", or one right after the other."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        if groups and _joined(text, groups[-1], mention):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return groups


def affirmed_groups(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """The groups that are not denied.

    "not A or B", "A and B are wrong" and "rule out A" name nothing.
    """
    return [chain for chain in chains(text, mentions) if not _denied(text, chain)]


def is_conceded(text: str, mention: Mention) -> bool:
    """Whether it stands in a clause that concedes.

    Such clauses are "although it has negative sides" and "whereas Rome is in Italy".
    """
    found = _CONCESSION.search(text, max(0, mention.start - _WINDOW), mention.start)
    return found is not None and "," not in text[found.start() : mention.start]


def list_items(text: str, mentions: Sequence[Mention]) -> set[Mention]:
    r"""Mentions on the lines of a list of several options.

    They begin a line of a list with the options in their order, or stand elsewhere on these lines.
    """
    inside: set[Mention] = set()
    for run in _runs(_items(text, mentions)):
        if len(run) > 1:
            inside.update(mention for item in run for mention in item.mentions)
    return inside


def _joined(text: str, chain: Sequence[Mention], mention: Mention) -> bool:
    previous = chain[-1]
    between = text[previous.end : mention.start]
    if previous.name == mention.name:
        return (
            len(between) <= 4
            and "\n" not in between
            and not re.search(r"[\w.;!?]", between.replace(". ", " ", 1))
        )
    # a name that comes back after others begins again: "between A and B, A is right"
    again = any(mention.name == earlier.name for earlier in chain)
    both_asked = between.strip() == "?" and text[mention.end : mention.end + 1] == "?"
    return (
        not again
        and len(between) <= 24
        and "\n" not in between
        and (both_asked or _LINK.fullmatch(between) is not None)
    )


def _denied(text: str, chain: Sequence[Mention]) -> bool:
    first, last = chain[0], chain[-1]
    before = text[max(0, first.start - _WINDOW) : first.start]
    after = text[last.end : last.end + _WINDOW]
    return _DENIAL_BEFORE.search(before) is not None or _DENIAL_AFTER.match(after) is not None


@dataclass(frozen=True)
class _Item:
    """A line that begins with a letter, or that is nothing but the name of an option."""

    mentions: tuple[Mention, ...]
    alone: bool
    apart: bool

    def follows(self, other: _Item) -> bool:
        """Whether it continues with a list; "C" right below "B.

        Berlin" does, for the text was cut off there.
        """
        step = self.mentions[0].rank - other.mentions[0].rank
        return step > 0 and (
            self.alone == other.alone or (self.alone and not self.apart and step == 1)
        )


def _items(text: str, mentions: Sequence[Mention]) -> Iterator[_Item | None]:
    """For each line that is not blank: the item that it is, or none."""
    at, index, apart = 0, 0, False
    for line in text.split("\n"):
        first, index = (
            index,
            bisect.bisect_left(
                mentions, at + len(line), lo=index, key=lambda mention: mention.start
            ),
        )
        if line.strip():
            yield _item(text, at, line, tuple(mentions[first:index]), apart=apart)
        at, apart = at + len(line) + 1, not line.strip()


def _item(
    text: str, at: int, line: str, inside: tuple[Mention, ...], *, apart: bool
) -> _Item | None:
    if (
        not inside
        or inside[0].start - at > _MAX_LEAD
        or not _LINE_LEAD.fullmatch(text, at, inside[0].start)
    ):
        return None
    rest = (
        "".join(line[one.end - at : other.start - at] for one, other in itertools.pairwise(inside))
        + line[inside[-1].end - at :]
    )
    alone = not re.search(r"\w", rest) and len({mention.name for mention in inside}) == 1
    only_letters = alone and all(mention.letter for mention in inside)
    return _Item(inside, only_letters, apart) if alone or inside[0].letter else None


def _runs(items: Iterable[_Item | None]) -> list[list[_Item]]:
    """Neighboring items in the order of the options, either all with a text or all without."""
    runs: list[list[_Item]] = [[]]
    for item in items:
        if runs[-1] and (item is None or not item.follows(runs[-1][-1])):
            runs.append([])
        if item is not None:
            runs[-1].append(item)
    return runs


# Which option an answer states in the end: explicit statements beat mere mentions, and the last
# one wins.


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
_LAST_WORDS = 200
_BLANK = f" \n{BOX}"
_REACH = 80


def stated_option(
    text: str, mentions: Sequence[Mention], words: str = ANSWER_WORDS, *, short: int = 40
) -> str | None:
    """The option that an answer states, or none if it states none or cannot decide.

    Args:
        text: Plain text.
        mentions: All places that name an option, in order.
        words: Pattern of the words that announce an answer.
        short: Words of a text that need not conclude: its one option counts wherever it is
            mentioned.

    Returns:
        Its name. Explicit statements ("the answer is B", a line that is only "B", "B is correct",
        "so B") come before mere mentions. Among statements the last one wins, except that where
        there is a box, a "final answer" or ``####``, only announced answers count.
    """
    mentions = first_and_last(mentions)
    lists = list_items(text, mentions)
    free = [mention for mention in mentions if mention not in lists]
    groups = affirmed_groups(text, free)
    said = [
        *_announced(text, mentions, groups, first_and_last(markers(text, words))),
        *_set_apart(text, groups),
        *_approved(text, affirmed_groups(text, mentions) if lists else groups),
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
    text: str,
    mentions: Sequence[Mention],
    groups: Sequence[Sequence[Mention]],
    found: Sequence[Marker],
) -> Iterator[_Statement]:
    """Options that follow words such as "the answer is"."""
    kept = {mention for group in groups for mention in group}
    denied = [mention for mention in mentions if mention not in kept]
    for marker in found:
        index = bisect.bisect_left(groups, marker.end, key=lambda group: group[0].start)
        # "the answer A, it is said, is wrong": what is announced stands inside
        inside = index > 0 and groups[index - 1][0].start > marker.start
        if index < len(groups) and not inside and _leads_to(text, marker, groups[index][0], denied):
            yield _Statement(
                groups[index][0].start,
                _names(text, groups[index]),
                announced=True,
                final=marker.final,
            )


def _leads_to(text: str, marker: Marker, first: Mention, denied: Sequence[Mention]) -> bool:
    if first.start - marker.end > _REACH:
        return False
    low, high = (
        bisect.bisect_left(denied, at, key=lambda mention: mention.start)
        for at in (marker.end, first.start)
    )
    gap, at = "", marker.end
    for mention in denied[low:high]:
        gap, at = gap + text[at : mention.start], mention.end
    gap += text[at : first.start]
    if re.search(r"[.?!]\s", gap):
        return False
    return _is_filler(gap) or (
        not first.letter
        and len(gap) <= 60
        and "\n" not in gap.strip()
        and not re.search(r"[;?]", gap)
    )


def _set_apart(text: str, groups: Sequence[Sequence[Mention]]) -> Iterator[_Statement]:
    """Options that are set apart.

    They open the answer, stand alone on a line or at the end, or follow words such as "so" and "I
    choose".
    """
    opening = len(text) - len(text.lstrip(_BLANK))
    for group in groups:
        start, end = group[0].start, group[-1].end
        before = text[max(0, start - _REACH) : start]
        names = _names(text, group)
        closes = len(names) == 1 and _closes(text, end, before)
        if (
            closes
            or _stands_alone(text, start, end, opening, letter=group[0].letter)
            or _is_concluded(text, end, before)
        ):
            yield _Statement(start, names)


_TICKED_LINE = re.compile(r"[^\n]{0,200}[\u2705\u2713\u2714\u2611]\W*?(?:\n|$)")
_DECORATION = re.compile(
    r"[\W_]*(?:\d{1,2}[.)]\s*)?[\W_]*(?:(?:options?|choices?|letter|the)\s+)?[\W_]*", re.IGNORECASE
)
_NOTHING_MORE = re.compile(r"[\W_]*?(?:\n|$)")


def _stands_alone(text: str, start: int, end: int, opening: int, *, letter: bool) -> bool:
    line_start = text.rfind("\n", 0, start) + 1
    if not letter and "=" in text[line_start:start]:
        return False  # a step of a calculation
    if start - line_start >= _REACH or not _DECORATION.fullmatch(text, line_start, start):
        return False
    return bool(
        _NOTHING_MORE.match(text, end) or (line_start <= opening and _ENDS.match(text, end))
    )


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
        _is_filler(before[match.end() :]) and not re.search(r"[.?!;]\s", before[match.end() :])
        for match in _CONCLUSION.finditer(before)
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
    """The one option that a text names.

    A short text names it at all, a long one by letter and text, or in its conclusion.
    """
    loose = [
        mention
        for group in groups
        for mention in group
        if mention.letter or not is_conceded(text, mention)
    ]
    sure = [mention for mention in loose if not mention.bare]
    length = len(text.split())
    paired = {
        group[0].name
        for group in groups
        if len({mention.letter for mention in group})
        == 2
        == len({mention.name for mention in group}) + 1
    }
    everywhere = frozenset({mention.name for mention in sure} if length <= short else paired)
    if len(everywhere) == 1:
        return _only(everywhere)
    concluding = _in_conclusion(text, sure)
    if concluding is not None:
        return concluding
    brief = length <= _FEW_WORDS and any(
        not mention.bare or _ENDS.match(text, mention.end) for mention in loose
    )
    return _only(frozenset(mention.name for mention in loose)) if brief else None


def _in_conclusion(text: str, sure: Sequence[Mention]) -> str | None:
    """The one option in the last sentence that names any.

    The sentence must be near the end, and conclude, stand apart or end with the option.
    """
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
    if (
        sentence.endswith("?")
        or not complete
        or len(text) - end > _LAST_WORDS
        or not (apart or closing or _CUE.search(sentence))
    ):
        return None
    return _only(frozenset(mention.name for mention in sure if mention.start >= start))


def _names(text: str, group: Sequence[Mention]) -> frozenset[str]:
    """All names of a group that is a list ("A or B").

    The first one where a new clause follows a comma ("B, A is in Italy").
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


def _only(names: frozenset[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
