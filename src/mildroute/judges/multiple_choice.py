"""Multiple choice: which option an answer chooses."""

from __future__ import annotations

import functools
import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_extraction import NO, WORD, Mention, first_and_last, stated_option
from mildroute.judges._latex import unfold_latex
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.text import drop_emphasis, drop_thinking, normalize_text

__all__ = [
    "MultipleChoiceJudge",
    "ReferenceKind",
    "normal",
    "option_meant",
    "options_of",
    "read_choice",
]


# The options of a multiple-choice question, and which of them a reference means.


ReferenceKind = Literal["auto", "letter", "index", "text"]
_LETTER = re.compile(r"[A-Za-z]|\d{1,2}")
_LETTER_FIRST = re.compile(
    r"[\W_]*(?:options?\s+|choices?\s+)?[\W_]*([A-Za-z]|\d{1,2})(?:[).:\]}\s-]+(.*))?[\W_]*",
    re.IGNORECASE | re.DOTALL,
)


def normal(text: str) -> str:
    r"""A choice's text in the spelling in which it is looked for."""
    return (
        " ".join(drop_emphasis(unfold_latex(normalize_text(text))).replace("$", " ").split())
        .rstrip(".;,")
        .strip()
    )


def options_of(choices: Any, letters: str) -> dict[str, str]:
    """Upper-case letter and text of each option.

    Args:
        choices: A list of texts, a mapping from letters to texts, a mapping with the lists ``text``
            and ``label``, any of them as JSON, or none, for letters without texts.
        letters: The letters allowed as answers if no choices are known; they also number a list.
    """
    if isinstance(choices, str):
        try:
            choices = json.loads(choices)
        except (ValueError, RecursionError) as broken:
            raise ArgumentError(
                f"choices must be a list, a mapping or either as JSON, got {choices[:60]!r}; write"
                " them as JSON."
            ) from broken
    if choices is None:
        return dict.fromkeys(letters.upper(), "")
    tolist: Any = getattr(choices, "tolist", None)
    pairs = _pairs(choices if tolist is None else tolist())
    options = {letter.strip().upper(): normal(str(text)) for letter, text in pairs}
    _check(options, len(pairs))
    return options


def option_meant(
    reference: str, options: Mapping[str, str], kind: ReferenceKind = "auto", first_index: int = 0
) -> str | None:
    """The letter that a reference means, or none.

    The result is none if the reference means no option or, read as letter, index and text, several.
    """
    readings = {
        "letter": _by_letter(reference, options),
        "index": _by_index(reference, options, first_index),
        "text": _by_text(reference, options),
    }
    found = {
        letter for name, letter in readings.items() if kind in ("auto", name) and letter is not None
    }
    return found.pop() if len(found) == 1 else None


def _pairs(choices: Any) -> list[tuple[str, Any]]:
    if isinstance(choices, Mapping) and {"text", "label"} == {str(key).lower() for key in choices}:
        by_name = {str(key).lower(): value for key, value in choices.items()}
        return list(zip(map(str, by_name["label"]), by_name["text"], strict=False))
    if isinstance(choices, Mapping):
        return [(str(letter), text) for letter, text in choices.items()]
    if isinstance(choices, Sequence) and len(choices) <= len(string.ascii_uppercase):
        return list(zip(string.ascii_uppercase, choices, strict=False))
    raise ArgumentError(
        "choices must be a list of at most 26 texts or a mapping from letters to texts, got"
        f" {str(choices)[:60]!r}."
    )


def _check(options: Mapping[str, str], count: int) -> None:
    if (
        not options
        or len(options) < count
        or not all(_LETTER.fullmatch(letter) for letter in options)
    ):
        raise ArgumentError(
            f"choices must have one or more different letters or numbers, got {list(options)!r};"
            " name them A, B, C and so on."
        )


def _by_letter(reference: str, options: Mapping[str, str]) -> str | None:
    found = _LETTER_FIRST.fullmatch(normal(reference).replace("\ue000", ""))
    if found is None or found[1].upper() not in options:
        return None
    letter = found[1].upper()
    return (
        letter
        if not (found[2] or "").strip(" .")
        or normal(found[2]).casefold() == options[letter].casefold()
        else None
    )


def _by_index(reference: str, options: Mapping[str, str], first_index: int) -> str | None:
    if not re.fullmatch(r"\s*\d{1,3}\s*", reference):
        return None
    index = int(reference) - first_index
    return list(options)[index] if 0 <= index < len(options) else None


