"""A set of routers under one protocol, beside the baselines that make the figures mean something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mildroute.errors import ArgumentError
from mildroute.evaluation.caution import few_rows
from mildroute.evaluation.checks import Choice
from mildroute.evaluation.contest import BASELINES, Progress, Sides, baseline_choices, choice_of, encoded
from mildroute.evaluation.figures import figure_columns, gap_of_means
from mildroute.evaluation.intervals import Difference, holm, paired_difference
from mildroute.evaluation.metrics import paid
from mildroute.evaluation.plain import as_plain
from mildroute.evaluation.recall import exactly_one_right_recall, worst_recall
from mildroute.evaluation.replicates import Interval, resample
from mildroute.evaluation.shares import effective_experts, expert_shares

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["Comparison", "ComparisonRow", "compare", "default_routers"]

_ABOUT = ("default", "best_single", "experts", "train_rows", "test_rows", "settings", "warnings")


@dataclass(frozen=True)
class ComparisonRow:
    """One router, or one baseline, on the test rows.

    Attributes:
        name: Name of the router.
        kind: ``"router"``, or ``"baseline"`` for what is always shown.
        deferral_loss: Mean cost.
        score: Mean score.
        dollars_per_1000: Bill of 1,000 queries, where dollars are known.
        gap_closed: Share of the way from the best single expert (chosen on the train side) to the oracle.
        worst_recall: Lowest recall of an expert.
        exactly_one_right_recall: Recall where exactly one expert is right.
        effective_experts: Effective number of experts chosen.
        difference: Deferral loss of the default router minus that of this row; below 0 the default is better.
        holm_p_value: P-value of the difference, corrected for the number of rows compared with; none for default and oracle.
        fit_seconds: Time to fit, where something was fitted.

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


@dataclass(frozen=True)
class Comparison:
    """Routers and baselines on the same test rows.

    Attributes:
        rows: One per router, then one per baseline.
        default: Name of the router that the others are compared with: the first one.
        best_single: The expert that was best on the train side.
        experts: Names of the experts.
        train_rows: Rows learnt from.
        test_rows: Rows asked.
        settings: What the protocol was: weights, split, seed, encoder.
        choices: What each row chose on the test rows, shape (n,), by name.
        test: The test side of the table, in the order of the choices.
        warnings: What a reader of the figures must know, in sentences.

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

    def row(self, name: str) -> ComparisonRow:
        """The row of one router or baseline."""
        found = [row for row in self.rows if row.name == name]
        if not found:
            raise ArgumentError(f"name must be one of {', '.join(row.name for row in self.rows)}, got {name!r}.")
        return found[0]

    def as_columns(self) -> dict[str, list[Any]]:
        """The rows as columns of plain values; an interval gives three of them, ``name``, ``name_low`` and ``name_high``."""
        flat = [_flat(row) for row in self.rows]
        return {name: [row[name] for row in flat] for name in (flat[0] if flat else {})}

    def as_dict(self) -> dict[str, Any]:
        """Rows and protocol as plain values for JSON."""
        about = {name: getattr(self, name) for name in _ABOUT}
        return {**as_plain(about), "rows": as_plain(self.rows)}


def compare(
    table: CostTable,
    routers: Mapping[str, Any] | None = None,
    *,
    encoder: Any = None,
    price_weight: float = 0.0,
    latency_weight: float = 0.0,
    test: float = 0.2,
    seed: int = 0,
    by: str = "random",
    progress: Progress | None = None,
) -> Comparison:
    """Fit each router on the same train rows and measure it on the same test rows.

    Intervals are about further queries of the same kind: rows are resampled, and whole groups where the split is by group.

    Args:
        table: The cost table.
        routers: Estimators by name, the first one is what the others are compared with; by default :func:`default_routers`.
        encoder: Transformer over inputs, fitted on the train side; or vectors of all rows, shape (n, d); or none for the default encoder.
        price_weight: How much error a dollar is worth.
        latency_weight: How much error a second is worth.
        test: Share of the rows to test.
        seed: Of the split, of the default routers, of random choice and of the bootstrap.
        by: How to split: 'random', 'group', 'time' or 'column'.
        progress: Called with finished steps, all steps and the name of the next one.

    Returns:
        One row per router and per baseline.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.routers.knn import KnnRouter
        >>> texts = [f"{kind} {number}" for number in range(40) for kind in ("add", "prove")]
        >>> table = CostTable.of({"input": texts, "score:small": [1, 0] * 40, "score:large": [0, 1] * 40})
        >>> found = compare(table, {"kNN": KnnRouter()})
        >>> [(row.name, row.deferral_loss.value) for row in found.rows if row.name != "random"]
        [('kNN', 0.0), ('best single', 0.5625), ('oracle', 0.0)]
    """
    contestants = dict(default_routers(seed) if routers is None else routers)
    _check_names(contestants)
    train, tested = table.split(test, by=by, seed=seed)
    steps = _Steps(progress, 1 + len(contestants))
    steps.next("encoding")
    sides = Sides(train, tested, *encoded(table, train, tested, encoder), price_weight, latency_weight)
    choices, seconds = _contest(contestants, sides, steps)
    default = next(iter(contestants))
    choices |= baseline_choices(sides, choices[default], seed)
    rows = _with_differences(_rows(choices, seconds, sides, by, seed), choices, sides, by, seed)
    used = "vectors" if encoder is not None and not hasattr(encoder, "transform") else type(encoder).__name__ if encoder else "default"
    settings = {"price_weight": price_weight, "latency_weight": latency_weight, "test": test, "seed": seed, "by": by, "encoder": used}
    best = table.experts[int(choices["best single"][0])]
    return Comparison(
        tuple(rows), default, best, tuple(table.experts), len(train), len(tested), settings, choices, tested, few_rows(len(tested))
    )


def default_routers(seed: int = 0) -> dict[str, Any]:
    """The default router and the rivals without which a comparison is not believed.

    Args:
        seed: Seed of each router.

    Returns:
        Unfitted routers by name, the default first.

    Example:
        >>> list(default_routers())
        ['MildRouter', 'kNN', 'TDEF', 'linear regression', 'CE']
    """
    from mildroute.routers.knn import KnnRouter
    from mildroute.routers.mild import MildRouter
    from mildroute.routers.regression import RegressionRouter
    from mildroute.routers.surrogates import CrossEntropyRouter, TdefRouter

    return {
        "MildRouter": MildRouter(random_state=seed),
        "kNN": KnnRouter(),
        "TDEF": TdefRouter(random_state=seed),
        "linear regression": RegressionRouter(),
        "CE": CrossEntropyRouter(random_state=seed),
    }


class _Steps:
    """Counts finished steps for the caller's progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, -1

    def next(self, label: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, label)


