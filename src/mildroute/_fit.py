"""From a cost table to a router with an operating point.

What ``mildroute fit`` does, and the words for its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute._format import as_dollars, as_score, pluralize
from mildroute._hashing import text_fingerprints
from mildroute.costs.table import CostTable
from mildroute.encoders.answers import AnswerFeatures
from mildroute.exceptions import ArgumentError, TableError
from mildroute.persistence.registry import get_encoder, get_router, storage_name
from mildroute.pipeline import TextRouter
from mildroute.routers._cross_validation import cross_val_posterior
from mildroute.routers.base import named_costs
from mildroute.routers.cascade import CascadeRouter
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.operating_point import (
    FEWEST_TO_PROMISE,
    CostQualityCurve,
    OperatingPoint,
    Target,
    Vertex,
)
from mildroute.routers.surrogate import CustomLossRouter

# What a fitted router is, in a few words: for reports and for who fits one.


def method_of(router: TextRouter) -> str:
    """Name the router over vectors as it is stored, with its loss and whether it knows prices.

    The loss stands there only where the router was told one.
    """
    inner = router.router_
    is_frontier = isinstance(inner, FrontierRouter)
    learned = inner.routers_[0] if is_frontier else inner
    loss = f" with the loss {learned.loss!r}" if isinstance(learned, CustomLossRouter) else ""
    look = " with looks at answers" if isinstance(inner, CascadeRouter) and inner.looks_ else ""
    return f"{_name(learned)}{loss}{look}{', for any price' if is_frontier else ''}"


def describe_router(router: TextRouter) -> dict[str, str]:
    """What a report tells of where a router's decisions come from, by title."""
    judged = {} if router.judge_ is None else {"learned from scores of": router.judge_}
    parts = getattr(router.encoder_, "encoders_", [router.encoder_])
    return {"method": method_of(router), "encoder": " + ".join(map(_name, parts)), **judged}


def _name(estimator: Any) -> str:
    return storage_name(type(estimator)) or type(estimator).__name__


# An operating point in words: what it saves against whom, and how it decides.


_ALL = 1 - 1e-9


def only_expert(point: OperatingPoint) -> int | None:
    """Index of the expert that answers everything, or none if several do."""
    found = [expert for expert, share in enumerate(point.shares) if share >= _ALL]
    return found[0] if found else None


def saving_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """What is saved against the best single expert by score, and how much of its score is kept."""
    name, bill = experts[point.best], as_dollars(point.dollars_per_1000)
    # Of a score of 0 nothing can be kept, and of a bill of 0 nothing saved.
    score = f"has a score of {as_score(point.score)}"
    share = f"{point.score / point.best_score:.1%} of its score" if point.best_score else ""
    kept, has = (f"keeps {share}", f"has {share}") if share else (score, score)
    if not point.best_dollars_per_1000:
        spends = f"costs {bill} per 1,000 queries" if point.dollars_per_1000 else "costs nothing"
        return f"{spends}, while {name} costs nothing, and {has}"
    bills = f"{bill} instead of {as_dollars(point.best_dollars_per_1000)} per 1,000 queries"
    low, high = (f"{100 * end:.0f}" for end in point.saved_interval)
    if round(100 * point.saved) == 0:
        return f"costs as much as {name}, {kept}: {bills}"
    if point.saved < 0:
        low, high = (f"{-100 * end:.0f}" for end in point.saved_interval[::-1])
        return f"costs {-point.saved:.0%} [{low}, {high}] more than {name}, {has}: {bills}"
    return f"saves {point.saved:.0%} [{low}, {high}] of the bill of {name}, {kept}: {bills}"


def split_words(point: OperatingPoint, experts: Sequence[str], looks: int = 0) -> str:
    """How it decides: the router, one expert for everything, or two of these at random.

    The last names may be those of looks, which are sentences and stand in quotes.
    """
    first = len(experts) - looks
    experts = [name if place < first else f"'{name}'" for place, name in enumerate(experts)]
    if not point.is_mixed:
        (vertex,) = point.vertices
        itself = f"decides each request itself (price weight {vertex.price_weight:.4g})"
        return itself if vertex.expert is None else f"sends {_vertex_words(vertex, experts)}"
    # Rounded so that both add up to 100%, and neither is shown as nothing.
    first = min(max(round(100 * point.vertices[0].probability), 1), 99)
    one, other = (_vertex_words(vertex, experts) for vertex in point.vertices)
    return f"mixes two points at random: {first}% {one}, {100 - first}% {other}"


def _vertex_words(vertex: Vertex, experts: Sequence[str]) -> str:
    if vertex.expert is not None:
        return f"all to {experts[vertex.expert]}"
    return f"as the router says (price weight {vertex.price_weight:.4g})"


# From a cost table to a router with an operating point: what ``mildroute fit`` does.


Progress: TypeAlias = Callable[[int, int, str], None]

