"""One protocol for all routers, with baselines, paired differences and Holm's correction."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer

from mildroute import Target, TextRouter
from mildroute.costs.table import CostTable
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.evaluation.baseline_choices import baseline_choices
from mildroute.evaluation.comparison import Comparison, compare, default_routers
from mildroute.evaluation.cost_quality import oracle_point
from mildroute.evaluation.held_out_choices import Split
from mildroute.evaluation.metrics import deferral_loss, dollars_per_1000
from mildroute.evaluation.resampling import Interval
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.base import RouterMixin
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.knn import KNNRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.training_rows import TrainingRows

KINDS = ("add", "prove", "rhyme")


def table(rows: int = 240, *, dollars: bool = True, groups: bool = True) -> CostTable:
    """Sums are easy for all, proofs need the large expert, rhymes the poet.

    One query in ten is luck.
    """
    rng = np.random.default_rng(0)
    kind = np.arange(rows) % 3
    right = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]])[kind]
    scores = np.where(rng.random((rows, 3)) < 0.1, 1 - right, right)
    columns: dict[str, Any] = {
        "query_id": [f"q{row}" for row in range(rows)],
        "input": [f"{KINDS[k]} number{row}" for row, k in enumerate(kind)],
    }
    if groups:
        columns["group"] = [f"{KINDS[k]}{row % 5}" for row, k in enumerate(kind)]
    for index, (name, price) in enumerate({"small": 0.001, "large": 0.01, "poet": 0.003}.items()):
        columns[f"score:{name}"] = scores[:, index].astype(float)
        if dollars:
            columns[f"cost:{name}"] = np.full(rows, price)
    return CostTable.from_data(columns)


class Spy(RouterMixin, BaseEstimator):
    """Remembers what it was given, for all copies."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012

    def fit_rows(self, rows: TrainingRows, progress: Any = None) -> Any:
        self.seen.append({"rows": rows.X.shape[0], "groups": rows.groups, "costs": rows.costs})
        return super().fit_rows(rows, progress)

    def _fit(self, X: Any, costs: Any, sample_weight: Any) -> None:  # noqa: ARG002
        self.scores_ = -costs.mean(axis=0)

    def _scores(self, X: Any) -> Any:
        return np.tile(self.scores_, (X.shape[0], 1))


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(
        table(), {"kNN": KNNRouter(), "linear regression": RegressionRouter()}, price_weight=10
    )


def test_every_baseline_is_shown_below_the_routers(found: Comparison) -> None:
    names = [row.name for row in found.rows]
    assert names == [
        "kNN",
        "linear regression",
        "best single",
        "cheapest",
        "most expensive",
        "random",
        "random at equal cost",
        "oracle",
    ]
    assert [row.kind for row in found.rows[:3]] == ["router", "router", "baseline"]
    assert (found.train_rows, found.test_rows, found.default) == (192, 48, "kNN")


def test_the_ends_of_the_gap_are_the_best_single_and_the_oracle(found: Comparison) -> None:
    assert found.row("best single").gap_closed.value == 0
    assert found.row("oracle").gap_closed.value == pytest.approx(1)
    assert 0.5 < found.row("kNN").gap_closed.value < 1
    assert found.row("oracle").deferral_loss.value == min(
        row.deferral_loss.value for row in found.rows
    )


def test_figures_are_those_of_the_choices_on_the_test_side(found: Comparison) -> None:
    assert found.test is not None
    costs = found.test.costs(price_weight=10)
    for row in found.rows:
        assert row.deferral_loss.value == pytest.approx(
            deferral_loss(costs, found.choices[row.name])
        )
        assert row.deferral_loss.low <= row.deferral_loss.value <= row.deferral_loss.high


def test_cheapest_and_most_expensive_go_by_dollars_and_the_random_mix_has_the_default_bill(
    found: Comparison,
) -> None:
    assert set(found.choices["cheapest"]) == {0}
    assert set(found.choices["most expensive"]) == {1}
    bills = [found.row(name).dollars_per_1000 for name in ("kNN", "random at equal cost")]
    assert bills[0] is not None
    assert bills[1] is not None
    assert bills[1].value == pytest.approx(bills[0].value, rel=0.35)  # a draw of 48 rows


