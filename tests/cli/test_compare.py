from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.cli.compare import show_comparison
from mildroute.costs.table import CostTable
from mildroute.evaluation.comparison import compare
from mildroute.routers.single import BestSingleRouter


def test_routers_stand_beside_single_experts_and_oracle(table: Path, mildroute: Callable[..., Any]) -> None:
    found = json.loads(mildroute("compare", table, "--price-weight", 20, "--json").stdout)
    costs = {row["name"]: row["deferral_loss"]["value"] for row in found["rows"]}
    assert {"MildRouter", "kNN", "TDEF", "best single", "cheapest", "dearest", "random", "oracle"} <= set(costs)
    assert costs["oracle"] <= costs["MildRouter"] <= costs["best single"]


def test_people_see_the_same_rows(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--price-weight", 20)
    assert result.exit_code == 0
    for words in ("192 queries to learn from, 48 to measure", "MildRouter", "best single", "oracle", "worst recall", "note: only 48 rows"):
        assert words in result.output


def test_an_unknown_encoder_is_named_with_those_there_are(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--encoder", "word2vec")
    assert result.exit_code == 2
    assert "tfidf" in result.stderr


def test_routers_of_choice_stand_beside_the_usual_ones(table: Path, mildroute: Callable[..., Any]) -> None:
    found = json.loads(
        mildroute("compare", table, "--router", "BestSingleRouter", "--router", "WeightedCrossEntropyRouter", "--json").stdout
    )
    assert [row["name"] for row in found["rows"] if row["kind"] == "router"][-2:] == ["BestSingleRouter", "WeightedCrossEntropyRouter"]
    assert found["default"] == "MildRouter"


def test_an_unknown_router_is_named_with_those_there_are(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--router", "vibes")
    assert result.exit_code == 2
    assert "KnnRouter" in result.stderr
    assert "cross-entropy, gap, tdef" in result.stderr


def test_what_has_no_value_is_called_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Two experts that are always right: nothing lies between the best single expert and the oracle."""
    names = {"score:small": [1.0] * 100, "score:large": [1.0] * 100}
    table = CostTable.of({"query_id": [f"q{row}" for row in range(100)], **names})
    show_comparison(compare(table, {"one": BestSingleRouter()}, encoder=np.zeros((100, 1))))
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "none" in printed
