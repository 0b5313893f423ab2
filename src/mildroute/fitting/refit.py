"""Refit a stored router when experts come, go or change their prices."""

from __future__ import annotations

from sklearn.base import clone

from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError
from mildroute.fitting.fit import FitOptions, Progress, fit_table
from mildroute.fitting.result import FittedRouter
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.frontier.router import FrontierRouter


def refit(
    router: TextRouter, table: CostTable, *, seed: int = 0, progress: Progress | None = None
) -> FittedRouter:
    """Fit a router on another table with a stored router's encoder, method, target and judge.

    Args:
        router: The stored router; not a cascade, which needs answers.
        table: The table; its experts may differ from the router's.
        seed: Seed for folds, clustering and random splits.
        progress: Called with the steps done, the total and a short label of the current step.
    """
    inner = router.router_
    if isinstance(inner, CascadeRouter):
        raise ArgumentError(
            "a cascade cannot be refitted without answers; use 'mildroute fit --cascade' on a table"
            " that has all experts."
        )
    is_frontier = isinstance(inner, FrontierRouter)
    inner_router = inner.router if is_frontier else inner
    if is_frontier == (table.dollars is None):
        if is_frontier:
            raise TableError(
                "the router was fitted with dollars, got a table without them; give prices, or a"
                " table that has dollars."
            )
        raise TableError(
            "the router was fitted without dollars, got a table with them; give a table"
            " without dollars."
        )
    options = FitOptions(
        encoder=clone(router.encoder_),
        router=None if inner_router is None else clone(inner_router),
        target=router.target,
        judge=None if router.provenance is None else router.provenance.judge,
        seed=seed,
    )
    return fit_table(table, options, progress=progress)
