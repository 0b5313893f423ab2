"""From a cost table to a router with an operating point: what ``mildroute fit`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.costs.text_digests import text_fingerprints
from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, TableError
from mildroute.evaluation.method import method_of
from mildroute.evaluation.point_words import only_expert
from mildroute.evaluation.wording import as_dollars
from mildroute.routers.cross_fit import held_out_posterior
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.named_costs import named_costs
from mildroute.routers.operating import FEWEST_TO_PROMISE, Curve, OperatingPoint, check_quality

__all__ = ["Fitted", "Target", "coin_curve", "fit_table", "operating_point", "point_of", "price_grid", "resolve", "why_constant"]

Kind: TypeAlias = Literal["price weight", "budget", "quality"]
Progress: TypeAlias = Callable[[int, int, str], None]

_STEPS = 12
_ROUNDING = 1e-9
_LEAST, _MOST = 0.003, 30.0
"""Errors that the whole difference between the dearest and the cheapest expert is worth at the ends of the grid of price weights."""
_DEFAULT_QUALITY = 0.99
_CONFIDENCE, _QUERIES = 0.95, 1000
"""Of promises: how often they hold, and the size of the batch that a budget is for."""
_ALLOWANCE = 0.15
"""Share by which a stored router may differ on its own training rows from what was held out, beyond chance. On draws of 100 to 1,500
rows of MMLU the largest difference, chance included, was 0.11: the encoder and the router know these rows."""
_STANDARD_ERRORS = 4.0
_CHEAPER = 0.99
"""A point counts as cheaper if its bill is below this part of another's."""


@dataclass(frozen=True)
class Target:
    """What the operating point is chosen by.

    Attributes:
        kind: ``"price weight"`` (errors that a dollar is worth), ``"budget"`` (dollars per 1,000 queries) or ``"quality"`` (share of the
            score of the best single expert by score).
        value: Its value.

    Example:
        >>> Target("budget", 1.5).kind
        'budget'
    """

    kind: Kind
    value: float

    def __post_init__(self) -> None:
        """Refuse what cannot be a target."""
        if not (np.isfinite(self.value) and self.value >= 0):
            raise ArgumentError(f"a {self.kind} must be finite and not negative, got {self.value}.")
        if self.kind == "quality":
            check_quality(self.value)


@dataclass(frozen=True)
class Fitted:
    """A fitted router and its operating point.

    Attributes:
        router: Ready to be saved.
        point: Its operating point as measured on held-out rows, or none without dollars.
        note: What the point was chosen by, in words.
        warnings: What its user must know, in sentences.

    Example:
        >>> Fitted(TextRouter(), None, "no dollars").note
        'no dollars'
    """

    router: TextRouter
    point: OperatingPoint | None
    note: str
    warnings: tuple[str, ...] = ()


def price_grid(dollars: NDArray[np.float64]) -> tuple[float, ...]:
    """Price weights from "only quality counts" to "only money counts" for these dollars.

    Args:
        dollars: Dollars of each expert on each row, shape (n, p).

    Returns:
        Ascending, from 0.

    Example:
        >>> price_grid(np.array([[0.001, 0.011]]))[:3]
        (0.0, 0.3, 0.69)
    """
    spread = float(np.ptp(dollars, axis=1).mean())  # of each row: who is dearest may change from row to row
    if spread <= _ROUNDING * dollars.mean():
        return (0.0, 1.0)
    return (0.0, *(float(f"{weight:.2g}") for weight in np.geomspace(_LEAST, _MOST, _STEPS) / spread))


