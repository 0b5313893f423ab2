"""Savings of a router, as figures and as one sentence with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mildroute._format import as_dollars, as_score, format_number, names_of
from mildroute.evaluation.frontier import mix_shares, single_points
from mildroute.evaluation.intervals import (
    Interval,
    Means,
    bootstrap_means,
    bounded_mean_lower,
    group_codes,
)
from mildroute.evaluation.metrics import (
    Choice,
    Matrix,
    as_choice,
    as_matrix,
    best_single,
    dollars_per_1000,
)
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = [
    "Savings",
    "Verdict",
    "as_percent",
    "format_headline",
    "format_points",
    "format_savings",
    "savings",
    "savings_of_each",
    "shown_interval",
    "shown_limits",
]


# Figures in plain words, as used in a sentence on savings.


# Verdicts on the figures, see :class:`mildroute.evaluation.cost_savings.Savings`.
Verdict = Literal["saved", "likely", "gained", "beyond mixing", "trade", "nothing"]


class _Figures(Protocol):
    """The figures in a sentence."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def reference(self) -> str: ...
    @property
    def baseline(self) -> str: ...
    @property
    def saved(self) -> Interval: ...
    @property
    def kept(self) -> Interval: ...
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


def shown_interval(interval: Interval, form: str) -> str:
    """Return a figure with its limits, or "none" if it has no value."""
    if math.isnan(interval.value):
        return "none"
    return (
        f"{format_number(interval.value, form)} [{format_number(interval.low, form)},"
        f" {format_number(interval.high, form)}]"
    )


def shown_limits(interval: Interval, form: str) -> str:
    """Return the limits of a figure, or "none" if it has no value."""
    return (
        "none"
        if math.isnan(interval.value)
        else f"{format_number(interval.low, form)} to {format_number(interval.high, form)}"
    )


def as_percent(part: Interval, sign: int = 1) -> str:
    """Return a share as a percentage with its interval; sign -1 turns savings into extra cost."""
    turned = part.times(100 * sign)
    return (
        f"{_whole(turned.value)}% {'less' if sign > 0 else 'more'} [{_whole(turned.low)},"
        f" {_whole(turned.high)}]"
    )


def format_points(difference: Interval, sign: int = 1) -> str:
    """Return a difference of scores in points of a hundred with its interval."""
    turned = difference.times(100 * sign)
    return f"{_tenth(turned.value)} points [{_tenth(turned.low)}, {_tenth(turned.high)}]"


def format_savings(figures: _Figures) -> str:
    """Return one sentence on what a router saves or gains, or that it does neither."""
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
        f" {as_dollars(figures.also[1])}."
    )


def format_headline(figures: _Figures) -> str:
    """Return the result in one line: the share saved and kept, or that there are no savings."""
    if figures.verdict == "nothing":
        shown = "Shows no saving" if _may_be_luck(figures) else "Saves nothing"
        return f"{shown}: {_trade_words(figures)}"
    if figures.verdict == "trade":
        return f"Gains nothing beyond a random mix of experts: {_trade_words(figures)}"
    if figures.verdict == "gained" or figures.saved.high < 0:
        points = format_points(figures.score_difference)
        than = None if figures.baseline == figures.reference else figures.baseline
        news = f"Scores {points} above {figures.reference}, {_bill_words(figures, than)}"
    else:
        news = _trade_words(figures)
    return news if figures.also is None else f"{news}; so does {figures.also[0]} alone"


def _trade_words(figures: _Figures) -> str:
    kept, name = figures.kept.value, figures.reference
    whose = "its score" if name == figures.baseline else f"the score of {name}"
    # If a score is 0, no share of it can be kept.
    score = f"{name} scores 0" if math.isnan(kept) else f"keeps {kept:.1%} of {whose}"
    return f"{_bill_words(figures, figures.baseline)}, {score}"


