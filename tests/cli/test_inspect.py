from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mildroute.costs.table import CostTable
from tests.support.small_table import small_table


def test_people_see_experts_oracle_and_what_can_be_gained(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("inspect", table, "--price-weight", 10)
    assert result.exit_code == 0
    for words in (
        "240 queries, 2 groups, 2 experts",
        "small",
        "best in the table: large",
        "best at price weight 10: large",
        "routing can gain at most",
    ):
        assert words in result.output


def test_without_a_price_weight_money_is_spoken_of(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("inspect", table)
    assert result.exit_code == 0
    for words in (
        "% less than large",
        "possible savings on the bill of large, the most expensive",
        "by a quick router",
        "by a random mix",
    ):
        assert words in result.output
    assert "gain at most" not in result.output
    levels = json.loads(mildroute("inspect", table, "--json").stdout)["potential"]["levels"]
    assert [level["kept"] for level in levels] == [1.0, 0.99, 0.95, 0.9]
    for level in levels:
        assert level["random_mix"]["value"] - 1e-9 <= level["router"]["value"] <= level["perfect"]
    assert levels[-1]["router"]["value"] > levels[-1]["random_mix"]["value"]


def test_without_dollars_points_of_score_are_spoken_of(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("inspect", small_table(dollars=False).save(tmp_path / "costs.csv"))
    assert "routing can raise the score by at most" in result.output
    assert "saved" not in result.output


def test_programs_get_the_same_numbers(table: Path, mildroute: Callable[..., Any]) -> None:
    found, read = json.loads(mildroute("inspect", table, "--json").stdout), CostTable.read(table)
    assert found["rows"] == 240
    assert found["content_hash"] == read.content_hash
    assert [expert["score"] for expert in found["experts"]] == pytest.approx(
        read.scores.mean(axis=0).tolist()
    )


def test_prices_put_dollars_to_a_table_without(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    table = small_table(dollars=False).save(tmp_path / "costs.csv")
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"small": 1, "large": 10}))
    found = json.loads(
        mildroute("inspect", table, "--prices", prices, "--output-tokens", 100, "--json").stdout
    )
    small, large = (expert["dollars_per_1000"] for expert in found["experts"])
    assert large == pytest.approx(10 * small)
    assert 0.1 < small < 0.12


def test_a_price_weight_without_dollars_is_refused(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    table = small_table(dollars=False).save(tmp_path / "costs.csv")
    result = mildroute("inspect", table, "--price-weight", 1)
    assert result.exit_code == 2
    assert "needs the columns 'cost:<expert>'" in result.stderr


def test_who_scored_a_collected_table_is_told(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    plain = pq.read_table(small_table(60).save(tmp_path / "costs.parquet"))
    pq.write_table(
        plain.replace_schema_metadata({"mildroute.collected": '{"judge": ["strict", "2"]}'}),
        tmp_path / "costs.parquet",
    )
    assert (
        "scores: judge strict, version 2" in mildroute("inspect", tmp_path / "costs.parquet").output
    )
    pq.write_table(
        plain.replace_schema_metadata({"mildroute.collected": "{}"}), tmp_path / "costs.parquet"
    )
    refused = mildroute("inspect", tmp_path / "costs.parquet")
    assert refused.exit_code == 2
    assert "must hold JSON with a judge" in refused.stderr


def test_tokens_without_prices_are_refused(table: Path, mildroute: Callable[..., Any]) -> None:
    refused = mildroute("inspect", table, "--output-tokens", 100)
    assert refused.exit_code == 2
    assert "--output-tokens 100 needs --prices" in refused.stderr
