from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.conftest import small_table
from mildroute.costs.table import CostTable
from mildroute.routers.artifact import read_manifest


def test_the_router_keeps_its_operating_point_and_the_rest_is_held_out(fitted: tuple[Path, Path, dict[str, Any]]) -> None:
    router, held_out, said = fitted
    manifest = read_manifest(router)
    assert manifest["metrics"]["price weight"] == said["point"]["price_weight"]
    assert "95.0% of the best single expert's score" in manifest["notes"]
    assert said["rows"] + len(CostTable.read(held_out)) == 240


def test_people_see_where_the_router_is_and_what_to_do_next(table: Path, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("fit", table, "--budget", 8, "--out", tmp_path / "router", "--hold-out", tmp_path / "held.parquet")
    assert result.exit_code == 0
    assert "best score within 8 dollars per 1,000 queries" in result.output
    assert "mildroute evaluate" in result.output


def test_a_budget_out_of_reach_is_said_with_its_own_exit_code(table: Path, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("fit", table, "--budget", 0.5, "--out", tmp_path / "router")
    assert result.exit_code == 3
    assert "raise the budget" in result.stderr
    assert not (tmp_path / "router").exists()


def test_two_targets_are_one_too_many(table: Path, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    result = mildroute("fit", table, "--budget", 5, "--quality", 0.9, "--out", tmp_path / "router")
    assert result.exit_code == 2
    assert "give one of --budget, --quality and --price-weight, got 2" in result.stderr


def test_without_dollars_quality_alone_counts_and_a_budget_is_refused(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    table = small_table(dollars=False).write(tmp_path / "costs.jsonl")
    result = mildroute("fit", table, "--out", tmp_path / "router")
    assert "no dollars in the table, so only quality counts" in result.output
    refused = mildroute("fit", table, "--budget", 5, "--out", tmp_path / "router")
    assert refused.exit_code == 2
    assert "a budget of 5 needs dollars" in refused.stderr