def _bill_words(figures: _Figures, name: str | None = None) -> str:
    """Return the bill alongside the reference's, which is named unless it was named before."""
    saved = figures.saved
    than, as_much = ("", "for as much money") if name is None else (f" than {name}", "")
    if math.isinf(saved.value):
        return f"more expensive{than}"
    if round(100 * saved.value) == 0:
        return as_much or f"costs as much as {name}"
    turned = saved.times(100 if saved.value > 0 else -100)
    word = "cheaper" if saved.value > 0 else "more expensive"
    return f"{_whole(turned.value)}% {word}{than} [{_whole(turned.low)}, {_whole(turned.high)}]"


def _bills(figures: _Figures) -> str:
    ours, theirs = (
        as_dollars(figures.dollars_per_1000.value),
        as_dollars(figures.reference_dollars_per_1000.value),
    )
    whose = "" if figures.baseline == figures.reference else f" for {figures.baseline}"
    return f"{ours} instead of {theirs}{whose} per 1,000 queries"


def _saved_sentence(figures: _Figures) -> str:
    more = (
        f", and it scores higher by {format_points(figures.score_difference)}"
        if figures.score_difference.low > 0
        else ""
    )
    quality = f"At the quality of {figures.reference} ({as_score(figures.reference_score.value)})"
    return f"{quality}, the router costs {_bills(figures)}: {as_percent(figures.saved)}{more}."


def _likely(figures: _Figures) -> str:
    quality = (
        f"At a quality not significantly different from that of {figures.reference}"
        f" ({as_score(figures.reference_score.value)}"
    )
    difference = (
        f"difference {format_points(replace(figures.score_difference, low=figures.score_floor))})"
    )
    return (
        f"{quality}, {difference}, the router costs {_bills(figures)}: {as_percent(figures.saved)}."
    )


def _gained(figures: _Figures) -> str:
    bill = (
        f"For no more than {figures.baseline} costs"
        f" ({as_dollars(figures.reference_dollars_per_1000.value)} per 1,000 queries)"
    )
    scores = f"{as_score(figures.score.value)} instead of {as_score(figures.reference_score.value)}"
    return (
        f"{bill}, the router scores {scores}: higher by {format_points(figures.score_difference)}."
    )


def _beyond_mixing(figures: _Figures) -> str:
    bill, ours = as_dollars(figures.dollars_per_1000.value), as_score(figures.score.value)
    mix = as_score(figures.score.value - figures.mix_difference.value)
    scores = (
        f"the router scores {ours} and the best random mix of experts {mix}: higher by"
        f" {format_points(figures.mix_difference)}"
    )
    return f"For {bill} per 1,000 queries, {scores}; {_exchange(figures)}."


def _trade(figures: _Figures) -> str:
    mix = (
        "not shown to be better than a random mix of experts for the same bill (difference"
        f" {format_points(figures.mix_difference)})"
    )
    return f"Nothing is gained beyond mixing: {_exchange(figures)}, {mix}."


def _exchange(figures: _Figures) -> str:
    """Return cost against quality, alongside the reference."""
    who = "it" if figures.verdict == "beyond mixing" else "the router"
    beside = f"beside {figures.reference} ({as_score(figures.reference_score.value)}) {who}"
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


def _nothing(figures: _Figures) -> str:
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


def _may_be_luck(figures: _Figures) -> bool:
    """Return whether the bill of these rows is lower, though no saving is shown.

    "Saves nothing" beside "6% cheaper" would read as a contradiction.
    """
    saved = figures.saved.value
    return not math.isinf(saved) and round(100 * saved) > 0


def _whole(number: float) -> str:
    return f"{number:.0f}".replace("-0", "0") if abs(number) < 1 else f"{number:.0f}"


def _tenth(number: float) -> str:
    text = f"{number:.1f}"
    return "0.0" if text == "-0.0" else text


# The savings of routing in one sentence with an interval, or that there are none.
#
# The statement is about rows that had no part in any choice it rests on. A router at one fixed
# operating point is measured on all rows. Given choices at many price weights, one half of the rows
# selects the weight (and the reference, unless named) and the sentence is about the other half;
# groups stay on one side.


