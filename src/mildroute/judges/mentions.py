"""Where an answer names one of several options, and which of these mentions are meant: "not A, so B" means B."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["NO", "WORD", "Mention", "chains", "conceded", "listed", "meant"]

WORD = "0-9A-Za-z\u00c0-\u024f\u0370-\u04ff"
"""Characters of words that are set apart by spaces; Chinese and Japanese are not."""

NO = rf"(?:\A|(?<=\n)|(?<=[.!?:]\s))no(?![{WORD}])|(?<![{WORD}])no(?=\W*(?:\Z|[.,;:!?)\n]|\b(?:because|since|as)\b))"
"""The answer "no", but not the "no" of "there is no doubt"."""

_WINDOW = 80
_MAX_LEAD = 40
_LINK = re.compile(
    r"""[)\]"'\s]*(?:,|/|&|\b(?:and|or|nor|and/or)\b|,\s*(?:and|or|nor)\b)\s*(?:(?:options?|choices?|maybe|perhaps|even)\s+)?[(\["']*"""
)
_DENIAL_BEFORE = re.compile(
    r"""(?:
    \b(?:not|never|neither|nor|\w+n't|cannot|none\ of|(?:everything|anything|all|any)\ but|rather\ than|instead\ of|unlike|far\ from
        |except(?:\ for)?|excluding|other\ than|avoid\w*|ignor\w+|skip|eliminat\w+|rul\w+\ out|exclud\w+|reject\w*|discard\w*|wrong
        |incorrect)\b
        (?:\s+(?:be|been|by|with|from|the|a|an|options?|choices?|answers?|is|it|it's|this|that|to|as|always|really|quite|either|both|sure
        |certain|whether|if|call|say|called|labell?ed|classified|considered|\w+ly))*
    |\b(?:no|non|un|nothing|hardly|barely|without)\b(?:\s+(?:the|a|an|real|\w+ly))*
    )[\s"'(\[-]{0,4}$""",
    re.IGNORECASE | re.VERBOSE,
)
_DENIAL_AFTER = re.compile(
    r"""["')\]]*\s*(?:
    (?:(?:is|are|was|were|seems?|looks?|would\ be|can\ be|could\ be|must\ be|being)\s+)
        (?:(?:both|all|also|clearly|definitely|simply|just|therefore|thus|obviously|certainly|most\ likely|too|only\ partially)\s+)*
        (?:not\b|wrong|incorrect|false|ruled\ out|eliminated|out\b|impossible|unlikely|tempting|invalid|excluded|irrelevant|unrelated
        |a\ distractor)
    |(?:isn't|aren't|wasn't|weren't|doesn't|don't|didn't|can't|cannot|won't|wouldn't|does\ not|do\ not|did\ not|fails?\b)
    |[-:(]*\s*(?:(?:is\s+)?(?:wrong|incorrect)\b|ruled\ out\b|eliminated\b)
    |\s*[-:?(]\s*(?:no|nope|false)\s*(?:[,.;)\n]|$)
    |[-:(]?\s*[\u274c\u2717\u2718\u2716\u2715]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_CONCESSION = re.compile(r"\b(?:although|though|while|whereas|despite|in\s+spite\s+of|on\s+the\s+other\s+hand)\b[^.;\n]*$", re.IGNORECASE)
_LINE_LEAD = re.compile(r"[\W_]*(?:(?:options?|choices?)\s+)?[\W_]*", re.IGNORECASE)


@dataclass(frozen=True)
class Mention:
    """A place that names an option.

    Args:
        start: Of the name in the text.
        end: After the name.
        name: The option.
        rank: Its place among the options.
        letter: Whether it is the option's letter, not its text.
        bare: Whether nothing around the letter shows that it is one.

    Example:
        >>> Mention(0, 1, "C", 2).letter
        False
    """

    start: int
    end: int
    name: str
    rank: int
    letter: bool = False
    bare: bool = False


def chains(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """Mentions in groups, each joined by commas, "and" or "or", or one right after the other.

    Example:
        >>> found = [Mention(0, 1, "A", 0), Mention(5, 6, "B", 1), Mention(11, 12, "C", 2)]
        >>> [[mention.name for mention in chain] for chain in chains("A or B; not C", found)]
        [['A', 'B'], ['C']]
    """
    groups: list[list[Mention]] = []
    for mention in mentions:
        if groups and _joined(text, groups[-1], mention):
            groups[-1].append(mention)
        else:
            groups.append([mention])
    return groups


def meant(text: str, mentions: Sequence[Mention]) -> list[list[Mention]]:
    """The groups that are not denied: "not A or B", "A and B are wrong" and "rule out A" name nothing.

    Example:
        >>> found = [Mention(4, 5, "A", 0), Mention(10, 11, "B", 1)]
        >>> [[mention.name for mention in chain] for chain in meant("not A, so B", found)]
        [['B']]
    """
    return [chain for chain in chains(text, mentions) if not _denied(text, chain)]


def conceded(text: str, mention: Mention) -> bool:
    """Whether it stands in a clause such as "although it has negative sides" or "whereas Rome is in Italy".

    Example:
        >>> conceded("Paris, whereas Rome is in Italy", Mention(15, 19, "Rome", 0))
        True
    """
    found = _CONCESSION.search(text, max(0, mention.start - _WINDOW), mention.start)
    return found is not None and "," not in text[found.start() : mention.start]


def listed(text: str, mentions: Sequence[Mention]) -> set[Mention]:
    r"""Mentions that begin a line of a list of several options in their order, and all that stands on these lines.

    Example:
        >>> found = [Mention(0, 1, "A", 0, letter=True), Mention(8, 9, "B", 1, letter=True), Mention(19, 20, "B", 1, letter=True)]
        >>> [mention.start for mention in sorted(listed("A. Rome\nB. Berlin\n\nB", found), key=lambda mention: mention.start)]
        [0, 8]
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
        return len(between) <= 4 and "\n" not in between and not re.search(r"[\w.;!?]", between.replace(". ", " ", 1))
    # a name that comes back after others begins anew: "between A and B, A is right"
    again = any(mention.name == earlier.name for earlier in chain)
    both_asked = between.strip() == "?" and text[mention.end : mention.end + 1] == "?"
    return not again and len(between) <= 24 and "\n" not in between and (both_asked or _LINK.fullmatch(between) is not None)


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
        """Whether it goes on with a list; "C" right below "B. Berlin" does, for the text was cut off there."""
        step = self.mentions[0].rank - other.mentions[0].rank
        return step > 0 and (self.alone == other.alone or (self.alone and not self.apart and step == 1))


def _items(text: str, mentions: Sequence[Mention]) -> Iterator[_Item | None]:
    """For each line that is not blank: the item that it is, or none."""
    at, index, apart = 0, 0, False
    for line in text.split("\n"):
        first, index = index, bisect.bisect_left(mentions, at + len(line), lo=index, key=lambda mention: mention.start)
        if line.strip():
            yield _item(text, at, line, tuple(mentions[first:index]), apart=apart)
        at, apart = at + len(line) + 1, not line.strip()


def _item(text: str, at: int, line: str, inside: tuple[Mention, ...], *, apart: bool) -> _Item | None:
    if not inside or inside[0].start - at > _MAX_LEAD or not _LINE_LEAD.fullmatch(text, at, inside[0].start):
        return None
    rest = "".join(line[one.end - at : other.start - at] for one, other in itertools.pairwise(inside)) + line[inside[-1].end - at :]
    alone = not re.search(r"\w", rest) and len({mention.name for mention in inside}) == 1
    only_letters = alone and all(mention.letter for mention in inside)
    return _Item(inside, only_letters, apart) if alone or inside[0].letter else None


def _runs(items: Iterable[_Item | None]) -> list[list[_Item]]:
    """Neighbouring items in the order of the options, either all with a text or all without."""
    runs: list[list[_Item]] = [[]]
    for item in items:
        if runs[-1] and (item is None or not item.follows(runs[-1][-1])):
            runs.append([])
        if item is not None:
            runs[-1].append(item)
    return runs
