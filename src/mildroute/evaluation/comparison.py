"""Comparisons of routers under one protocol, with the baselines that put figures in context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._format import format_dollars, format_score, text_table, to_jsonable
from mildroute.evaluation.arrays import Choice
from mildroute.evaluation.baseline_choices import BASELINES, baseline_choices
from mildroute.evaluation.expert_usage import effective_experts, expert_shares
from mildroute.evaluation.figures import figure_columns, gap_of_means
from mildroute.evaluation.held_out_choices import (
    Split,
    choice_at_target,
    choice_of,
    encoded,
    fold_encodings,
)
from mildroute.evaluation.intervals import Difference, holm, paired_difference
from mildroute.evaluation.metrics import best_single, chosen_costs
from mildroute.evaluation.resampling import Interval, Means, bootstrap_means
from mildroute.evaluation.small_samples import few_rows
from mildroute.evaluation.specialist_recall import exactly_one_right_recall, worst_recall
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.routers.frontier.operating_point import OperatingPoint
    from mildroute.routers.frontier.target import Target

__all__ = ["Comparison", "ComparisonRow", "Progress", "compare", "default_routers"]


# Called with the number of finished steps, the total number of steps and the name of the next step.
Progress = Callable[[int, int, str], None]


_ABOUT = (
    "default",
    "best_single",
    "best_by_score",
    "points",
    "experts",
    "train_rows",
    "test_rows",
    "settings",
    "warnings",
)


@dataclass(frozen=True)
class ComparisonRow:
    """One router, or one baseline, on the test rows.

    Attributes:
        name: Name of the router.
        kind: ``"router"``, or ``"baseline"`` for rows that are always shown.
        deferral_loss: Mean cost.
        score: Mean score.
        dollars_per_1000: Bill of 1,000 queries, if dollars are known.
        gap_closed: Share of the way from the best single expert (chosen on the train side) to the
            oracle.
        worst_recall: Lowest recall of an expert.
        exactly_one_right_recall: Recall on rows where exactly one expert is right.
        effective_experts: Effective number of experts chosen.
        difference: Deferral loss of the default router minus that of this row; below 0 the default
            is better.
        holm_p_value: P-value of the difference, corrected for the number of comparisons; `None` for
            the default router and the oracle.
        fit_seconds: Time to fit, if anything was fitted.
        saved: Share saved of the bill of the expert with the highest score on the train side, if
            dollars are known.
        kept: Share kept of that expert's score.

    Example:
        >>> loss = Interval(0.3, 0.2, 0.4)
        >>> ComparisonRow("kNN", "router", loss, loss, None, loss, 0.5, 0.5, 2.0).name
        'kNN'
    """

    name: str
    kind: Literal["router", "baseline"]
    deferral_loss: Interval
    score: Interval
    dollars_per_1000: Interval | None
    gap_closed: Interval
    worst_recall: float
    exactly_one_right_recall: float
    effective_experts: float
    difference: Difference | None = None
    holm_p_value: float | None = None
    fit_seconds: float | None = None
    saved: Interval | None = None
    kept: Interval | None = None


@dataclass(frozen=True)
class Comparison:
    """The results of routers and baselines on the same test rows.

    Attributes:
        rows: One per router, then one per baseline.
        default: Name of the first router, which the others are compared with.
        best_single: The expert with the lowest cost on the train side: the best at the price
            weight.
        experts: Names of the experts.
        train_rows: Number of training rows.
        test_rows: Number of test rows.
        settings: The protocol: weights, split, seed, encoder.
        choices: Choices of each router and baseline on the test rows, shape (n,), by name.
        test: The test side of the table, in the order of the choices.
        warnings: Sentences that a reader of the figures must know.
        best_by_score: The expert with the highest score on the train side.
        points: Operating point of each router, by name, if they were compared at a target.

    Example:
        >>> found = Comparison((), "MildRouter", "large", ("small", "large"), 80, 20, {}, {}, None)
        >>> found.as_columns()
        {}
    """

    rows: tuple[ComparisonRow, ...]
    default: str
    best_single: str
    experts: tuple[str, ...]
    train_rows: int
    test_rows: int
    settings: Mapping[str, Any]
    choices: Mapping[str, Choice]
    test: CostTable | None
    warnings: tuple[str, ...] = ()
    best_by_score: str = ""
    points: Mapping[str, OperatingPoint] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return each router's score and bill, and its savings over the best single expert."""
        head = ["router", "score", "$ per 1,000", "saved", "kept"]
        rows = [
            [
                row.name,
                format_score(row.score.value),
                "" if row.dollars_per_1000 is None else format_dollars(row.dollars_per_1000.value),
                "" if row.saved is None else f"{row.saved.value:.0%}",
                "" if row.kept is None else f"{row.kept.value:.1%}",
            ]
            for row in self.rows
        ]
        about = f"{self.train_rows:,} queries to learn from, {self.test_rows:,} to measure on"
        return "\n".join([about, text_table(head, rows), *self.warnings])

    __repr__ = __str__

    def row(self, name: str) -> ComparisonRow:
        """Return the row of one router or baseline."""
        matches = [row for row in self.rows if row.name == name]
        if not matches:
            raise ArgumentError(
                f"name must be one of {', '.join(row.name for row in self.rows)}, got {name!r}."
            )
        return matches[0]

    def as_columns(self) -> dict[str, list[Any]]:
        """Return the rows as columns of plain values.

        An interval becomes three columns, ``name``, ``name_low`` and ``name_high``.
        """
        flat = [_flat(row) for row in self.rows]
        return {name: [row[name] for row in flat] for name in (flat[0] if flat else {})}

    def as_dict(self) -> dict[str, Any]:
        """Return rows and protocol as plain values for JSON."""
        about = {name: getattr(self, name) for name in _ABOUT}
        return {**to_jsonable(about), "rows": to_jsonable(self.rows)}