def _check_names(routers: Mapping[str, Any]) -> None:
    if not routers:
        raise ArgumentError("routers must name at least one router, got none; leave it out for the default ones.")
    taken = sorted(set(routers) & set(BASELINES))
    if taken:
        raise ArgumentError(f"routers must not be named like a baseline that is always shown, got {', '.join(taken)}; choose another name.")


def _contest(routers: Mapping[str, Any], sides: Sides, steps: _Steps) -> tuple[dict[str, Choice], dict[str, float]]:
    choices: dict[str, Choice] = {}
    seconds: dict[str, float] = {}
    for name, router in routers.items():
        steps.next(name)
        choices[name], seconds[name] = choice_of(router, sides)
    steps.next("done")
    return choices, seconds


def _rows(choices: Mapping[str, Choice], seconds: Mapping[str, float], sides: Sides, by: str, seed: int) -> Iterator[ComparisonRow]:
    costs, scores, dollars = sides.costs(sides.test), sides.test.scores, sides.test.dollars
    groups = sides.test.groups if by == "group" else None
    best = int(choices["best single"][0])
    for name, choice in choices.items():
        drawn = resample(figure_columns(costs, choice, best, scores, dollars), groups, seed=seed)
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
        )


def _with_differences(
    rows: Iterator[ComparisonRow], choices: Mapping[str, Choice], sides: Sides, by: str, seed: int
) -> Iterator[ComparisonRow]:
    costs = sides.costs(sides.test)
    groups = sides.test.groups if by == "group" else None
    default = next(iter(choices))
    ours = paid(costs, choices[default])
    found = {name: paired_difference(ours, paid(costs, choice), groups, seed=seed) for name, choice in choices.items() if name != default}
    # that the oracle is better is no finding, so it takes no part in the correction
    corrected = holm({name: difference.p_value for name, difference in found.items() if name != "oracle"})
    for row in rows:
        yield replace(row, difference=found.get(row.name), holm_p_value=corrected.get(row.name))


def _flat(row: ComparisonRow) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name in row.__dataclass_fields__:
        value = getattr(row, name)
        if name in ("deferral_loss", "score", "dollars_per_1000", "gap_closed", "difference"):
            for suffix, part in (("", "value"), ("_low", "low"), ("_high", "high")):
                flat[name + suffix] = as_plain(getattr(value, part, None))
        else:
            flat[name] = as_plain(value)
    return flat
