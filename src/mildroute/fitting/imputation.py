"""Imputation of scores that a table lacks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from mildroute._format import pluralize
from mildroute.costs.table import CostTable
from mildroute.fitting.text_router import DEFAULT_ENCODER
from mildroute.routers.imputation import check_asked, impute_costs


def complete_table(
    table: CostTable, encoder: Any, seed: int
) -> tuple[CostTable, tuple[str, ...], int]:
    """Return the table with doubly robust scores and expected dollars, notes, and its size.

    The effective number of rows is that of the expert that was called least often.
    """
    if not table.is_partial:
        return table, (), len(table)
    asked = ~np.isnan(table.scores)
    check_asked(asked, table.experts)
    vectors = clone(encoder or DEFAULT_ENCODER()).fit_transform(table.inputs)
    # Neither a prompt nor its conversation may help to predict itself.
    codes = table.clusters.codes
    impute = partial(impute_costs, vectors, groups=codes, random_state=seed)
    scores = impute(costs=table.scores, propensities=table.propensities)
    dollars = None
    if table.dollars is not None:
        # Dollars vary little around their expectation; doubly robust ones could be negative.
        dollars = impute(costs=table.dollars, max_weight=1.0)
        dollars = np.maximum(dollars, np.nanmin(table.dollars, axis=0))
    counts = asked.sum(axis=0)
    estimated = (
        f"{1 - asked.mean():.0%} of the scores are estimates, for not all experts were asked on all"
        f" rows; {table.experts[int(counts.argmin())]} was asked least, on"
        f" {pluralize(int(counts.min()), 'row')}"
    )
    if table.propensities is None:
        estimated += "; without propensity columns they assume that experts were asked at random"
    return table.with_estimates(scores, dollars), (estimated,), int(counts.min())


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _vectors(table: CostTable, encoder: Any, further: Sequence[str]) -> tuple[Any, Any]:
    fitted = clone(encoder)
    vectors = fitted.fit_transform(table.inputs)
    return vectors, fitted.transform(list(further)) if further else None