def test_the_random_mix_pays_what_the_router_pays_even_where_test_rows_are_more_expensive() -> None:
    seen = CostTable.from_data(
        {
            "query_id": [f"s{row}" for row in range(90)],
            "score:a": [0] * 90,
            "score:b": [1] * 90,
            **bills(90, 1),
        }
    )
    asked = CostTable.from_data(
        {
            "query_id": [f"t{row}" for row in range(4000)],
            "score:a": [0] * 4000,
            "score:b": [1] * 4000,
            **bills(4000, 3),
        }
    )
    ours = np.arange(4000) % 2
    mix = baseline_choices(Split(seen, asked, None, None), ours, seed=0)["random at equal cost"]
    assert dollars_per_1000(asked.dollars, mix) == pytest.approx(
        dollars_per_1000(asked.dollars, ours), rel=0.03
    )


def bills(rows: int, times: int) -> dict[str, list[float]]:
    return {"cost:a": [0.001 * times] * rows, "cost:b": [0.004 * times] * rows}


def test_differences_are_to_the_first_router_and_corrected(found: Comparison) -> None:
    assert found.row("kNN").difference is None
    assert found.row("kNN").holm_p_value is None
    single = found.row("best single")
    assert single.difference is not None
    assert single.holm_p_value is not None
    assert single.difference.value == pytest.approx(
        found.row("kNN").deferral_loss.value - single.deferral_loss.value
    )
    assert single.holm_p_value >= single.difference.p_value
    assert found.row("oracle").holm_p_value is None


def test_columns_and_dict_are_fit_for_json(found: Comparison) -> None:
    columns = found.as_columns()
    assert {len(values) for values in columns.values()} == {8}
    assert columns["deferral_loss_low"][0] == found.rows[0].deferral_loss.low
    assert columns["difference"][0] is None
    json.dumps([columns, found.as_dict()], allow_nan=False)


def test_few_test_rows_are_warned_of(found: Comparison) -> None:
    assert found.warnings == (
        (
            "only 48 rows were measured: with fewer than 50, intervals are too narrow and p-values"
            " rough; measure more rows"
        ),
    )
    assert found.as_dict()["warnings"] == list(found.warnings)
    assert compare(table(), {"linear regression": RegressionRouter()}, test=0.3).warnings == ()


def test_the_oracle_and_the_best_single_do_not_depend_on_the_order_of_experts() -> None:
    whole = table()
    for order in (["small", "large", "poet"], ["large", "poet", "small"]):
        found = compare(whole.select(order), {"linear regression": RegressionRouter()})
        assert found.test is not None
        bill = found.row("oracle").dollars_per_1000
        assert bill is not None
        assert bill.value == pytest.approx(
            oracle_point(found.test.scores, found.test.dollars).dollars_per_1000
        )


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (
        compare(table(), {"linear regression": RegressionRouter()}, seed=3) for _ in range(2)
    )
    assert [row.deferral_loss for row in first.rows] == [row.deferral_loss for row in second.rows]


def test_without_dollars_nothing_is_said_of_money() -> None:
    found = compare(table(dollars=False), {"linear regression": RegressionRouter()})
    assert [row.name for row in found.rows] == [
        "linear regression",
        "best single",
        "random",
        "oracle",
    ]
    assert found.rows[0].dollars_per_1000 is None


def test_a_router_learns_from_the_train_side_with_groups_where_it_takes_them() -> None:
    Spy.seen.clear()
    compare(table(), {"spy": Spy()})
    compare(table(groups=False), {"spy": Spy()}, price_weight=100)
    given, without = Spy.seen
    assert given["rows"] == len(given["groups"]) == 192
    assert without["groups"] is None
    assert without["costs"].min() == pytest.approx(
        0.1
    )  # 100 times the dollars of the cheapest expert


def test_routers_given_are_left_as_they_are() -> None:
    router = RegressionRouter()
    compare(table(), {"mine": router})
    assert not hasattr(router, "experts_")


def test_the_encoder_sees_no_test_row() -> None:
    class Watching(CountVectorizer):
        fitted: list[str] = []  # noqa: RUF012

        def fit_transform(self, raw_documents: Any, y: Any = None) -> Any:
            self.fitted.extend(raw_documents)
            return super().fit_transform(raw_documents, y).astype(float)

        def transform(self, raw_documents: Any) -> Any:
            return super().transform(raw_documents).astype(float)

    found = compare(table(), {"linear regression": RegressionRouter()}, encoder=Watching())
    assert found.test is not None
    assert found.test.inputs is not None
    assert len(Watching.fitted) == 192
    assert not set(Watching.fitted) & set(found.test.inputs)
    assert found.settings["encoder"] == "Watching"