_STEPS = 12
_ROUNDING = 1e-9
# Errors that the whole difference between the most expensive and the cheapest expert is worth at
# the ends of the grid of price weights.
_LEAST, _MOST = 0.003, 30.0
_DEFAULT_QUALITY = 0.99
# Of promises: how often they hold, and the size of the batch that a budget is for.
_CONFIDENCE, _QUERIES = 0.95, 1000
# Share by which a stored router may differ on its own training rows from what was held out, beyond
# chance. On draws of 100 to 1,500 rows of MMLU the largest difference, chance included, was 0.11:
# the encoder and the router know these rows.
_ALLOWANCE = 0.15
_STANDARD_ERRORS = 4.0
# A point counts as cheaper if its bill is below this part of another's.
_CHEAPER = 0.99


@dataclass(frozen=True)
class FitResult:
    """A fitted router and its operating point.

    Attributes:
        router: Ready to be saved.
        point: Its operating point as measured on held-out rows, or none without dollars.
        note: What the point was chosen by, in words.
        warnings: What its user must know, in sentences.

    Example:
        >>> FitResult(TextRouter(), None, "no dollars").note
        'no dollars'
    """

    router: TextRouter
    point: OperatingPoint | None
    note: str
    warnings: tuple[str, ...] = ()


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
) -> FitResult:
    """Fit encoder and router on a table, and choose the operating point on held-out rows of it.

    Args:
        table: With inputs; with dollars where money shall count; with answers for a cascade.
        encoder: Transformer of inputs to vectors or its name, see
            :func:`~mildroute.persistence.registry.get_encoder`; by default TF-IDF of few columns.
        router: Router over vectors or its name, such as ``"KNNRouter"``; by default a
            :class:`~mildroute.routers.frontier.FrontierRouter` if the table has dollars, else a
            :class:`~mildroute.routers.mild.MildRouter`.
        target: What to choose the operating point by; by default a quality of 0.99.
        thorough: Fit the surrogate losses of :class:`~mildroute.routers.mild.MildRouter` as well;
            ``"auto"`` if they win on a sample.
        n_jobs: Processes that fit folds; none is one.
        seed: Of folds, clusterings and coins, from 0 to 2**32 - 1.
        judge: Name of the judge that gave the scores, for reports.
        progress: Called with steps done, steps in all and a word on the current one.
        cascade: Let the router look at answers before it decides, where that is worth it, see
            :class:`~mildroute.routers.cascade.CascadeRouter`.
        answer_characters: Characters of answers that a cascade sees, from their beginning; none for
            whole answers.

    Returns:
        The router, ready to be saved, and its operating point.

    Example:
        >>> table = CostTable.from_data(
        ...     {
        ...         "query_id": [str(i) for i in range(80)],
        ...         "input": ["add 1 1", "sing a song"] * 40,
        ...         "score:small": [1, 0] * 40,
        ...         "score:large": [1, 1] * 40,
        ...         "cost:small": [0.001] * 80,
        ...         "cost:large": [0.01] * 80,
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
    costs = named_costs(table.costs(), table.experts)
    if table.dollars is None:
        return _without_dollars(
            table,
            costs,
            encoder,
            MildRouter(random_state=seed) if router is None else router,
            target,
            judge,
        )
    kind = CascadeRouter if cascade else FrontierRouter
    frontier = kind(router=router, thorough=thorough, n_jobs=n_jobs, random_state=seed)
    features = AnswerFeatures(max_characters=answer_characters) if cascade else None
    fitted = _fit_frontier(table, costs, encoder, frontier, features, progress)
    point, note = operating_point(fitted.router_, target)
    fitted.router_.operate_at(point)
    point, warnings = _checked(fitted, table, point, target)
    warnings = (*warnings, *_few_to_promise(len(table)))
    fitted.router_.operate_at(point)
    return FitResult(_with_metadata(fitted, table, costs, target, judge), point, note, warnings)


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
) -> FitResult:
    if target is not None:
        raise TableError(
            f"a {target.kind} of {target.value:g} needs dollars, got a table without"
            " 'cost:<expert>' columns; give prices, or no target."
        )
    fitted = TextRouter(encoder=encoder, router=router).fit(
        table.inputs, costs, groups=table.groups
    )
    why = getattr(fitted.router_, "selection_", method_of(fitted))
    return FitResult(
        _with_metadata(fitted, table, costs, None, judge),
        None,
        f"no dollars in the table, so only quality counts; {why}",
    )


def _with_metadata(
    router: TextRouter, table: CostTable, costs: Any, target: Target | None, judge: str | None
) -> TextRouter:
    """Return the router with what it has to know of its table and of its held-out decisions."""
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
    """Posteriors of the table's rows by routers that have not seen them; the encoder has."""
    if hasattr(router.router_, "cross_val_posterior"):
        return np.asarray(router.router_.cross_val_posterior())
    return cross_val_posterior(
        router.router_,
        router.encoder_.transform(table.inputs),
        np.asarray(costs),
        groups=table.groups,
    )


def _checked(
    router: TextRouter, table: CostTable, point: OperatingPoint, target: Target | None
) -> tuple[OperatingPoint, tuple[str, ...]]:
    """Return the point, or a coin between single experts.

    The coin takes its place if the router that is stored does not do what was measured.
    """
    choice, names = router.predict(table.inputs), router.experts_
    served, promised = (
        np.bincount(choice, minlength=len(names)) / len(table),
        np.clip(point.shares, 0.0, 1.0),
    )
    allowed = _ALLOWANCE + _STANDARD_ERRORS * np.sqrt(promised * (1 - promised) / len(table))
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


