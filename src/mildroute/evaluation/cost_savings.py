"""The savings of routing: figures, a verdict, and intervals.

The rows that are measured play no part in the choices that are measured on them. A router at one
fixed operating point is measured on all rows. Given choices at many price weights, one half of the
rows selects the weight (and the reference, unless named), and the other half is measured; groups
stay on one side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._format import names_of
from mildroute.evaluation.arrays import Choice, Matrix, as_choice, as_matrix
from mildroute.evaluation.bounded_means import bounded_mean_lower
from mildroute.evaluation.cost_quality import mix_shares, single_points
from mildroute.evaluation.metrics import best_single, dollars_per_1000
from mildroute.evaluation.resampling import Interval, Means, bootstrap_means, group_codes
from mildroute.evaluation.savings_sentences import Verdict, format_headline, format_savings
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = ["Savings", "savings", "savings_of_each"]

_FEWEST_TO_HALVE = 4
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Savings:
    """The savings or gains of a router compared with one expert that answers all queries.

    Attributes:
        verdict: ``"saved"``: cheaper, and the score is shown to be lower by no more than the
            margin; ``"likely"``: cheaper, and the scores are not significantly different;
            ``"gained"``: better and not more expensive; ``"beyond mixing"``: better and more
            expensive, or cheaper and worse, and better than the best random mix of two experts for
            the same bill; ``"trade"``: the same, but not shown to be better than that mix;
            ``"nothing"``: none of these is shown.
        reference: Name of the expert whose score is to be kept.
        baseline: Name of the expert whose bill is to be lowered.
        saved: Share of the baseline's bill that is saved.
        kept: Score of the router as a share of the reference's.
        score_difference: Score of the router minus that of the reference.
        score_floor: Lower limit of that difference, which the verdict uses. It is valid even if no
            row shows a loss; see
            :func:`~mildroute.evaluation.bounded_means.bounded_mean_lower`. With no loss in n rows,
            it is about -3.7 / n.
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
        >>> figures = savings(np.where(easy, 0, 1), scores, dollars, experts=["small", "large"])
        >>> print(figures.sentence)
        At the quality of large (1.00), the router costs $1.75 instead of $4.00 per 1,000 queries:
        56% less [54, 58].
        >>> # Without any loss in 50 rows, the true rate may still be one in 14.
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
        """Return a sentence that states the savings or gains."""
        return format_savings(self)

    @property
    def headline(self) -> str:
        """Return a headline that states the savings or gains."""
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
    """Measure the savings of a router at equal quality, or its gains at equal cost.

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
    measurement = _Measurement(margin, clusters, confidence, seed)
    figures = replace(measurement.savings(columns, names[base], point), baseline=names[today])
    return replace(
        figures, also=_also(figures, measurement, quality[rows], money[rows], names[:alone])
    )


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
    quality = as_matrix(scores, "scores")
    money = 1000 * as_matrix(dollars, "dollars")
    rows = np.arange(len(quality))
    today = reference if baseline is None else baseline
    columns = {"base score": quality[:, reference], "base dollars": money[:, today]}
    for index, choice in enumerate(choices):
        columns[f"score {index}"] = quality[rows, choice]
        columns[f"dollars {index}"] = money[rows, choice]
    drawn = bootstrap_means(columns, groups, seed=seed)

    def interval_of(index: int, figure: Callable[[Means], NDArray[np.float64]]) -> Interval:
        keys = {"score": f"score {index}", "dollars": f"dollars {index}"}
        return drawn.interval(
            lambda mean: figure({**mean, **{k: mean[v] for k, v in keys.items()}})
        )

    return [
        (interval_of(index, _saved), interval_of(index, _kept), drawn.interval(f"dollars {index}"))
        for index in range(len(choices))
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
class _Measurement:
    """Settings of a savings measurement: margin, resampled groups, confidence and seed."""

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
    figures: Savings,
    measurement: _Measurement,
    scores: Matrix,
    dollars: Matrix,
    names: Sequence[str],
) -> tuple[str, float] | None:
    """Return the cheapest single expert that matches the router for the same bill or less."""
    if figures.verdict not in ("saved", "likely", "gained"):
        return None
    base, today = (list(names).index(name) for name in (figures.reference, figures.baseline))
    bills = 1000 * dollars.mean(axis=0)
    for expert in np.argsort(bills[: len(names)], kind="stable"):
        if bills[expert] > figures.dollars_per_1000.value * (1 + _ROUNDING):
            return None
        alone = measurement.savings(
            _columns(np.full(len(scores), expert), scores, dollars, (base, base, base), today),
            figures.reference,
            None,
        )
        if (
            alone.score_floor > 0
            if figures.verdict == "gained"
            else alone.verdict in ("saved", figures.verdict)
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
