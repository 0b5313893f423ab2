"""A stored router on a table that it has not seen: all that ``mildroute evaluate`` and the report tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.costs.text_digests import text_fingerprints
from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, TableError
from mildroute.evaluation.caution import few_rows
from mildroute.evaluation.evaluate import Evaluation, evaluate_choice
from mildroute.evaluation.frontier import Frontier, frontier_of
from mildroute.evaluation.hull import Point
from mildroute.evaluation.method import about_router
from mildroute.evaluation.metrics import best_single, paid
from mildroute.evaluation.plain import as_plain
from mildroute.evaluation.replicates import Interval, resample
from mildroute.evaluation.saving import Savings, savings
from mildroute.evaluation.wording import shown_interval
from mildroute.routers.frontier import FrontierRouter

__all__ = ["Assessment", "Promise", "assess"]

_WEIGHTS_DRAWN = 24


@dataclass(frozen=True)
class Promise:
    """What an operating point was chosen for, and what came of it.

    Attributes:
        target: In words.
        promised: The value that was to be met: dollars per 1,000 queries, or a share of the best single expert's score.
        measured: The same on these rows; both scores of a share are resampled together.
        verdict: ``"met"`` or ``"missed"`` where the whole interval says so, else ``"not decided"``.

    Example:
        >>> Promise("at most 2 dollars per 1,000 queries", 2.0, Interval(1.9, 1.8, 2.0), "met").verdict
        'met'
    """

    target: str
    promised: float
    measured: Interval
    verdict: Literal["met", "not decided", "missed"]

    @property
    def words(self) -> str:
        """What was measured, as the target puts it."""
        return shown_interval(self.measured, "{:.1%}" if "%" in self.target else "{:.4g}")


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
        warnings: What a reader of the figures must know, in sentences.
        about: What the router is: its method, its encoder and, where it knows, the judge of the scores that it has learnt from.

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
    warnings: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def price_weight_used(self) -> float:
        """The price weight in the costs measured: 0 where the table has no dollars, whatever the router weighs."""
        return 0.0 if self.table.dollars is None else self.price_weight

    @property
    def title(self) -> str:
        """What the figures are of, in a few words."""
        weighed = self.price_weight == self.price_weight_used
        return f"{len(self.table):,} queries, {f'price weight {self.price_weight:.4g}' if weighed else 'error alone'}"

    @property
    def chosen(self) -> Point | None:
        """The operating point in use as a point of the picture."""
        bill, score = self.evaluation.dollars_per_1000, self.evaluation.score
        return None if bill is None else Point("chosen", bill.value, score.value, bill, score, self.price_weight)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        saved = None if self.savings is None else as_plain(self.savings) | {"sentence": self.savings.sentence}
        return {
            "about": dict(self.about),
            "price_weight": self.price_weight,
            "price_weight_used": self.price_weight_used,
            "evaluation": self.evaluation.as_dict(),
            "frontier": None if self.frontier is None else as_plain(self.frontier.points),
            "savings": saved,
            "promise": as_plain(self.promise) if self.promise else None,
            "warnings": list(self.warnings),
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
    target = getattr(router, "target_", None) if frontier_router is not None and price_weight is None else None
    promise = None if target is None else _promise(target["kind"], float(target["value"]), aligned, choice, seed)
    warnings = (*_warnings(aligned, weight), *_seen_rows(router, aligned))
    return Assessment(aligned, found, weight, frontier, saved, promise, warnings, about_router(router))


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


def _promise(kind: str, promised: float, table: CostTable, choice: NDArray[np.intp], seed: int) -> Promise | None:
    if kind == "budget" and table.dollars is not None:
        bill = resample({"dollars": 1000 * paid(table.dollars, choice)}, seed=seed).interval("dollars")
        words = f"at most {promised:g} dollars per 1,000 queries"
        return Promise(words, promised, bill, _decided(bill.high <= promised, bill.low > promised))
    if kind == "quality":
        best = table.scores[:, best_single(-table.scores, table.dollars)]
        drawn = resample({"score": paid(table.scores, choice), "best": best}, seed=seed)
        share = drawn.interval(lambda mean: mean["score"] / mean["best"])
        words = f"at least {promised:.1%} of the best single expert's score"
        return Promise(words, promised, share, _decided(share.low >= promised, share.high < promised))
    return None


def _decided(inside: bool, outside: bool) -> Literal["met", "not decided", "missed"]:
    return "met" if inside else "missed" if outside else "not decided"


def _warnings(table: CostTable, weight: float) -> tuple[str, ...]:
    unpriced = ("no dollars in this table: figures are error alone",) if weight and table.dollars is None else ()
    return (*unpriced, *few_rows(len(table)))


def _seen_rows(router: TextRouter, table: CostTable) -> tuple[str, ...]:
    """A warning where the router has learnt from rows that it is measured on."""
    known = getattr(router, "seen_", None)
    if known is None:
        return ()
    seen = int(np.isin(text_fingerprints(table), known).sum())
    if not seen:
        return ()
    return (f"{seen:,} of {len(table):,} rows have inputs that the router has learnt from: figures on them are too good",)
