"""From a cost table to a router with an operating point: what ``mildroute fit`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.costs.text_digests import text_fingerprints
from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, TableError
from mildroute.evaluation.method import method_of
from mildroute.routers.cross_fit import held_out_posterior
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.named_costs import named_costs
from mildroute.routers.operating import OperatingPoint

__all__ = ["Fitted", "Target", "fit_table", "operating_point", "price_grid"]

Kind: TypeAlias = Literal["price weight", "budget", "quality"]
Progress: TypeAlias = Callable[[int, int, str], None]

_STEPS = 12
_ROUNDING = 1e-9
_LEAST, _MOST = 0.003, 30.0
"""Errors that the whole difference between the dearest and the cheapest expert is worth at the ends of the grid of price weights."""


@dataclass(frozen=True)
class Target:
    """What the operating point is chosen by.

    Attributes:
        kind: ``"price weight"`` (errors that a dollar is worth), ``"budget"`` (dollars per 1,000 queries) or ``"quality"`` (share of the
            best single expert's score).
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


@dataclass(frozen=True)
class Fitted:
    """A fitted router, its operating point on held-out rows (none without dollars) and how it was come by.

    Example:
        >>> Fitted(TextRouter(), None, "no dollars").note
        'no dollars'
    """

    router: TextRouter
    point: OperatingPoint | None
    note: str


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
        target: What to choose the operating point by; by default the cheapest point that keeps 99% of the best single expert's score.
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
    fitted.target_ = {"kind": target.kind, "value": float(target.value)} if target else None
    return Fitted(_remembering(fitted, table, costs), point, note)


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


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """The point of a router's frontier that a target asks for, and the target in words.

    Example:
        >>> router = FrontierRouter().fit(np.eye(20), np.tile([0.1, 0.3], (20, 1)), prices=[0.01, 0.001])
        >>> operating_point(router, Target("quality", 1.0))[1]
        "cheapest point that keeps 100.0% of the best single expert's score"
    """
    if target is None:
        return router.for_quality(0.99), "cheapest point that keeps 99% of the best single expert's score"
    if target.kind == "budget":
        return router.for_budget(target.value), f"best score within {target.value:g} dollars per 1,000 queries"
    if target.kind == "quality":
        return router.for_quality(target.value), f"cheapest point that keeps {target.value:.1%} of the best single expert's score"
    return router.at(target.value), f"price weight {target.value:g}: a dollar is worth that many errors"
