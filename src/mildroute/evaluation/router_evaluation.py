"""Evaluation of a stored router on a table that it was not trained on.

It holds everything that ``mildroute evaluate`` and the report show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mildroute._format import pluralize, to_jsonable
from mildroute._hashing import text_fingerprints
from mildroute.costs.table import CostTable
from mildroute.evaluation.ceiling import calibrated
from mildroute.evaluation.comparison import request_keys
from mildroute.evaluation.cost_quality import Point
from mildroute.evaluation.cost_savings import Savings, savings, savings_of_each
from mildroute.evaluation.expert_usage import expert_shares
from mildroute.evaluation.frontier import Frontier, measure_frontier
from mildroute.evaluation.intervals import Difference, paired_difference
from mildroute.evaluation.metrics import best_single, chosen_costs
from mildroute.evaluation.policy_evaluation import Evaluation, evaluate_choices
from mildroute.evaluation.resampling import Interval, bootstrap_means
from mildroute.evaluation.savings_sentences import format_points, shown_interval
from mildroute.evaluation.small_samples import few_rows, too_few
from mildroute.exceptions import ArgumentError, TableError, UnreachableTargetError
from mildroute.fitting.result import Line, Role, describe_router, split_words, who_answers
from mildroute.fitting.targets import point_of, without_looks
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.cascade.features import SeenAnswers
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["MeasuredTarget", "RouterEvaluation", "TargetCheck", "evaluate"]


_WEIGHTS_DRAWN = 24
# With fewer rows, a line from forecasts to outcomes is too optimistic.
_FEWEST_TO_CALIBRATE = 50
# Range of qualities, in percent, that the report's slider offers.
_LOWEST_TARGET = 50
_HIGHEST_TARGET = 110


@dataclass(frozen=True)
class TargetCheck:
    """The target of an operating point, and the measured result.

    Attributes:
        promised: The target value: dollars per 1,000 queries, or a share of the score of the best
            single expert by score.
        measured: The same figure on these rows; both scores of a share are resampled together.
        verdict: ``"met"`` or ``"missed"`` if the whole interval says so, else ``"not decided"``,
            which is also the verdict with too few rows for an interval.
    """

    target: str
    promised: float
    measured: Interval
    verdict: TargetVerdict

    @property
    def words(self) -> str:
        """Return the measured value in the target's own terms."""
        return shown_interval(self.measured, "{:.1%}" if "%" in self.target else "{:.4g}")


TargetVerdict = Literal["met", "not decided", "missed"]


@dataclass(frozen=True)
class MeasuredTarget:
    """The results of a quality target on held-out rows.

    Attributes:
        quality: The target share of the score of the best single expert by score.
        saved: Share of that expert's bill that is saved.
        kept: Share of its score that is kept.
        dollars_per_1000: Bill of 1,000 queries.
        score: Mean score.
        shares: Share of queries that each expert answers, shape (p,).
        verdict: Whether these rows show that the quality is kept.
        is_in_use: Whether the router operates at this quality.
    """

    quality: float
    saved: Interval
    kept: Interval
    dollars_per_1000: Interval
    score: float
    shares: tuple[float, ...]
    verdict: TargetVerdict
    is_in_use: bool


@dataclass(frozen=True)
class SecondLook:
    """The results of a cascade on held-out rows, and the gain from its looks.

    Attributes:
        looks: Looks that the router may take.
        looked_at: Share of the rows on which answers were looked at before the choice.
        calls: Mean number of experts called per row.
        rows: For each look that was taken, and last for routing without looks: name, share, calls,
            score and dollars per 1,000 on its rows.
        plain: The same router without looks, for the same target, on all rows.
        gain: Cost with looks minus cost without, on all rows.
    """

    looks: int
    looked_at: float
    calls: float
    rows: tuple[LookRow, ...]
    plain: LookRow
    gain: Difference


class LookRow(NamedTuple):
    """Some rows of a table: their share, and calls, score and dollars per 1,000 on them."""

    name: str
    share: float
    calls: float
    score: float
    dollars_per_1000: float


