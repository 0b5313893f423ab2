"""The letter that an answer to a multiple-choice question states, in any wording."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from mildroute.judges._answer_markers import first_and_last
from mildroute.judges._latex import unfold_latex
from mildroute.judges._option_mentions import NO, WORD, Mention
from mildroute.judges._stated_option import stated_option
from mildroute.text import drop_emphasis, drop_thinking, normalize_text

__all__ = ["read_choice"]

_CONNECTIVE = (
    r"(?:because|since|as|is|was|which|given|due|seems|looks|fits|would|must|for\ the\ reason)\b"
)
_AFTER_ARTICLE = re.compile(
    rf"""["')\]}}]*(?:\s*(?:[.,;:!?)\]}}|/&\n\u2705\u274c]|$)|\s+[-(]|\s+(?:{_CONNECTIVE}"""
    r"""|(?:and|or|nor|but|not|i\s+(?:think|guess|believe))\b))"""
)
_AFTER_PRONOUN = re.compile(rf"""["')\]}}]*(?:\s*(?:[.;:!?)\]}}|\n]|$)|\s+{_CONNECTIVE})""")
_NAMED = re.compile(r"""\b(?:options?|choices?|letter|alternative)\s+[("'\[]*$""", re.IGNORECASE)
_BESIDE = re.compile(r"[).:\]\s\"'-]{1,6}")
_COLON = re.compile(r":[\s\"'(]*")
_LINE_END = re.compile(r"[\W_]*?(?:\n|$)")
_BEFORE_NUMBER = r"(?<![\w.,/^+*×·-])(?<![+*/×·^]\s)(?<![\d)]\s-\s)"  # noqa: RUF001
_AFTER_NUMBER = r"(?![\w%(]|[.,]\d|\s*[+*/×÷=^]|\s+-\s)"  # noqa: RUF001
_PART_BEFORE = re.compile(r"(?:\b\w\.|\w-|\w[&_^({]|[+*×]\s?|(?:\b\w|\))\s-\s|[°\d]\s?)$")  # noqa: RUF001
_OPENING_MARKS = "([{\"'"
_CLOSING_MARKS = ")]}\"'"


def read_choice(text: str, choices: Mapping[str, str]) -> str | None:
    """Return the letter that an answer states, or ``None`` if it states none or several.

    A letter takes precedence over the text of another choice next to it ("B) Paris" means B),
    because a letter was requested. A statement that is retracted without a new one ("the answer is
    A. No, wait.") still counts, and so does the last statement of a text that ends with its own
    questions. If the texts of the choices are unknown, an initial ("E. coli") looks like a letter.

    Args:
        text: The expert's answer, including its reasoning.
        choices: The text of each letter; empty if only the letters are known.

    Example:
        >>> choices = {"A": "Rome", "B": "Paris"}
        >>> answers = ["A is in Italy, so the answer is (B).", "I don't know"]
        >>> tuple(read_choice(answer, choices) for answer in answers)
        ('B', None)
    """
    text = drop_emphasis(unfold_latex(normalize_text(drop_thinking(text)))).replace("$", " ")
    texts = _text_mentions(text, tuple(choices.items()))
    is_in_text = [False] * (len(text) + 1)
    for mention in texts:
        is_in_text[mention.start : mention.end] = [True] * (mention.end - mention.start)
    letters = [
        mention
        for mention in _letter_mentions(text, tuple(choices))
        if not is_in_text[mention.start]
    ]
    mentions = sorted([*texts, *letters], key=lambda mention: mention.start)
    mentions = [
        mention
        for index, mention in enumerate(mentions)
        if not _is_heading(text, mentions[index : index + 2])
    ]
    mentions = [
        mention
        for index, mention in enumerate(mentions)
        if index == 0 or not _is_overruled(text, mentions[index - 1], mention)
    ]
    return stated_option(text, mentions)


@functools.lru_cache(maxsize=256)
def _text_pattern(
    options: tuple[tuple[str, str], ...],
) -> tuple[re.Pattern[str], tuple[tuple[str, int], ...]] | None:
    """Return a pattern of all texts, longest first, and the letter and rank of each.

    "Paris, Texas" must not be read as "Paris". Texts that look like a letter or occur twice are
    excluded.
    """
    letters = {letter.casefold() for letter, _ in options}
    counts = Counter(text.casefold() for _, text in options)
    entries = [
        (text, letter, rank)
        for rank, (letter, text) in enumerate(options)
        if text and text.casefold().strip("()[]. ") not in letters and counts[text.casefold()] == 1
    ]
    entries.sort(key=lambda entry: -len(entry[0]))
    if not entries:
        return None
    pattern = "|".join(f"({_option_pattern(text)})" for text, _, _ in entries)
    return re.compile(pattern, re.IGNORECASE), tuple((letter, rank) for _, letter, rank in entries)


