"""The number that an answer states, among all the numbers in it."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from mildroute.judges._answer_markers import Marker, find_markers
from mildroute.judges._latex import unfold_latex
from mildroute.judges._numbers import Number, find_numbers
from mildroute.text import drop_thinking, normalize_text

__all__ = ["read_number"]

# The mark that replaces Markdown's stars around bold type.
_BOLD = "\ue001"
_MAX_SENTENCE = 400
_CALCULATOR = re.compile(r"<<[^<>]{0,200}>>")
_SENTENCE_END = re.compile(r"[.!?](?=\s+[^\d\s]|\s*\Z)|\n")
_NOTE = re.compile(
    r"\n[\W_]*(?:note|disclaimer|assumptions?|confidence|p\.?\s?s|sources?|references?)\b",
    re.IGNORECASE,
)
_LEADING_WORDS = re.compile(
    r"(?:[\W_]|\b(?:approximately|approx|about|roughly|around|nearly|exactly|only|just|the|number|is|a|total|of|equal|to|usd|eur|rs|minus"
    r"|negative|x|y|n)\b)*",
    re.IGNORECASE,
)
_IS_THE_ANSWER = re.compile(
    r"[\W_]*(?:\w+\s)?is\s+(?:the|my)\s+(?:final\s+|correct\s+|right\s+)?answer\b", re.IGNORECASE
)
_REASON = re.compile(r"(?:\s[^\W\d_]+){0,3}(?:,?\s(?:because|since)\b|:\s)", re.IGNORECASE)
_UNIT = re.compile(r"[\W_]*(?:[^\W\d_]+[\W_]*){0,3}")
_LINK = re.compile(r"%?\s?(?:-|to|or|and|~)\s?(?:[a-z]\s?=\s?)?[$€£]?", re.IGNORECASE)
_INCIDENTAL = re.compile(
    r"\b(?:the|these|those|all|both|his|her|their|its|each|every|first|last|next|past|same)\s+\$?$|,\s+or\s+(?:\w+\s+)?\$?$",
    re.IGNORECASE,
)
_NAMED_BEFORE = re.compile(
    r"(?<!which\s)(?<!that\s)\b(?:is|are|was|equals|leaves|leaving)\s+\$?$", re.IGNORECASE
)
_PREMISE = re.compile(
    r"\W*(?:(?:so|therefore|thus|hence)\W+)?(?:since|because|if|after|as|to|given|when|with)\b[^,\n]*,",
    re.IGNORECASE,
)
_SO = re.compile(r",\s+(?:so|therefore|thus|hence|which\s+means|meaning)\b", re.IGNORECASE)
_BEFORE_YEAR = re.compile(r"\b(?:in|since|by|during|of|from|until)\s+$", re.IGNORECASE)
_ENUMERATOR = re.compile(r"(?:(?<=\n)|\A)[ *#-]{0,4}(\d{1,2})[.)](?=\s+\S)")
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORD = re.compile(
    rf"\b(?:({'|'.join(_TENS)})(?:[-"
    rf" ]({'|'.join(_ONES[1:10])}))?|({'|'.join(_ONES)}))\b(?!\s+of\b|-)",
    re.IGNORECASE,
)


def read_number(text: str) -> Number | None:
    r"""Return the number that an answer states, or ``None`` if it states none or several.

    The first rule that applies decides:

    1. The number after the last ``####``, in the last ``\boxed{}`` or after the last "final
       answer".
    2. The number that follows the last "answer is" or that is alone on the first or last line.
    3. The last number of the text that is not an operand, an enumerator or part of a note. Within
       its sentence, a number in bold type or after "=" is preferred, and a year or a number in
       parentheses or after "the" ("for the 16 glasses") is used only as a last resort; otherwise
       the last number counts.

    A range ("5-10", "5 or 10") is not a number. Roots, powers and multiples of pi are not
    evaluated.

    Args:
        text: The expert's answer, including its reasoning.

    Example:
        >>> number = read_number("9 eggs at $2 each make $18.\nThe answer is $18.00 a day.")
        >>> str(number.value), read_number("5 to 10")
        ('18', None)
    """
    text = _CALCULATOR.sub("", unfold_latex(normalize_text(drop_thinking(text))))
    # Between digits, two stars are a power; elsewhere they mark bold type.
    text = re.sub(r"(?<=\d)\*\*(?=\d)", "^", text).replace("**", _BOLD)
    text = text.replace("__", "").replace("`", "")
    numbers = _drop_enumerators(text, find_numbers(text))
    if not numbers:
        return _read_number_word(text)
    markers = find_markers(text)
    statements = _announced_numbers(text, numbers, [marker for marker in markers if marker.final])
    if not statements:
        statements = _announced_numbers(text, numbers, markers) + _separate_numbers(text, numbers)
    if statements:
        number = max(statements, key=lambda number: number.start)
    else:
        results = _results(numbers)
        if not results:
            return None
        number = _last_result(text, results)
    return None if _is_undecided(text, numbers, number) else number


def _announced_numbers(
    text: str, numbers: Sequence[Number], markers: Sequence[Marker]
) -> list[Number]:
    """Return the number in the sentence that follows each marker."""
    announced = []
    for marker in markers:
        gap = text[marker.end : marker.end + 40]
        start = marker.end + len(gap) - len(gap.lstrip())
        sentence_end = _SENTENCE_END.search(text, start, start + _MAX_SENTENCE)
        end = sentence_end.start() if sentence_end else min(len(text), start + _MAX_SENTENCE)
        first, past = (
            bisect.bisect_left(numbers, position, key=lambda number: number.start)
            for position in (marker.end, end)
        )
        results = _results(numbers[first:past])
        if results:
            announced.append(_number_of_sentence(text, marker.end, end, results))
    return announced


def _number_of_sentence(text: str, start: int, end: int, results: Sequence[Number]) -> Number:
    """Return the number at the start of a sentence, its equation's result, or its last number."""
    first = results[0]
    if _LEADING_WORDS.fullmatch(text, start, first.start):
        term = text[first.end : max(first.end, text.find("=", first.end, end))]
        if "(" in term or not re.search(r"[+*×÷/]|\s-\s", term):  # noqa: RUF001
            return first
    return _result_of_sentence(text, start, results)


