"""Fit a router with an operating point on a cost table, as ``mildroute fit`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t
from sklearn.base import clone

from mildroute._alternatives import Alternative, simplest_alternative, three_lines
from mildroute._fitted import DEFAULT_QUALITY, FittedRouter, LaterRows, NewGroups, method_of
from mildroute._format import pluralize
from mildroute._hashing import text_fingerprints
from mildroute._yaml import nearest
from mildroute.costs.clusters import link
from mildroute.costs.table import CostTable
from mildroute.encoders.answers import AnswerFeatures
from mildroute.exceptions import ArgumentError, TableError, UnreachableTargetError
from mildroute.persistence.registry import get_encoder, get_router
from mildroute.pipeline import DEFAULT_ENCODER, TextRouter
from mildroute.routers._cross_validation import cluster_codes, cross_val_posterior
from mildroute.routers.base import named_costs
from mildroute.routers.cascade import CascadeRouter
from mildroute.routers.frontier import FrontierRouter, TrainingRows, cut_vectors
from mildroute.routers.mild import MildRouter
from mildroute.routers.online import KnownExperts, check_asked, impute_costs
from mildroute.routers.operating_point import (
    FEWEST_FOR_ROUTER,
    FEWEST_TO_PROMISE,
    CostQualityCurve,
    OperatingPoint,
    Target,
    measure_curve,
)

Progress: TypeAlias = Callable[[int, int, str], None]

_STEPS = 12
_ROUNDING = 1e-9
# Errors that the whole difference between the most expensive and the cheapest expert is worth at
# the ends of the grid of price weights.
_LEAST, _MOST = 0.003, 30.0
# Of promises: how often they hold, and the size of the batch that a budget is for.
_CONFIDENCE, _QUERIES = 0.95, 1000
# Share by which a stored router may differ on its own training rows from what was held out, beyond
# chance. On draws of 100 to 1,500 rows of MMLU the largest difference, chance included, was 0.11:
# the encoder and the router know these rows.
_ALLOWANCE = 0.15
_STANDARD_ERRORS = 4.0
# Groups below which nothing is said of a further one.
_FEWEST_GROUPS = 3
# A bill is lower if it is below this part of another.
_CHEAPER = 0.99
# Share of the rows that are the latest.
_LATEST = 0.2
# Clusters are worth a note if there are fewer than this share of the rows.
_NOTED = 0.99


def default_price_weights(dollars: NDArray[np.float64]) -> tuple[float, ...]:
    """Price weights from "only quality counts" to "only money counts" for these dollars.

    Args:
        dollars: Dollars of each expert on each row, shape (n, p).

    Returns:
        Ascending, from 0.
    """
    spread = float(
        np.ptp(dollars, axis=1).mean()
    )  # of each row: who is most expensive may change from row to row
    if spread <= _ROUNDING * dollars.mean():
        return (0.0, 1.0)
    return (
        0.0,
        *(float(f"{weight:.2g}") for weight in np.geomspace(_LEAST, _MOST, _STEPS) / spread),
    )


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
    """Fit encoder and router on a table, and choose the operating point on held-out rows of it.

    Args:
        table: Table with inputs, with dollars if money counts, and with answers for a cascade.
        encoder: Transformer of inputs to vectors or its name, see
            :func:`~mildroute.persistence.registry.get_encoder`; by default TF-IDF with few columns.
        router: Router over vectors or its name, such as ``"KNNRouter"``; by default a
            :class:`~mildroute.routers.frontier.FrontierRouter` if the table has dollars, else a
            :class:`~mildroute.routers.mild.MildRouter`.
        target: Target that selects the operating point; by default a quality of 0.99.
        thorough: Fit the surrogate losses of :class:`~mildroute.routers.mild.MildRouter` as well;
            ``"auto"`` if they win on a sample.
        n_jobs: Processes that fit folds; none means one.
        seed: Seed of folds, clusterings and coins, from 0 to 2**32 - 1.
        judge: Name of the judge that gave the scores, for reports.
        progress: Called with steps done, total steps and a short label of the current one.
        cascade: Let the router look at answers before it decides, if that pays off, see
            :class:`~mildroute.routers.cascade.CascadeRouter`.
        answer_characters: Number of characters at the beginning of an answer that a cascade sees;
            none for whole answers.
        baseline: Expert whose bill the user pays today, against which savings are measured; by
            default the most expensive one.
        order: ``"time"`` also fits a router on the earlier rows and measures on the latest fifth
            what the promise loses there; the table needs the column ``time``.

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
    given = table
    table, warnings, rows = _completed(table, encoder, seed)
    costs = named_costs(table.costs(), table.experts)
    if table.dollars is None:
        return _without_dollars(
            table,
            costs,
            encoder,
            MildRouter(random_state=seed) if router is None else router,
            target,
            judge,
            warnings,
        )
    kind = CascadeRouter if cascade else FrontierRouter
    frontier = kind(router=router, thorough=thorough, n_jobs=n_jobs, random_state=seed)
    features = AnswerFeatures(max_characters=answer_characters) if cascade else None
    fitted = _fit_frontier(table, costs, encoder, frontier, features, progress)
    if baseline is not None:
        fitted.router_.set_baseline(table.experts.index(baseline))
    point, note = operating_point(fitted.router_, target)
    fitted.router_.operate_at(point)
    point, doubts = _checked(fitted, table, point, target)
    fitted.router_.operate_at(point)
    clusters = table.clusters
    repeats = len(clusters) < _NOTED * len(table) and clusters.sentence
    warnings = (*((repeats,) if repeats else ()), *clusters.notes, *warnings, *doubts)
    warnings += _few_to_promise(min(rows, clusters.effective), target, clusters.unit)
    simple = _simplest(table, fitted.router_.curve, target, seed)
    fitted.alternative_ = simple[0].to_plain()
    lines = three_lines(fitted.router_.curve, list(fitted.experts_), simple, point, _QUERIES)
    if simple[1].dollars_per_1000 < _CHEAPER * point.dollars_per_1000:
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
        later = _later_rows(given, again, target, seed)
    return FittedRouter(
        _with_metadata(fitted, given, costs, target, judge),
        point,
        note,
        warnings,
        lines,
        _new_groups(fitted, table, point, seed),
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


def _simplest(
    table: CostTable, curve: CostQualityCurve, target: Target | None, seed: int
) -> tuple[Alternative, OperatingPoint]:
    """Return the simplest alternative to a router for a target, with its figures."""
    singles = coin_curve(curve)
    quality = DEFAULT_QUALITY if target is None else target.value
    if target is not None and target.kind == "price weight":
        costs = singles.errors + target.value * singles.dollars
        alone = singles.point(int(costs[singles.baselines].argmin()), _CONFIDENCE, _QUERIES)
        return Alternative.from_point(alone), alone
    try:
        mix = resolve(singles, target)
    except UnreachableTargetError:
        mix = singles.point(singles.best, _CONFIDENCE, _QUERIES)
    is_quality = target is None or target.kind == "quality"
    return simplest_alternative(
        table,
        mix,
        quality if is_quality else None,
        _CONFIDENCE,
        _QUERIES,
        int(curve.baseline_place - len(curve.weights)),
        seed,
    )


def _new_groups(
    fitted: TextRouter, table: CostTable, point: OperatingPoint, seed: int
) -> NewGroups | None:
    """Return what the operating point does on groups that its router has not seen.

    `None` without groups, if groups are clusters (then everything is about new ones), and for a
    cascade with looks.
    """
    kinds, inner = table.clusters.kinds, fitted.router_
    is_cascade = fitted.n_experts != len(fitted.experts_)
    if kinds is None or kinds.max() < _FEWEST_GROUPS - 1 or is_cascade:
        return None
    codes = link(kinds, table.clusters.codes)
    if codes.max() < _FEWEST_GROUPS - 1:
        return None
    vectors = fitted.encoder_.transform(table.inputs)
    rows = TrainingRows(
        vectors,
        1 - table.scores,
        np.asarray(table.dollars),
        None,
        table.groups,
        clusters=cluster_codes(table.clusters.codes, len(table)),
    )
    # The encoder has seen the texts of the part, though no score of it: learning it again for each
    # part would take half as long as the whole fit.
    shares = inner.refitted_shares(point, rows, cut_vectors(vectors, seed, codes))
    sizes = np.bincount(kinds).astype(np.float64)
    base = table.scores[:, point.best].mean()
    if base <= 0:
        return None
    lost = (shares * table.scores).sum(axis=1) - table.scores[:, point.best]
    kept = 1 + np.bincount(kinds, lost) / sizes / base
    mean = float(np.average(kept, weights=sizes))
    groups = len(sizes)
    variance = np.average((kept - mean) ** 2, weights=sizes) * groups / (groups - 1)
    # Of one more group: how groups differ, and how well their mean is known.
    width = float(t.ppf(0.95, groups - 1) * np.sqrt(variance * (1 + 1 / groups)))
    bill = (shares * np.asarray(table.dollars)).sum(axis=1).mean()
    today = np.asarray(table.dollars)[:, point.baseline].mean()
    first = np.unique(kinds, return_index=True)[1]
    worst = int(kept.argmin())
    return NewGroups(
        groups,
        (mean, mean - width, mean + width),
        float(1 - bill / today) if today > 0 else 0.0,
        (str(np.asarray(table.groups)[first[worst]]), float(kept[worst])),
    )


def _later_rows(
    table: CostTable, again: Callable[..., FittedRouter], target: Target | None, seed: int
) -> LaterRows:
    """Return what the latest fifth of the rows shows of a router fitted on the others."""
    early, late = table.split(_LATEST, by="time", seed=seed)
    fitted = again(early)
    choice = fitted.router.predict(late.inputs, request_ids=late.query_ids)
    curve = measure_curve(
        [0.0],
        choice[None],
        1 - late.scores,
        np.asarray(late.dollars),
        clusters=cluster_codes(late.clusters.codes, len(late)),
    )
    baseline = 0 if fitted.point is None else fitted.point.baseline
    point = replace(curve, baseline=baseline).point(0, _CONFIDENCE, len(late))
    return LaterRows(
        len(late),
        DEFAULT_QUALITY if target is None else target.value,
        (point.kept, *point.kept_interval),
        (point.saved, *point.saved_interval),
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


def _completed(table: CostTable, encoder: Any, seed: int) -> tuple[CostTable, tuple[str, ...], int]:
    """Return the table with doubly robust scores and expected dollars, notes, and its rows.

    The number of rows that count is that of the expert that was called least.
    """
    if not table.is_partial:
        return table, (), len(table)
    asked = ~np.isnan(table.scores)
    check_asked(asked, table.experts)
    vectors = clone(encoder or DEFAULT_ENCODER()).fit_transform(table.inputs)
    # A prompt must not help to expect itself, nor must its conversation.
    codes = table.clusters.codes
    impute = partial(impute_costs, vectors, groups=codes, random_state=seed)
    scores = impute(costs=table.scores, propensities=table.propensities)
    dollars = None
    if table.dollars is not None:
        # Dollars vary little about what is expected; doubly robust ones could be negative.
        dollars = impute(costs=table.dollars, max_weight=1.0)
        dollars = np.maximum(dollars, np.nanmin(table.dollars, axis=0))
    counts = asked.sum(axis=0)
    estimated = (
        f"{1 - asked.mean():.0%} of the scores are estimates, for not all experts were asked on all"
        f" rows; {table.experts[int(counts.argmin())]} was asked least, on"
        f" {pluralize(int(counts.min()), 'row')}"
    )
    return table.with_estimates(scores, dollars), (estimated,), int(counts.min())


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


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
        groups=table.groups,
        clusters=table.clusters.codes,
        prices=table.dollars,
        progress=progress,
        answers=[table.answers(name) for name in table.experts] if features else None,
        # Beginnings are looked at in streams, of which no log-probabilities are asked for.
        logprobs=[table.logprobs(name) for name in table.experts]
        if features and features.max_characters is None
        else None,
    )


def _check_arguments(
    table: Any, target: Any, thorough: Any, n_jobs: Any, seed: Any, progress: Any
) -> None:
    """Refuse arguments of another type or value before anything is fitted."""
    is_count = _is_integer(n_jobs) and n_jobs != 0
    is_seed = _is_integer(seed) and 0 <= seed < 2**32
    for name, value, holds, rule, way_out in (
        ("table", table, isinstance(table, CostTable), "a CostTable", "CostTable.read makes one"),
        (
            "target",
            target,
            target is None or isinstance(target, Target),
            "a Target or none",
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
    """The estimator that was given or named, or none for the default."""
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
    target: Target | None,
    judge: str | None,
    warnings: tuple[str, ...],
) -> FittedRouter:
    if target is not None:
        raise TableError(
            f"a {target.kind} of {target.value:g} needs dollars, got a table without"
            " 'cost:<expert>' columns; give prices, or no target."
        )
    fitted = TextRouter(encoder=encoder, router=router).fit(
        table.inputs, costs, groups=table.groups, clusters=table.clusters.codes
    )
    why = getattr(fitted.router_, "selection_", method_of(fitted))
    return FittedRouter(
        _with_metadata(fitted, table, costs, None, judge),
        None,
        f"no dollars in the table, so only quality counts; {why}",
        warnings,
    )


def _with_metadata(
    router: TextRouter, table: CostTable, costs: Any, target: Target | None, judge: str | None
) -> TextRouter:
    """Return the router with metadata on its table and its held-out decisions."""
    router.set_metadata(
        data_hash=table.content_hash,
        seen=text_fingerprints(table),
        target={"kind": target.kind, "value": float(target.value)} if target else None,
        judge=judge,
    )
    if router.outcome_model_ is not None:
        point = router.operating_point
        router.outcome_model_.set_drift_reference(
            _held_out(router, table, costs), None if point is None else point.shares
        )
    return router


def _held_out(router: TextRouter, table: CostTable, costs: Any) -> NDArray[np.float64]:
    """Return posteriors of the rows by routers that have not seen them; the encoder has."""
    if hasattr(router.router_, "cross_val_posterior"):
        return np.asarray(router.router_.cross_val_posterior())
    return cross_val_posterior(
        router.router_,
        router.encoder_.transform(table.inputs),
        np.asarray(costs),
        groups=table.groups,
        clusters=cluster_codes(table.clusters.codes, len(table)),
    )


def _checked(
    router: TextRouter, table: CostTable, point: OperatingPoint, target: Target | None
) -> tuple[OperatingPoint, tuple[str, ...]]:
    """Return the point, or a coin between single experts.

    The coin replaces it if the stored router does not behave as measured.
    """
    choice, names = router.predict(table.inputs), router.experts_
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
    columns = getattr(router.router_, "columns", None)
    scores = table.scores if columns is None else 1 - columns.errors
    dollars = table.dollars if columns is None else columns.dollars
    if _is_better(scores, dollars, choice, point):
        # Neighbors know their own rows by heart: better and cheaper than promised, and no evidence
        # about further rows.
        return point, (
            (
                f"{seen}: it knows them by heart, so the promise could not be checked on them; hold"
                " rows out and evaluate"
            ),
        )
    if target is not None and target.kind == "price weight":
        return point, (f"{seen}: expect other shares, score and bill than these",)
    return resolve(coin_curve(router.router_.curve), target), (
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
    """Whether choices have a higher score for a lower bill than an operating point promises."""
    rows = np.arange(len(choice))
    score, bill = scores[rows, choice].mean(), 1000 * np.asarray(dollars)[rows, choice].mean()
    return bool(score > point.score and bill < point.dollars_per_1000)


def coin_curve(curve: CostQualityCurve) -> CostQualityCurve:
    """Return the single experts of a curve, between which only a coin decides."""
    places = curve.singles
    first: dict[str, Any] = {"weights": curve.weights[:0], "shares": curve.shares[places]}
    first |= {"share_replicates": curve.share_replicates[:, places], "rows": curve.rows}
    first |= {"looks": curve.looks, "units": curve.units, "baseline": curve.baseline}
    others = {
        field.name: getattr(curve, field.name)[..., places]
        for field in fields(curve)
        if field.name not in first
    }
    return replace(curve, **first, **others)


def point_of(router: TextRouter, target: Target | None) -> OperatingPoint | None:
    """Return the operating point of a stored router: the one for a target, else its own.

    None if it knows no prices.
    """
    inner = router.router_
    if not isinstance(inner, FrontierRouter):
        if target is not None:
            raise ArgumentError(
                f"this router was fitted without prices and knows no {target.kind}, got"
                f" {target.value:g}; leave it out, or fit with prices."
            )
        return None
    return (
        (inner.operating_point or inner.at(inner.price_weight))
        if target is None
        else operating_point(inner, target)[0]
    )


def without_looks(router: TextRouter, target: Target | None = None) -> TextRouter:
    """Return a router that decides by inputs alone, for the same target as a cascade.

    Args:
        router: Router over inputs whose router over vectors is a cascade.
        target: Target that replaces the one of its operating point.
    """
    plain = router.router_.without_looks()
    target = target or Target.of(router)
    if target is None:
        own = point_of(router, None)
        target = Target("price weight", 0.0 if own is None else own.price_weight)
    found = copy(router)
    found.router_ = plain.operate_at(operating_point(plain, target)[0])
    return found


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """Return the point of a router's frontier for a target, and the target in words."""
    if target is not None and target.kind == "price weight":
        return (
            router.at(target.value),
            f"price weight {target.value:g}: a dollar is worth that many errors",
        )
    point = resolve(router.curve, target)
    if target is not None and target.kind == "budget":
        return point, f"best score within {target.value:g} dollars per 1,000 queries"
    fraction = DEFAULT_QUALITY if target is None else target.value
    return (
        point,
        (
            f"cheapest point that keeps {fraction:.1%} of the score of"
            f" {router.experts_[point.best]}, the best in the table"
        ),
    )


def resolve(curve: CostQualityCurve, target: Target | None) -> OperatingPoint:
    """Return the point of a curve for a budget or a quality.

    The default is 99% of the score of the best single expert by score.
    """
    if target is not None and target.kind == "budget":
        return curve.for_budget(target.value, _CONFIDENCE, _QUERIES)
    return curve.for_quality(
        DEFAULT_QUALITY if target is None else target.value, _CONFIDENCE, _QUERIES
    )


# Experts come, go and change their prices: the table is changed, and the router fitted again as it
# was.


def refit(router: TextRouter, table: CostTable, *, seed: int = 0, **given: Any) -> FittedRouter:
    """Fit a router on another table with the encoder, method, target and judge of a stored one.

    Args:
        router: The stored router; not a cascade, which needs answers.
        table: As for :func:`fit`.
        seed: As for :func:`fit`.
        given: Additional arguments of :func:`fit`.
    """
    inner = router.router_
    if isinstance(inner, CascadeRouter):
        raise ArgumentError(
            "a cascade learns from answers, and cannot be fitted again without them; use 'mildroute"
            " fit --cascade' on a table that has all experts."
        )
    is_frontier = isinstance(inner, FrontierRouter)
    template = inner.router if is_frontier else inner
    if is_frontier == (table.dollars is None):
        raise TableError(
            f"the router was fitted {'with' if is_frontier else 'without'} dollars, got a table"
            f" {'without' if is_frontier else 'with'} them; take the table it was fitted on."
        )
    return fit(
        table,
        encoder=clone(router.encoder_),
        router=None if template is None else clone(template),
        target=Target.of(router),
        judge=router.judge_,
        seed=seed,
        **given,
    )


def known_experts(
    table: CostTable, encoder: Any, further: Sequence[str] = (), *, seed: int = 0
) -> KnownExperts:
    """What the experts of a table tell of a new one, on its rows and on further inputs."""
    return _known(table, 1 - table.scores, _vectors(table, encoder, further), seed)


def with_new_expert(
    table: CostTable, scored: CostTable, encoder: Any, *, seed: int = 0
) -> tuple[CostTable, str]:
    """Return the table with a column for a new expert, estimated from some scored queries.

    Args:
        table: Table with inputs, without the new expert.
        scored: Scored queries as ``CostTable.read_new_expert`` returns them; rows whose ids are in
            the table are more informative.
        encoder: Transformer of inputs; it is fitted on the table.
        seed: Seed of clusters and folds.

    Returns:
        The table, and a description of what is known about the new expert.
    """
    name = scored.experts[0]
    scored = scored.take(~np.isnan(scored.scores[:, 0])).without_latencies()
    table = _completed(table, encoder, seed)[0].without_latencies()
    if table.dollars is not None and (
        scored.dollars is None or np.isnan(scored.dollars[:, 0]).any()
    ):
        raise TableError(
            f"the table has dollars, got scores of {name!r} without 'cost:{name}'; add what each of"
            " its answers cost."
        )
    rows, fresh = _placed(table, scored)
    vectors = _vectors(table, encoder, fresh)
    columns = []
    for known, new, caution in (
        (1 - table.scores, 1 - scored.scores[:, 0], None),
        (table.dollars, None if scored.dollars is None else scored.dollars[:, 0], 0.0),
    ):
        if known is None or new is None:
            continue
        seen = np.full(len(table) + len(fresh), np.nan)
        seen[rows] = new
        experts = _known(table, known, vectors, seed)
        found = (
            experts.costs_of_new(seen)
            if caution is None
            else np.maximum(experts.costs_of_new(seen, caution=caution), new.min())
        )
        columns.append(found[: len(table)])
    return table.with_expert(name, 1 - columns[0], *columns[1:]), (
        f"the scores of {name} are estimates from {len(rows)} scored queries,"
        f" {len(rows) - len(fresh)} of them rows of the table, and a little lower than expected, so"
        " that it is chosen little while little is known of it; intervals do not know this:"
        " evaluate on held-out rows"
    )


def _placed(table: CostTable, scored: CostTable) -> tuple[list[int], list[str]]:
    """Row of each scored query in the table or, behind it, among fresh inputs; and those inputs."""
    places = {query: row for row, query in enumerate(table.query_ids)}
    fresh = [row for row, query in enumerate(scored.query_ids) if query not in places]
    if fresh and scored.inputs is None:
        raise TableError(
            f"queries that are not in the table need the column 'input', got {len(fresh)} of them"
            " without it; add it, or give the ids of the table."
        )
    places |= {scored.query_ids[row]: len(table) + place for place, row in enumerate(fresh)}
    inputs = scored.inputs or []
    return [places[query] for query in scored.query_ids], [inputs[row] for row in fresh]


def _vectors(table: CostTable, encoder: Any, further: Sequence[str]) -> tuple[Any, Any]:
    fitted = clone(encoder)
    vectors = fitted.fit_transform(table.inputs)
    return vectors, fitted.transform(list(further)) if further else None


def _known(
    table: CostTable, costs: NDArray[np.float64], vectors: tuple[Any, Any], seed: int
) -> KnownExperts:
    return KnownExperts.learn(vectors[0], costs, vectors[1], table.groups, random_state=seed)