def _check_weights(target: Target | None, price_weight: float, latency_weight: float) -> None:
    if target is not None and (price_weight or latency_weight):
        raise ArgumentError(
            f"a {target.kind} goes without price_weight and latency_weight; leave them out."
        )


def compare(
    table: CostTable,
    routers: Mapping[str, Any] | None = None,
    *,
    encoder: Any = None,
    target: Target | None = None,
    price_weight: float = 0.0,
    latency_weight: float = 0.0,
    test: float = 0.2,
    seed: int = 0,
    by: str = "random",
    progress: Progress | None = None,
) -> Comparison:
    """Fit each router on the same train rows and measure it on the same test rows.

    Intervals are about new queries of the same kind: clusters of rows are resampled, or whole
    groups if the split is by group.

    Args:
        table: The cost table.
        routers: Estimators by name, of which the first one is compared with the others; defaults to
            :func:`default_routers`.
        encoder: Transformer over inputs, fitted on the train side; or vectors of all rows, shape
            (n, d); or `None` for the default encoder.
        target: A budget or a quality: every router is fitted along all prices and compared at its
            own operating point for the target. Costs then weight dollars by the price weight of the
            first router's point.
        price_weight: How much error a dollar is worth, if there is no target.
        latency_weight: How much error a second is worth.
        test: Share of the rows to test.
        seed: Seed of the split, the default routers, random choice and the bootstrap.
        by: Kind of split: 'random', 'group', 'time' or 'column'.
        progress: Called with finished steps, total steps and the name of the next one.

    Returns:
        One row per router and per baseline.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.routers.knn import KNNRouter
        >>> texts = [f"{kind} {number}" for number in range(40) for kind in ("add", "prove")]
        >>> scores = {"score:small": [1, 0] * 40, "score:large": [0, 1] * 40}
        >>> table = CostTable.from_data({"input": texts, **scores})
        >>> found = compare(table, {"kNN": KNNRouter()})
        >>> [(row.name, row.deferral_loss.value) for row in found.rows if row.name != "random"]
        [('kNN', 0.0), ('best single', 0.5625), ('oracle', 0.0)]
    """
    if target is not None and target.kind == "price weight":
        price_weight, target = target.value, None
    _check_weights(target, price_weight, latency_weight)
    if routers is None:
        routers = default_routers(seed, for_target=target is not None)
    contestants = dict(routers)
    _check_names(contestants)
    train, tested = table.split(test, by=by, seed=seed)
    steps = _Steps(progress, 1 + len(contestants))
    steps.next("encoding")
    seen, unseen = encoded(table, train, tested, encoder)
    folds = None if target is None else fold_encodings(train, seen, encoder, seed)
    sides = Split(train, tested, seen, unseen, price_weight, latency_weight, target, folds)
    choices, seconds, points = _contest(contestants, sides, steps, seed)
    default = next(iter(contestants))
    if points:
        price_weight = points[default].price_weight
        sides = replace(sides, price_weight=price_weight)
    choices |= baseline_choices(sides, choices[default], seed)
    rows = _with_differences(_rows(choices, seconds, sides, by, seed), choices, sides, by, seed)
    settings = {"test": test, "seed": seed, "by": by, "encoder": _encoder_name(encoder)}
    settings |= _weights_of(sides)
    return Comparison(
        tuple(rows),
        default,
        best_single=table.experts[int(choices["best single"][0])],
        experts=tuple(table.experts),
        train_rows=len(train),
        test_rows=len(tested),
        settings=settings,
        choices=choices,
        test=tested,
        warnings=few_rows(len(tested)),
        best_by_score=table.experts[best_single(-train.scores, train.dollars)],
        points=points,
    )