@dataclass(frozen=True)
class RouterEvaluation:
    """The results of a router on held-out rows.

    Attributes:
        table: The rows, with the router's experts in its order.
        evaluation: Figures of the operating point in use, with intervals.
        price_weight: Errors that a dollar is worth at the operating point, for costs. Between two
            vertices, it is what a dollar buys on the way from one to the other; 0 if the router has
            no prices.
        frontier: Cost against quality as the router can be operated, or `None` without dollars.
        savings: Savings over the best single expert by score, or `None` without dollars.
        promise: Target of the operating point and its result, or `None`.
        warnings: Sentences that a reader of the figures must know.
        about: Description of the router: its method, its encoder and, if known, the judge of its
            training scores.
        point: The operating point in use, as measured when the router was fitted; `None` if the
            router has no prices.
        far_rows: Out-of-distribution rows, which the best single expert at this price answers.
        second_look: Effect of looks at answers, or `None` for a router without looks.
        in_reach: Share of the way from the best single expert at this price to the oracle that is
            possible by knowing each expert's chances as far as inputs tell, but no outcome; or
            `None`. The rest is luck, or shows only in answers.
        lines: Today's bill, the simplest alternative and the router, side by side; empty without
            dollars.
        measure_targets: Function that measures :attr:`targets`, or `None` without dollars.

    Example:
        >>> RouterEvaluation.__dataclass_fields__["promise"].name
        'promise'
    """

    table: CostTable
    evaluation: Evaluation
    price_weight: float
    frontier: Frontier | None
    savings: Savings | None
    promise: TargetCheck | None
    warnings: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    point: OperatingPoint | None = None
    far_rows: int = 0
    second_look: SecondLook | None = None
    in_reach: float | None = None
    lines: tuple[Line, ...] = ()
    measure_targets: Callable[[], tuple[MeasuredTarget, ...]] | None = field(
        default=None, repr=False, compare=False
    )

    @cached_property
    def targets(self) -> tuple[MeasuredTarget, ...]:
        """Return the results of other qualities on these rows, in ascending order.

        The qualities are whole percentages and the one in use. They are measured on first access,
        which takes a second or more.
        """
        return () if self.measure_targets is None else self.measure_targets()

    def __str__(self) -> str:
        """Return the headline, the savings, whether the target was met, and the warnings."""
        sentences = [self.headline]
        if self.savings is not None:
            sentences.append(self.savings.sentence)
        if self.promise is not None:
            sentences.append(f"target {self.promise.verdict}: {self.promise.words}")
        return "\n".join([*sentences, *self.warnings])

    __repr__ = __str__

    @property
    def headline(self) -> str:
        """Return the result in one line: the shares saved and kept, or that nothing is gained."""
        evaluation = self.evaluation
        only = [row.name for row in evaluation.per_expert if row.share == 1]
        if self.savings is not None:
            is_constant = bool(only) and self.savings.verdict == "nothing"
            alone = f"Saves nothing: {only[0]} answers every query" if is_constant else None
            return alone or self.savings.headline
        gain = evaluation.difference.times(-1)
        if gain.low > 0:
            return f"Scores {format_points(gain)} above {evaluation.reference}, the best by score"
        if only:
            return f"Gains nothing: {only[0]} answers every query"
        beside = "below" if gain.high < 0 else "not significantly different from"
        return (
            f"Gains nothing: its score is {beside} that of {evaluation.reference}, the best by"
            f" score (difference {format_points(gain)})"
        )

    @property
    def price_weight_used(self) -> float:
        """Return the price weight in the measured costs.

        It is 0 if the table has no dollars, whatever the router's weight.
        """
        return 0.0 if self.table.dollars is None else self.price_weight

    @property
    def looks(self) -> int:
        """Return the number of columns at the end of the table that are looks of a cascade."""
        return 0 if self.second_look is None else self.second_look.looks

    @property
    def title(self) -> str:
        """Return the router's result on these rows, in money and quality."""
        figures = self.savings
        if figures is None:
            return f"{pluralize(len(self.table), 'query')}, error alone"
        is_more = figures.saved.value < 0
        bill = (
            "costs more"
            if np.isinf(figures.saved.value)
            else f"{abs(figures.saved.value):.0%} {'more expensive' if is_more else 'cheaper'}"
        )
        # If a score is 0, no share of it can be kept.
        kept = (
            f"{figures.reference} scores 0"
            if np.isnan(figures.kept.value)
            else f"keeps {figures.kept.value:.1%} of the score of {figures.reference}"
        )
        return f"{pluralize(len(self.table), 'query')}: {kept}; {bill}"

    @property
    def decision(self) -> str | None:
        """Return how the operating point decides, in words; `None` if the router has no prices."""
        return (
            None if self.point is None else split_words(self.point, self.table.experts, self.looks)
        )

    @property
    def chosen(self) -> Point | None:
        """Return the operating point in use as a point of the plot."""
        bill, score = self.evaluation.dollars_per_1000, self.evaluation.score
        return (
            None
            if bill is None
            else Point("chosen", bill.value, score.value, bill, score, self.price_weight)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        saved = (
            None
            if self.savings is None
            else to_jsonable(self.savings) | {"sentence": self.savings.sentence}
        )
        return {
            "about": dict(self.about),
            "title": self.title,
            "headline": self.headline,
            "operating_point": (
                None if self.point is None else to_jsonable(self.point) | {"words": self.decision}
            ),
            "price_weight": self.price_weight,
            "price_weight_used": self.price_weight_used,
            "evaluation": self.evaluation.as_dict(),
            "frontier": None if self.frontier is None else to_jsonable(self.frontier.points),
            "operating_frontier": None
            if self.frontier is None
            else to_jsonable(self.frontier.path),
            "savings": saved,
            "lines": to_jsonable(self.lines),
            "promise": to_jsonable(self.promise) if self.promise else None,
            "in_reach": self.in_reach,
            "far_rows": self.far_rows,
            "second_look": None if self.second_look is None else to_jsonable(self.second_look),
            "warnings": list(self.warnings),
            "content_hash": self.table.content_hash,
        }


def evaluate(
    router: TextRouter,
    table: CostTable,
    *,
    target: Target | None = None,
    price_weight: float | None = None,
    seed: int = 0,
) -> RouterEvaluation:
    """Measure a router on a table, deciding as the gateway does.

    Args:
        router: A fitted router over inputs.
        table: Held-out rows with inputs and the router's experts.
        target: A budget, quality or price weight that replaces the stored operating point; nothing
            is refitted.
        price_weight: Shorthand for a price weight as target.
        seed: Seed of the bootstrap.

    Returns:
        The evaluation; intervals are about new queries of these groups.

    Example:
        >>> table = CostTable.from_data({"input": ["add 1 1", "sing a song"] * 40,
        ...                       "score:small": [1, 0] * 40, "score:large": [1, 1] * 40,
        ...                       "query_id": [str(i) for i in range(80)]})
        >>> from mildroute.fitting.fit import fit
        >>> evaluate(fit(table).router, table).evaluation.score.value
        1.0
    """
    _check_inputs(router, table)
    target = _target_from(target, price_weight)
    point = point_of(router, target)
    seen = router.see_table(table)
    vectors = router.encoder_.transform(table.inputs)
    aligned = _select_experts(router.with_looks(table, seen, vectors), list(router.experts_))
    experts = router.n_experts  # a look is not a single expert to compare with
    clusters = table.clusters.codes
    baseline = _baseline(router, table)
    weight = 0.0 if point is None else router.router_.curve.exchange_rate(point)
    costs = _costs(aligned, weight)
    best_by_score = _best_of(-aligned.scores, aligned, experts)
    decided = router.explain_vectors(vectors, request_keys(aligned), point=point)
    choice = np.array([each.expert for each in decided], dtype=np.intp)
    evaluation = evaluate_choices(
        choice,
        costs,
        aligned.scores,
        aligned.dollars,
        np.array([each.posterior for each in decided]),
        aligned.groups,
        experts=aligned.experts,
        reference=_best_of(costs, aligned, experts),
        looks=len(aligned.experts) - experts,
        clusters=clusters,
        seed=seed,
    )
    promised = _promised(router, target)
    return RouterEvaluation(
        table=aligned,
        evaluation=evaluation,
        price_weight=weight,
        frontier=_frontier(router, aligned, vectors, clusters, seed),
        savings=_savings(choice, aligned, best_by_score, baseline, experts, clusters, seed),
        promise=_promise(promised, aligned, choice, best_by_score, clusters, seed),
        warnings=(*_warnings(aligned, weight), *_seen_rows(router, aligned)),
        about=describe_router(router),
        point=point,
        far_rows=sum(each.is_out_of_distribution for each in decided),
        second_look=_second_look(
            router, target, choice, vectors, seen, aligned, weight, clusters, seed
        ),
        in_reach=_in_reach(router, vectors, aligned, weight),
        measure_targets=_targets(
            router, aligned, vectors, best_by_score, baseline, promised, point, clusters, seed
        ),
        lines=_lines(router, aligned, point, choice, best_by_score, baseline, clusters, seed),
    )


def _savings(
    choice: NDArray[np.intp],
    table: CostTable,
    reference: int,
    baseline: int | None,
    experts: int,
    clusters: NDArray[np.intp],
    seed: int,
) -> Savings | None:
    if table.dollars is None:
        return None
    return savings(
        choice,
        table.scores,
        table.dollars,
        clusters,
        reference=reference,
        baseline=baseline,
        experts=table.experts,
        looks=len(table.experts) - experts,
        seed=seed,
    )


def _baseline(router: TextRouter, table: CostTable) -> int | None:
    """Return the expert whose bill the user pays today: the stored one, or the most expensive.

    Return `None` without dollars.
    """
    if table.dollars is None:
        return None
    if isinstance(router.router_, FrontierRouter):
        curve = router.router_.curve
        return int(curve.baseline_index - len(curve.weights))
    return int(table.dollars.mean(axis=0).argmax())


def _lines(
    router: TextRouter,
    table: CostTable,
    point: OperatingPoint | None,
    choice: NDArray[np.intp],
    best: int,
    baseline: int | None,
    clusters: NDArray[np.intp],
    seed: int,
) -> tuple[Line, ...]:
    """Return today's bill, the simplest alternative and the router on these rows."""
    if baseline is None or table.dollars is None:
        return ()
    names = list(table.experts)
    rows = len(table)
    named = router.router_.curve.baseline if isinstance(router.router_, FrontierRouter) else None
    note = "" if named is not None else ", the most expensive"
    ways: list[tuple[Role, str, NDArray[np.intp]]] = [
        ("your baseline", f"all to {names[baseline]}{note}", np.full(rows, baseline))
    ]
    simple = None if router.provenance is None else router.provenance.alternative
    if simple is not None and simple.can_read(table):
        chosen = simple.choose(table, request_keys(table), seed)
        ways.append(("simplest alternative", simple.words(names), chosen))
    words = "the router decides for each prompt" if point is None else who_answers(point, names)
    ways.append(("router", words, choice))
    results = savings_of_each(
        [chosen for _, _, chosen in ways],
        table.scores,
        table.dollars,
        clusters,
        reference=best,
        baseline=baseline,
        seed=seed,
    )
    return tuple(
        Line(
            role,
            words,
            *((figure.value, figure.low, figure.high) for figure in (bill, saved, kept)),
        )
        for (role, words, _), (saved, kept, bill) in zip(ways, results, strict=True)
    )


def _targets(
    router: TextRouter, table: CostTable, *arguments: Any
) -> Callable[[], tuple[MeasuredTarget, ...]] | None:
    if not isinstance(router.router_, FrontierRouter) or table.dollars is None:
        return None
    return partial(_measure_targets, router, table, *arguments)


def _measure_targets(
    router: TextRouter,
    table: CostTable,
    vectors: Any,
    best: int,
    baseline: int | None,
    promised: Target | None,
    point: OperatingPoint,
    clusters: NDArray[np.intp],
    seed: int,
) -> tuple[MeasuredTarget, ...]:
    """Return the results of :func:`evaluate` at each quality, without the other figures."""
    points = _points_of_qualities(router.router_)
    in_use = promised.value if promised is not None and promised.kind == "quality" else None
    if in_use is not None:
        points[in_use] = point
    qualities, keys = sorted(points), request_keys(table)
    outcomes = router.outcome_model_
    is_far = None if outcomes is None else outcomes.is_out_of_distribution(vectors)
    choices = []
    for quality in qualities:
        at = points[quality]
        choice = router.router_.predict(vectors, point=at, request_ids=keys)
        if outcomes is not None:
            choice[is_far] = outcomes.best_single(at.price_weight, router.n_experts)
        choices.append(choice)
    results = savings_of_each(
        choices,
        table.scores,
        table.dollars,
        clusters,
        reference=best,
        baseline=baseline,
        seed=seed,
    )
    return tuple(
        MeasuredTarget(
            quality=quality,
            saved=saved,
            kept=kept,
            dollars_per_1000=bill,
            score=float(chosen_costs(table.scores, choice).mean()),
            shares=tuple(expert_shares(choice, len(table.experts)).tolist()),
            verdict=_verdict(table, kept.low >= quality, kept.high < quality),
            is_in_use=quality == in_use,
        )
        for quality, choice, (saved, kept, bill) in zip(qualities, choices, results, strict=True)
    )


def _points_of_qualities(router: FrontierRouter) -> dict[float, OperatingPoint]:
    """Return the operating point of each whole percentage of quality that can be reached.

    The first quality is at or below what the cheapest point keeps, so that lower ones change
    nothing.
    """
    curve = router.curve
    cheapest = 1 - curve.errors[curve.hull[0]]
    lowest = 100 * cheapest / (1 - curve.best_error) if curve.best_error < 1 else 100
    points = {}
    for percent in range(max(int(lowest), _LOWEST_TARGET), _HIGHEST_TARGET + 1):
        try:
            points[percent / 100] = router.for_quality(percent / 100)
        except UnreachableTargetError:
            break
    return points


def _in_reach(router: TextRouter, vectors: Any, table: CostTable, weight: float) -> float | None:
    if router.outcome_model_ is None or len(table) < _FEWEST_TO_CALIBRATE:
        return None
    experts = router.n_experts
    forecasts, bills = router.outcome_model_.expected(vectors)
    scores = table.scores[:, :experts]
    expected = 1 - np.clip(calibrated(forecasts[:, :experts], scores), 0.0, 1.0)
    if table.dollars is not None and bills is not None:
        expected += weight * calibrated(bills[:, :experts], table.dollars[:, :experts])
    costs = _costs(table, weight)[:, :experts]
    base = costs.mean(axis=0).min()
    way = base - costs.min(axis=1).mean()
    return float(max(base - expected.min(axis=1).mean(), 0.0) / way) if way > 0 else None


def _second_look(
    router: TextRouter,
    target: Target | None,
    choice: NDArray[np.intp],
    vectors: Any,
    seen: SeenAnswers | None,
    table: CostTable,
    weight: float,
    clusters: NDArray[np.intp],
    seed: int,
) -> SecondLook | None:
    if seen is None or table.dollars is None:
        return None
    scores, dollars = table.scores, table.dollars
    rows, experts = np.arange(len(table)), router.n_experts
    calls = router.router_.walk(choice, vectors, seen).is_called.sum(axis=1)

    def row_of(
        name: str, chosen: NDArray[np.intp], calls: NDArray[Any], mask: NDArray[np.bool_]
    ) -> LookRow:
        score = scores[rows, chosen][mask].mean()
        bill = 1000 * dollars[rows, chosen][mask].mean()
        return LookRow(
            name, float(mask.mean()), float(calls[mask].mean()), float(score), float(bill)
        )

    kinds = [(str(table.experts[k]), choice == k) for k in range(experts, len(table.experts))]
    kinds.append(("without a look", choice < experts))
    plain = without_looks(router, target).router_.predict(vectors, request_ids=request_keys(table))
    costs = _costs(table, weight)
    return SecondLook(
        looks=len(table.experts) - experts,
        looked_at=float((choice >= experts).mean()),
        calls=float(calls.mean()),
        rows=tuple(row_of(name, choice, calls, mask) for name, mask in kinds if mask.any()),
        plain=row_of("routing alone", plain, np.ones(len(rows)), rows >= 0),
        gain=paired_difference(costs[rows, choice], costs[rows, plain], clusters, seed=seed),
    )


def _check_inputs(router: Any, table: CostTable) -> None:
    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"only a router over inputs can be asked with a table, got {type(router).__name__}; fit"
            " one with mildroute fit."
        )
    if table.inputs is None:
        raise TableError(
            "the table needs the column 'input' (or 'text'), got none; the router reads it."
        )