def _results(numbers: Sequence[Number]) -> list[Number]:
    """Return the numbers that are not operands; ordinals ("6th") only if there are no others."""
    results = [number for number in numbers if not number.operand]
    return [number for number in results if not number.ordinal] or results


def _result_of_sentence(text: str, start: int, results: Sequence[Number]) -> Number:
    """Return the result at the end of a sentence.

    With an "=", the result is, after the last one, the last number that follows "is" or else the
    first number. Without an "=", the result is the last number that is not incidental.
    """
    equals = text.rfind("=", start, results[-1].start)
    if equals >= 0:
        after = [number for number in results if number.start > equals]
        named = _named_numbers(text, start, after)
        return named[-1] if named else after[0]
    essential = [number for number in results if not _is_incidental(text, start, number)]
    return (essential or results)[-1]


def _named_numbers(text: str, start: int, numbers: Sequence[Number]) -> list[Number]:
    """Return the numbers that follow words such as "is" and "equals"."""
    return [
        number
        for number in numbers
        if _NAMED_BEFORE.search(text, max(start, number.start - 24), number.start)
    ]


def _is_incidental(text: str, start: int, number: Number) -> bool:
    before = text[max(start, number.start - 24) : number.start]
    is_bracketed = text.rfind("(", start, number.start) > text.rfind(")", start, number.start)
    is_year = number.end - number.start == 4 and 1800 <= number.value <= 2100
    return (
        is_bracketed
        or _INCIDENTAL.search(before) is not None
        or (is_year and _BEFORE_YEAR.search(before) is not None)
    )


def _separate_numbers(text: str, numbers: Sequence[Number]) -> list[Number]:
    """Return the numbers that are set apart from the text.

    Such a number is alone on the first or the last line except for a unit, begins that line before
    a reason, or is called the answer.
    """
    first_end = text.find("\n")
    last_start = text.rfind("\n") + 1
    lines = {(0, len(text) if first_end < 0 else first_end), (last_start, len(text))}
    separate = [number for number in numbers if _IS_THE_ANSWER.match(text, number.end)]
    for start, end in lines:
        separate += [
            number
            for number in (numbers[0], numbers[-1])
            if start <= number.start < end
            and not number.operand
            and _LEADING_WORDS.fullmatch(text, start, number.start)
            and (_UNIT.fullmatch(text, number.end, end) or _REASON.match(text, number.end))
        ]
    return separate


