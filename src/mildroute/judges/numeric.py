"""Numbers in answers, and the judge that compares them with a reference."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_extraction import WORD, Marker, first_and_last, markers
from mildroute.judges._latex import unfold_latex
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.text import drop_thinking, normalize_text

__all__ = ["NumericJudge", "PercentRule", "same_number"]


_MAX_DIGITS = 400
_MAX_POWER = 400
_MANTISSA = r"""
    [0-9]{1,3}(?:\.[0-9]{3}){2,}(?:,[0-9]+)?(?![0-9.])      # 1.234.567,89
  | [0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+(?![0-9,])              # 1.234,56
  | [1-9][0-9]{0,2}(?:,[0-9]{2,3}){0,30},[0-9]{3}           # 1,234,567.89 and 12,34,567
    (?:\.[0-9]+)?(?![0-9])
  | [1-9][0-9]{0,2}(?:\ [0-9]{3})+(?:[.,][0-9]+)?(?![0-9/]) # 1 234 567
  | [1-9][0-9]{0,2}(?:'[0-9]{3})+(?:\.[0-9]+)?(?![0-9])     # 1'234'567
  | [1-9][0-9]{0,2}(?:_[0-9]{3})+(?:\.[0-9]+)?(?![0-9])     # 1_234_567
  | (?<![(\[{,])[0-9]+,[0-9]+(?![0-9,])                     # 3,14
  | [0-9]+(?:\.[0-9]+)?
"""
_NUMBER = re.compile(
    rf"""(?:(?<![{WORD}_^])(?<![{WORD}]\.)|(?<=\bUSD)|(?<=\bEUR)|(?<=\bGBP)|(?<=\bINR)|(?<=\bCHF)|(?<=\bRs)|(?<=\bRs\.))
    (?:(?P<other>\d{{4}}-\d{{1,2}}-\d{{1,2}}(?!\d)|\d{{1,4}}/\d{{1,2}}/\d{{1,4}}|\d+:\d+(?::\d+)*
        |\d+(?!(?:\.\d{{3}})+(?!\d|\.))(?:\.\d+){{2,}})
    |(?P<whole>[0-9]{{1,9}})\ (?P<over>[0-9]{{1,9}})/(?P<under>[0-9]{{1,9}})(?![0-9/])
    |(?P<power>10\ ?\^\(?[-+]?[0-9]+)
    |(?P<mantissa>{_MANTISSA}|(?<![{WORD}])\.[0-9]+)
        (?:(?P<exponent>[eE][-+]?[0-9]+(?![{WORD}]))
        |\s?[x×*·]\s?10\s?\^\s?\(?(?P<ten>[-+]?[0-9]+)
        |\s?/\s?-?\$?(?P<divisor>[0-9]+(?:\.[0-9]+)?)(?![0-9/]))?
    )""",  # noqa: RUF001
    re.VERBOSE,
)
_MONEY = r"(?:US|HK|[AC])?[$€£¥₹₩]|\b(?:USD|EUR|GBP|CHF|INR|JPY|Rs)\.?"
_MONEY_BEFORE = re.compile(rf"(?:{_MONEY})\s?$", re.IGNORECASE)
_PERCENT = re.compile(r"\s?%|\s?per\s?cent\b", re.IGNORECASE)
_SCALE = re.compile(r"\s?(thousand|million|billion|trillion)\b", re.IGNORECASE)
_MONEY_SCALE = re.compile(r"\s?(k|m|mn|b|bn)(?![A-Za-z0-9])", re.IGNORECASE)
_SCALES = {
    "thousand": 3,
    "k": 3,
    "million": 6,
    "m": 6,
    "mn": 6,
    "billion": 9,
    "b": 9,
    "bn": 9,
    "trillion": 12,
}
_NO_VALUE_BEFORE = re.compile(
    r"(?:√|\bsqrt|\blog|±|\^-?)\s?[({]?\s?$|\b(?:step|question|problem|equation|figure|table|section|chapter)\s$",
    re.IGNORECASE,
)
_NO_VALUE_AFTER = re.compile(r"\s?(?:π|√|\^|\bpi\b|\bsqrt\b)")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")
_OPERATOR_BEFORE = re.compile(r"(?:[*×÷/·]|[\w)%]\s?\+|[\d)%]\s-)\s?\$?$")  # noqa: RUF001
_OPERATOR_AFTER = re.compile(
    r"%?\s?[*×÷·]\s?[\w$(]|%?\s?/\s?[\d$(]"  # noqa: RUF001
    r"|%?\s?\+\s?[\w$(]|%?\s-\s[\d$(]|\s[x]\s\d"
)
_DENIED = re.compile(
    r"\b(?:not|isn't|never|rather than|instead of)\s+(?:exactly\s+)?\$?$", re.IGNORECASE
)


@dataclass(frozen=True)
class Number:
    """A number and how it is written.

    Args:
        value: Value of the number as written; that of "25%" is 25.
        percent: Whether a percent sign or word follows.
        decimals: Digits after the decimal point, or none for fractions and powers.
        operand: Whether it is only a part of a sum, a product or a difference.
        ordinal: Whether it is written as "6th".
    """

    value: Fraction
    percent: bool = False
    decimals: int | None = 0
    start: int = 0
    end: int = 0
    operand: bool = False
    ordinal: bool = False


def find_numbers(text: str) -> list[Number]:
    """All numbers of a plain text, in order.

    Dates, times, ratios, version numbers, exponents, roots, multiples of pi, negated numbers ("not
    41") and numbers of more than 400 digits are left out. A comma is a decimal comma only if it
    cannot separate thousands.
    """
    places = first_and_last([match for match in _NUMBER.finditer(text) if match["other"] is None])
    found = (_number(text, match) for match in places)
    return [number for number in found if number is not None]


def _number(text: str, match: re.Match[str]) -> Number | None:
    before, after = (
        text[max(0, match.start() - 24) : match.start()],
        text[match.end() : match.end() + 24],
    )
    if _NO_VALUE_BEFORE.search(before) or _NO_VALUE_AFTER.match(after) or _DENIED.search(before):
        return None
    size = _size(match)
    if size is None:
        return None
    value, decimals = size
    value *= 10 ** _scale(before, after)
    percent = _PERCENT.match(after) is not None
    operand = bool(_OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after))
    ordinal = _ORDINAL.match(after) is not None
    return Number(
        -value if _is_negative(before) else value,
        percent,
        decimals,
        match.start(),
        match.end(),
        operand,
        ordinal,
    )


def _size(match: re.Match[str]) -> tuple[Fraction, int | None] | None:
    """The value without its sign, and its decimals."""
    if len(match[0]) > _MAX_DIGITS:
        return None
    if match["over"] is not None:
        return (
            None
            if int(match["under"]) == 0
            else (int(match["whole"]) + Fraction(int(match["over"]), int(match["under"])), None)
        )
    if match["power"] is not None:
        return _powered(Fraction(1), match["power"].partition("^")[2])
    mantissa = _decimal(match["mantissa"])
    if match["divisor"] is not None:
        divisor = Fraction(match["divisor"]) * (-1 if "-" in match[0] else 1)
        return None if divisor == 0 else (mantissa / divisor, None)
    power = match["ten"] or (match["exponent"] or "")[1:]
    if power:
        return _powered(mantissa, power)
    return mantissa, len(_with_point(match["mantissa"]).partition(".")[2])


def _powered(mantissa: Fraction, power: str) -> tuple[Fraction, int | None] | None:
    exponent = int(power.strip("( "))
    return None if abs(exponent) > _MAX_POWER else (mantissa * Fraction(10) ** exponent, None)


def _decimal(mantissa: str) -> Fraction:
    return Fraction(_with_point(mantissa) or "0")


def _with_point(mantissa: str) -> str:
    """Digits with a decimal point and without separators."""
    digits = re.sub(r"[ '_]", "", mantissa)
    european = digits.count(".") > 1 or (re.fullmatch(r"[\d.]+,\d+", digits) and "." in digits)
    if european:
        return digits.replace(".", "").replace(",", ".")
    grouped = re.fullmatch(r"[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", digits)
    return digits.replace(",", "") if grouped else digits.replace(",", ".")


def _scale(before: str, after: str) -> int:
    """The power of ten that a word or a letter after the number stands for."""
    word = _SCALE.match(after)
    if word is None and _MONEY_BEFORE.search(before):
        word = _MONEY_SCALE.match(after)
    if word is None and re.match(r"k(?![A-Za-z0-9])", after):
        return 3
    return _SCALES[word[1].lower()] if word else 0


def _is_negative(before: str) -> bool:
    before = _MONEY_BEFORE.sub("", before)
    if before.endswith("- "):
        return re.search(r"[=(]\s?- $", before) is not None
    if before.endswith("-"):
        return re.search(r"(?:[\d)\]%]\s?|\w)-$", before) is None
    return re.search(r"(?<![\d)]\s)\b(?:minus|negative)\s$", before, re.IGNORECASE) is not None


# Which of the numbers in an answer is the answer.


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
    r"""The number that an answer gives, or none if it gives none or several.

    Args:
        text: What the expert wrote, including its reasoning.

    Returns:
        The number after the last ``####``, in the last ``\boxed{}`` or after the last "final
        answer"; else the number that follows the last "answer is" or that stands alone on the first
        or last line; else the last number of the text that is no operand, enumerator or note; in
        its sentence, one in bold type or after "=" comes first, and one in brackets, after "the"
        ("for the 16 glasses") or of a year comes last. Of several numbers in a sentence that says
        no more, the last one counts. A range ("5-10", "5 or 10") is no number. Roots, powers and
        multiples of pi are not worked out.

    Example:
        >>> found = read_number("9 eggs at $2 each make $18.\nThe answer is $18.00 a day.")
        >>> str(found.value), read_number("5 to 10")
        ('18', None)
    """
    text = _CALCULATOR.sub("", unfold_latex(normalize_text(drop_thinking(text))))
    text = (
        re.sub(r"(?<=\d)\*\*(?=\d)", "^", text)
        .replace("**", _BOLD)
        .replace("__", "")
        .replace("`", "")
    )
    numbers = _without_enumerators(text, find_numbers(text))
    if not numbers:
        return _in_words(text)
    found = markers(text)
    for group in ([marker for marker in found if marker.final], found):
        said = [
            *_announced(text, numbers, group),
            *(_alone(text, numbers) if group is found else []),
        ]
        if said:
            chosen = max(said, key=lambda number: number.start)
            return None if _is_undecided(text, numbers, chosen) else chosen
    return _last(text, numbers)


def _announced(text: str, numbers: Sequence[Number], found: Sequence[Marker]) -> list[Number]:
    """For each marker the number in the sentence that follows it."""
    chosen: list[Number] = []
    for marker in found:
        start = (
            marker.end
            + len(text[marker.end : marker.end + 40])
            - len(text[marker.end : marker.end + 40].lstrip())
        )
        stop = _SENTENCE_END.search(text, start, start + _MAX_SENTENCE)
        end = stop.start() if stop else min(len(text), start + _MAX_SENTENCE)
        first, past = (
            bisect.bisect_left(numbers, at, key=lambda number: number.start)
            for at in (marker.end, end)
        )
        picked = _picked(text, marker.end, end, numbers[first:past])
        chosen += [] if picked is None else [picked]
    return chosen


def _picked(text: str, start: int, end: int, inside: Sequence[Number]) -> Number | None:
    """The number that opens a sentence, the result of the equation in it, or its last number."""
    results = _results(inside)
    if not results:
        return None
    first = results[0]
    if _LEADING_WORDS.fullmatch(text, start, first.start):
        term = text[first.end : max(first.end, text.find("=", first.end, end))]
        if "(" in term or not re.search(r"[+*×÷/]|\s-\s", term):  # noqa: RUF001
            return first
    return _result(text, start, results)


def _results(numbers: Sequence[Number]) -> list[Number]:
    """Numbers that are no operands; ordinals ("6th") only where there is nothing else."""
    results = [number for number in numbers if not number.operand]
    return [number for number in results if not number.ordinal] or results


def _result(text: str, start: int, results: Sequence[Number]) -> Number:
    """The number in a sentence that is its result.

    It is the first one after the last "=" or the last one after "is", else the last that is not
    incidental.
    """
    equals = text.rfind("=", start, results[-1].start)
    if equals >= 0:
        after = [number for number in results if number.start > equals]
        named = [
            number
            for number in after
            if _NAMED_BEFORE.search(text, max(start, number.start - 24), number.start)
        ]
        return named[-1] if named else after[0]
    return ([number for number in results if not _is_incidental(text, start, number)] or results)[
        -1
    ]


def _is_incidental(text: str, start: int, number: Number) -> bool:
    before = text[max(start, number.start - 24) : number.start]
    bracketed = text.rfind("(", start, number.start) > text.rfind(")", start, number.start)
    is_year = number.end - number.start == 4 and 1800 <= number.value <= 2100
    return (
        bracketed
        or _INCIDENTAL.search(before) is not None
        or (is_year and _BEFORE_YEAR.search(before) is not None)
    )


def _alone(text: str, numbers: Sequence[Number]) -> list[Number]:
    """Numbers that are set apart.

    They are all of the first or the last line except for a unit, open it before a reason, or are
    called the answer.
    """
    first_end, last_start = text.find("\n"), text.rfind("\n") + 1
    lines = {(0, len(text) if first_end < 0 else first_end), (last_start, len(text))}
    alone = [number for number in numbers if _IS_THE_ANSWER.match(text, number.end)]
    for start, end in lines:
        inside = [number for number in (numbers[0], numbers[-1]) if start <= number.start < end]
        opening = [
            number
            for number in inside
            if not number.operand and _LEADING_WORDS.fullmatch(text, start, number.start)
        ]
        alone += [
            number
            for number in opening
            if _UNIT.fullmatch(text, number.end, end) or _REASON.match(text, number.end)
        ]
    return alone


def _last(text: str, numbers: Sequence[Number]) -> Number | None:
    """The result of the last sentence that has a number.

    The one in bold type, if there is just one.
    """
    note = _NOTE.search(text)
    results = _results(numbers)
    results = [
        number for number in results if note is None or number.start < note.start()
    ] or results
    if not results:
        return None
    earliest = max(0, results[-1].start - _MAX_SENTENCE)
    start = max(
        (match.end() for match in _SENTENCE_END.finditer(text, earliest, results[-1].start)),
        default=earliest,
    )
    sentence = [number for number in results if number.start >= start]
    bold = [number for number in sentence if text.count(_BOLD, start, number.start) % 2 == 1]
    chosen = bold[0] if len(bold) == 1 else _concluded(text, start, results)
    return None if _is_undecided(text, numbers, chosen) else chosen


def _concluded(text: str, start: int, results: Sequence[Number]) -> Number:
    """The number that a last sentence, without its premises, concludes.

    It is the one after "is", or the one that was worked out before, or the result of the sentence.
    """
    premise = _PREMISE.match(text, start, results[-1].start)
    clause = max(
        (match.end() for match in _SO.finditer(text, start, results[-1].start)),
        default=premise.end() if premise else start,
    )
    inside = [number for number in results if number.start >= clause]
    if "=" not in text[clause : inside[-1].start]:
        named = [
            number
            for number in inside
            if _NAMED_BEFORE.search(text, max(clause, number.start - 24), number.start)
        ]
        worked_out = [
            number for number in inside if number.value == _last_equation(text, clause, results)
        ]
        if named or worked_out:
            return named[-1] if named else worked_out[0]
    return _result(text, clause, inside)


def _last_equation(text: str, stop: int, results: Sequence[Number]) -> Fraction | None:
    """What follows the last "=" before a place.

    "459 / 51 = 9 minutes" tells what "9 minutes to blink 459 times" is about.
    """
    equals = text.rfind("=", 0, stop)
    at = bisect.bisect_left(results, equals, key=lambda number: number.start)
    return results[at].value if 0 <= equals < results[at].start <= min(stop, equals + 6) else None


def _is_undecided(text: str, numbers: Sequence[Number], chosen: Number) -> bool:
    """Whether it is one end of a range, or one of two alternatives that differ."""
    at = next(index for index, number in enumerate(numbers) if number.start == chosen.start)
    for one, other in ((at - 1, at), (at, at + 1)):
        if (
            one < 0
            or other >= len(numbers)
            or not _LINK.fullmatch(text, numbers[one].end, numbers[other].start)
        ):
            continue
        values = {numbers[one].value, numbers[other].value}
        shares = {
            number.value / (100 if number.percent else 1)
            for number in (numbers[one], numbers[other])
        }
        if min(_spread(values), _spread(shares)) > Fraction(1, 100):
            return True
    return False


def _spread(values: set[Fraction]) -> Fraction:
    """The difference as a share of the larger one."""
    largest = max(map(abs, values))
    return (max(values) - min(values)) / largest if largest else Fraction(0)


def _without_enumerators(text: str, numbers: list[Number]) -> list[Number]:
    """Leave out "1." and "2." at the start of lines, if there are both."""
    found = [(int(match[1]), match.start(1)) for match in _ENUMERATOR.finditer(text)]
    places = {at for _, at in found} if {1, 2} <= {value for value, _ in found} else set()
    return [number for number in numbers if number.start not in places]


def _in_words(text: str) -> Number | None:
    """A number below a hundred that is written as a word and opens the answer."""
    starts = [0, *(marker.end for marker in markers(text))]
    for start in reversed(starts):
        word = _WORD.search(text, start, start + 60)
        if word is not None and _LEADING_WORDS.fullmatch(text, start, word.start()):
            tens, ones, small = ((part or "").lower() for part in word.groups())
            value = (
                _ONES.index(small)
                if small
                else 10 * (_TENS.index(tens) + 2) + (_ONES.index(ones) if ones else 0)
            )
            return Number(Fraction(value))
    return None


# The judge.


PercentRule = Literal["either", "unit", "value"]


def same_number(
    read: Number,
    expected: Number,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    percent: PercentRule = "either",
) -> bool:
    """Whether two numbers agree.

    Args:
        read: Number in the answer.
        expected: Number in the reference.
        relative: Share of the expected value by which they may differ.
        absolute: Amount by which they may differ; the larger of both tolerances counts.
        percent: If only one of them has a percent sign, whether 25% is 25 (``"unit"``), 0.25
            (``"value"``) or both. With ``"either"`` an expected 0.25 without a sign is 25% and not
            0.25%.
    """
    pairs = [(read.value, expected.value)]
    if read.percent != expected.percent:
        shared = (
            read.value / (100 if read.percent else 1),
            expected.value / (100 if expected.percent else 1),
        )
        small = abs(expected.value) < 1 and not expected.percent
        pairs = {
            "unit": pairs,
            "value": [shared],
            "either": [shared] if small else [*pairs, shared],
        }[percent]
    return any(
        abs(one - other) <= max(Fraction(absolute), Fraction(relative) * abs(other))
        for one, other in pairs
    )


@dataclass(frozen=True)
class NumericJudge(ReadingJudge):
    """Right if the number that the answer gives is close enough to the reference.

    Args:
        relative: Share of the reference by which the answer may be off; by default numbers must be
            equal.
        absolute: Amount by which it may be off; the larger of both tolerances counts.
        percent: Meaning of 25% if the reference has no percent sign: ``"unit"`` 25, ``"value"``
            0.25, ``"either"`` both.
        round_to_reference: Whether an answer with more decimals than the reference is rounded
            first.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> asyncio.run(NumericJudge().judge(Query("q1", "2 + 2?", reference="4"), "2 + 2 = 4."))
        Verdict(score=1.0, reason='read 4, expected 4', dollars=0.0)
    """

    relative: float = 0.0
    absolute: float = 0.0
    percent: PercentRule = "either"
    round_to_reference: bool = False
    name: str = "numeric"

    def __post_init__(self) -> None:
        """Check the settings."""
        for tolerance in (self.relative, self.absolute):
            if not math.isfinite(tolerance) or tolerance < 0:
                raise ArgumentError(
                    f"a tolerance must be finite and not negative, got {tolerance!r}."
                )
        if self.percent not in ("either", "unit", "value"):
            raise ArgumentError(
                f"percent must be 'either', 'unit' or 'value', got {self.percent!r}."
            )

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the number that is read with the reference."""
        expected = read_number(reference_of(query))
        if expected is None:
            return Verdict(None, self.missing_fields(query))
        read = read_number(text)
        if read is None:
            return Verdict(0.0, f"no single number could be read, expected {_shown(expected)}")
        near = same_number(
            self._rounded(read, expected),
            expected,
            relative=self.relative,
            absolute=self.absolute,
            percent=self.percent,
        )
        return Verdict(float(near), f"read {_shown(read)}, expected {_shown(expected)}")

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        return (
            f"the reference {reference[:40]!r} is no number"
            if read_number(reference) is None
            else ""
        )

    def _rounded(self, read: Number, expected: Number) -> Number:
        """The answer with as many decimals as the reference, halves away from zero."""
        if (
            not self.round_to_reference
            or expected.decimals is None
            or (read.decimals is not None and read.decimals <= expected.decimals)
        ):
            return read
        unit = Fraction(10) ** -expected.decimals
        steps = int(abs(read.value) / unit + Fraction(1, 2))
        return Number(steps * unit * (-1 if read.value < 0 else 1), read.percent, expected.decimals)


def _shown(number: Number) -> str:
    exact = str(number.value)
    return (
        exact
        if len(exact) <= 24
        else (
            f"{float(number.value):.6g}"
            if abs(number.value) < Fraction(10) ** 300
            else "a huge number"
        )
    ) + ("%" if number.percent else "")