def _weights_of(sides: Split) -> dict[str, Any]:
    weights: dict[str, Any] = {
        "price_weight": sides.price_weight,
        "latency_weight": sides.latency_weight,
    }
    if sides.target is not None:
        weights["target"] = {"kind": sides.target.kind, "value": sides.target.value}
    return weights


def _encoder_name(encoder: Any) -> str:
    if encoder is None:
        return "default"
    return type(encoder).__name__ if hasattr(encoder, "transform") else "vectors"


def default_routers(seed: int = 0, *, for_target: bool = False) -> dict[str, Any]:
    """Return the default router and the rivals that make a comparison credible.

    Args:
        seed: Seed of each router.
        for_target: Begin with ``"auto"``, which ``mildroute fit`` uses for a target.

    Returns:
        Unfitted routers by name, the default first.

    Example:
        >>> list(default_routers())
        ['MildRouter', 'kNN', 'TDEF', 'linear regression', 'CE']
    """
    from mildroute.routers.frontier.router import FrontierRouter
    from mildroute.routers.knn import KNNRouter
    from mildroute.routers.mild import MildRouter
    from mildroute.routers.regression import RegressionRouter
    from mildroute.routers.surrogate import CrossEntropyRouter, TDEFRouter

    auto = {"auto": FrontierRouter(random_state=seed)} if for_target else {}
    return auto | {
        "MildRouter": MildRouter(random_state=seed),
        "kNN": KNNRouter(),
        "TDEF": TDEFRouter(random_state=seed),
        "linear regression": RegressionRouter(),
        "CE": CrossEntropyRouter(random_state=seed),
    }


