"""A stored router on a table that it has not seen: all that ``mildroute evaluate`` and the report tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, TableError
from mildroute.evaluation.evaluate import Evaluation, evaluate_choice
from mildroute.evaluation.frontier import Frontier, frontier_of
from mildroute.evaluation.hull import Point
from mildroute.evaluation.plain import as_plain
from mildroute.evaluation.replicates import Interval
from mildroute.evaluation.saving import Savings, savings
from mildroute.routers.frontier import FrontierRouter

__all__ = ["Assessment", "Promise", "assess"]

_WEIGHTS_DRAWN = 24


@dataclass(frozen=True)
class Promise:
    """What an operating point was chosen for, and what came of it.

    Attributes:
        target: In words.
        promised: The value that was to be met.
        measured: The value on these rows.
        met: Whether the interval of what was measured reaches the promise.

    Example:
        >>> Promise("at most 2 dollars per 1,000 queries", 2.0, Interval(1.9, 1.8, 2.0), True).met
        True
    """

    target: str
    promised: float
    measured: Interval
    met: bool


@dataclass(frozen=True)
class Assessment:
    """A router on held-out rows.

    Attributes:
        table: The rows, with the router's experts in its order.
        evaluation: Figures of the operating point in use, with intervals.
        price_weight: That operating point; 0 where the router knows no prices.
        frontier: Money against quality along the router's price weights, or none without dollars.
        savings: What is saved against the best single expert, or none without dollars.
        promise: What the operating point was chosen for, or none.

    Example:
        >>> Assessment.__dataclass_fields__["promise"].name
        'promise'
    """

    table: CostTable
    evaluation: Evaluation
    price_weight: float
    frontier: Frontier | None
    savings: Savings | None
    promise: Promise | None

    @property
    def chosen(self) -> Point | None:
        """The operating point in use as a point of the picture."""
        bill, score = self.evaluation.dollars_per_1000, self.evaluation.score
        return None if bill is None else Point("chosen", bill.value, score.value, bill, score, self.price_weight)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        saved = None if self.savings is None else as_plain(self.savings) | {"sentence": self.savings.sentence}
        return {
            "price_weight": self.price_weight,
            "evaluation": self.evaluation.as_dict(),
            "frontier": None if self.frontier is None else as_plain(self.frontier.points),
            "savings": saved,
            "promise": as_plain(self.promise) if self.promise else None,
            "content_hash": self.table.content_hash,
        }


def assess(router: TextRouter, table: CostTable, *, price_weight: float | None = None, seed: int = 0) -> Assessment:
    """Measure a router on a table.

    Args:
        router: A fitted router over inputs.
        table: Rows that it has not learnt from, with inputs and its experts.
        price_weight: Operating point; by default the router's own.
        seed: Seed of the bootstrap.

    Returns:
        The assessment; intervals are about further queries of these groups.

    Example:
        >>> table = CostTable.of({"input": ["add 1 1", "sing a song"] * 40, "score:small": [1, 0] * 40, "score:large": [1, 1] * 40,
        ...                       "query_id": [str(i) for i in range(80)]})
        >>> from mildroute.evaluation.fitting import fit_table
        >>> assess(fit_table(table).router, table).evaluation.score.value
        1.0
    """
    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"only a router over inputs can be asked with a table, got {type(router).__name__}; fit one with mildroute fit."
        )
    if table.inputs is None:
        raise TableError("the table needs the column 'input' (or 'text'), got none; the router reads it.")
    aligned = _aligned(table, list(router.experts_))
    frontier_router = router.router_ if isinstance(router.router_, FrontierRouter) else None
    if price_weight is not None and frontier_router is None:
        raise ArgumentError(f"this router was fitted without prices and knows no price_weight, got {price_weight:g}; leave it out.")
    weight = 0.0 if frontier_router is None else float(frontier_router.price_weight if price_weight is None else price_weight)
    vectors = router.encoder_.transform(aligned.inputs)
    posterior = _asked(router.router_, "predict_proba", vectors, weight)
    choice = _asked(router.router_, "predict", vectors, weight)
    found = evaluate_choice(
        choice,
        _costs(aligned, weight),
        aligned.scores,
        aligned.dollars,
        posterior,
        aligned.groups,
        experts=aligned.experts,
        clustered=False,
        seed=seed,
    )
    saved = None if aligned.dollars is None else savings(choice, aligned.scores, aligned.dollars, experts=aligned.experts, seed=seed)
    frontier = None
    if frontier_router is not None and aligned.dollars is not None:
        frontier = _frontier(frontier_router, aligned, vectors, seed)
    promise = _promise(router, frontier_router, found, price_weight is None)
    return Assessment(aligned, found, weight, frontier, saved, promise)


def _aligned(table: CostTable, experts: list[str]) -> CostTable:
    absent = [name for name in experts if name not in table.experts]
    if absent:
        raise TableError(f"the table must have the router's experts, but {', '.join(map(repr, absent))} is missing; add its scores.")
    return table if list(table.experts) == experts else table.select(experts)


def _asked(router: Any, method: str, vectors: Any, weight: float) -> NDArray[Any]:
    extra = {"price_weight": weight} if isinstance(router, FrontierRouter) else {}
    return np.asarray(getattr(router, method)(vectors, **extra))


def _costs(table: CostTable, weight: float) -> NDArray[np.float64]:
    return table.costs(price_weight=weight if table.dollars is not None else 0.0)


def _frontier(router: FrontierRouter, table: CostTable, vectors: Any, seed: int) -> Frontier:
    known = np.asarray(router.curve_["weights"])
    weights = known[np.unique(np.linspace(0, len(known) - 1, min(len(known), _WEIGHTS_DRAWN)).round().astype(int))]
    choices = np.stack([router.predict(vectors, price_weight=weight) for weight in weights])
    return frontier_of(choices, table.scores, table.dollars, price_weights=weights.tolist(), experts=table.experts, seed=seed)


def _promise(router: TextRouter, frontier: FrontierRouter | None, found: Evaluation, own: bool) -> Promise | None:
    target = getattr(router, "target_", None)
    if frontier is None or target is None or not own or found.dollars_per_1000 is None:
        return None
    if target["kind"] == "budget":
        words, promised = f"at most {target['value']:g} dollars per 1,000 queries", float(target["value"])
        return Promise(words, promised, found.dollars_per_1000, found.dollars_per_1000.low <= promised)
    if target["kind"] == "quality":
        best = max(row.score for row in found.per_expert)
        words, promised = f"at least {target['value']:.1%} of the best single expert's score", target["value"] * best
        return Promise(words, promised, found.score, found.score.high >= promised)
    return None
