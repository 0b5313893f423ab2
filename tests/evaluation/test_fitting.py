"""From a table to an operating point."""

from __future__ import annotations

import numpy as np
import pytest
from cli.conftest import small_table

from mildroute.costs.table import CostTable
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.errors import ArgumentError, TableError, UnreachableTargetError
from mildroute.evaluation.fitting import Target, fit_table, price_grid
from mildroute.evaluation.method import about_router
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.regression import RegressionRouter

TABLE = small_table()


def test_the_grid_goes_from_quality_alone_to_money_alone() -> None:
    """The dearest costs .1 more than the cheapest: weights from .03, worth .003 errors, to 300, worth 30."""
    grid = price_grid(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert (grid[0], grid[1], grid[-1]) == (0.0, 0.03, 300.0)
    assert list(grid) == sorted(set(grid))


def test_experts_of_one_price_need_no_grid() -> None:
    assert price_grid(np.ones((2, 3))) == (0.0, 1.0)
    assert price_grid(np.zeros((2, 3))) == (0.0, 1.0)
    assert price_grid(np.array([[0.1 + 0.2, 0.3]])) == (0.0, 1.0)  # rounding is no difference


def test_experts_that_cost_the_same_on_the_whole_and_not_on_each_row_need_a_grid() -> None:
    assert price_grid(np.array([[0.1, 0.2], [0.2, 0.1]])) == price_grid(np.array([[0.1, 0.2], [0.1, 0.2]]))


def test_a_dearer_target_gives_a_better_score() -> None:
    cheap, dear = (fit_table(TABLE, target=Target("budget", budget)).point for budget in (3.0, 11.0))
    assert cheap is not None
    assert dear is not None
    assert cheap.dollars_per_1000 <= 3.0
    assert cheap.score < dear.score


def test_a_price_weight_is_taken_as_it_is_and_kept() -> None:
    fitted = fit_table(TABLE, target=Target("price weight", 12.5))
    assert fitted.point is not None
    assert fitted.point.price_weight == fitted.router.router_.price_weight == 12.5
    assert fitted.router.target_ == {"kind": "price weight", "value": 12.5}
    assert list(fitted.router.experts_) == ["small", "large"]


def test_without_a_target_the_cheapest_point_of_nearly_full_quality_is_taken() -> None:
    assert "99%" in fit_table(TABLE).note


def test_where_no_quality_can_be_promised_the_cheapest_point_as_good_as_the_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experts right on independent halves of 80 rows, whatever the text says: the dear one is not shown to be better."""

    def refuse(*_: object, **__: object) -> None:
        raise UnreachableTargetError("out of reach")

    monkeypatch.setattr(FrontierRouter, "for_quality", refuse)
    rng = np.random.default_rng(0)
    noise = {f"score:{name}": (rng.random(80) < 0.5).astype(float) for name in ("dear", "cheap")}
    bills = {"cost:dear": [0.01] * 80, "cost:cheap": [0.001] * 80}
    fitted = fit_table(CostTable.of({"input": [f"word{row}" for row in range(80)], **noise, **bills}))
    assert fitted.point is not None
    assert "not told apart from the best" in fitted.note
    assert fitted.point.dollars_per_1000 == pytest.approx(1)


def test_a_target_out_of_reach_is_said() -> None:
    with pytest.raises(UnreachableTargetError, match="raise the budget"):
        fit_table(TABLE, target=Target("budget", 0.1))


def test_a_table_without_inputs_or_dollars_is_refused_where_they_are_needed() -> None:
    with pytest.raises(TableError, match="needs the column 'input'"):
        fit_table(CostTable.of({"query_id": ["q"], "score:a": [1], "score:b": [0]}))
    with pytest.raises(TableError, match=r"a quality of 0\.9 needs dollars"):
        fit_table(small_table(dollars=False), target=Target("quality", 0.9))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_target_must_be_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ArgumentError, match="a budget must be finite and not negative"):
        Target("budget", value)


def test_an_encoder_of_choice_is_used() -> None:
    fitted = fit_table(small_table(dollars=False), encoder=TfidfEncoder())
    assert isinstance(fitted.router.encoder_, TfidfEncoder)
    assert fitted.point is None


@pytest.mark.parametrize("dollars", [True, False])
def test_a_router_of_choice_is_used_and_knows_its_held_out_decisions(dollars: bool) -> None:
    fitted = fit_table(small_table(dollars=dollars), router=RegressionRouter())
    assert about_router(fitted.router)["method"] == ("RegressionRouter, for any price" if dollars else "RegressionRouter")
    assert fitted.router.outlook_ is not None
    assert fitted.router.outlook_.shares_ is not None
    assert fitted.router.outlook_.shares_.sum() == pytest.approx(1)
    assert dollars or fitted.note == "no dollars in the table, so only quality counts; RegressionRouter"
