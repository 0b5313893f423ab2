"""A stored router's decisions on held-out rows, which all figures of an evaluation share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.evaluation.arrays import Choice
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.metrics import best_single
from mildroute.exceptions import TableError
from mildroute.fitting.routed_input import RoutedInput
from mildroute.fitting.targets import point_of
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.cascade.features import SeenAnswers
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["MeasuredDecisions", "measure_decisions"]


@dataclass(frozen=True)
class MeasuredDecisions:
    """The decisions of a stored router on held-out rows.

    Attributes:
        router: The router.
        table: The rows, with the router's experts in its order; looks of a cascade come last.
        vectors: Vectors of the inputs.
        answers: Answers of the experts as a cascade reads them, or `None`.
        clusters: Cluster of each row, shape (n,); whole clusters are resampled.
        target: Target that replaces the stored operating point, or `None`.
        point: The operating point in use, or `None` without prices.
        price_weight: Errors that a dollar is worth at that point.
        decisions: The decision for each row.
        choice: Index of the chosen expert of each row, shape (n,).
        baseline: Index of the expert whose bill the user pays today, or `None` without dollars.
        seed: Seed of the bootstrap and of random splits.
    """

    router: TextRouter
    table: CostTable
    vectors: Any
    answers: SeenAnswers | None
    clusters: NDArray[np.intp]
    target: Target | None
    point: OperatingPoint | None
    price_weight: float
    decisions: list[RoutedInput]
    choice: Choice
    baseline: int | None
    seed: int

    @property
    def experts(self) -> int:
        """Return the number of experts without looks: a look is not an expert to compare with."""
        return self.router.n_experts

    @property
    def looks(self) -> int:
        """Return the number of columns at the end of the table that are looks."""
        return len(self.table.experts) - self.experts

    @property
    def frontier(self) -> FrontierRouter | None:
        """Return the router over vectors if it has operating points, else `None`."""
        router = self.router.router_
        return router if isinstance(router, FrontierRouter) else None

    @property
    def costs(self) -> NDArray[np.float64]:
        """Return the cost of each expert on each row at the price weight, shape (n, p)."""
        return self.table.costs(
            price_weight=0.0 if self.table.dollars is None else self.price_weight
        )

    @property
    def best_by_score(self) -> int:
        """Return the index of the single expert with the highest score."""
        return self._best_single(-self.table.scores)

    @property
    def best_by_cost(self) -> int:
        """Return the index of the single expert with the lowest cost at the price weight."""
        return self._best_single(self.costs)

    @property
    def promised(self) -> Target | None:
        """Return the target that the operating point was chosen by, or `None`."""
        if self.target is not None or self.frontier is None:
            return self.target
        return self.router.target

    def _best_single(self, costs: NDArray[np.float64]) -> int:
        dollars = self.table.dollars
        return best_single(
            costs[:, : self.experts], None if dollars is None else dollars[:, : self.experts]
        )


def measure_decisions(
    router: TextRouter, table: CostTable, target: Target | None, seed: int
) -> MeasuredDecisions:
    """Return the router's decisions on a table, at a target or the stored operating point."""
    point = point_of(router, target)
    answers = router.see_table(table)
    vectors = router.encoder_.transform(table.inputs)
    aligned = _select_experts(router.with_looks(table, answers, vectors), list(router.experts_))
    decisions = router.explain_vectors(vectors, request_keys(aligned), point=point)
    return MeasuredDecisions(
        router=router,
        table=aligned,
        vectors=vectors,
        answers=answers,
        clusters=table.clusters.codes,
        target=target,
        point=point,
        price_weight=0.0 if point is None else router.router_.curve.exchange_rate(point),
        decisions=decisions,
        choice=np.array([decision.expert for decision in decisions], dtype=np.intp),
        baseline=_baseline(router, table),
        seed=seed,
    )


def _baseline(router: TextRouter, table: CostTable) -> int | None:
    """Return the expert whose bill the user pays today: the stored one, or the most expensive."""
    if table.dollars is None:
        return None
    if isinstance(router.router_, FrontierRouter):
        curve = router.router_.curve
        return int(curve.baseline_index - len(curve.weights))
    return int(table.dollars.mean(axis=0).argmax())


def _select_experts(table: CostTable, experts: list[str]) -> CostTable:
    absent = [name for name in experts if name not in table.experts]
    if absent:
        raise TableError(
            f"the table must have the router's experts, but {', '.join(map(repr, absent))} is"
            " missing; add its scores."
        )
    return table if list(table.experts) == experts else table.select(experts)
