"""Imputation of a table's missing scores."""

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
    """Return the table with imputed scores and dollars, notes, and the effective number of rows.

    Scores are doubly robust estimates, and dollars are expectations. The effective number of rows
    is the number of rows on which the least-called expert was called.
    """
    if not table.is_partial:
        return table, (), len(table)
    is_scored = ~np.isnan(table.scores)
    check_asked(is_scored, table.experts)
    vectors = clone(encoder or DEFAULT_ENCODER()).fit_transform(table.inputs)
    # A prompt and its conversation must not be used to predict their own scores.
    codes = table.clusters.codes
    impute = partial(impute_costs, vectors, groups=codes, random_state=seed)
    scores = impute(costs=table.scores, propensities=table.propensities)
    dollars = None
    if table.dollars is not None:
        # Dollars vary little around their expectation, and doubly robust values could be negative.
        dollars = impute(costs=table.dollars, max_weight=1.0)
        dollars = np.maximum(dollars, np.nanmin(table.dollars, axis=0))
    counts = is_scored.sum(axis=0)
    note = (
        f"{1 - is_scored.mean():.0%} of the scores are estimates, because not every expert was"
        f" asked on every row; {table.experts[int(counts.argmin())]} was asked least, on"
        f" {pluralize(int(counts.min()), 'row')}"
    )
    if table.propensities is None:
        note += "; without propensity columns they assume that experts were asked at random"
    return table.with_estimates(scores, dollars), (note,), int(counts.min())


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _vectors(table: CostTable, encoder: Any, other_inputs: Sequence[str]) -> tuple[Any, Any]:
    fitted = clone(encoder)
    vectors = fitted.fit_transform(table.inputs)
    return vectors, fitted.transform(list(other_inputs)) if other_inputs else None