def fit_table(
    table: CostTable,
    *,
    encoder: Any = None,
    router: Any = None,
    target: Target | None = None,
    thorough: bool | Literal["auto"] = "auto",
    n_jobs: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fitted:
    """Fit encoder and router on a table, and choose the operating point on held-out rows of it.

    Args:
        table: With inputs; with dollars where money shall count.
        encoder: Transformer of inputs to vectors, or none for the default.
        router: Router over vectors, or none for the default: a :class:`~mildroute.routers.frontier.FrontierRouter` if the table has
            dollars, else a :class:`~mildroute.routers.mild.MildRouter`.
        target: What to choose the operating point by; by default a quality of 0.99.
        thorough: Fit the surrogate losses of :class:`~mildroute.routers.mild.MildRouter` as well; ``"auto"`` if they win on a sample.
        n_jobs: Processes that fit folds; none is one.
        seed: Of folds, clusterings and coins.
        progress: Called with steps done, steps in all and a word on the current one.

    Returns:
        The router, ready to be saved, and its operating point.

    Example:
        >>> table = CostTable.of({"input": ["add 1 1", "sing a song"] * 40, "score:small": [1, 0] * 40, "score:large": [1, 1] * 40,
        ...                       "cost:small": [0.001] * 80, "cost:large": [0.01] * 80, "query_id": [str(i) for i in range(80)]})
        >>> fitted = fit_table(table, target=Target("quality", 1.0))
        >>> fitted.point.score, round(fitted.point.dollars_per_1000, 2)
        (1.0, 5.5)
    """
    if table.inputs is None:
        raise TableError("a router over texts needs the column 'input' (or 'text'), got none; add it, or fit MildRouter on vectors.")
    costs = named_costs(table.costs(), table.experts)
    if table.dollars is None:
        return _without_dollars(table, costs, encoder, MildRouter(random_state=seed) if router is None else router, target)
    frontier = FrontierRouter(router=router, price_weights=price_grid(table.dollars), thorough=thorough, n_jobs=n_jobs, random_state=seed)
    fitted = TextRouter(encoder=encoder, router=frontier)
    fitted.fit(table.inputs, costs, groups=table.groups, prices=table.dollars, progress=progress)
    point, note = operating_point(fitted.router_, target)
    fitted.router_.operate_at(point)
    point, warnings = _checked(fitted, table, point, target)
    warnings = (*warnings, *_few_to_promise(len(table)))
    fitted.router_.operate_at(point)
    fitted.target_ = {"kind": target.kind, "value": float(target.value)} if target else None
    return Fitted(_remembering(fitted, table, costs), point, note, warnings)


def _without_dollars(table: CostTable, costs: Any, encoder: Any, router: Any, target: Target | None) -> Fitted:
    if target is not None:
        raise TableError(
            f"a {target.kind} of {target.value:g} needs dollars, got a table without 'cost:<expert>' columns; give prices, or no target."
        )
    fitted = TextRouter(encoder=encoder, router=router).fit(table.inputs, costs, groups=table.groups)
    why = getattr(fitted.router_, "choice_", method_of(fitted))
    return Fitted(_remembering(fitted, table, costs), None, f"no dollars in the table, so only quality counts; {why}")


def _remembering(router: TextRouter, table: CostTable, costs: Any) -> TextRouter:
    """The router with the hash of its table, the fingerprints of its inputs and what its held-out decisions look like."""
    router.data_hash_ = table.content_hash
    router.seen_ = np.sort(text_fingerprints(table))
    if router.outlook_ is not None:
        point = router.operating_point
        router.outlook_.note_decisions(_held_out(router, table, costs), None if point is None else point.shares)
    return router


def _held_out(router: TextRouter, table: CostTable, costs: Any) -> NDArray[np.float64]:
    """Posteriors of the table's rows by routers that have not seen them; the encoder has."""
    if hasattr(router.router_, "held_out_posterior"):
        return np.asarray(router.router_.held_out_posterior())
    return held_out_posterior(router.router_, router.encoder_.transform(table.inputs), np.asarray(costs), groups=table.groups)


def _checked(router: TextRouter, table: CostTable, point: OperatingPoint, target: Target | None) -> tuple[OperatingPoint, tuple[str, ...]]:
    """The point, or a coin between single experts if the router that is stored does not do what was measured."""
    choice = router.predict(table.inputs)
    served, promised = np.bincount(choice, minlength=len(table.experts)) / len(table), np.clip(point.shares, 0.0, 1.0)
    allowed = _ALLOWANCE + _STANDARD_ERRORS * np.sqrt(promised * (1 - promised) / len(table))
    worst = int((np.abs(served - promised) - allowed).argmax())
    if abs(served[worst] - promised[worst]) <= allowed[worst]:
        return point, ()
    seen = (
        f"the fitted router sends {served[worst]:.0%} of its own training rows to {table.experts[worst]}, where "
        f"{promised[worst]:.0%} of held-out rows went"
    )
    if _is_better(table, choice, point):
        # Neighbors know their own rows by heart: better and cheaper than promised, and no evidence about further rows.
        return point, (f"{seen}: it knows them by heart, so the promise could not be checked on them; hold rows out and evaluate",)
    if target is not None and target.kind == "price weight":
        return point, (f"{seen}: expect other shares, score and bill than these",)
    return resolve(coin_curve(router.router_.curve), target), (f"{seen}: single experts are mixed at random instead",)


def _few_to_promise(rows: int) -> tuple[str, ...]:
    if rows >= FEWEST_TO_PROMISE:
        return ()
    return (f"only {rows} rows to learn from: below {FEWEST_TO_PROMISE}, no quality is promised but the best expert's own; add rows",)


def _is_better(table: CostTable, choice: NDArray[np.intp], point: OperatingPoint) -> bool:
    """Whether choices have a higher score for a lower bill than an operating point promises."""
    rows = np.arange(len(table))
    score, bill = table.scores[rows, choice].mean(), 1000 * np.asarray(table.dollars)[rows, choice].mean()
    return bool(score > point.score and bill < point.dollars_per_1000)


def coin_curve(curve: Curve) -> Curve:
    """The single experts of a curve alone, between which only a coin decides.

    Example:
        >>> from mildroute.routers.operating import curve_of
        >>> coin_curve(curve_of(np.array([0.0]), np.array([[0, 1]]), np.eye(2), np.ones((2, 2)))).dollars
        array([1., 1.])
    """
    places = curve.singles
    first: dict[str, Any] = {"weights": curve.weights[:0], "shares": curve.shares[places]}
    first |= {"share_replicates": curve.share_replicates[:, places], "rows": curve.rows}
    others = {field.name: getattr(curve, field.name)[..., places] for field in fields(curve) if field.name not in first}
    return replace(curve, **first, **others)


def why_constant(router: FrontierRouter, point: OperatingPoint, target: Target | None) -> str | None:
    """Why an operating point sends everything to one expert, or none if it does not.

    Example:
        >>> router = FrontierRouter().fit(np.eye(20), np.tile([0.1, 0.3], (20, 1)), prices=[0.001, 0.01])
        >>> why_constant(router, router.for_quality(0.9), Target("quality", 0.9))
        'it is the best by score and the cheapest'
    """
    expert, curve, names = only_expert(point), router.curve, router.experts_
    if expert is None:
        return None
    bills = curve.dollars[curve.singles]
    if expert == point.best and bills[expert] <= bills.min():
        return "it is the best by score and the cheapest"
    if bills[expert] <= bills.min() and target is not None and target.kind == "quality":
        return f"it is the cheapest and keeps {100 * target.value:g}% of the score of {names[point.best]}"
    if target is not None and target.kind == "price weight":
        return f"at price weight {target.value:g} it is the best for almost every query"
    if target is not None and target.kind == "budget":
        unsure = "no better expert, mix or router stays within the budget with 95% confidence"
        return unsure if expert != point.best else "the budget pays for it, and nothing scores higher on held-out rows"
    fraction = _DEFAULT_QUALITY if target is None else target.value
    even = router.for_quality(fraction, confidence=0.5)
    if even.dollars_per_1000 < _CHEAPER * point.dollars_per_1000:
        return (
            f"too few rows to promise {100 * fraction:g}% of the score of {names[point.best]} with 95% confidence for less, though "
            f"{as_dollars(even.dollars_per_1000)} per 1,000 queries may do; collect more rows or ask for less quality"
        )
    if expert != point.best:
        return f"it keeps {100 * fraction:g}% of the score of {names[point.best]}, and nothing cheaper does"
    beaten = "" if curve.gain[0] > 0 else ", and no router beats a coin between single experts"
    return f"no cheaper expert or mix keeps {100 * fraction:g}% of its score{beaten}"


def point_of(router: TextRouter, target: Target | None) -> OperatingPoint | None:
    """The operating point that a stored router decides at: the one for a target, else its own; none if it knows no prices.

    Example:
        >>> texts, costs = ["add 1 1", "sing a song"] * 10, [[0, 1], [1, 0]] * 10
        >>> point_of(TextRouter().fit(texts, costs), None) is None
        True
    """
    inner = router.router_
    if not isinstance(inner, FrontierRouter):
        if target is not None:
            raise ArgumentError(
                f"this router was fitted without prices and knows no {target.kind}, got {target.value:g}; leave it out, or fit with prices."
            )
        return None
    return (inner.operating_point or inner.at(inner.price_weight)) if target is None else operating_point(inner, target)[0]


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """The point of a router's frontier that a target asks for, and the target in words.

    Example:
        >>> router = FrontierRouter().fit(np.eye(20), np.tile([0.1, 0.3], (20, 1)), prices=[0.01, 0.001])
        >>> operating_point(router, Target("quality", 1.0))[1]
        'cheapest point that keeps 100.0% of the score of expert_0, the best by score'
    """
    if target is not None and target.kind == "price weight":
        return router.at(target.value), f"price weight {target.value:g}: a dollar is worth that many errors"
    point = resolve(router.curve, target)
    if target is not None and target.kind == "budget":
        return point, f"best score within {target.value:g} dollars per 1,000 queries"
    fraction = _DEFAULT_QUALITY if target is None else target.value
    return point, f"cheapest point that keeps {fraction:.1%} of the score of {router.experts_[point.best]}, the best by score"


def resolve(curve: Curve, target: Target | None) -> OperatingPoint:
    """The point of a curve for a budget or a quality; by default for 99% of the score of the best single expert by score.

    Example:
        >>> from mildroute.routers.operating import curve_of
        >>> curve = curve_of(np.zeros(0), np.empty((0, 64), int), np.array([[0.0, 1.0]] * 64), np.array([[0.004, 0.001]] * 64))
        >>> resolve(curve, Target("quality", 0.5)).shares
        (0.5, 0.5)
    """
    if target is not None and target.kind == "budget":
        return curve.for_budget(target.value, _CONFIDENCE, _QUERIES)
    return curve.for_quality(_DEFAULT_QUALITY if target is None else target.value, _CONFIDENCE, _QUERIES)
