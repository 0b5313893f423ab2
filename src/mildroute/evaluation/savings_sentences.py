"""Sentences about savings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mildroute._format import format_dollars, format_number, format_score
from mildroute.evaluation.resampling import Interval

if TYPE_CHECKING:
    from mildroute.evaluation.cost_savings import Savings

__all__ = [
    "Verdict",
    "as_percent",
    "format_headline",
    "format_points",
    "format_savings",
    "shown_interval",
    "shown_limits",
]


# Verdicts on savings; see :class:`mildroute.evaluation.cost_savings.Savings`.
Verdict = Literal["saved", "likely", "gained", "beyond mixing", "trade", "nothing"]


def shown_interval(interval: Interval, form: str) -> str:
    """Return a figure with its limits, or ``"none"`` if it has no value."""
    if math.isnan(interval.value):
        return "none"
    return (
        f"{format_number(interval.value, form)} [{format_number(interval.low, form)},"
        f" {format_number(interval.high, form)}]"
    )


def shown_limits(interval: Interval, form: str) -> str:
    """Return the limits of a figure, or ``"none"`` if it has no value."""
    return (
        "none"
        if math.isnan(interval.value)
        else f"{format_number(interval.low, form)} to {format_number(interval.high, form)}"
    )


def as_percent(part: Interval, sign: int = 1) -> str:
    """Return a share as a percentage with its interval; sign -1 turns savings into extra cost."""
    percent = part.times(100 * sign)
    return (
        f"{_whole(percent.value)}% {'less' if sign > 0 else 'more'} [{_whole(percent.low)},"
        f" {_whole(percent.high)}]"
    )


def format_points(difference: Interval, sign: int = 1) -> str:
    """Return a difference of scores in percentage points with its interval."""
    points = difference.times(100 * sign)
    return f"{_tenth(points.value)} points [{_tenth(points.low)}, {_tenth(points.high)}]"


def format_savings(figures: Savings) -> str:
    """Summarize the savings or gains of a router in one sentence, even if there are none."""
    words = {
        "saved": _saved_sentence,
        "likely": _likely,
        "gained": _gained,
        "beyond mixing": _beyond_mixing,
        "trade": _trade,
        "nothing": _nothing,
    }
    sentence = words[figures.verdict](figures)
    if figures.also is None:
        return sentence
    return (
        f"{sentence.removesuffix('.')}; so does sending everything to {figures.also[0]}, for"
        f" {format_dollars(figures.also[1])}."
    )


def format_headline(figures: Savings) -> str:
    """Summarize in one line how much of the bill is saved and how much of the score is kept."""
    if figures.verdict == "nothing":
        verdict = "Shows no saving" if _may_be_luck(figures) else "Saves nothing"
        return f"{verdict}: {_trade_words(figures)}"
    if figures.verdict == "trade":
        return f"Gains nothing beyond a random mix of experts: {_trade_words(figures)}"
    if figures.verdict == "gained" or figures.saved.high < 0:
        points = format_points(figures.score_difference)
        than = None if figures.baseline == figures.reference else figures.baseline
        headline = f"Scores {points} above {figures.reference}, {_bill_words(figures, than)}"
    else:
        headline = _trade_words(figures)
    return headline if figures.also is None else f"{headline}; so does {figures.also[0]} alone"


def _trade_words(figures: Savings) -> str:
    kept, name = figures.kept.value, figures.reference
    whose = "its score" if name == figures.baseline else f"the score of {name}"
    # If a score is 0, no share of it can be kept.
    score = f"{name} scores 0" if math.isnan(kept) else f"keeps {kept:.1%} of {whose}"
    return f"{_bill_words(figures, figures.baseline)}, {score}"


def _bill_words(figures: Savings, name: str | None = None) -> str:
    """Compare the bill with the baseline's; ``name`` is the baseline unless already named."""
    saved = figures.saved
    than, as_much = ("", "for as much money") if name is None else (f" than {name}", "")
    if math.isinf(saved.value):
        return f"more expensive{than}"
    if round(100 * saved.value) == 0:
        return as_much or f"costs as much as {name}"
    turned = saved.times(100 if saved.value > 0 else -100)
    word = "cheaper" if saved.value > 0 else "more expensive"
    return f"{_whole(turned.value)}% {word}{than} [{_whole(turned.low)}, {_whole(turned.high)}]"


