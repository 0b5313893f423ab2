"""The numbers in a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from mildroute.judges._answer_markers import first_and_last
from mildroute.judges._option_mentions import WORD

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
    """A number and its notation.

    Args:
        value: Value of the number as written; the value of "25%" is 25.
        percent: Whether a percent sign or word follows.
        decimals: Number of digits after the decimal point; ``None`` for fractions and powers.
        start: Index of the number's first character in the text.
        end: Index after the number's last character.
        operand: Whether the number is only a part of a sum, a product or a difference.
        ordinal: Whether the number is an ordinal such as "6th".
    """

    value: Fraction
    percent: bool = False
    decimals: int | None = 0
    start: int = 0
    end: int = 0
    operand: bool = False
    ordinal: bool = False


def find_numbers(text: str) -> list[Number]:
    """Return all numbers of a normalized text, in order.

    Dates, times, ratios, version numbers, exponents, roots, multiples of pi, negated numbers ("not
    41") and numbers of more than 400 digits are excluded. A comma is treated as a decimal comma
    only if it cannot separate thousands.
    """
    matches = first_and_last([match for match in _NUMBER.finditer(text) if match["other"] is None])
    numbers = (_read_match(text, match) for match in matches)
    return [number for number in numbers if number is not None]


def _read_match(text: str, match: re.Match[str]) -> Number | None:
    before = text[max(0, match.start() - 24) : match.start()]
    after = text[match.end() : match.end() + 24]
    if _NO_VALUE_BEFORE.search(before) or _NO_VALUE_AFTER.match(after) or _DENIED.search(before):
        return None
    magnitude = _magnitude(match)
    if magnitude is None:
        return None
    value, decimals = magnitude
    value *= 10 ** _power_of_ten(before, after)
    return Number(
        -value if _is_negative(before) else value,
        percent=_PERCENT.match(after) is not None,
        decimals=decimals,
        start=match.start(),
        end=match.end(),
        operand=bool(_OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after)),
        ordinal=_ORDINAL.match(after) is not None,
    )


def _magnitude(match: re.Match[str]) -> tuple[Fraction, int | None] | None:
    """Return the value without its sign, and the number of its decimals."""
    if len(match[0]) > _MAX_DIGITS:
        return None
    if match["over"] is not None:
        if int(match["under"]) == 0:
            return None
        return int(match["whole"]) + Fraction(int(match["over"]), int(match["under"])), None
    if match["power"] is not None:
        return _times_power(Fraction(1), match["power"].partition("^")[2])
    digits = _with_point(match["mantissa"])
    mantissa = Fraction(digits or "0")
    if match["divisor"] is not None:
        divisor = Fraction(match["divisor"]) * (-1 if "-" in match[0] else 1)
        return None if divisor == 0 else (mantissa / divisor, None)
    power = match["ten"] or (match["exponent"] or "")[1:]
    if power:
        return _times_power(mantissa, power)
    return mantissa, len(digits.partition(".")[2])


def _times_power(mantissa: Fraction, power: str) -> tuple[Fraction, int | None] | None:
    exponent = int(power.strip("( "))
    return None if abs(exponent) > _MAX_POWER else (mantissa * Fraction(10) ** exponent, None)


def _with_point(mantissa: str) -> str:
    """Return digits with a decimal point and without separators."""
    digits = re.sub(r"[ '_]", "", mantissa)
    is_european = digits.count(".") > 1 or (re.fullmatch(r"[\d.]+,\d+", digits) and "." in digits)
    if is_european:
        return digits.replace(".", "").replace(",", ".")
    is_grouped = re.fullmatch(r"[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", digits)
    return digits.replace(",", "") if is_grouped else digits.replace(",", ".")


def _power_of_ten(before: str, after: str) -> int:
    """Return the power of ten that a word or a letter after the number stands for."""
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
