"""Evaluation of a stored router on a table that it was not trained on.

It holds everything that ``mildroute evaluate`` and the report show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from mildroute._content_hash import text_fingerprints
from mildroute._format import pluralize, to_jsonable
from mildroute.costs.table import CostTable
from mildroute.evaluation.arrays import Choice
from mildroute.evaluation.ceiling import calibrated
from mildroute.evaluation.cost_quality import Point
from mildroute.evaluation.cost_savings import Savings, savings, savings_of_each
from mildroute.evaluation.frontier import Frontier, measure_frontier
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.measured_decisions import MeasuredDecisions, measure_decisions
from mildroute.evaluation.policy_evaluation import Evaluation, evaluate_choices
from mildroute.evaluation.savings_sentences import format_points
from mildroute.evaluation.second_look import SecondLook, measure_second_look
from mildroute.evaluation.small_samples import few_rows
from mildroute.evaluation.target_checks import (
    MeasuredTarget,
    TargetCheck,
    check_target,
    measure_targets,
)
from mildroute.exceptions import ArgumentError, TableError
from mildroute.fitting.descriptions import describe_router, split_words, who_answers
from mildroute.fitting.result import Line, Role
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.target import Target

__all__ = ["RouterEvaluation", "evaluate"]

_WEIGHTS_DRAWN = 24
# With fewer rows, a line from forecasts to outcomes is too optimistic.
_FEWEST_TO_CALIBRATE = 50


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
            return (
                f"Scores {format_points(gain)} above {evaluation.reference}, the best in the table"
            )
        if only:
            return f"Gains nothing: {only[0]} answers every query"
        beside = "below" if gain.high < 0 else "not significantly different from"
        return (
            f"Gains nothing: its score is {beside} that of {evaluation.reference}, the best in"
            f" the table (difference {format_points(gain)})"
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
        >>> from mildroute.fitting.fit import fit_table
        >>> evaluate(fit_table(table).router, table).evaluation.score.value
        1.0
    """
    _check_inputs(router, table)
    measured = measure_decisions(router, table, _target_from(target, price_weight), seed)
    return RouterEvaluation(
        table=measured.table,
        evaluation=_evaluation(measured),
        price_weight=measured.price_weight,
        frontier=_frontier(measured),
        savings=_savings(measured),
        promise=check_target(measured),
        warnings=(*_warnings(measured), *_seen_rows(measured)),
        about=describe_router(router),
        point=measured.point,
        far_rows=sum(decision.is_out_of_distribution for decision in measured.decisions),
        second_look=measure_second_look(measured),
        in_reach=_in_reach(measured),
        measure_targets=_deferred_targets(measured),
        lines=_lines(measured),
    )


def _evaluation(measured: MeasuredDecisions) -> Evaluation:
    table = measured.table
    return evaluate_choices(
        measured.choice,
        measured.costs,
        table.scores,
        table.dollars,
        np.array([decision.posterior for decision in measured.decisions]),
        table.groups,
        experts=table.experts,
        reference=measured.best_by_cost,
        looks=measured.looks,
        clusters=measured.clusters,
        seed=measured.seed,
    )


def _savings(measured: MeasuredDecisions) -> Savings | None:
    table = measured.table
    if table.dollars is None:
        return None
    return savings(
        measured.choice,
        table.scores,
        table.dollars,
        measured.clusters,
        reference=measured.best_by_score,
        baseline=measured.baseline,
        experts=table.experts,
        looks=measured.looks,
        seed=measured.seed,
    )


