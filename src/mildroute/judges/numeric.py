"""Numeric answers: which number an answer gives, and whether it is near enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._numbers import Number, read_number
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of

__all__ = ["NumericJudge", "PercentRule", "same_number"]


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
        read: Of the answer.
        expected: Of the reference.
        relative: Share of the expected value that they may differ by.
        absolute: Amount that they may differ by; the larger of both tolerances counts.
        percent: Where only one of them has a percent sign: whether 25% is 25 (``"unit"``), 0.25
            (``"value"``) or both. Under ``"either"`` an expected 0.25 without a sign is 25% and not
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
    """Right if the number that the answer gives is near enough to the reference.

    Args:
        relative: Share of the reference that the answer may be off; by default numbers must be
            equal.
        absolute: Amount that it may be off; the larger of both tolerances counts.
        percent: What 25% is where the reference has no percent sign: ``"unit"`` 25, ``"value"``
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