def test_vectors_of_the_table_can_stand_for_an_encoder() -> None:
    whole = table()
    vectors = np.eye(3)[np.arange(240) % 3]
    found = compare(whole, {"kNN": KNNRouter()}, encoder=vectors)
    assert found.test is not None
    kinds = np.array([int(query[1:]) % 3 for query in found.test.query_ids])
    assert (found.choices["kNN"][kinds == 1] == 1).all()
    assert (found.choices["kNN"][kinds == 2] == 2).all()
    with pytest.raises(ShapeError, match="240"):
        compare(whole, {"kNN": KNNRouter()}, encoder=vectors[:10])


def test_a_frontier_router_is_asked_at_its_weight_and_a_text_router_reads_texts() -> None:
    frontier = FrontierRouter(
        router=MildRouter(alpha=1e-3, margins="uniform", reward="gap", features="raw"),
        price_weights=(0, 1000),
    )
    routers = {"frontier": frontier, "text": TextRouter(encoder=TfidfEncoder(), router=frontier)}
    cheap, free = (compare(table(), routers, price_weight=weight) for weight in (1000, 0))
    for name in routers:
        assert set(cheap.choices[name]) == {0}
        assert free.row(name).gap_closed.value > 0.3


def test_a_split_by_group_keeps_groups_apart_and_widens_to_them() -> None:
    found = compare(table(), {"linear regression": RegressionRouter()}, by="group")
    assert found.settings["by"] == "group"
    assert found.test is not None
    assert found.test.groups is not None
    assert len(set(found.test.groups)) < 15


def test_progress_counts_the_steps() -> None:
    calls: list[tuple[int, int, str]] = []
    compare(
        table(),
        {"a": RegressionRouter(), "b": RegressionRouter()},
        progress=lambda *step: calls.append(step),
    )
    assert calls == [(0, 3, "encoding"), (1, 3, "a"), (2, 3, "b"), (3, 3, "done")]


def test_at_a_target_every_router_and_the_coin_stand_on_their_own_point() -> None:
    routers = {
        "auto": FrontierRouter(random_state=0),
        "kNN": KNNRouter(),
        "regression": RegressionRouter(),
    }
    found = compare(table(), routers, target=Target("quality", 0.95), test=0.3)
    assert set(found.points) == set(routers)
    assert found.row("best in the table").saved == Interval(0.0, 0.0, 0.0)
    for name, point in found.points.items():
        row = found.row(name)
        shares = np.bincount(found.choices[name], minlength=3) / found.test_rows
        assert row.saved is not None
        assert row.saved.value == pytest.approx(
            1 - np.dot(shares, [1, 10, 3]) / (10 if found.best_by_score == "large" else 3)
        )
        assert found.settings["price_weight"] == found.points["auto"].price_weight
        assert point.score >= 0.95 * point.best_score
    assert {"saved", "saved_low", "kept_high"} <= set(found.as_columns())
    json.dumps(found.as_dict())


def test_a_price_weight_is_a_target_like_any_other() -> None:
    one, other = (
        compare(table(), {"kNN": KNNRouter()}, **how)
        for how in ({"target": Target("price weight", 5.0)}, {"price_weight": 5.0})
    )
    assert one.row("kNN").deferral_loss == other.row("kNN").deferral_loss
    assert not one.points


def test_what_a_target_cannot_go_with_is_refused() -> None:
    target = Target("budget", 5.0)
    with pytest.raises(ArgumentError, match="goes without price_weight"):
        compare(table(), {"kNN": KNNRouter()}, target=target, price_weight=1.0)
    with pytest.raises(ArgumentError, match="a target needs dollars"):
        compare(table(dollars=False), {"kNN": KNNRouter()}, target=target)
    with pytest.raises(ArgumentError, match="routers over vectors"):
        compare(table(), {"texts": TextRouter()}, target=target)


def test_the_default_routers_run_and_the_default_comes_first() -> None:
    found = compare(table(), default_routers(), test=0.3)
    assert found.default == "MildRouter"
    assert found.row("MildRouter").gap_closed.value > 0.5
    assert all((row.fit_seconds or 0) > 0 for row in found.rows if row.kind == "router")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ArgumentError, match="baseline"):
        compare(table(), {"oracle": KNNRouter()})
    with pytest.raises(ArgumentError, match="at least one"):
        compare(table(), {})
    with pytest.raises(ArgumentError, match="inputs"):
        compare(
            CostTable.from_data(
                {"query_id": ["a", "b", "c"], "score:x": [1, 0, 1], "score:y": [0, 1, 0]}
            ),
            {"kNN": KNNRouter()},
            test=0.4,
        )
    with pytest.raises(ArgumentError, match="must be one of"):
        compare(table(), {"mine": RegressionRouter()}).row("yours")
