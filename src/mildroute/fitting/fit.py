"""Fit a router with an operating point on a cost table, as ``mildroute fit`` does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute._checks import nearest
from mildroute._content_hash import text_fingerprints
from mildroute._format import pluralize
from mildroute.costs.table import CostTable
from mildroute.encoders.answers import AnswerFeatures
from mildroute.exceptions import ArgumentError, TableError, UnreachableTargetError
from mildroute.fitting.alternatives import Alternative, simplest_alternative
from mildroute.fitting.descriptions import CHEAPER, method_of
from mildroute.fitting.imputation import complete_table, is_integer
from mildroute.fitting.provenance import Provenance
from mildroute.fitting.result import FittedRouter, three_lines
from mildroute.fitting.shift import expect_new_groups, measure_later_rows
from mildroute.fitting.targets import (
    CONFIDENCE,
    DEFAULT_QUALITY,
    QUERIES,
    default_price_weights,
    operating_point,
    resolve,
)
from mildroute.fitting.text_router import TextRouter
from mildroute.persistence.registry import get_encoder, get_router
from mildroute.routers._cross_validation import cross_val_posterior
from mildroute.routers._folds import cluster_codes
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.frontier.curve import FEWEST_FOR_ROUTER, FEWEST_TO_PROMISE, CostQualityCurve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target
from mildroute.routers.mild import MildRouter
from mildroute.routers.training_rows import TrainingRows

Progress: TypeAlias = Callable[[int, int, str], None]
# Maximum difference, beyond chance, between a stored router on its own training rows and the
# held-out figures. On draws of 100 to 1,500 rows of MMLU the largest difference, chance included,
# was 0.11: the encoder and the router know these rows.
_ALLOWANCE = 0.15
# Chance differences up to this many standard errors are allowed.
_STANDARD_ERRORS = 4.0
# Clusters are worth a note if they number less than this share of the rows.
_NOTED = 0.99


def fit(
    table: CostTable,
    *,
    encoder: Any = None,
    router: Any = None,
    target: Target | None = None,
    thorough: bool | Literal["auto"] = "auto",
    n_jobs: int | None = None,
    seed: int = 0,
    judge: str | None = None,
    progress: Progress | None = None,
    cascade: bool = False,
    answer_characters: int | None = None,
    baseline: str | None = None,
    order: Literal["time"] | None = None,
) -> FittedRouter:
    """Fit encoder and router on a table, and choose the operating point on held-out rows.

    Args:
        table: Table with inputs, with dollars if money counts, and with answers for a cascade.
        encoder: Transformer of inputs to vectors or its name, see
            :func:`~mildroute.persistence.registry.get_encoder`; defaults to TF-IDF with few
            columns.
        router: Router over vectors or its name, such as ``"KNNRouter"``; defaults to a
            :class:`~mildroute.routers.FrontierRouter` if the table has dollars, else a
            :class:`~mildroute.routers.MildRouter`.
        target: Target that selects the operating point; defaults to a quality of 0.99.
        thorough: Fit the surrogate losses of :class:`~mildroute.routers.MildRouter` as well;
            ``"auto"`` if they win on a sample.
        n_jobs: Number of processes that fit folds; `None` means one.
        seed: Seed of folds, clusterings and random mixes, from 0 to 2**32 - 1.
        judge: Name of the judge that gave the scores, for reports.
        progress: Called with steps done, total steps and a short label of the current one.
        cascade: Let the router look at answers before it decides, if that pays off, see
            :class:`~mildroute.routers.cascade.router.CascadeRouter`.
        answer_characters: Number of characters at the beginning of an answer that a cascade sees;
            `None` means whole answers.
        baseline: Expert whose bill the user pays today, against which savings are measured;
            defaults to the most expensive one.
        order: ``"time"`` also fits a router on the earlier rows and measures on the latest fifth
            how the promise holds there; the table needs the column ``time``.

    Returns:
        The router, ready to be saved, and its operating point.

    Example:
        >>> texts = [text for n in range(120) for text in (f"add {n} 1", f"sing song {n}")]
        >>> table = CostTable.from_data(
        ...     {
        ...         "input": texts,
        ...         "score:small": [1, 0] * 120,
        ...         "score:large": [1, 1] * 120,
        ...         "cost:small": [0.001] * 240,
        ...         "cost:large": [0.01] * 240,
        ...     }
        ... )
        >>> fitted = fit(table, target=Target("quality", 1.0))
        >>> fitted.point.score, round(fitted.point.dollars_per_1000, 2)
        (1.0, 5.5)
    """
    _check_arguments(table, target, thorough, n_jobs, seed, progress)
    encoder = _estimator(encoder, "encoder", "transform", get_encoder)
    router = _estimator(router, "router", "predict", partial(get_router, random_state=seed))
    if table.inputs is None:
        raise TableError(
            "a router over texts needs the column 'input' (or 'text'), got none; add it, or fit"
            " MildRouter on vectors."
        )
    _check_cascade(table, answer_characters, is_cascade=cascade)
    _check_baseline(baseline, order, table, target)
    if table.dollars is None:
        _check_needs_dollars(target, thorough, n_jobs, baseline, order)
    given = table
    table, warnings, rows = complete_table(table, encoder, seed)
    costs = table.costs()
    if table.dollars is None:
        return _without_dollars(
            table,
            costs,
            encoder,
            MildRouter(random_state=seed) if router is None else router,
            judge,
            warnings,
        )
    kind = CascadeRouter if cascade else FrontierRouter
    frontier = kind(router=router, thorough=thorough, n_jobs=n_jobs, random_state=seed)
    features = AnswerFeatures(max_characters=answer_characters) if cascade else None
    fitted = _fit_frontier(table, costs, encoder, frontier, features, progress)
    if baseline is not None:
        fitted.router_.set_baseline(table.experts.index(baseline))
    measured, note = operating_point(fitted.router_, target)
    point, doubts = _checked(fitted, table, measured, target)
    fitted.router_.operate_at(point)
    clusters = table.clusters
    repeats = len(clusters) < _NOTED * len(table) and clusters.sentence
    warnings = (*((repeats,) if repeats else ()), *clusters.notes, *warnings, *doubts)
    warnings += _few_to_promise(min(rows, clusters.effective), target, clusters.unit)
    simple = _simplest(table, fitted.router_.curve, target, seed)
    lines = three_lines(fitted.router_.curve, list(fitted.experts_), simple, point, QUERIES)
    if simple[1].dollars_per_1000 < CHEAPER * point.dollars_per_1000:
        warnings += (
            (
                "the simplest alternative keeps as much for less than the router:"
                f" {simple[0].words(list(fitted.experts_))}; use it, or give the router features"
                " that show the difference (--encoder)"
            ),
        )
    later = None
    if order == "time":
        again = partial(fit, encoder=encoder, router=router, target=target, thorough=thorough)
        again = partial(again, n_jobs=n_jobs, seed=seed, baseline=baseline)
        later = measure_later_rows(given, again, target, seed)
    return FittedRouter(
        _with_provenance(fitted, given, costs, _provenance(given, target, judge, simple[0])),
        point,
        note,
        warnings,
        lines,
        expect_new_groups(fitted, table, point, seed),
        later,
    )


def _check_baseline(
    baseline: str | None, order: str | None, table: CostTable, target: Target | None
) -> None:
    if baseline is not None and baseline not in table.experts:
        raise ArgumentError(
            f"baseline must be an expert of the table, got {baseline!r:.60};"
            f" {nearest(baseline, list(table.experts))}"
        )
    if order not in (None, "time"):
        raise ArgumentError(f"order must be 'time' or None, got {order!r:.60}.")
    if order == "time" and target is not None and target.kind != "quality":
        raise ArgumentError(
            f"order='time' measures what a quality loses with time, got a {target.kind} of"
            f" {target.value:g}; give a quality, or leave the order out."
        )


def _check_needs_dollars(
    target: Target | None,
    thorough: bool | Literal["auto"],
    n_jobs: int | None,
    baseline: str | None,
    order: str | None,
) -> None:
    """Raise an error for arguments that a fit on a table without dollars would ignore."""
    if target is not None:
        raise TableError(
            f"a {target.kind} of {target.value:g} needs dollars, got a table without"
            " 'cost:<expert>' columns; give prices, or no target."
        )
    for name, value, default in (
        ("thorough", thorough, "auto"),
        ("n_jobs", n_jobs, None),
        ("baseline", baseline, None),
        ("order", order, None),
    ):
        if value != default:
            raise TableError(
                f"{name}={value!r} needs dollars, got a table without 'cost:<expert>' columns, on"
                f" which one router is fitted for quality alone; give prices, or no {name}."
            )


def _simplest(
    table: CostTable, curve: CostQualityCurve, target: Target | None, seed: int
) -> tuple[Alternative, OperatingPoint]:
    """Return the simplest alternative to a router for a target, with its figures."""
    singles = curve.single_experts()
    quality = DEFAULT_QUALITY if target is None else target.value
    if target is not None and target.kind == "price weight":
        costs = singles.errors + target.value * singles.dollars
        alone = singles.point(int(costs[singles.baselines].argmin()), CONFIDENCE, QUERIES)
        return Alternative.from_point(alone), alone
    try:
        mix = resolve(singles, target)
    except UnreachableTargetError:
        mix = singles.point(singles.best, CONFIDENCE, QUERIES)
    is_quality = target is None or target.kind == "quality"
    return simplest_alternative(
        table,
        mix,
        quality if is_quality else None,
        CONFIDENCE,
        QUERIES,
        int(curve.baseline_index - len(curve.weights)),
        seed,
    )


def _check_cascade(table: CostTable, answer_characters: int | None, *, is_cascade: bool) -> None:
    if answer_characters is not None and not is_cascade:
        raise ArgumentError(
            "answer_characters is for a cascade, which looks at answers; ask for one, or leave it"
            " out."
        )
    if is_cascade and table.dollars is None:
        raise TableError(
            "a cascade needs dollars, got a table without 'cost:<expert>' columns: if answers"
            " cost nothing, all are worth asking; give prices."
        )
    if is_cascade and table.is_partial:
        raise TableError(
            "a cascade needs the answers of all experts on all rows, got a table in which not all"
            " were asked; leave out the other rows with missing (--missing) drop."
        )


def _fit_frontier(
    table: CostTable,
    costs: Any,
    encoder: Any,
    frontier: FrontierRouter,
    features: AnswerFeatures | None,
    progress: Progress | None,
) -> TextRouter:
    frontier.set_params(price_weights=default_price_weights(np.asarray(table.dollars)))
    return TextRouter(encoder=encoder, router=frontier, answer_features=features).fit(
        table.inputs,
        costs,
        experts=table.experts,
        groups=table.groups,
        clusters=table.clusters.codes,
        prices=table.dollars,
        progress=progress,
        answers=[table.answers(name) for name in table.experts] if features else None,
        # Beginnings of answers are read from streams, which are requested without
        # log-probabilities.
        logprobs=[table.logprobs(name) for name in table.experts]
        if features and features.max_characters is None
        else None,
    )


def _check_arguments(
    table: Any, target: Any, thorough: Any, n_jobs: Any, seed: Any, progress: Any
) -> None:
    """Raise an error for arguments of another type or value before anything is fitted."""
    is_count = is_integer(n_jobs) and n_jobs != 0
    is_seed = is_integer(seed) and 0 <= seed < 2**32
    for name, value, holds, rule, way_out in (
        ("table", table, isinstance(table, CostTable), "a CostTable", "CostTable.read makes one"),
        (
            "target",
            target,
            target is None or isinstance(target, Target),
            "a Target or None",
            "for example Target('quality', 0.95)",
        ),
        ("thorough", thorough, thorough in (True, False, "auto"), "True, False or 'auto'", ""),
        ("n_jobs", n_jobs, n_jobs is None or is_count, "a number of processes", "-1 is all cores"),
        ("seed", seed, is_seed, "a whole number from 0 to 2**32 - 1", "0 is the default"),
        ("progress", progress, progress is None or callable(progress), "a function or none", ""),
    ):
        if not holds:
            hint = f"; {way_out}" if way_out else ""
            raise ArgumentError(
                f"{name} must be {rule}, got {value!r:.80} of type {type(value).__name__}{hint}."
            )


def _estimator(given: Any, role: str, method: str, get: Callable[[str], Any]) -> Any:
    """Return the estimator passed or named, or `None` for the default."""
    if isinstance(given, str):
        return get(given)
    if given is not None and (isinstance(given, type) or not hasattr(given, method)):
        raise ArgumentError(
            f"{role} must be an estimator with {method}, its name, or none, got {given!r:.80}; for"
            f" example {'TfidfEncoder()' if role == 'encoder' else 'KNNRouter()'}."
        )
    return given


def _without_dollars(
    table: CostTable,
    costs: Any,
    encoder: Any,
    router: Any,
    judge: str | None,
    warnings: tuple[str, ...],
) -> FittedRouter:
    fitted = TextRouter(encoder=encoder, router=router).fit(
        table.inputs,
        costs,
        experts=table.experts,
        groups=table.groups,
        clusters=table.clusters.codes,
    )
    why = getattr(fitted.router_, "selection_", method_of(fitted))
    return FittedRouter(
        _with_provenance(fitted, table, costs, _provenance(table, None, judge, None)),
        None,
        f"no dollars in the table, so only quality counts; {why}",
        warnings,
    )


def _provenance(
    table: CostTable, target: Target | None, judge: str | None, alternative: Alternative | None
) -> Provenance:
    seen = np.sort(text_fingerprints(table))
    return Provenance(table.content_hash, seen, target, judge, alternative)


def _with_provenance(
    router: TextRouter, table: CostTable, costs: Any, provenance: Provenance
) -> TextRouter:
    """Return the router with its provenance and the distribution of its held-out decisions."""
    router.set_provenance(provenance)
    if router.outcome_model_ is not None:
        point = router.operating_point
        router.outcome_model_.set_drift_reference(
            _held_out(router, table, costs), None if point is None else point.shares
        )
    return router


def _held_out(router: TextRouter, table: CostTable, costs: Any) -> NDArray[np.float64]:
    """Return posteriors of the rows, out of fold for the routers though not for the encoder."""
    if router.router_.keeps_held_out_posterior:
        return np.asarray(router.router_.cross_val_posterior())
    rows = TrainingRows(
        router.encoder_.transform(table.inputs),
        np.asarray(costs),
        groups=table.groups,
        clusters=cluster_codes(table.clusters.codes, len(table)),
    )
    return cross_val_posterior(router.router_, rows)


def _checked(
    router: TextRouter, table: CostTable, point: OperatingPoint, target: Target | None
) -> tuple[OperatingPoint, tuple[str, ...]]:
    """Return the point, or a random mix of single experts.

    The mix replaces the point if the stored router does not behave as measured.
    """
    choice = router.predict(table.inputs, point=point)
    names = router.experts_
    served, promised = (
        np.bincount(choice, minlength=len(names)) / len(table),
        np.clip(point.shares, 0.0, 1.0),
    )
    units = table.clusters.effective
    allowed = _ALLOWANCE + _STANDARD_ERRORS * np.sqrt(promised * (1 - promised) / units)
    worst = int((np.abs(served - promised) - allowed).argmax())
    if abs(served[worst] - promised[worst]) <= allowed[worst]:
        return point, ()
    seen = (
        f"the fitted router sends {served[worst]:.0%} of its own training rows to"
        f" {names[worst]}, where {promised[worst]:.0%} of held-out rows went"
    )
    columns = router.router_.outcome_rows
    scores = table.scores if columns is None else 1 - columns.costs
    dollars = table.dollars if columns is None else columns.dollars
    if _is_better(scores, dollars, choice, point):
        # Nearest-neighbor routers know their own rows: results better and cheaper than promised are
        # no evidence about new rows.
        return point, (
            (
                f"{seen}: it knows them by heart, so the promise could not be checked on them; hold"
                " rows out and evaluate"
            ),
        )
    if target is not None and target.kind == "price weight":
        return point, (f"{seen}: expect other shares, score and bill than these",)
    return resolve(router.router_.curve.single_experts(), target), (
        f"{seen}: single experts are mixed at random instead",
    )


def _few_to_promise(rows: float, target: Target | None, unit: str) -> tuple[str, ...]:
    """Return a note if there are too few rows, or clusters of rows, for some promises."""
    if target is not None and target.kind != "quality":
        return ()
    counted = pluralize(int(rows), f"different {unit}" if unit == "prompt" else unit)
    if rows < FEWEST_TO_PROMISE:
        return (
            (
                f"only {counted}, counted by frequency, to learn from: below"
                f" {FEWEST_TO_PROMISE}, no quality is promised but the best expert's own; add rows"
            ),
        )
    if rows < FEWEST_FOR_ROUTER:
        return (
            (
                f"only {counted}, counted by frequency, to learn from: below"
                f" {FEWEST_FOR_ROUTER}, a random mix of experts keeps a quality more surely than a"
                " router, so only mixes are offered; add rows"
            ),
        )
    return ()


def _is_better(
    scores: NDArray[np.float64], dollars: Any, choice: NDArray[np.intp], point: OperatingPoint
) -> bool:
    """Return whether choices beat a point's promise with a higher score and a lower bill."""
    rows = np.arange(len(choice))
    score, bill = scores[rows, choice].mean(), 1000 * np.asarray(dollars)[rows, choice].mean()
    return bool(score > point.score and bill < point.dollars_per_1000)