class _Steps:
    """A counter of finished steps for the caller's progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, -1

    def next(self, label: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, label)


def _check_names(routers: Mapping[str, Any]) -> None:
    if not routers:
        raise ArgumentError(
            "routers must name at least one router, got none; leave it out for the default ones."
        )
    taken = sorted(set(routers) & set(BASELINES))
    if taken:
        raise ArgumentError(
            "routers must not be named like a baseline that is always shown, got"
            f" {', '.join(taken)}; choose another name."
        )


def _contest(
    routers: Mapping[str, Any], sides: Split, steps: _Steps, seed: int
) -> tuple[dict[str, Choice], dict[str, float], dict[str, OperatingPoint]]:
    choices: dict[str, Choice] = {}
    seconds: dict[str, float] = {}
    points: dict[str, OperatingPoint] = {}
    for name, router in routers.items():
        steps.next(name)
        if sides.target is None:
            choices[name], seconds[name] = choice_of(router, sides)
        else:
            choices[name], seconds[name], points[name] = choice_at_target(router, sides, seed)
    steps.next("done")
    return choices, seconds, points


def _rows(
    choices: Mapping[str, Choice], seconds: Mapping[str, float], sides: Split, by: str, seed: int
) -> Iterator[ComparisonRow]:
    costs, scores, dollars = sides.costs(sides.test), sides.test.scores, sides.test.dollars
    groups = _resampled_units(sides.test, by)
    best = int(choices["best single"][0])
    by_score = best_single(-sides.train.scores, sides.train.dollars)
    beside = {"best score": scores[:, by_score]}
    if dollars is not None:
        beside["best dollars"] = 1000 * dollars[:, by_score]
    for name, choice in choices.items():
        drawn = bootstrap_means(
            figure_columns(costs, choice, best, scores, dollars) | beside, groups, seed=seed
        )
        yield ComparisonRow(
            name=name,
            kind="router" if name in seconds else "baseline",
            deferral_loss=drawn.interval("cost"),
            score=drawn.interval("score"),
            dollars_per_1000=None if dollars is None else drawn.interval("dollars"),
            gap_closed=drawn.interval(gap_of_means),
            worst_recall=worst_recall(costs, choice),
            exactly_one_right_recall=exactly_one_right_recall(scores, choice),
            effective_experts=effective_experts(expert_shares(choice, len(sides.test.experts))),
            fit_seconds=seconds.get(name),
            saved=None if dollars is None else drawn.interval(_saved),
            kept=drawn.interval(_kept),
        )


def _resampled_units(test: CostTable, by: str) -> NDArray[np.intp]:
    """Return the cluster of each row, or its whole group if the split is by group."""
    table = test.with_whole_groups() if by == "group" else test
    return table.clusters.codes


def _saved(mean: Means) -> NDArray[np.float64]:
    return 1 - mean["dollars"] / np.where(mean["best dollars"] > 0, mean["best dollars"], np.nan)


def _kept(mean: Means) -> NDArray[np.float64]:
    return mean["score"] / np.where(mean["best score"] > 0, mean["best score"], np.nan)


def _with_differences(
    rows: Iterator[ComparisonRow], choices: Mapping[str, Choice], sides: Split, by: str, seed: int
) -> Iterator[ComparisonRow]:
    costs = sides.costs(sides.test)
    groups = _resampled_units(sides.test, by)
    default = next(iter(choices))
    ours = chosen_costs(costs, choices[default])
    differences = {
        name: paired_difference(ours, chosen_costs(costs, choice), groups, seed=seed)
        for name, choice in choices.items()
        if name != default
    }
    # the oracle is better by definition, so it takes no part in the correction
    corrected = holm(
        {name: difference.p_value for name, difference in differences.items() if name != "oracle"}
    )
    for row in rows:
        yield replace(
            row, difference=differences.get(row.name), holm_p_value=corrected.get(row.name)
        )


def _flat(row: ComparisonRow) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name in row.__dataclass_fields__:
        value = getattr(row, name)
        if name in (
            "deferral_loss",
            "score",
            "dollars_per_1000",
            "gap_closed",
            "difference",
            "saved",
            "kept",
        ):
            for suffix, part in (("", "value"), ("_low", "low"), ("_high", "high")):
                flat[name + suffix] = to_jsonable(getattr(value, part, None))
        else:
            flat[name] = to_jsonable(value)
    return flat