def _bills(figures: Savings) -> str:
    ours, theirs = (
        format_dollars(figures.dollars_per_1000.value),
        format_dollars(figures.reference_dollars_per_1000.value),
    )
    whose = "" if figures.baseline == figures.reference else f" for {figures.baseline}"
    return f"{ours} instead of {theirs}{whose} per 1,000 queries"


def _saved_sentence(figures: Savings) -> str:
    more = (
        f", and it scores higher by {format_points(figures.score_difference)}"
        if figures.score_difference.low > 0
        else ""
    )
    quality = (
        f"At the quality of {figures.reference} ({format_score(figures.reference_score.value)})"
    )
    return f"{quality}, the router costs {_bills(figures)}: {as_percent(figures.saved)}{more}."


def _likely(figures: Savings) -> str:
    quality = (
        f"At a quality not significantly different from that of {figures.reference}"
        f" ({format_score(figures.reference_score.value)}"
    )
    difference = (
        f"difference {format_points(replace(figures.score_difference, low=figures.score_floor))})"
    )
    return (
        f"{quality}, {difference}, the router costs {_bills(figures)}: {as_percent(figures.saved)}."
    )


def _gained(figures: Savings) -> str:
    bill = (
        f"For no more than {figures.baseline} costs"
        f" ({format_dollars(figures.reference_dollars_per_1000.value)} per 1,000 queries)"
    )
    score, reference = figures.score.value, figures.reference_score.value
    scores = f"{format_score(score)} instead of {format_score(reference)}"
    return (
        f"{bill}, the router scores {scores}: higher by {format_points(figures.score_difference)}."
    )


def _beyond_mixing(figures: Savings) -> str:
    bill, ours = format_dollars(figures.dollars_per_1000.value), format_score(figures.score.value)
    mix = format_score(figures.score.value - figures.mix_difference.value)
    scores = (
        f"the router scores {ours} and the best random mix of experts {mix}: higher by"
        f" {format_points(figures.mix_difference)}"
    )
    return f"For {bill} per 1,000 queries, {scores}; {_exchange(figures)}."


def _trade(figures: Savings) -> str:
    mix = (
        "not shown to be better than a random mix of experts for the same bill (difference"
        f" {format_points(figures.mix_difference)})"
    )
    return f"Nothing is gained beyond mixing: {_exchange(figures)}, {mix}."


def _exchange(figures: Savings) -> str:
    """Return the trade of cost against quality, compared with the reference."""
    who = "it" if figures.verdict == "beyond mixing" else "the router"
    beside = f"beside {figures.reference} ({format_score(figures.reference_score.value)}) {who}"
    if figures.saved.low > 0:
        cheaper = f"costs {_bills(figures)}, {as_percent(figures.saved)}"
        return (
            f"{beside} {cheaper}, but scores lower by {format_points(figures.score_difference, -1)}"
        )
    extra = "" if math.isinf(figures.saved.value) else f", {as_percent(figures.saved, -1)}"
    return (
        f"{beside} scores higher by {format_points(figures.score_difference)}, but costs"
        f" {_bills(figures)}{extra}"
    )


def _nothing(figures: Savings) -> str:
    share = (
        ""
        if math.isinf(figures.saved.value)
        else f", {as_percent(figures.saved, 1 if figures.saved.value >= 0 else -1)}"
    )
    verdict = "No saving is shown" if _may_be_luck(figures) else "Nothing is saved"
    return (
        f"{verdict}: against {figures.reference}, the router costs {_bills(figures)}{share}, and"
        f" its score differs by {format_points(figures.score_difference)}."
    )


def _may_be_luck(figures: Savings) -> bool:
    """Return whether the bill of these rows is lower, although no saving is shown.

    "Saves nothing" next to "6% cheaper" would be a contradiction.
    """
    saved = figures.saved.value
    return not math.isinf(saved) and round(100 * saved) > 0


def _whole(number: float) -> str:
    return f"{number:.0f}".replace("-0", "0") if abs(number) < 1 else f"{number:.0f}"


def _tenth(number: float) -> str:
    text = f"{number:.1f}"
    return "0.0" if text == "-0.0" else text
