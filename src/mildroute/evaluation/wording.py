"""Figures in plain words, as a sentence on savings uses them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Protocol

from mildroute.evaluation.replicates import Interval

__all__ = ["Verdict", "as_dollars", "as_percent", "as_points", "as_score", "sentence_of", "shown", "shown_interval", "shown_limits"]

Verdict = Literal["saved", "likely", "gained", "beyond mixing", "trade", "nothing"]
"""What the figures show, see :class:`mildroute.evaluation.saving.Savings`."""

_LARGEST_IN_FULL = 1e9
"""Numbers from here on are shown by their first digits."""


class _Figures(Protocol):
    """What a sentence speaks of."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def reference(self) -> str: ...
    @property
    def saved(self) -> Interval: ...
    @property
    def score_difference(self) -> Interval: ...
    @property
    def score_floor(self) -> float: ...
    @property
    def also(self) -> tuple[str, float] | None: ...
    @property
    def mix_difference(self) -> Interval: ...
    @property
    def dollars_per_1000(self) -> Interval: ...
    @property
    def reference_dollars_per_1000(self) -> Interval: ...
    @property
    def score(self) -> Interval: ...
    @property
    def reference_score(self) -> Interval: ...


def shown(number: float, form: str) -> str:
    """A number in a form of ``str.format``, without the minus sign of what rounds to zero; "none" for what has no value.

    Example:
        >>> shown(-0.0001, "{:.1%}"), shown(-0.01, "{:.1%}"), shown(float("nan"), "{:.1%}")
        ('0.0%', '-1.0%', 'none')
    """
    if math.isnan(number):
        return "none"
    text = (form if abs(number) < _LARGEST_IN_FULL else "{:.4g}").format(number)
    return text[1:] if text.startswith("-") and not text.strip("-0.%") else text


def shown_interval(interval: Interval, form: str) -> str:
    """A figure with its limits; "none" for what has no value.

    Example:
        >>> shown_interval(Interval(0.5, 0.25, 0.75), "{:.2f}"), shown_interval(Interval(math.nan, math.nan, math.nan), "{:.2f}")
        ('0.50 [0.25, 0.75]', 'none')
    """
    if math.isnan(interval.value):
        return "none"
    return f"{shown(interval.value, form)} [{shown(interval.low, form)}, {shown(interval.high, form)}]"


def shown_limits(interval: Interval, form: str) -> str:
    """The limits of a figure; "none" for what has no value.

    Example:
        >>> shown_limits(Interval(0.5, 0.25, 0.75), "{:.2f}")
        '0.25 to 0.75'
    """
    return "none" if math.isnan(interval.value) else f"{shown(interval.low, form)} to {shown(interval.high, form)}"


def as_dollars(amount: float) -> str:
    """Cents for a dollar and above, two significant digits below.

    Example:
        >>> as_dollars(1234.5), as_dollars(0.01234), as_dollars(0)
        ('$1,234.50', '$0.012', '$0.00')
    """
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}"


def as_score(score: float) -> str:
    """Three decimals at most, without the leading zero.

    Example:
        >>> as_score(0.83), as_score(0.8284), as_score(1.0)
        ('.83', '.828', '1.0')
    """
    text = f"{score:.3f}"
    text = text.removesuffix("0")
    return text.removeprefix("0") if text.startswith("0") else text.removesuffix("0")


def as_percent(part: Interval, sign: int = 1) -> str:
    """A share as a percentage with its interval; the sign -1 turns a saving into an extra bill.

    Example:
        >>> as_percent(Interval(0.73, 0.7, 0.76))
        '73% less [70, 76]'
        >>> as_percent(Interval(-0.2, -0.3, -0.1), sign=-1)
        '20% more [10, 30]'
    """
    turned = part.times(100 * sign)
    return f"{_whole(turned.value)}% {'less' if sign > 0 else 'more'} [{_whole(turned.low)}, {_whole(turned.high)}]"


def as_points(difference: Interval, sign: int = 1) -> str:
    """A difference of scores in points of a hundred with its interval.

    Example:
        >>> as_points(Interval(0.02, 0.005, 0.035))
        '2.0 points [0.5, 3.5]'
    """
    turned = difference.times(100 * sign)
    return f"{_tenth(turned.value)} points [{_tenth(turned.low)}, {_tenth(turned.high)}]"