def _target_from(target: Target | None, price_weight: float | None) -> Target | None:
    if price_weight is None:
        return target
    if target is not None:
        raise ArgumentError("give a target or a price_weight, not both.")
    return Target("price weight", price_weight)


def _promised(router: TextRouter, target: Target | None) -> Target | None:
    """Return the target that the operating point was chosen by."""
    if target is not None or not isinstance(router.router_, FrontierRouter):
        return target
    return router.target


def _select_experts(table: CostTable, experts: list[str]) -> CostTable:
    absent = [name for name in experts if name not in table.experts]
    if absent:
        raise TableError(
            f"the table must have the router's experts, but {', '.join(map(repr, absent))} is"
            " missing; add its scores."
        )
    return table if list(table.experts) == experts else table.select(experts)


def _best_of(costs: NDArray[np.float64], table: CostTable, experts: int) -> int:
    """Return the best single expert, ignoring looks."""
    dollars = table.dollars
    return best_single(costs[:, :experts], None if dollars is None else dollars[:, :experts])


def _costs(table: CostTable, weight: float) -> NDArray[np.float64]:
    return table.costs(price_weight=weight if table.dollars is not None else 0.0)


def _frontier(
    fitted: TextRouter, table: CostTable, vectors: Any, clusters: NDArray[np.intp], seed: int
) -> Frontier | None:
    """Return the operable frontier, or `None` without dollars.

    It holds the vertices of the stored frontier, measured on these rows, and other price weights
    alongside them.
    """
    router = fitted.router_
    if not isinstance(router, FrontierRouter) or table.dollars is None:
        return None
    curve = router.curve
    drawn = (
        np.linspace(0, len(curve.weights) - 1, min(len(curve.weights), _WEIGHTS_DRAWN))
        .round()
        .astype(int)
    )
    vertices = np.unique(np.concatenate([drawn, curve.hull[curve.hull < len(curve.weights)]]))
    weights = curve.weights[vertices]
    choices = np.stack([router.predict(vectors, price_weight=weight) for weight in weights])
    # Vertices of single experts come after those of the router.
    after = len(vertices) - len(curve.weights)
    path = [
        int(np.searchsorted(vertices, at)) if at < len(curve.weights) else int(at) + after
        for at in curve.hull
    ]
    return measure_frontier(
        choices,
        table.scores,
        table.dollars,
        clusters,
        price_weights=weights.tolist(),
        experts=table.experts,
        path=path,
        looks=len(table.experts) - fitted.n_experts,
        seed=seed,
    )