def _by_text(reference: str, options: Mapping[str, str]) -> str | None:
    found = [
        letter
        for letter, text in options.items()
        if text and text.casefold() == normal(reference).casefold()
    ]
    return found[0] if len(found) == 1 else None


# Multiple choice: which letter an answer gives, however it says so.


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
_OPEN, _CLOSE = "([{\"'", ")]}\"'"


def read_choice(text: str, choices: Mapping[str, str]) -> str | None:
    """The letter that an answer gives, or none if it gives none or several.

    Args:
        text: What the expert wrote, including its reasoning.
        choices: The text of each letter; empty if only the letters are known.

    Returns:
        One of the letters. A letter takes precedence over the text of another choice beside it ("B)
        Paris" is B), because a letter was requested. A statement that is retracted without a new
        one ("the answer is A. No, wait.") still counts, and so does the last one of a text that
        ends with its own questions. Without texts of the choices, an initial ("E. coli") looks like
        a letter.

    Example:
        >>> choices = {"A": "Rome", "B": "Paris"}
        >>> answers = ["A is in Italy, so the answer is (B).", "I don't know"]
        >>> tuple(read_choice(answer, choices) for answer in answers)
        ('B', None)
    """
    text = drop_emphasis(unfold_latex(normalize_text(drop_thinking(text)))).replace("$", " ")
    texts = _texts(text, tuple(choices.items()))
    inside = [False] * (len(text) + 1)
    for mention in texts:
        inside[mention.start : mention.end] = [True] * (mention.end - mention.start)
    letters = [mention for mention in _letters(text, tuple(choices)) if not inside[mention.start]]
    mentions = sorted([*texts, *letters], key=lambda mention: mention.start)
    mentions = [
        mention
        for at, mention in enumerate(mentions)
        if not _is_heading(text, mentions[at : at + 2])
    ]
    return stated_option(
        text,
        [
            mention
            for at, mention in enumerate(mentions)
            if not at or not _is_overruled(text, mentions[at - 1], mention)
        ],
    )


@dataclass(frozen=True)
class MultipleChoiceJudge(ReadingJudge):
    """Right if the answer gives the letter that the reference means.

    The choices are in ``query.fields["choices"]``: a list of texts, a mapping from letters to
    texts, or the lists ``text`` and ``label``.

    Args:
        letters: Letters allowed as answers if the query has no choices.
        reference: Form of references: a letter, an index, the text of the choice, or any of them as
            long as they agree.
        first_index: Index of the first choice.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> fields = {"choices": ["Rome", "Paris"]}
        >>> query = Query("q1", "The capital of France?", reference="B", fields=fields)
        >>> asyncio.run(MultipleChoiceJudge().judge(query, "The answer is (B)."))
        Verdict(score=1.0, reason='read B, expected B', dollars=0.0)
    """

    letters: str = "ABCDEFGHIJ"
    reference: ReferenceKind = "auto"
    first_index: int = 0
    name: str = "choice"

    def __post_init__(self) -> None:
        """Check the settings."""
        if (
            not self.letters.isalpha()
            or not self.letters.isascii()
            or len(set(self.letters.upper())) < len(self.letters)
        ):
            raise ArgumentError(
                f"letters must be different letters such as 'ABCD', got {self.letters!r}."
            )
        if self.reference not in ("auto", "letter", "index", "text"):
            raise ArgumentError(
                f"reference must be 'auto', 'letter', 'index' or 'text', got {self.reference!r}."
            )

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the letter that is read with the reference."""
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        options = options_of(query.fields.get("choices"), self.letters)
        expected = self._expected(query, options)
        read = read_choice(text, options)
        if read is None:
            return Verdict(0.0, f"no single choice could be read, expected {expected}")
        return Verdict(float(read == expected), f"read {read}, expected {expected}")

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        try:
            expected = self._expected(query, options_of(query.fields.get("choices"), self.letters))
        except ArgumentError as broken:
            return str(broken)
        if expected is None:
            return (
                f"the reference {reference[:40]!r} means no choice or several; set reference to"
                " letter, index or text"
            )
        return ""

    def _expected(self, query: Query, options: Mapping[str, str]) -> str | None:
        return option_meant(reference_of(query), options, self.reference, self.first_index)


@functools.lru_cache(maxsize=256)
def _text_pattern(
    options: tuple[tuple[str, str], ...],
) -> tuple[re.Pattern[str], tuple[tuple[str, int], ...]] | None:
    """All texts, longest first, so that "Paris, Texas" is not "Paris".

    Those that look like a letter or occur twice are left out.
    """
    letters = {letter.casefold() for letter, _ in options}
    times = Counter(text.casefold() for _, text in options)
    usable = [
        text.casefold().strip("()[]. ") not in letters and times[text.casefold()] == 1
        for _, text in options
    ]
    ranked = [
        (text, letter, rank) for rank, (letter, text) in enumerate(options) if text and usable[rank]
    ]
    ranked.sort(key=lambda entry: -len(entry[0]))
    if not ranked:
        return None
    pattern = "|".join(f"({_spelled(text)})" for text, _, _ in ranked)
    return re.compile(pattern, re.IGNORECASE), tuple((letter, rank) for _, letter, rank in ranked)


def _spelled(text: str) -> str:
    """The text as a pattern: any space or hyphen between words.

    Numbers only where they are no part of a larger number or of a sum.
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