def sentence_of(figures: _Figures) -> str:
    """One sentence on what a router saves or gains, or that it does neither.

    Args:
        figures: The figures of :class:`mildroute.evaluation.saving.Savings`.

    Returns:
        A sentence that ends with a full stop.

    Example:
        >>> import numpy as np
        >>> from mildroute.evaluation.saving import savings
        >>> sentence_of(savings(np.zeros(9, dtype=int), np.ones((9, 1)), np.ones((9, 1)), experts=["one"]))
        'Nothing is saved: against one, the router costs $1,000.00 instead of $1,000.00 per 1,000 queries, 0% less [0, 0], and its score
         differs by 0.0 points [0.0, 0.0].'
    """
    words = {"saved": _saved, "likely": _likely, "gained": _gained, "beyond mixing": _beyond_mixing, "trade": _trade, "nothing": _nothing}
    sentence = words[figures.verdict](figures)
    if figures.also is None:
        return sentence
    return f"{sentence.removesuffix('.')}; so does sending everything to {figures.also[0]}, for {as_dollars(figures.also[1])}."


def _bills(figures: _Figures) -> str:
    ours, theirs = as_dollars(figures.dollars_per_1000.value), as_dollars(figures.reference_dollars_per_1000.value)
    return f"{ours} instead of {theirs} per 1,000 queries"


def _saved(figures: _Figures) -> str:
    more = f", and it scores higher by {as_points(figures.score_difference)}" if figures.score_difference.low > 0 else ""
    quality = f"At the quality of {figures.reference} ({as_score(figures.reference_score.value)})"
    return f"{quality}, the router costs {_bills(figures)}: {as_percent(figures.saved)}{more}."


def _likely(figures: _Figures) -> str:
    quality = f"At a quality not significantly different from that of {figures.reference} ({as_score(figures.reference_score.value)}"
    difference = f"difference {as_points(replace(figures.score_difference, low=figures.score_floor))})"
    return f"{quality}, {difference}, the router costs {_bills(figures)}: {as_percent(figures.saved)}."


def _gained(figures: _Figures) -> str:
    bill = f"For no more than {figures.reference} costs ({as_dollars(figures.reference_dollars_per_1000.value)} per 1,000 queries)"
    scores = f"{as_score(figures.score.value)} instead of {as_score(figures.reference_score.value)}"
    return f"{bill}, the router scores {scores}: higher by {as_points(figures.score_difference)}."


def _beyond_mixing(figures: _Figures) -> str:
    bill, ours = as_dollars(figures.dollars_per_1000.value), as_score(figures.score.value)
    mix = as_score(figures.score.value - figures.mix_difference.value)
    scores = f"the router scores {ours} and the best random mix of experts {mix}: higher by {as_points(figures.mix_difference)}"
    return f"For {bill} per 1,000 queries, {scores}; {_exchange(figures)}."


def _trade(figures: _Figures) -> str:
    mix = f"not shown to be better than a random mix of experts for the same bill (difference {as_points(figures.mix_difference)})"
    return f"Nothing is gained beyond mixing: {_exchange(figures)}, {mix}."


def _exchange(figures: _Figures) -> str:
    """Money against quality, beside the reference."""
    who = "it" if figures.verdict == "beyond mixing" else "the router"
    beside = f"beside {figures.reference} ({as_score(figures.reference_score.value)}) {who}"
    if figures.saved.low > 0:
        cheaper = f"costs {_bills(figures)}, {as_percent(figures.saved)}"
        return f"{beside} {cheaper}, but scores lower by {as_points(figures.score_difference, -1)}"
    extra = "" if math.isinf(figures.saved.value) else f", {as_percent(figures.saved, -1)}"
    return f"{beside} scores higher by {as_points(figures.score_difference)}, but costs {_bills(figures)}{extra}"


def _nothing(figures: _Figures) -> str:
    share = "" if math.isinf(figures.saved.value) else f", {as_percent(figures.saved, 1 if figures.saved.value >= 0 else -1)}"
    # A lower bill of these rows that may be luck is no saving, but "nothing is saved" beside "6% less" would read as a contradiction.
    verdict = "Nothing is saved" if round(100 * figures.saved.value) <= 0 or math.isinf(figures.saved.value) else "No saving is shown"
    return (
        f"{verdict}: against {figures.reference}, the router costs {_bills(figures)}{share}, and its score differs by "
        f"{as_points(figures.score_difference)}."
    )


def _whole(number: float) -> str:
    return f"{number:.0f}".replace("-0", "0") if abs(number) < 1 else f"{number:.0f}"


def _tenth(number: float) -> str:
    text = f"{number:.1f}"
    return "0.0" if text == "-0.0" else text