def _few_to_promise(rows: int) -> tuple[str, ...]:
    if rows >= FEWEST_TO_PROMISE:
        return ()
    return (
        (
            f"only {pluralize(rows, 'row')} to learn from: below {FEWEST_TO_PROMISE}, no quality is"
            " promised but the best expert's own; add rows"
        ),
    )


def _is_better(
    scores: NDArray[np.float64], dollars: Any, choice: NDArray[np.intp], point: OperatingPoint
) -> bool:
    """Whether choices have a higher score for a lower bill than an operating point promises."""
    rows = np.arange(len(choice))
    score, bill = scores[rows, choice].mean(), 1000 * np.asarray(dollars)[rows, choice].mean()
    return bool(score > point.score and bill < point.dollars_per_1000)


def coin_curve(curve: CostQualityCurve) -> CostQualityCurve:
    """The single experts of a curve alone, between which only a coin decides."""
    places = curve.singles
    first: dict[str, Any] = {"weights": curve.weights[:0], "shares": curve.shares[places]}
    first |= {"share_replicates": curve.share_replicates[:, places], "rows": curve.rows}
    first |= {"looks": curve.looks}
    others = {
        field.name: getattr(curve, field.name)[..., places]
        for field in fields(curve)
        if field.name not in first
    }
    return replace(curve, **first, **others)


def why_constant(
    router: FrontierRouter, point: OperatingPoint, target: Target | None
) -> str | None:
    """Why an operating point sends everything to one expert, or none if it does not."""
    expert, curve, names = only_expert(point), router.curve, router.experts_
    if expert is None:
        return None
    bills = curve.dollars[curve.singles]
    if expert == point.best and bills[expert] <= bills.min():
        return "it is the best by score and the cheapest"
    if bills[expert] <= bills.min() and target is not None and target.kind == "quality":
        return (
            f"it is the cheapest and keeps {100 * target.value:g}% of the score of"
            f" {names[point.best]}"
        )
    if target is not None and target.kind == "price weight":
        return f"at price weight {target.value:g} it is the best for almost every query"
    if target is not None and target.kind == "budget":
        unsure = "no better expert, mix or router stays within the budget with 95% confidence"
        return (
            unsure
            if expert != point.best
            else "the budget pays for it, and nothing scores higher on held-out rows"
        )
    fraction = _DEFAULT_QUALITY if target is None else target.value
    even = router.for_quality(fraction, confidence=0.5)
    if even.dollars_per_1000 < _CHEAPER * point.dollars_per_1000:
        return (
            f"too few rows to promise {100 * fraction:g}% of the score of {names[point.best]} with"
            f" 95% confidence for less, though {as_dollars(even.dollars_per_1000)} per 1,000"
            " queries may do; collect more rows or ask for less quality"
        )
    if expert != point.best:
        return (
            f"it keeps {100 * fraction:g}% of the score of {names[point.best]}, and nothing cheaper"
            " does"
        )
    beaten = "" if curve.gain[0] > 0 else ", and no router beats a coin between single experts"
    return f"no cheaper expert or mix keeps {100 * fraction:g}% of its score{beaten}"


def point_of(router: TextRouter, target: Target | None) -> OperatingPoint | None:
    """The operating point that a stored router decides at: the one for a target, else its own.

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
    """A router that decides by inputs alone, for the same target as a cascade.

    Args:
        router: Whose router over vectors is a cascade.
        target: Instead of the one that its operating point was chosen by.
    """
    plain = router.router_.without_looks()
    if target is None and router.target_ is not None:
        target = Target(router.target_["kind"], float(router.target_["value"]))
    if target is None:
        own = point_of(router, None)
        target = Target("price weight", 0.0 if own is None else own.price_weight)
    found = copy(router)
    found.router_ = plain.operate_at(operating_point(plain, target)[0])
    return found


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """The point of a router's frontier that a target asks for, and the target in words."""
    if target is not None and target.kind == "price weight":
        return (
            router.at(target.value),
            f"price weight {target.value:g}: a dollar is worth that many errors",
        )
    point = resolve(router.curve, target)
    if target is not None and target.kind == "budget":
        return point, f"best score within {target.value:g} dollars per 1,000 queries"
    fraction = _DEFAULT_QUALITY if target is None else target.value
    return (
        point,
        (
            f"cheapest point that keeps {fraction:.1%} of the score of"
            f" {router.experts_[point.best]}, the best by score"
        ),
    )


def resolve(curve: CostQualityCurve, target: Target | None) -> OperatingPoint:
    """The point of a curve for a budget or a quality.

    By default for 99% of the score of the best single expert by score.
    """
    if target is not None and target.kind == "budget":
        return curve.for_budget(target.value, _CONFIDENCE, _QUERIES)
    return curve.for_quality(
        _DEFAULT_QUALITY if target is None else target.value, _CONFIDENCE, _QUERIES
    )
