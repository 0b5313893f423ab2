from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_routers_stand_beside_single_experts_and_oracle(table: Path, mildroute: Callable[..., Any]) -> None:
    found = json.loads(mildroute("compare", table, "--price-weight", 20, "--json").stdout)
    costs = {row["name"]: row["deferral_loss"]["value"] for row in found["rows"]}
    assert {"MildRouter", "kNN", "TDEF", "best single", "cheapest", "dearest", "random", "oracle"} <= set(costs)
    assert costs["oracle"] <= costs["MildRouter"] <= costs["best single"]


def test_people_see_the_same_rows(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--price-weight", 20)
    assert result.exit_code == 0
    for words in ("192 queries to learn from, 48 to measure", "MildRouter", "best single", "oracle", "worst recall"):
        assert words in result.output


def test_an_unknown_encoder_is_named_with_those_there_are(table: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("compare", table, "--encoder", "word2vec")
    assert result.exit_code == 2
    assert "tfidf" in result.stderr
