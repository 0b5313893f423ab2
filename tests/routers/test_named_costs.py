"""Costs carry names to a router and lose them with any change."""

from __future__ import annotations

import numpy as np
import pytest

from mildroute.exceptions import ShapeError
from mildroute.routers.base import NamedCosts, named_costs
from mildroute.routers.mild import MildRouter
from routers.every_router import problem


def test_a_fitted_router_knows_the_names() -> None:
    X, costs = problem(3)
    named = MildRouter(random_state=0).fit(X, named_costs(costs, ["a", "b", "c"]))
    assert named.experts_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(
        named.decision_function(X), MildRouter(random_state=0).fit(X, costs).decision_function(X)
    )


def test_parts_and_sums_have_no_names() -> None:
    named = named_costs(np.eye(3), ["a", "b", "c"])
    for derived in (named[:, :2], named + 1, named.T):
        assert isinstance(derived, NamedCosts)
        assert derived.columns is None


def test_names_must_be_as_many_as_columns() -> None:
    with pytest.raises(
        ShapeError, match=r"costs must be \(n, 2\), one column per name, got shape \(3, 3\)"
    ):
        named_costs(np.eye(3), ["a", "b"])
