"""A router on rows that it has not seen, and the page that tells of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cli.conftest import small_table

from mildroute.costs.table import CostTable
from mildroute.errors import ArgumentError, TableError
from mildroute.evaluation.assessment import Assessment, assess
from mildroute.evaluation.fitting import Fitted, Target, fit_table
from mildroute.evaluation.report import report_html
from mildroute.routers.single import BestSingleRouter

TRAIN, HELD_OUT = small_table(400).split(0.3, seed=0)


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit_table(TRAIN, target=Target("budget", 6.0))


@pytest.fixture(scope="module")
def found(fitted: Fitted) -> Assessment:
    return assess(fitted.router, HELD_OUT)


def test_the_budget_is_checked_on_held_out_rows(found: Assessment) -> None:
    assert found.promise is not None
    assert found.promise.promised == 6.0
    assert found.promise.measured == found.evaluation.dollars_per_1000
    assert found.promise.met is bool(found.promise.measured.low <= 6.0)


def test_quality_is_measured_against_the_best_single_expert_of_these_rows() -> None:
    found = assess(fit_table(TRAIN, target=Target("quality", 0.9)).router, HELD_OUT)
    assert found.promise is not None
    assert found.promise.promised == pytest.approx(0.9 * HELD_OUT.scores.mean(axis=0).max())


def test_another_price_weight_promises_nothing(fitted: Fitted) -> None:
    assert assess(fitted.router, HELD_OUT, price_weight=0.0).promise is None


def test_experts_in_another_order_are_brought_into_the_routers(fitted: Fitted, found: Assessment) -> None:
    turned = assess(fitted.router, HELD_OUT.select(["large", "small"]))
    assert turned.evaluation.score == found.evaluation.score
    assert turned.table.experts == ("small", "large")


def test_the_frontier_runs_from_dear_to_cheap_and_holds_the_experts(found: Assessment) -> None:
    assert found.frontier is not None
    bills = [point.dollars_per_1000 for point in found.frontier.points]
    assert bills[0] == max(bills)
    assert {point.name for point in found.frontier.singles} == {"small", "large"}
    assert found.chosen is not None
    assert found.chosen.price_weight == found.price_weight


def test_a_router_without_prices_has_no_money_to_tell_of() -> None:
    router = fit_table(small_table(dollars=False)).router
    found = assess(router, small_table(dollars=False))
    assert (found.frontier, found.savings, found.promise, found.chosen) == (None, None, None, None)
    assert "Money against quality" not in report_html(found)
    with pytest.raises(ArgumentError, match="fitted without prices"):
        assess(router, HELD_OUT, price_weight=1.0)


def test_what_is_no_router_over_inputs_or_no_table_with_inputs_is_refused(fitted: Fitted) -> None:
    with pytest.raises(ArgumentError, match="only a router over inputs"):
        assess(BestSingleRouter().fit([[0.0]], [[0, 1]]), HELD_OUT)  # type: ignore[arg-type]
    with pytest.raises(TableError, match="needs the column 'input'"):
        assess(fitted.router, CostTable.of({"query_id": ["q"], "score:small": [1], "score:large": [0]}))


def test_the_report_tells_of_every_expert_group_and_lost_query(found: Assessment) -> None:
    page = report_html(found, provenance={"router": "my router"})
    for words in ("small", "large", "sum", "song", "my router", found.table.content_hash, "at most 6 dollars per 1,000 queries"):
        assert words in page
    for row in found.evaluation.lost:
        assert found.table.query_ids[row.row] in page


def test_nothing_in_a_table_becomes_markup() -> None:
    evil = "<script>alert(1)</script>&'\""
    rows = 60
    table = CostTable.of(
        {
            "query_id": [f"{evil}{row}" for row in range(rows)],
            "input": [f"{evil} {'sum' if row % 2 else 'song'} {row}" for row in range(rows)],
            "group": [evil, "b"] * (rows // 2),
            f"score:{evil}": [1.0, 0.0] * (rows // 2),
            "score:b": [0.0, 0.9] * (rows // 2),
            f"cost:{evil}": [0.1] * rows,
            "cost:b": np.full(rows, 0.2),
        }
    )
    page = report_html(assess(fit_table(table).router, table), title=evil, provenance={evil: evil})
    assert "<script" not in page
    assert not re.search(r"<text[^>]*>[^<]*<script", page)
