"""Mentions of options in an answer, and whether they are denied, as A in "not A, so B"."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Characters of words in scripts that separate words with spaces, unlike Chinese and Japanese.
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
    """The position of an option's letter or text in an answer.

    Args:
        start: Index of the first character.
        end: Index after the last character.
        name: Name of the option.
        rank: Index of the option among all options.
        letter: Whether it is the option's letter rather than its text.
        bare: Whether nothing around the letter shows that it stands for an option.
    """

    start: int
    end: int
    name: str
    rank: int
    letter: bool = False
    bare: bool = False


def affirmed_groups(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """Return the groups of mentions that are not denied.

    Mentions in a group are adjacent or joined by commas, "and" or "or". Examples of denied groups
    are "not A or B", "A and B are wrong" and "rule out A".
    """
    groups: list[list[Mention]] = []
    for mention in mentions:
        if groups and _continues_group(text, groups[-1], mention):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return [group for group in groups if not _is_denied(text, group)]


def is_conceded(text: str, mention: Mention) -> bool:
    """Return whether a mention is part of a concessive clause.

    Examples are "although it has negative sides" and "whereas Rome is in Italy".
    """
    match = _CONCESSION.search(text, max(0, mention.start - _WINDOW), mention.start)
    return match is not None and "," not in text[match.start() : mention.start]


def list_items(text: str, mentions: Sequence[Mention]) -> set[Mention]:
    """Return the mentions on the lines of a list that repeats several options in their order."""
    listed: set[Mention] = set()
    for run in _runs(_line_items(text, mentions)):
        if len(run) > 1:
            listed.update(mention for item in run for mention in item.mentions)
    return listed


def _continues_group(text: str, group: Sequence[Mention], mention: Mention) -> bool:
    previous = group[-1]
    between = text[previous.end : mention.start]
    if previous.name == mention.name:
        return (
            len(between) <= 4
            and "\n" not in between
            and not re.search(r"[\w.;!?]", between.replace(". ", " ", 1))
        )
    # A name that recurs after others starts a new group: "between A and B, A is right".
    is_repeated = any(mention.name == earlier.name for earlier in group)
    are_questions = between.strip() == "?" and text[mention.end : mention.end + 1] == "?"
    return (
        not is_repeated
        and len(between) <= 24
        and "\n" not in between
        and (are_questions or _LINK.fullmatch(between) is not None)
    )


def _is_denied(text: str, group: Sequence[Mention]) -> bool:
    start = group[0].start
    end = group[-1].end
    before = text[max(0, start - _WINDOW) : start]
    after = text[end : end + _WINDOW]
    return _DENIAL_BEFORE.search(before) is not None or _DENIAL_AFTER.match(after) is not None


@dataclass(frozen=True)
class _LineItem:
    """A line that begins with an option's letter, or that contains only the name of an option.

    Args:
        mentions: The mentions on the line.
        only_letter: Whether the line contains only the option's letter.
        after_blank: Whether a blank line precedes it.
    """

    mentions: tuple[Mention, ...]
    only_letter: bool
    after_blank: bool

    def follows(self, other: _LineItem) -> bool:
        """Return whether this line continues the list of the other one.

        "C" right below "B. Berlin" does, because the text was truncated there.
        """
        step = self.mentions[0].rank - other.mentions[0].rank
        return step > 0 and (
            self.only_letter == other.only_letter
            or (self.only_letter and not self.after_blank and step == 1)
        )


def _line_items(text: str, mentions: Sequence[Mention]) -> Iterator[_LineItem | None]:
    """Yield the list item of each nonblank line, or ``None`` if the line is not an item."""
    line_start = 0
    next_mention = 0
    after_blank = False
    for line in text.split("\n"):
        line_end = line_start + len(line)
        first = next_mention
        next_mention = bisect.bisect_left(
            mentions, line_end, lo=first, key=lambda mention: mention.start
        )
        if line.strip():
            yield _line_item(
                text, line_start, line, tuple(mentions[first:next_mention]), after_blank=after_blank
            )
        line_start = line_end + 1
        after_blank = not line.strip()


def _line_item(
    text: str, line_start: int, line: str, mentions: tuple[Mention, ...], *, after_blank: bool
) -> _LineItem | None:
    if (
        not mentions
        or mentions[0].start - line_start > _MAX_LEAD
        or not _LINE_LEAD.fullmatch(text, line_start, mentions[0].start)
    ):
        return None
    rest = "".join(
        line[one.end - line_start : other.start - line_start]
        for one, other in itertools.pairwise(mentions)
    )
    rest += line[mentions[-1].end - line_start :]
    is_name = not re.search(r"\w", rest) and len({mention.name for mention in mentions}) == 1
    only_letter = is_name and all(mention.letter for mention in mentions)
    if is_name or mentions[0].letter:
        return _LineItem(mentions, only_letter, after_blank)
    return None


def _runs(items: Iterable[_LineItem | None]) -> list[list[_LineItem]]:
    """Return runs of consecutive items in the order of the options, each with or without texts."""
    runs: list[list[_LineItem]] = [[]]
    for item in items:
        if runs[-1] and (item is None or not item.follows(runs[-1][-1])):
            runs.append([])
        if item is not None:
            runs[-1].append(item)
    return runs
