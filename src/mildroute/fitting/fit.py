"""Fit a router with an operating point on a cost table, as ``mildroute fit`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from mildroute.fitting.result import FittedRouter, LaterRows, three_lines
from mildroute.fitting.shift import LATEST, expect_new_groups, measure_on_later_rows
from mildroute.fitting.targets import (
    CONFIDENCE,
    DEFAULT_QUALITY,
    QUERIES,
    default_price_weights,
    operating_point,
    resolve,
)
from mildroute.fitting.text_router import TextRouter
from mildroute.persistence.named_encoders import get_encoder
from mildroute.persistence.named_routers import get_router
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
# Maximum difference, beyond chance, between a stored router's shares on its training rows and the
# held-out shares. On samples of 100 to 1,500 MMLU rows the largest difference, chance included,
# was 0.11, because the encoder and the router were fitted on these rows.
_MAX_SHARE_DIFFERENCE = 0.15
# Maximum chance difference, in standard errors.
_MAX_STANDARD_ERRORS = 4.0
# Clusters get a note if there are fewer of them than this share of the rows.
_MAX_CLUSTER_SHARE = 0.99


@dataclass(frozen=True)
class FitOptions:
    """The method, the target and other options of a fit.

    Attributes:
        encoder: Transformer from inputs to vectors, or its name; see
            :func:`~mildroute.persistence.named_encoders.get_encoder`; defaults to TF-IDF with few
            columns.
        router: Router over vectors or its name, such as ``"KNNRouter"``; defaults to a
            :class:`~mildroute.routers.FrontierRouter` if the table has dollars, else a
            :class:`~mildroute.routers.MildRouter`. The methods along a frontier are chosen in
            :mod:`mildroute.routers.frontier.method_selection`.
        target: Target that selects the operating point; defaults to a quality of 0.99.
        thorough: Fit the surrogate losses of :class:`~mildroute.routers.MildRouter` as well;
            ``"auto"`` does so if they win on a sample.
        n_jobs: Number of processes that fit folds; `None` means one.
        seed: Seed for folds, clustering and random splits, from 0 to 2**32 - 1.
        judge: Name of the judge that gave the scores, for reports.
        cascade: Let the router look at answers before it decides, if that pays off; see
            :class:`~mildroute.routers.cascade.router.CascadeRouter`.
        answer_characters: Number of leading characters of an answer that a cascade reads; `None`
            means the whole answer.
        baseline: Expert whose bill the user pays today, against which savings are measured;
            defaults to the most expensive one.
        order: ``"time"`` also fits a router on the earlier rows and measures whether its promise
            holds on the latest fifth; the table needs the column ``time``.
    """

    encoder: Any = None
    router: Any = None
    target: Target | None = None
    thorough: bool | Literal["auto"] = "auto"
    n_jobs: int | None = None
    seed: int = 0
    judge: str | None = None
    cascade: bool = False
    answer_characters: int | None = None
    baseline: str | None = None
    order: Literal["time"] | None = None


def fit_table(
    table: CostTable, options: FitOptions | None = None, *, progress: Progress | None = None
) -> FittedRouter:
    """Fit encoder and router on a table, and choose the operating point on held-out rows.

    Args:
        table: Table with inputs; with dollars to save money, and with answers for a cascade.
        options: Method and target.
        progress: Called with the steps done, the total and a short label of the current step.

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
        >>> fitted = fit_table(table, FitOptions(target=Target("quality", 1.0)))
        >>> fitted.point.score, round(fitted.point.dollars_per_1000, 2)
        (1.0, 5.5)
    """
    options = _checked_options(table, FitOptions() if options is None else options, progress)
    complete, warnings, rows = complete_table(table, options.encoder, options.seed)
    if complete.dollars is None:
        return _fit_without_dollars(complete, options, warnings)
    fitted = _fit_frontier(complete, options, progress)
    return _choose_point(fitted, table, complete, options, warnings, rows)


def _choose_point(
    fitted: TextRouter,
    table: CostTable,
    complete: CostTable,
    options: FitOptions,
    warnings: tuple[str, ...],
    rows: float,
) -> FittedRouter:
    """Choose the operating point, check it on the training rows, and describe the result.

    Args:
        fitted: The router, with a frontier of operating points.
        table: The table as the user gave it.
        complete: The table with every expert's cost in every row.
        options: Options of the fit.
        warnings: Sentences about imputed scores.
        rows: Effective number of rows before imputation.
    """
    frontier: FrontierRouter = fitted.router_
    names = list(fitted.experts_)
    if options.baseline is not None:
        frontier.set_baseline(complete.experts.index(options.baseline))
    measured, note = operating_point(frontier, options.target)
    point, check_notes = _check_point(fitted, complete, measured, options.target)
    frontier.operate_at(point)
    alternative, without_router = _simplest_alternative(
        complete, frontier.curve, options.target, options.seed
    )
    lines = three_lines(frontier.curve, names, (alternative, without_router), point, QUERIES)
    clusters = complete.clusters
    if len(clusters) < _MAX_CLUSTER_SHARE * len(complete) and clusters.sentence:
        warnings = (clusters.sentence, *clusters.notes, *warnings)
    else:
        warnings = (*clusters.notes, *warnings)
    warnings += check_notes
    warnings += _few_to_promise(min(rows, clusters.effective), options.target, clusters.unit)
    if without_router.dollars_per_1000 < CHEAPER * point.dollars_per_1000:
        warnings += (
            (
                "the simplest alternative keeps as much for less than the router:"
                f" {alternative.words(names)}; use it, or give the router features"
                " that show the difference (--encoder)"
            ),
        )
    later = measure_later_rows(table, options) if options.order == "time" else None
    provenance = _provenance(table, options, alternative)
    return FittedRouter(
        _with_provenance(fitted, table, complete, provenance),
        point,
        note,
        warnings,
        lines,
        expect_new_groups(fitted, complete, point, options.seed),
        later,
    )


def measure_later_rows(table: CostTable, options: FitOptions) -> LaterRows:
    """Return the results on the latest fifth of the rows, for a router fitted on the others."""
    early, late = table.split(LATEST, by="time", seed=options.seed)
    fitted = fit_table(
        early, replace(options, order=None, judge=None, cascade=False, answer_characters=None)
    )
    return measure_on_later_rows(fitted, late, options.target)


def _checked_options(
    table: CostTable, options: FitOptions, progress: Progress | None
) -> FitOptions:
    """Return the options with estimators instead of names, or raise an error."""
    _check_arguments(table, options, progress)
    router = _estimator(
        options.router, "router", "predict", partial(get_router, random_state=options.seed)
    )
    encoder = _estimator(options.encoder, "encoder", "transform", get_encoder)
    if table.inputs is None:
        raise TableError(
            "a router over texts needs the column 'input' (or 'text'), got none; add it, or fit"
            " MildRouter on vectors."
        )
    _check_cascade(table, options.answer_characters, is_cascade=options.cascade)
    _check_baseline(options.baseline, options.order, table, options.target)
    if table.dollars is None:
        _check_needs_dollars(options)
    return replace(options, encoder=encoder, router=router)


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


def _check_needs_dollars(options: FitOptions) -> None:
    """Raise an error for options that need dollars."""
    target = options.target
    if target is not None:
        raise TableError(
            f"a {target.kind} of {target.value:g} needs dollars, got a table without"
            " 'cost:<expert>' columns; give prices, or no target."
        )
    for name, value, default in (
        ("thorough", options.thorough, "auto"),
        ("n_jobs", options.n_jobs, None),
        ("baseline", options.baseline, None),
        ("order", options.order, None),
    ):
        if value != default:
            raise TableError(
                f"{name}={value!r} needs dollars, got a table without 'cost:<expert>' columns, on"
                f" which one router is fitted for quality alone; give prices, or no {name}."
            )


def _simplest_alternative(
    table: CostTable, curve: CostQualityCurve, target: Target | None, seed: int
) -> tuple[Alternative, OperatingPoint]:
    """Return the simplest alternative to a router that meets a target, with its figures."""
    singles = curve.single_experts()
    quality = DEFAULT_QUALITY if target is None else target.value
    if target is not None and target.kind == "price weight":
        costs = singles.errors + target.value * singles.dollars
        single = singles.point(int(costs[singles.baselines].argmin()), CONFIDENCE, QUERIES)
        return Alternative.from_point(single), single
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


def _fit_frontier(table: CostTable, options: FitOptions, progress: Progress | None) -> TextRouter:
    """Fit the encoder and a frontier of routers, or of cascades, on a table with dollars."""
    router_class = CascadeRouter if options.cascade else FrontierRouter
    frontier = router_class(
        router=options.router,
        price_weights=default_price_weights(np.asarray(table.dollars)),
        thorough=options.thorough,
        n_jobs=options.n_jobs,
        random_state=options.seed,
    )
    features = None
    answers = None
    logprobs = None
    if options.cascade:
        features = AnswerFeatures(max_characters=options.answer_characters)
        answers = [table.answers(name) for name in table.experts]
        # Truncated answers come from streams, which are requested without log-probabilities.
        if options.answer_characters is None:
            logprobs = [table.logprobs(name) for name in table.experts]
    return TextRouter(encoder=options.encoder, router=frontier, answer_features=features).fit(
        table.inputs,
        table.costs(),
        experts=table.experts,
        groups=table.groups,
        clusters=table.clusters.codes,
        prices=table.dollars,
        progress=progress,
        answers=answers,
        logprobs=logprobs,
    )


def _check_arguments(table: CostTable, options: FitOptions, progress: Progress | None) -> None:
    """Raise an error for an argument of the wrong type or value, before anything is fitted."""
    target, thorough, n_jobs, seed = (
        options.target,
        options.thorough,
        options.n_jobs,
        options.seed,
    )
    is_count = is_integer(n_jobs) and n_jobs != 0
    is_seed = is_integer(seed) and 0 <= seed < 2**32
    for name, value, is_valid, rule, remedy in (
        ("table", table, isinstance(table, CostTable), "a CostTable", "CostTable.read makes one"),
        (
            "target",
            target,
            target is None or isinstance(target, Target),
            "a Target or None",
            "for example Target('quality', 0.95)",
        ),
        (
            "thorough",
            options.thorough,
            thorough in (True, False, "auto"),
            "True, False or 'auto'",
            "",
        ),
        (
            "n_jobs",
            options.n_jobs,
            n_jobs is None or is_count,
            "a number of processes",
            "-1 is all cores",
        ),
        ("seed", seed, is_seed, "a whole number from 0 to 2**32 - 1", "0 is the default"),
        ("progress", progress, progress is None or callable(progress), "a function or None", ""),
    ):
        if not is_valid:
            hint = f"; {remedy}" if remedy else ""
            raise ArgumentError(
                f"{name} must be {rule}, got {value!r:.80} of type {type(value).__name__}{hint}."
            )


def _estimator(estimator: Any, role: str, method: str, get: Callable[[str], Any]) -> Any:
    """Return an estimator given as an object or by name, or `None` for the default."""
    if isinstance(estimator, str):
        return get(estimator)
    if estimator is not None and (isinstance(estimator, type) or not hasattr(estimator, method)):
        raise ArgumentError(
            f"{role} must be an estimator with {method}, its name, or None, got"
            f" {estimator!r:.80}; for example"
            f" {'TfidfEncoder()' if role == 'encoder' else 'KNNRouter()'}."
        )
    return estimator


def _fit_without_dollars(
    table: CostTable, options: FitOptions, warnings: tuple[str, ...]
) -> FittedRouter:
    router = MildRouter(random_state=options.seed) if options.router is None else options.router
    fitted = TextRouter(encoder=options.encoder, router=router).fit(
        table.inputs,
        table.costs(),
        experts=table.experts,
        groups=table.groups,
        clusters=table.clusters.codes,
    )
    why = getattr(fitted.router_, "selection_", method_of(fitted))
    return FittedRouter(
        _with_provenance(fitted, table, table, _provenance(table, options, None)),
        None,
        f"no dollars in the table, so only quality counts; {why}",
        warnings,
    )


def _provenance(
    table: CostTable, options: FitOptions, alternative: Alternative | None
) -> Provenance:
    fingerprints = np.sort(text_fingerprints(table))
    return Provenance(table.content_hash, fingerprints, options.target, options.judge, alternative)


def _with_provenance(
    router: TextRouter, table: CostTable, complete: CostTable, provenance: Provenance
) -> TextRouter:
    """Return the router with its provenance and the distribution of its held-out decisions."""
    router.set_provenance(provenance)
    if router.outcome_model_ is not None:
        point = router.operating_point
        router.outcome_model_.set_drift_reference(
            _held_out_posterior(router, table, complete.costs()),
            None if point is None else point.shares,
        )
    return router


def _held_out_posterior(router: TextRouter, table: CostTable, costs: Any) -> NDArray[np.float64]:
    """Return out-of-fold posteriors of the rows; the encoder has seen all rows."""
    if router.router_.keeps_held_out_posterior:
        return np.asarray(router.router_.cross_val_posterior())
    rows = TrainingRows(
        router.encoder_.transform(table.inputs),
        np.asarray(costs),
        groups=table.groups,
        clusters=cluster_codes(table.clusters.codes, len(table)),
    )
    return cross_val_posterior(router.router_, rows)


def _check_point(
    router: TextRouter, table: CostTable, point: OperatingPoint, target: Target | None
) -> tuple[OperatingPoint, tuple[str, ...]]:
    """Return the point if the stored router behaves as measured, else a mix of single experts."""
    choice = router.predict(table.inputs, point=point)
    names = router.experts_
    served = np.bincount(choice, minlength=len(names)) / len(table)
    promised = np.clip(point.shares, 0.0, 1.0)
    n_clusters = table.clusters.effective
    allowed = _MAX_SHARE_DIFFERENCE + _MAX_STANDARD_ERRORS * np.sqrt(
        promised * (1 - promised) / n_clusters
    )
    worst = int((np.abs(served - promised) - allowed).argmax())
    if abs(served[worst] - promised[worst]) <= allowed[worst]:
        return point, ()
    difference = (
        f"the fitted router sends {served[worst]:.0%} of its own training rows to"
        f" {names[worst]}, where {promised[worst]:.0%} of held-out rows went"
    )
    columns = router.router_.outcome_rows
    scores = table.scores if columns is None else 1 - columns.costs
    dollars = table.dollars if columns is None else columns.dollars
    if _is_better(scores, dollars, choice, point):
        # Nearest-neighbor routers memorize their training rows: results better and cheaper than
        # promised say nothing about new rows.
        return point, (
            (
                f"{difference}: it has memorized them, so the promise could not be checked on them;"
                " hold rows out and evaluate"
            ),
        )
    if target is not None and target.kind == "price weight":
        return point, (f"{difference}: expect other shares, score and bill than these",)
    return resolve(router.router_.curve.single_experts(), target), (
        f"{difference}: single experts are mixed at random instead",
    )


def _few_to_promise(rows: float, target: Target | None, unit: str) -> tuple[str, ...]:
    """Return a note if some promises need more rows, or clusters of rows."""
    if target is not None and target.kind != "quality":
        return ()
    row_count = pluralize(int(rows), f"different {unit}" if unit == "prompt" else unit)
    if rows < FEWEST_TO_PROMISE:
        return (
            (
                f"only {row_count}, counted by frequency, to learn from: below"
                f" {FEWEST_TO_PROMISE}, no quality is promised but the best expert's own; add rows"
            ),
        )
    if rows < FEWEST_FOR_ROUTER:
        return (
            (
                f"only {row_count}, counted by frequency, to learn from: below"
                f" {FEWEST_FOR_ROUTER}, a random mix of experts keeps a quality more surely than a"
                " router, so only mixes are offered; add rows"
            ),
        )
    return ()


def _is_better(
    scores: NDArray[np.float64], dollars: Any, choice: NDArray[np.intp], point: OperatingPoint
) -> bool:
    """Return whether choices have a higher score and a lower bill than a point promises."""
    rows = np.arange(len(choice))
    score, bill = scores[rows, choice].mean(), 1000 * np.asarray(dollars)[rows, choice].mean()
    return bool(score > point.score and bill < point.dollars_per_1000)
