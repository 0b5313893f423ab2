"""Shards are collected within their part of the budget, and a killed worker is not paid twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute import CostTable
from mildroute.exceptions import ArgumentError, TableError
from mildroute.ray import collect_shards
from tests.ray.paid_experts import DOLLARS, asked, no_experts, paid, write_shards

data = pytest.importorskip("ray.data")


def test_each_shard_spends_its_part_of_the_budget_and_a_second_run_the_rest(
    tmp_path: Path,
) -> None:
    queries = write_shards(tmp_path / "queries", [10, 20, 30])
    log, folder = tmp_path / "log", tmp_path / "costs"
    # Half of what 60 queries cost: the shards get 5, 10 and 15 cents.
    half = 30 * DOLLARS + 1e-9
    first = collect_shards(queries, paid(log), "exact", folder, max_dollars=half)
    assert [result.spent for result in first] == pytest.approx([0.05, 0.1, 0.15])
    assert all(result.is_capped for result in first)
    assert sum(asked(log).values()) == 30

    ended = []
    second = collect_shards(
        queries, paid(log), "exact", folder, max_dollars=1.0, progress=ended.append
    )
    assert sum(result.spent for result in second) == pytest.approx(60 * DOLLARS)
    assert len(asked(log)) == 60
    assert set(asked(log).values()) == {1}
    assert CostTable.read(folder).costs().shape == (60, 2)
    assert sorted(result.table for result in ended) == [result.table for result in second]

    with pytest.raises(ArgumentError, match="was collected from other shards"):
        collect_shards([queries / "part-0.parquet"], paid(log), "exact", folder)


def test_a_killed_worker_resumes_its_shard_and_pays_nothing_twice(tmp_path: Path) -> None:
    queries = data.read_parquet(str(write_shards(tmp_path / "queries", [10, 10, 10])))
    log, folder = tmp_path / "log", tmp_path / "costs"
    results = collect_shards(queries, paid(log, "q107"), "exact", folder, workers=3)
    # Only the call in flight is made again, and the lost one counts at its upper bound.
    assert asked(log) == {name: 2 if name == "q107" else 1 for name in asked(log)}
    assert len(asked(log)) == 30
    assert sum(result.spending.paid for result in results) == pytest.approx(30 * DOLLARS)
    assert sum(result.spending.reserved for result in results) == pytest.approx(DOLLARS)
    assert CostTable.read(folder).costs().shape == (30, 2)
    with pytest.raises(ArgumentError, match=r"to resume it, pass .*_queries"):
        collect_shards(queries, paid(log), "exact", folder)


def test_experts_may_come_from_a_file(tmp_path: Path) -> None:
    queries, file = write_shards(tmp_path / "queries", [3, 4]), tmp_path / "experts.yaml"
    file.write_text("experts:\n  crowd: {kind: people, field: label}\n")
    results = collect_shards(queries, file, "exact", tmp_path / "costs")
    assert [tally.score for result in results for tally in result.tallies] == [3.0, 4.0]


def test_an_error_of_a_shard_is_raised_in_its_own_words(tmp_path: Path) -> None:
    queries = write_shards(tmp_path / "queries", [3, 3])
    with pytest.raises(ArgumentError, match=r"^the variable KEY must hold the key\.$"):
        collect_shards(queries, no_experts, "exact", tmp_path / "costs")


def test_queries_without_a_name_are_refused(tmp_path: Path) -> None:
    queries = write_shards(tmp_path / "queries", [3], names=False)
    with pytest.raises(TableError, match="need a column query_id"):
        collect_shards(queries, no_experts, "exact", tmp_path / "costs")
