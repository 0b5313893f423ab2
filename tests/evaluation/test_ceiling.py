"""What routing could save, before anything is fitted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from mildroute import TextRouter
from mildroute.costs.table import CostTable
from mildroute.evaluation.ceiling import _least_dollars, potential_of
from mildroute.evaluation.report import report_html
from mildroute.evaluation.router_evaluation import evaluate
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.regression import RegressionRouter
from tests.support.small_table import small_table


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [0.2, 0.5, 0.7])
def test_the_least_bill_for_a_score_is_that_of_a_linear_program(seed: int, wanted: float) -> None:
    rng = np.random.default_rng(seed)
    scores, dollars = rng.random((12, 4)).round(1), rng.random((12, 4))
    equal = np.kron(np.eye(12), np.ones(4))  # the shares of each row sum to 1
    slow = linprog(
        dollars.ravel(),
        A_ub=-scores.ravel()[None],
        b_ub=[-12 * wanted],
        A_eq=equal,
        b_eq=np.ones(12),
        bounds=(0, 1),
    )
    assert slow.success
    assert _least_dollars(scores, dollars, wanted) == pytest.approx(slow.fun / 12)


def test_a_table_worked_out_by_hand() -> None:
    """The small expert is right on the even rows for a tenth of the bill.

    5.5 instead of 10 dollars, or 1 for half of the score.
    """
    rows = 40
    columns = {
        "score:small": [1, 0] * 20,
        "score:large": [1] * rows,
        "cost:small": [0.001] * rows,
        "cost:large": [0.01] * rows,
    }
    found = potential_of(
        CostTable.from_data({"query_id": [str(row) for row in range(rows)], **columns})
    )
    assert found is not None
    assert (found.best, found.best_score, found.baseline_dollars_per_1000, found.rows) == (
        "large",
        1.0,
        pytest.approx(10),
        rows,
    )
    assert [level.perfect for level in found.levels] == pytest.approx(
        [0.45, 0.459, 0.495, 0.54]
    )  # 9 dollars less for each row lost
    assert all(level.router is None for level in found.levels)  # no inputs
    assert found.levels[0].random_mix.value == 0.0
    assert found.levels[-1].random_mix.value == pytest.approx(
        0.12, abs=0.07
    )  # 0.18 without the margin of a promise


def test_a_quick_router_is_tried_where_there_are_inputs_and_on_a_sample_of_many_rows() -> None:
    found = potential_of(small_table(1200))
    assert found is not None
    assert found.rows == 1000
    (level,) = (level for level in found.levels if level.kept == 0.95)
    assert level.router is not None
    assert level.random_mix.value < level.router.value < level.perfect


def test_without_dollars_there_is_nothing_to_save() -> None:
    assert potential_of(small_table(dollars=False)) is None
    free = {
        "score:a": [1.0, 0.0] * 30,
        "score:b": [1.0] * 60,
        "cost:a": [0.0] * 60,
        "cost:b": [0.0] * 60,
    }
    assert (
        potential_of(CostTable.from_data({"query_id": [str(row) for row in range(60)], **free}))
        is None
    )


def topics(rows: int, chances: list[float], seed: int) -> tuple[CostTable, np.ndarray]:
    """Questions of four topics, whose chances for the small expert are known; the rest is luck."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 4, rows)
    words = np.array(["add the numbers", "sing a song", "prove the lemma", "paint a picture"])
    known = np.stack([np.array(chances)[topic], np.full(rows, 0.9)], axis=1)
    # Outcomes depend on each other beyond what the topic tells; means are as known.
    scores = (rng.random((rows, 1)) + rng.choice([0, 0.5], (rows, 2))) % 1 < known
    columns = {
        "query_id": [str(row) for row in range(rows)],
        "input": [f"{words[at]} {row}" for row, at in enumerate(topic)],
        "score:small": scores[:, 0].astype(float),
        "score:large": scores[:, 1].astype(float),
        "cost:small": np.full(rows, 0.001),
        "cost:large": np.full(rows, 0.01),
    }
    return CostTable.from_data(columns), known


@pytest.mark.parametrize("chances", [[0.9, 0.85, 0.4, 0.1], [0.6, 0.6, 0.6, 0.6]])
def test_what_is_in_reach_is_what_knowing_the_chances_saves(chances: list[float]) -> None:
    table, known = topics(1000, chances, 0)
    found = potential_of(table)
    assert found is not None
    assert found.best == "large"
    assert table.dollars is not None
    for level in found.levels[1:]:
        wanted = level.kept * known[:, 1].mean()
        truth = 1 - _least_dollars(known, table.dollars, wanted) / 0.01
        assert level.in_reach == pytest.approx(truth, abs=0.08)
        assert level.in_reach < level.perfect - 0.05, "the rest is luck"


def test_nothing_is_in_reach_where_nothing_was_tried() -> None:
    table, _ = topics(40, [0.5] * 4, 0)
    found = potential_of(table)
    assert found is not None
    assert all(level.in_reach is None for level in found.levels)


@pytest.mark.parametrize("chances", [[0.9, 0.85, 0.4, 0.1], [0.6, 0.6, 0.6, 0.6]])
def test_an_evaluation_knows_how_much_of_the_way_is_in_reach(chances: list[float]) -> None:
    table, _ = topics(1000, chances, 0)
    router = FrontierRouter(router=RegressionRouter(), price_weights=(0, 10, 100))
    fitted = TextRouter(router=router)
    errors = 1 - table.scores
    fitted.fit(table.inputs, errors, prices=table.dollars, experts=table.experts)
    rows, known = topics(2000, chances, 1)
    found = evaluate(fitted, rows, price_weight=20.0)
    costs = rows.costs(price_weight=20.0)
    bills = 20.0 * np.array([0.001, 0.01])
    base = costs.mean(axis=0).min()
    gained = base - (1 - known + bills).min(axis=1).mean()
    truth = max(gained, 0.0) / (base - costs.min(axis=1).mean())
    assert found.in_reach == pytest.approx(truth, abs=0.08)
    assert found.as_dict()["in_reach"] == found.in_reach
    assert "in reach of inputs alone" in report_html(found)
    assert evaluate(fitted, rows.take(np.arange(40))).in_reach is None