def _option_pattern(text: str) -> str:
    """Return a pattern for an option's text, with any spaces or hyphens between words.

    A number matches only if it is not part of a larger number or of a sum.
    """
    if text.casefold() == "no":
        return NO
    words = r"[\s-]+".join(re.escape(word) for word in re.split(r"[\s-]+(?=\w)|\s+", text) if word)
    if text.startswith("-"):
        words = "-" + words.removeprefix(re.escape("-")).removeprefix(r"[\s-]+")
    before = (
        _BEFORE_NUMBER if text[0].isdigit() else r"(?<!\w)" if text[0].isalnum() else r"(?<![\w.])"
    )
    after = _AFTER_NUMBER if text[-1].isdigit() else r"(?!\w)" if text[-1].isalnum() else ""
    return f"{before}{words}{after}"


def _text_mentions(text: str, options: tuple[tuple[str, str], ...]) -> list[Mention]:
    pattern_and_owners = _text_pattern(options)
    if pattern_and_owners is None:
        return []
    pattern, owners = pattern_and_owners
    return [
        Mention(match.start(), match.end(), *owners[(match.lastindex or 1) - 1])
        for match in first_and_last(list(pattern.finditer(text)))
    ]


def _letter_mentions(text: str, letters: tuple[str, ...]) -> list[Mention]:
    pattern = re.compile(
        rf"(?<![{WORD}])(?:{'|'.join(map(re.escape, letters))})(?![{WORD}])", re.IGNORECASE
    )
    ranks = {letter: rank for rank, letter in enumerate(letters)}
    mentions = []
    for match in first_and_last(list(pattern.finditer(text))):
        kind = _letter_kind(text, match.start(), match.end())
        if kind is not None:
            letter = match[0].upper()
            mentions.append(
                Mention(
                    match.start(),
                    match.end(),
                    letter,
                    ranks[letter],
                    letter=True,
                    bare=kind == "bare",
                )
            )
    return mentions


def _letter_kind(text: str, start: int, end: int) -> Literal["marked", "bare"] | None:
    """Return whether a letter is marked as an option or bare, or ``None`` if it is no option.

    "(C)" and "option C" are marked. In "I'm", "B-cell", "e.g." and "a dog", the letter is part of a
    word or a word itself.
    """
    before = text[max(0, start - 24) : start]
    after = text[end : end + 24]
    letter = text[start:end]
    if _is_part(before, after, is_digit=letter.isdigit()):
        return None
    is_enclosed = before and before[-1] in _OPENING_MARKS and after and after[0] in _CLOSING_MARKS
    if is_enclosed or after[:1] == ")" or _NAMED.search(before):
        return "marked"
    if after[:1] in (".", ":") and not before.rpartition("\n")[2].strip(" -#>"):
        return "marked"
    is_capital = letter not in ("A", "I") and letter.isupper()
    following = _AFTER_PRONOUN if letter in ("I", "i") else _AFTER_ARTICLE
    if letter.isdigit() or is_capital or following.match(after):
        return "bare"
    return None


def _is_part(before: str, after: str, *, is_digit: bool) -> bool:
    """Return whether a letter or digit is part of a word, a number or a formula."""
    if is_digit:
        return bool(
            re.search(r"[\w.,$^+*/×-]$|[+*/×^]\s$", before)  # noqa: RUF001
            or re.match(r"[\w%]|[.,]\d|\s*[+*/×=^]|\s+-\s", after)  # noqa: RUF001
        )
    is_quoted = before[-1:] == "'" and after[:1] == "'"
    if not is_quoted and (re.match(r"'\w", after) or re.search(r"\w'$", before)):
        return True
    is_variable = before.rpartition("\n")[2].strip() and re.match(r"\s*[+*×^=]\s*[\w(-]", after)  # noqa: RUF001
    return bool(
        is_variable
        or re.match(r"[-&^_=]\w|[+#&]|\.\w\.|\.\w\W", after)
        or _PART_BEFORE.search(before)
    )


def _is_overruled(text: str, letter: Mention, mention: Mention) -> bool:
    """Return whether a mention is the text of a choice right after another choice's letter."""
    differ = (
        letter.letter and not letter.bare and not mention.letter and letter.name != mention.name
    )
    return differ and _BESIDE.fullmatch(text, letter.end, mention.start) is not None


def _is_heading(text: str, pair: list[Mention]) -> bool:
    """Return whether "A:" stands for "answer", as in "A: Paris" if Paris is not choice A."""
    if len(pair) < 2:
        return False
    letter, option = pair
    if not letter.letter or letter.name != "A" or option.name == "A":
        return False
    opens_line = not text[text.rfind("\n", 0, letter.start) + 1 : letter.start].strip()
    return opens_line and bool(
        _COLON.fullmatch(text, letter.end, option.start) and _LINE_END.match(text, option.end)
    )
