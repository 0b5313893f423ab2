from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.cli.compare import _routers, show_comparison
from mildroute.costs.table import CostTable
from mildroute.evaluation.comparison import compare, default_routers
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.knn import KNNRouter
from mildroute.routers.regression import RegressionRouter


@pytest.fixture
def fast_routers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two routers that fit at once, for tests of what is printed."""
    monkeypatch.setattr(
        "mildroute.evaluation.comparison.default_routers",
        lambda *_, **__: {"MildRouter": RegressionRouter(), "kNN": KNNRouter()},
    )


def test_routers_stand_beside_single_experts_and_oracle(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    found = json.loads(mildroute("compare", table, "--price-weight", 20, "--json").stdout)
    costs = {row["name"]: row["deferral_loss"]["value"] for row in found["rows"]}
    assert {
        "MildRouter",
        "kNN",
        "TDEF",
        "best single",
        "cheapest",
        "most expensive",
        "random",
        "oracle",
    } <= set(costs)
    assert costs["oracle"] <= costs["MildRouter"] <= costs["best single"]


@pytest.mark.usefixtures("fast_routers")
def test_people_see_the_same_rows(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--price-weight", 20)
    assert result.exit_code == 0
    for words in (
        "192 queries to learn from, 48 to measure",
        "MildRouter",
        "best at this price (large)",
        "oracle",
        "worst recall",
        "note: only 48 rows",
    ):
        assert words in result.output


@pytest.mark.slow
def test_for_a_quality_each_router_stands_on_its_own_frontier(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    found = json.loads(mildroute("compare", table, "--quality", 0.9, "--json").stdout)
    rows = {row["name"]: row for row in found["rows"]}
    assert found["default"] == "auto"
    assert {
        "auto",
        "MildRouter",
        "kNN",
        "TDEF",
        "random mix of two",
        "best in the table",
        "cheapest",
        "oracle",
    } <= set(rows)
    assert set(found["points"]) == {name for name, row in rows.items() if row["kind"] == "router"}
    assert (
        rows["best in the table"]["saved"]["value"],
        rows["best in the table"]["kept"]["value"],
    ) == (
        0.0,
        1.0,
    )
    assert rows["cheapest"]["saved"]["value"] == pytest.approx(0.9)
    assert rows["auto"]["saved"]["value"] > rows["random mix of two"]["saved"]["value"]
    assert (
        rows["auto"]["saved"]["low"]
        <= rows["auto"]["saved"]["value"]
        <= rows["auto"]["saved"]["high"]
    )
    assert found["settings"]["target"] == {"kind": "quality", "value": 0.9}
    assert (
        found["settings"]["price_weight"]
        == max(found["points"]["auto"]["vertices"], key=lambda end: end["probability"])[
            "price_weight"
        ]
    )


def test_people_see_what_each_saves_and_keeps(
    table: Path, mildroute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fast routers: what is printed does not depend on them."""
    monkeypatch.setattr(
        "mildroute.evaluation.comparison.default_routers",
        lambda *_, **__: {"kNN": KNNRouter(), "linear regression": RegressionRouter()},
    )
    result = mildroute("compare", table, "--budget", 5)
    assert result.exit_code == 0, result.output
    for words in (
        "saved [95%]",
        "kept [95%]",
        "within 5 dollars per 1,000 queries",
        "random mix of two",
        "of large, the best in the table",
    ):
        assert words in result.output
    both = mildroute("compare", table, "--budget", 5, "--price-weight", 3)
    assert both.exit_code == 2
    assert "give only one of --budget, --quality and --price-weight" in both.stderr


def test_an_unknown_encoder_is_named_with_those_there_are(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("compare", table, "--encoder", "word2vec")
    assert result.exit_code == 2
    assert "tfidf" in result.stderr


@pytest.mark.usefixtures("fast_routers")
def test_routers_of_choice_stand_beside_the_usual_ones(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    found = json.loads(
        mildroute(
            "compare",
            table,
            "--router",
            "BestSingleRouter",
            "--router",
            "WeightedCrossEntropyRouter",
            "--json",
        ).stdout
    )
    assert [row["name"] for row in found["rows"] if row["kind"] == "router"][-2:] == [
        "BestSingleRouter",
        "WeightedCrossEntropyRouter",
    ]
    assert found["default"] == "MildRouter"


@pytest.mark.parametrize("name", ["knn", "kNN", "KNNRouter", "tdef", "TDEF", "mild"])
def test_a_usual_router_under_a_short_name_is_compared_once(name: str) -> None:
    assert list(_routers([name], 0, for_target=False)) == list(default_routers())


def test_an_unknown_router_is_named_with_those_there_are(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("compare", table, "--router", "vibes")
    assert result.exit_code == 2
    assert "KNNRouter" in result.stderr
    assert "cross-entropy, gap, tdef" in result.stderr


def test_what_has_no_value_is_called_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Two experts that are always right.

    Nothing lies between the best single expert and the oracle.
    """
    names = {"score:small": [1.0] * 100, "score:large": [1.0] * 100}
    table = CostTable.from_data({"query_id": [f"q{row}" for row in range(100)], **names})
    show_comparison(compare(table, {"one": BestSingleRouter()}, encoder=np.zeros((100, 1))))
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "none" in printed