def _lines(measured: MeasuredDecisions) -> tuple[Line, ...]:
    """Return today's bill, the simplest alternative and the router on these rows."""
    table, baseline = measured.table, measured.baseline
    if baseline is None or table.dollars is None:
        return ()
    names = list(table.experts)
    is_chosen = measured.frontier is not None and measured.frontier.curve.baseline is not None
    note = "" if is_chosen else ", the most expensive"
    ways: list[tuple[Role, str, Choice]] = [
        ("your baseline", f"all to {names[baseline]}{note}", np.full(len(table), baseline))
    ]
    provenance = measured.router.provenance
    simple = None if provenance is None else provenance.alternative
    if simple is not None and simple.can_read(table):
        choice = simple.choose(table, request_keys(table), measured.seed)
        ways.append(("simplest alternative", simple.words(names), choice))
    words = (
        "the router decides for each prompt"
        if measured.point is None
        else who_answers(measured.point, names)
    )
    ways.append(("router", words, measured.choice))
    results = savings_of_each(
        [choice for _, _, choice in ways],
        table.scores,
        table.dollars,
        measured.clusters,
        reference=measured.best_by_score,
        baseline=baseline,
        seed=measured.seed,
    )
    return tuple(
        Line(
            role,
            words,
            *((figure.value, figure.low, figure.high) for figure in (bill, saved, kept)),
        )
        for (role, words, _), (saved, kept, bill) in zip(ways, results, strict=True)
    )


def _deferred_targets(
    measured: MeasuredDecisions,
) -> Callable[[], tuple[MeasuredTarget, ...]] | None:
    if measured.frontier is None or measured.table.dollars is None:
        return None
    return partial(measure_targets, measured)


def _in_reach(measured: MeasuredDecisions) -> float | None:
    """Return the share of the way to the oracle that inputs alone allow, or `None` if unknown."""
    model, table = measured.router.outcome_model_, measured.table
    if model is None or len(table) < _FEWEST_TO_CALIBRATE:
        return None
    experts = measured.experts
    forecasts, bills = model.expected(measured.vectors)
    scores = table.scores[:, :experts]
    expected = 1 - np.clip(calibrated(forecasts[:, :experts], scores), 0.0, 1.0)
    if table.dollars is not None and bills is not None:
        expected += measured.price_weight * calibrated(
            bills[:, :experts], table.dollars[:, :experts]
        )
    costs = measured.costs[:, :experts]
    base = costs.mean(axis=0).min()
    way = base - costs.min(axis=1).mean()
    return float(max(base - expected.min(axis=1).mean(), 0.0) / way) if way > 0 else None


def _check_inputs(router: TextRouter, table: CostTable) -> None:
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


def _frontier(measured: MeasuredDecisions) -> Frontier | None:
    """Return the operable frontier, or `None` without dollars.

    It holds the vertices of the stored frontier, measured on these rows, and other price weights
    alongside them.
    """
    router, table = measured.frontier, measured.table
    if router is None or table.dollars is None:
        return None
    curve = router.curve
    drawn = (
        np.linspace(0, len(curve.weights) - 1, min(len(curve.weights), _WEIGHTS_DRAWN))
        .round()
        .astype(int)
    )
    vertices = np.unique(np.concatenate([drawn, curve.hull[curve.hull < len(curve.weights)]]))
    weights = curve.weights[vertices]
    choices = np.stack(
        [router.predict(measured.vectors, price_weight=weight) for weight in weights]
    )
    # Vertices of single experts come after those of the router.
    after = len(vertices) - len(curve.weights)
    path = [
        int(np.searchsorted(vertices, index)) if index < len(curve.weights) else int(index) + after
        for index in curve.hull
    ]
    return measure_frontier(
        choices,
        table.scores,
        table.dollars,
        measured.clusters,
        price_weights=weights.tolist(),
        experts=table.experts,
        path=path,
        looks=measured.looks,
        seed=measured.seed,
    )


def _warnings(measured: MeasuredDecisions) -> tuple[str, ...]:
    unpriced = (
        ("no dollars in this table: figures are error alone",)
        if measured.price_weight and measured.table.dollars is None
        else ()
    )
    return (*unpriced, *few_rows(len(measured.table)))


def _seen_rows(measured: MeasuredDecisions) -> tuple[str, ...]:
    """Return a warning if the router was trained on rows that it is measured on."""
    provenance, table = measured.router.provenance, measured.table
    if provenance is None:
        return ()
    seen = int(np.isin(text_fingerprints(table), provenance.seen).sum())
    if not seen:
        return ()
    return (
        (
            f"the router has learned from the inputs of {seen:,} of {pluralize(len(table), 'row')}:"
            " figures on them are too optimistic"
        ),
    )