def _last_result(text: str, results: Sequence[Number]) -> Number:
    """Return the result of the last sentence with a number, or its only number in bold type."""
    note = _NOTE.search(text)
    if note is not None:
        results = [number for number in results if number.start < note.start()] or results
    earliest = max(0, results[-1].start - _MAX_SENTENCE)
    start = max(
        (match.end() for match in _SENTENCE_END.finditer(text, earliest, results[-1].start)),
        default=earliest,
    )
    sentence = [number for number in results if number.start >= start]
    bold = [number for number in sentence if text.count(_BOLD, start, number.start) % 2 == 1]
    return bold[0] if len(bold) == 1 else _concluding_number(text, start, results)


def _concluding_number(text: str, start: int, results: Sequence[Number]) -> Number:
    """Return the number in the conclusion of the last sentence, without its premises.

    This is the number after "is", the number computed before, or the result of the sentence.
    """
    premise = _PREMISE.match(text, start, results[-1].start)
    clause = max(
        (match.end() for match in _SO.finditer(text, start, results[-1].start)),
        default=premise.end() if premise else start,
    )
    candidates = [number for number in results if number.start >= clause]
    if "=" not in text[clause : candidates[-1].start]:
        named = _named_numbers(text, clause, candidates)
        if named:
            return named[-1]
        computed = _last_computed_value(text, clause, results)
        for number in candidates:
            if number.value == computed:
                return number
    return _result_of_sentence(text, clause, candidates)


def _last_computed_value(text: str, stop: int, results: Sequence[Number]) -> Fraction | None:
    """Return the number that follows the last "=" before an index, or ``None``.

    For example, "459 / 51 = 9 minutes" shows that 9 is the result in "9 minutes to blink 459
    times".
    """
    equals = text.rfind("=", 0, stop)
    index = bisect.bisect_left(results, equals, key=lambda number: number.start)
    number = results[index]
    return number.value if 0 <= equals < number.start <= min(stop, equals + 6) else None


def _is_undecided(text: str, numbers: Sequence[Number], number: Number) -> bool:
    """Return whether a number is one end of a range, or one of two alternatives that differ."""
    index = next(index for index, other in enumerate(numbers) if other.start == number.start)
    neighbors = [numbers[max(index - 1, 0)], number, numbers[min(index + 1, len(numbers) - 1)]]
    for one, other in itertools.pairwise(neighbors):
        if one is other or not _LINK.fullmatch(text, one.end, other.start):
            continue
        values = {one.value, other.value}
        shares = {each.value / (100 if each.percent else 1) for each in (one, other)}
        if min(_relative_difference(values), _relative_difference(shares)) > Fraction(1, 100):
            return True
    return False


def _relative_difference(values: set[Fraction]) -> Fraction:
    """Return the difference between values as a share of the largest one."""
    largest = max(map(abs, values))
    return (max(values) - min(values)) / largest if largest else Fraction(0)


def _drop_enumerators(text: str, numbers: list[Number]) -> list[Number]:
    """Return the numbers without enumerators at the start of lines, if there are "1." and "2."."""
    enumerators = {match.start(1): int(match[1]) for match in _ENUMERATOR.finditer(text)}
    if not {1, 2} <= set(enumerators.values()):
        return numbers
    return [number for number in numbers if number.start not in enumerators]


def _read_number_word(text: str) -> Number | None:
    """Return the number below a hundred that is written as a word and begins the answer."""
    starts = [0, *(marker.end for marker in find_markers(text))]
    for start in reversed(starts):
        word = _WORD.search(text, start, start + 60)
        if word is not None and _LEADING_WORDS.fullmatch(text, start, word.start()):
            tens, ones, below_twenty = ((part or "").lower() for part in word.groups())
            if below_twenty:
                return Number(Fraction(_ONES.index(below_twenty)))
            value = 10 * (_TENS.index(tens) + 2) + (_ONES.index(ones) if ones else 0)
            return Number(Fraction(value))
    return None