def _texts(text: str, options: tuple[tuple[str, str], ...]) -> list[Mention]:
    spelled = _text_pattern(options)
    if spelled is None:
        return []
    pattern, owners = spelled
    return [
        Mention(found.start(), found.end(), *owners[(found.lastindex or 1) - 1])
        for found in first_and_last(list(pattern.finditer(text)))
    ]


def _letters(text: str, letters: tuple[str, ...]) -> list[Mention]:
    pattern = re.compile(
        rf"(?<![{WORD}])(?:{'|'.join(map(re.escape, letters))})(?![{WORD}])", re.IGNORECASE
    )
    ranks = {letter: rank for rank, letter in enumerate(letters)}
    mentions = []
    for found in first_and_last(list(pattern.finditer(text))):
        kind = _kind(text, found.start(), found.end())
        if kind is not None:
            letter = found[0].upper()
            mentions.append(
                Mention(
                    found.start(),
                    found.end(),
                    letter,
                    ranks[letter],
                    letter=True,
                    bare=kind == "bare",
                )
            )
    return mentions


def _kind(text: str, start: int, end: int) -> str | None:
    """Whether a letter is marked as one, bare, or part of something else.

    "(C)" and "option C" are marked; in "I'm", "B-cell", "e.g." and "a dog" it is a part.
    """
    before, after, letter = text[max(0, start - 24) : start], text[end : end + 24], text[start:end]
    if _is_part(before, after, digit=letter.isdigit()):
        return None
    if (
        (before[-1:] and before[-1:] in _OPEN and after[:1] and after[:1] in _CLOSE)
        or after[:1] == ")"
        or _NAMED.search(before)
    ):
        return "marked"
    if after[:1] in (".", ":") and not before.rpartition("\n")[2].strip(" -#>"):
        return "marked"
    follows = _AFTER_PRONOUN if letter in ("I", "i") else _AFTER_ARTICLE
    if letter.isdigit() or (letter not in ("A", "I") and letter.isupper()) or follows.match(after):
        return "bare"
    return None


def _is_part(before: str, after: str, *, digit: bool) -> bool:
    quoted = before[-1:] == "'" and after[:1] == "'"
    if digit:
        return bool(
            re.search(r"[\w.,$^+*/×-]$|[+*/×^]\s$", before)  # noqa: RUF001
            or re.match(r"[\w%]|[.,]\d|\s*[+*/×=^]|\s+-\s", after)  # noqa: RUF001
        )
    if not quoted and (re.match(r"'\w", after) or re.search(r"\w'$", before)):
        return True
    variable = before.rpartition("\n")[2].strip() and re.match(r"\s*[+*×^=]\s*[\w(-]", after)  # noqa: RUF001
    return bool(
        variable or re.match(r"[-&^_=]\w|[+#&]|\.\w\.|\.\w\W", after) or _PART_BEFORE.search(before)
    )


def _is_overruled(text: str, letter: Mention, mention: Mention) -> bool:
    """Whether it is the text of another choice than that of the letter right before it."""
    beside = (
        letter.letter and not letter.bare and not mention.letter and letter.name != mention.name
    )
    return beside and _BESIDE.fullmatch(text, letter.end, mention.start) is not None


def _is_heading(text: str, pair: list[Mention]) -> bool:
    """Whether "A:" opens an answer and does not name choice A: "A.

    Paris" where Paris is choice C.
    """
    if len(pair) < 2 or not pair[0].letter or pair[0].name != "A" or pair[1].name == "A":
        return False
    opens = not text[text.rfind("\n", 0, pair[0].start) + 1 : pair[0].start].strip()
    return opens and bool(
        _COLON.fullmatch(text, pair[0].end, pair[1].start) and _LINE_END.match(text, pair[1].end)
    )