_FEWEST_TO_HALVE = 4
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Savings:
    """The savings or gains of a router against one expert that answers everything.

    Attributes:
        verdict: ``"saved"``: cheaper, and the score is shown to be lower by no more than the
            margin; ``"likely"``: cheaper, and the scores are not significantly different;
            ``"gained"``: better and not more expensive; ``"beyond mixing"``: better and more
            expensive, or cheaper and worse, and better than the best random mix of two experts for
            the same bill; ``"trade"``: the same and not shown to be better than that;
            ``"nothing"``: none of these is shown.
        reference: Name of the expert whose score is to be kept.
        baseline: Name of the expert whose bill is to be lowered.
        saved: Share of the baseline's bill that is saved.
        kept: Score of the router as a share of the reference's.
        score_difference: Score of the router minus that of the reference.
        score_floor: Lower limit of that difference, even if no row has shown a loss, see
            :func:`~mildroute.evaluation.intervals.bounded_mean_lower`; the verdict uses it. With no
            loss in n rows, it allows 3.7 / n.
        mix_difference: Score of the router minus that of the best random mix of single experts for
            the same bill.
        dollars_per_1000: Bill of the router.
        reference_dollars_per_1000: Bill of the baseline.
        score: Score of the router.
        reference_score: Score of the reference.
        margin: Loss of score that still counts as equal.
        point: Index of the selected price weight, if there were several.
        rows: Number of rows measured.
        also: Name and bill of a single expert that earns the same verdict at no higher cost than
            the router, or `None`.

    Example:
        >>> easy = np.arange(1000) % 4 > 0
        >>> scores = np.stack([easy, np.ones(1000)], axis=1)
        >>> dollars = np.tile([0.001, 0.004], (1000, 1))
        >>> found = savings(np.where(easy, 0, 1), scores, dollars, experts=["small", "large"])
        >>> print(found.sentence)
        At the quality of large (1.00), the router costs $1.75 instead of $4.00 per 1,000 queries:
        56% less [54, 58].
        >>> # No loss in 50 rows may still be one in 14.
        >>> savings(np.where(easy, 0, 1)[:50], scores[:50], dollars[:50]).verdict
        'likely'
    """

    verdict: Verdict
    reference: str
    saved: Interval
    kept: Interval
    score_difference: Interval
    score_floor: float
    mix_difference: Interval
    dollars_per_1000: Interval
    reference_dollars_per_1000: Interval
    score: Interval
    reference_score: Interval
    margin: float
    point: int | None
    rows: int
    also: tuple[str, float] | None = None
    baseline: str = ""

    @property
    def sentence(self) -> str:
        """Return the statement in plain words."""
        return format_savings(self)

    @property
    def headline(self) -> str:
        """Return the statement in one line."""
        return format_headline(self)