def _promise(
    target: Target | None,
    table: CostTable,
    choice: NDArray[np.intp],
    best: int,
    clusters: NDArray[np.intp],
    seed: int,
) -> TargetCheck | None:
    if target is None:
        return None
    promised = target.value
    if target.kind == "budget" and table.dollars is not None:
        bill = bootstrap_means(
            {"dollars": 1000 * chosen_costs(table.dollars, choice)}, clusters, seed=seed
        ).interval("dollars")
        words = f"at most {promised:g} dollars per 1,000 queries"
        return TargetCheck(
            words, promised, bill, _verdict(table, bill.high <= promised, bill.low > promised)
        )
    if target.kind == "quality":
        drawn = bootstrap_means(
            {"score": chosen_costs(table.scores, choice), "best": table.scores[:, best]},
            clusters,
            seed=seed,
        )
        share = drawn.interval(lambda mean: mean["score"] / mean["best"])
        words = f"at least {promised:.1%} of the score of {table.experts[best]}, the best by score"
        return TargetCheck(
            words, promised, share, _verdict(table, share.low >= promised, share.high < promised)
        )
    return None


def _verdict(table: CostTable, inside: bool, outside: bool) -> TargetVerdict:
    if too_few(len(table)):
        return "not decided"
    return "met" if inside else "missed" if outside else "not decided"


def _warnings(table: CostTable, weight: float) -> tuple[str, ...]:
    unpriced = (
        ("no dollars in this table: figures are error alone",)
        if weight and table.dollars is None
        else ()
    )
    return (*unpriced, *few_rows(len(table)))


def _seen_rows(router: TextRouter, table: CostTable) -> tuple[str, ...]:
    """Return a warning if the router was trained on rows that it is measured on."""
    if router.provenance is None:
        return ()
    seen = int(np.isin(text_fingerprints(table), router.provenance.seen).sum())
    if not seen:
        return ()
    return (
        (
            f"the router has learned from the inputs of {seen:,} of {pluralize(len(table), 'row')}:"
            " figures on them are too optimistic"
        ),
    )
