"""A judge that compares the number in an answer with the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._numbers import Number
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.judges.stated_number import read_number

__all__ = ["NumericJudge", "PercentRule", "numbers_agree"]

PercentRule = Literal["either", "unit", "value"]


def numbers_agree(
    stated: Number,
    expected: Number,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    percent: PercentRule = "either",
) -> bool:
    """Return whether two numbers agree.

    Args:
        stated: Number in the answer.
        expected: Number in the reference.
        relative: Share of the expected value by which they may differ.
        absolute: Amount by which they may differ; the larger tolerance applies.
        percent: Meaning of 25% if only one of the numbers has a percent sign: 25 (``"unit"``), 0.25
            (``"value"``) or both (``"either"``). With ``"either"``, an expected 0.25 without a sign
            means 25% and not 0.25%.
    """
    as_written = (stated.value, expected.value)
    if stated.percent == expected.percent or percent == "unit":
        pairs = [as_written]
    else:
        as_shares = (
            stated.value / (100 if stated.percent else 1),
            expected.value / (100 if expected.percent else 1),
        )
        is_share = abs(expected.value) < 1 and not expected.percent
        pairs = [as_shares]
        if percent == "either" and not is_share:
            pairs.append(as_written)
    return any(
        abs(one - other) <= max(Fraction(absolute), Fraction(relative) * abs(other))
        for one, other in pairs
    )


@dataclass(frozen=True)
class NumericJudge(ReadingJudge):
    """A judge that scores 1 if the number in the answer is close enough to the reference.

    Args:
        relative: Share of the reference by which the answer may be off; by default, the numbers
            must be equal.
        absolute: Amount by which the answer may be off; the larger tolerance applies.
        percent: Meaning of 25% if the reference has no percent sign: 25 for ``"unit"``, 0.25 for
            ``"value"``, and both for ``"either"``.
        round_to_reference: Whether to round an answer that has more decimals than the reference.
        name: The judge's name in tables.

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
        """Validate the settings."""
        for tolerance in (self.relative, self.absolute):
            if not math.isfinite(tolerance) or tolerance < 0:
                raise ArgumentError(
                    f"a tolerance must be finite and non-negative, got {tolerance!r}."
                )
        if self.percent not in ("either", "unit", "value"):
            raise ArgumentError(
                f"percent must be 'either', 'unit' or 'value', got {self.percent!r}."
            )

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the number in the answer with the reference."""
        expected = read_number(reference_of(query))
        if expected is None:
            return Verdict(None, self.missing_fields(query))
        stated = read_number(text)
        if stated is None:
            return Verdict(0.0, f"no unambiguous number found, expected {_format(expected)}")
        agree = numbers_agree(
            _round_like(stated, expected) if self.round_to_reference else stated,
            expected,
            relative=self.relative,
            absolute=self.absolute,
            percent=self.percent,
        )
        return Verdict(float(agree), f"read {_format(stated)}, expected {_format(expected)}")

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        if read_number(reference) is None:
            return f"the reference {reference[:40]!r} is not a number"
        return ""


def _round_like(number: Number, reference: Number) -> Number:
    """Round a number to as many decimals as the reference has, with halves away from zero."""
    if reference.decimals is None or (
        number.decimals is not None and number.decimals <= reference.decimals
    ):
        return number
    unit = Fraction(10) ** -reference.decimals
    steps = int(abs(number.value) / unit + Fraction(1, 2))
    sign = -1 if number.value < 0 else 1
    return Number(sign * steps * unit, number.percent, reference.decimals)


def _format(number: Number) -> str:
    text = str(number.value)
    if len(text) > 24:
        is_float = abs(number.value) < Fraction(10) ** 300
        text = f"{float(number.value):.6g}" if is_float else "a huge number"
    return f"{text}%" if number.percent else text