def savings(
    choice: Any,
    scores: Any,
    dollars: Any,
    groups: Any = None,
    *,
    reference: int | Literal["best single"] | None = None,
    baseline: int | None = None,
    experts: Sequence[str] | None = None,
    looks: int = 0,
    margin: float = 0.005,
    confidence: float = 0.95,
    seed: int = 0,
) -> Savings:
    """State what a router saves at equal quality, or gains at equal cost.

    With several price weights, the first half of the rows selects the cheapest whose score is not
    below the reference's by more than the margin, with one standard error to spare. If none
    qualifies, it selects the best one that costs no more than the reference.

    Args:
        choice: Chosen experts at a fixed operating point, shape (n,), or at many price weights,
            shape (W, n).
        scores: Score of each expert on each row, shape (n, p); rows that the router was not trained
            on.
        dollars: Dollars of each expert on each row, shape (n, p).
        groups: Group of each row, shape (n,), or `None`; whole groups are resampled and stay within
            one half.
        reference: The reference expert. Defaults to the one with the highest score, the cheapest of
            equals. For a fixed operating point this is the best in hindsight, which favors the
            reference; to be exact, name the one chosen on training rows.
        baseline: The expert whose bill is to be lowered; defaults to the reference.
        experts: Names of the experts.
        looks: Number of columns at the end that are looks of a cascade: they can be chosen, but are
            not experts to compare with.
        margin: Loss of score that still counts as equal quality: half a point of a hundred.
        confidence: Confidence of each interval.
        seed: Seed of the halving and the bootstrap.

    Returns:
        The figures and the sentence.

    Example:
        >>> scores, dollars = np.ones((50, 2)), np.tile([0.001, 0.004], (50, 1))
        >>> savings(np.ones(50, dtype=int), scores, dollars, reference=1).verdict
        'nothing'
    """
    quality = as_matrix(scores, "scores")
    money = as_matrix(dollars, "dollars", (quality.shape[0], quality.shape[1]))
    names = names_of(experts, quality.shape[1])
    if not margin >= 0:
        raise ArgumentError(
            f"margin must not be negative, got {margin}; 0.005 is half a point of score."
        )
    named = None if reference in (None, "best single") else _as_expert(reference, names)
    chosen = np.asarray(choice)
    if chosen.ndim == 1:
        first = rows = np.arange(len(quality))
        point, base = None, best_single(-quality, money) if named is None else named
    else:
        checked = _as_choices(chosen, quality.shape)
        first, rows = _halves(len(quality), groups, seed)
        base = best_single(-quality[first], money[first]) if named is None else named
        point = _pick(checked[:, first], quality[first], money[first], base, margin)
        chosen = checked[point]
    chosen = as_choice(chosen, *quality.shape)
    alone = quality.shape[1] - looks
    rivals = (base, *_mixed(chosen[first], quality[first], money[first], alone))
    today = base if baseline is None else baseline
    columns = _columns(chosen[rows], quality[rows], money[rows], rivals, today)
    clusters = None if groups is None else group_codes(groups, len(quality))[rows]
    judge = _Judge(margin, clusters, confidence, seed)
    figures = replace(judge.savings(columns, names[base], point), baseline=names[today])
    return replace(figures, also=_also(figures, judge, quality[rows], money[rows], names[:alone]))


def savings_of_each(
    choices: Any,
    scores: Any,
    dollars: Any,
    groups: Any = None,
    *,
    reference: int,
    baseline: int | None = None,
    seed: int = 0,
) -> list[tuple[Interval, Interval, Interval]]:
    """Return the shares saved and kept at each of several fixed operating points.

    Args:
        choices: Chosen experts at each operating point, shape (W, n).
        scores: Score of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        groups: Cluster of each row, shape (n,), or `None`; whole clusters are resampled.
        reference: The expert whose score is to be kept.
        baseline: The expert whose bill is to be lowered; defaults to the reference.
        seed: Seed of the bootstrap.

    Returns:
        For each point the results of :func:`savings`: the share of the baseline's bill that is
        saved, the share of the best score that is kept, and the bill of 1,000 queries.

    Example:
        >>> scores, dollars = np.ones((50, 2)), np.tile([0.001, 0.004], (50, 1))
        >>> ((saved, kept, bill),) = savings_of_each(
        ...     np.zeros((1, 50), dtype=int), scores, dollars, reference=1
        ... )
        >>> saved.value, kept.value, bill.value
        (0.75, 1.0, 1.0)
    """
    quality, money = as_matrix(scores, "scores"), 1000 * as_matrix(dollars, "dollars")
    rows = np.arange(len(quality))
    today = reference if baseline is None else baseline
    columns = {"base score": quality[:, reference], "base dollars": money[:, today]}
    count = len(choices)
    for place, choice in enumerate(choices):
        columns[f"score {place}"] = quality[rows, choice]
        columns[f"dollars {place}"] = money[rows, choice]
    drawn = bootstrap_means(columns, groups, seed=seed)

    def of_place(place: int, figure: Callable[[Means], NDArray[np.float64]]) -> Interval:
        keys = {"score": f"score {place}", "dollars": f"dollars {place}"}
        return drawn.interval(
            lambda mean: figure({**mean, **{k: mean[v] for k, v in keys.items()}})
        )

    return [
        (of_place(place, _saved), of_place(place, _kept), drawn.interval(f"dollars {place}"))
        for place in range(count)
    ]


