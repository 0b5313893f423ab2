"""Refit a stored router when experts come, go or change their prices."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError
from mildroute.fitting.fit import fit
from mildroute.fitting.result import FittedRouter
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.frontier.router import FrontierRouter


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
        target=router.target,
        judge=None if router.provenance is None else router.provenance.judge,
        seed=seed,
        **given,
    )