def _as_expert(reference: Any, names: Sequence[str]) -> int:
    if isinstance(reference, str) or not 0 <= reference < len(names):
        raise ArgumentError(
            f"reference must be an index from 0 to {len(names) - 1} or 'best single', got"
            f" {reference!r}."
        )
    return int(reference)


def _as_choices(choices: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.intp]:
    if choices.ndim != 2 or not len(choices):
        raise ShapeError(f"choice must be (n,) or (W, n), got shape {choices.shape}.")
    return np.stack([as_choice(choice, shape[0], shape[1]) for choice in choices])


def _halves(rows: int, groups: Any, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows for selection and rows for measurement; the rows of a single group are halved."""
    units = np.arange(rows) if groups is None else group_codes(groups, rows)
    if units.max() == 0:
        units = np.arange(rows)
    count = int(units.max()) + 1
    if count < 2 or rows < _FEWEST_TO_HALVE:
        raise ArgumentError(
            f"picking a price weight and measuring it need {_FEWEST_TO_HALVE} rows or more, got"
            f" {rows}; pass one choice."
        )
    order = np.random.default_rng(seed).permutation(count)
    sizes = np.bincount(units)[order]
    before = np.cumsum(sizes) - sizes
    picks = np.zeros(count, dtype=bool)
    picks[order[before + sizes / 2 < rows / 2]] = True
    picks[order[0]], picks[order[-1]] = True, False
    return np.flatnonzero(picks[units]), np.flatnonzero(~picks[units])


def _pick(
    choices: NDArray[np.intp], scores: Matrix, dollars: Matrix, base: int, margin: float
) -> int:
    rows = np.arange(len(scores))
    gaps = scores[rows, choices] - scores[:, base]
    bills = dollars[rows, choices].mean(axis=1)
    means, errors = gaps.mean(axis=1), gaps.std(axis=1) / np.sqrt(len(rows))
    equal = means - errors >= -margin
    if equal.any():
        return int(np.where(equal, bills, np.inf).argmin())
    affordable = bills <= dollars[:, base].mean()
    return int(np.where(affordable | ~affordable.any(), means, -np.inf).argmax())


def _mixed(choice: Choice, scores: Matrix, dollars: Matrix, experts: int) -> tuple[int, int]:
    """Return the two experts whose random mix is the best for the bill of these choices.

    The cheaper one comes first. Only the first ``experts`` columns are considered.
    """
    singles = single_points(scores[:, :experts], dollars[:, :experts])
    bill = max(
        dollars_per_1000(dollars, choice), min(single.dollars_per_1000 for single in singles)
    )
    both = sorted(
        np.flatnonzero(mix_shares(singles, bill)),
        key=lambda expert: singles[expert].dollars_per_1000,
    )
    return int(both[0]), int(both[-1])


def _columns(
    choice: Choice,
    scores: Matrix,
    dollars: Matrix,
    rivals: tuple[int, int, int],
    baseline: int,
) -> dict[str, NDArray[np.float64]]:
    rows = np.arange(len(scores))
    columns = {"score": scores[rows, choice], "dollars": 1000 * dollars[rows, choice]}
    for name, expert in zip(("base", "low", "high"), rivals, strict=True):
        columns[f"{name} score"], columns[f"{name} dollars"] = (
            scores[:, expert],
            1000 * dollars[:, expert],
        )
    columns["base dollars"] = 1000 * dollars[:, baseline]
    return columns


@dataclass(frozen=True)
class _Judge:
    """The figures that verdicts are based on."""

    margin: float
    groups: Any
    confidence: float
    seed: int

    def savings(
        self, columns: Mapping[str, NDArray[np.float64]], reference: str, point: int | None
    ) -> Savings:
        samples = bootstrap_means(columns, self.groups, seed=self.seed)
        saved, difference = (
            samples.interval(figure, self.confidence) for figure in (_saved, _difference)
        )
        gaps = columns["score"] - columns["base score"]
        worst = min(-1.0, float(gaps.min()))  # scores lie between 0 and 1
        floor = min(
            difference.low,
            bounded_mean_lower(
                gaps, worst, self.groups, confidence=self.confidence, seed=self.seed
            ),
        )
        mix = samples.interval(_beyond_mix, self.confidence)
        verdict = _verdict(saved, difference, floor, self.margin)
        return Savings(
            verdict="beyond mixing" if verdict == "trade" and mix.low > 0 else verdict,
            reference=reference,
            saved=saved,
            kept=samples.interval(_kept, self.confidence),
            score_difference=difference,
            score_floor=floor,
            mix_difference=mix,
            dollars_per_1000=samples.interval("dollars", self.confidence),
            reference_dollars_per_1000=samples.interval("base dollars", self.confidence),
            score=samples.interval("score", self.confidence),
            reference_score=samples.interval("base score", self.confidence),
            margin=self.margin,
            point=point,
            rows=len(columns["score"]),
        )


def _also(
    found: Savings, judge: _Judge, scores: Matrix, dollars: Matrix, names: Sequence[str]
) -> tuple[str, float] | None:
    """Return the cheapest single expert that matches the router for the same bill or less."""
    if found.verdict not in ("saved", "likely", "gained"):
        return None
    base, today = (list(names).index(name) for name in (found.reference, found.baseline))
    bills = 1000 * dollars.mean(axis=0)
    for expert in np.argsort(bills[: len(names)], kind="stable"):
        if bills[expert] > found.dollars_per_1000.value * (1 + _ROUNDING):
            return None
        alone = judge.savings(
            _columns(np.full(len(scores), expert), scores, dollars, (base, base, base), today),
            found.reference,
            None,
        )
        if (
            alone.score_floor > 0
            if found.verdict == "gained"
            else alone.verdict in ("saved", found.verdict)
        ):
            return names[expert], float(bills[expert])
    return None


def _saved(mean: Means) -> NDArray[np.float64]:
    """Return the share of the reference's bill; nothing can be saved if it is free."""
    free = mean["base dollars"] == 0
    return np.where(
        free,
        np.where(mean["dollars"] > 0, -np.inf, 0.0),
        1 - mean["dollars"] / mean["base dollars"],
    )


def _kept(mean: Means) -> NDArray[np.float64]:
    """Return the share of the reference's score; NaN if that is 0."""
    is_known = mean["base score"] > 0
    return np.where(is_known, mean["score"] / np.where(is_known, mean["base score"], 1.0), np.nan)


def _difference(mean: Means) -> NDArray[np.float64]:
    return mean["score"] - mean["base score"]


def _beyond_mix(mean: Means) -> NDArray[np.float64]:
    """Return the score beyond a random mix of two experts with the same bill.

    Below the bill of the cheaper one, that expert replaces the mix.
    """
    way = mean["high dollars"] - mean["low dollars"]
    share = np.where(way > 0, np.clip((mean["dollars"] - mean["low dollars"]) / way, 0.0, 1.0), 0.0)
    return mean["score"] - (1 - share) * mean["low score"] - share * mean["high score"]


def _verdict(saved: Interval, difference: Interval, floor: float, margin: float) -> Verdict:
    cheaper, more_expensive = saved.low > 0, saved.high < 0 or saved.value == -np.inf
    better, worse = floor > 0, difference.high < 0
    if cheaper and floor >= -margin:
        return "saved"
    if cheaper and not worse:
        return "likely"
    if better and not more_expensive:
        return "gained"
    return "trade" if (better and more_expensive) or (cheaper and worse) else "nothing"
