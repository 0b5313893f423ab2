from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.costs.table import CostTable
from mildroute.persistence.artifact import load_router
from mildroute.routers.frontier.target import Target
from tests.support.small_table import small_table

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def stored(
    table: Path, mildroute: Command, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A router and the table that it was fitted on."""
    router = tmp_path_factory.mktemp("stored") / "router"
    result = mildroute("fit", table, "--quality", 0.95, "--out", router)
    assert result.exit_code == 0, result.output
    return router, table


def scores_of_new(path: Path, rows: int, *, fresh: int = 0, dollars: bool = True) -> Path:
    """An expert that is always right at half the price of the best."""
    table = small_table()
    texts = [f"sing a song about {row}" for row in range(fresh)]
    columns: dict[str, Any] = {
        "query_id": [*table.query_ids[:rows], *(f"new{row}" for row in range(fresh))],
        "input": [*(table.inputs or [])[:rows], *texts],
        "score:new": np.ones(rows + fresh),
    }
    if dollars:
        columns["cost:new"] = np.full(rows + fresh, 0.0005)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(("rows", "fresh"), [(60, 0), (0, 60), (30, 30)])
def test_a_new_expert_that_is_better_and_cheaper_is_chosen(
    stored: tuple[Path, Path], tmp_path: Path, mildroute: Command, rows: int, fresh: int
) -> None:
    router, table = stored
    scores = scores_of_new(tmp_path / "new.parquet", rows, fresh=fresh)
    given = ("--table", table, "--scores", scores, "--out", tmp_path / "router", "--json")
    result = mildroute("add-expert", router, *given)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["experts"] == ["small", "large", "new"]
    assert f"{rows + fresh} scored queries, {rows} of them rows of the table" in said["warnings"][0]
    added: Any = load_router(tmp_path / "router")
    assert added.target == Target("quality", 0.95)
    assert set(added.predict(["sing a song", "add 1 and 2"])) == {2}


def test_an_expert_is_removed(
    stored: tuple[Path, Path], tmp_path: Path, mildroute: Command
) -> None:
    router, table = stored
    scores = scores_of_new(tmp_path / "new.parquet", 60)
    three = tmp_path / "three"
    mildroute("add-expert", router, "--table", table, "--scores", scores, "--out", three)
    wide = tmp_path / "wide.parquet"
    small_table().with_expert("new", np.ones(240), np.full(240, 0.0005)).save(wide)
    result = mildroute("remove-expert", three, "small", "--table", wide, "--out", tmp_path / "two")
    assert result.exit_code == 0, result.output
    assert load_router(tmp_path / "two").experts_.tolist() == ["large", "new"]
    unknown = mildroute("remove-expert", three, "tiny", "--table", wide, "--out", tmp_path / "no")
    assert unknown.exit_code == 2
    assert "the router has no expert 'tiny'; it has 'small', 'large', 'new'" in unknown.stderr


def test_prices_change_and_scores_stay(
    stored: tuple[Path, Path], tmp_path: Path, mildroute: Command
) -> None:
    router, table = stored
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"small": 100, "large": 1}))
    given = ("--prices", prices, "--output-tokens", 100, "--out", tmp_path / "router", "--json")
    result = mildroute("reprice", router, "--table", table, *given)
    assert result.exit_code == 0, result.output
    # The best expert is now the cheapest, too.
    assert json.loads(result.stdout)["point"]["shares"] == pytest.approx([0.0, 1.0])


def test_queries_to_score_are_rows_of_the_table(
    stored: tuple[Path, Path], tmp_path: Path, mildroute: Command
) -> None:
    router, table = stored
    out = tmp_path / "queries.parquet"
    given = ("--table", table, "--suggest", 50, "--out", out)
    result = mildroute("add-expert", router, *given)
    assert result.exit_code == 0, result.output
    found = pq.read_table(out)
    assert found.column_names == ["query_id", "input"]
    assert len(set(found["query_id"].to_pylist())) == 50
    assert set(found["query_id"].to_pylist()) <= set(CostTable.read(table).query_ids)
    assert "must be a new .parquet file" in mildroute("add-expert", router, *given).stderr


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (60, {"dollars": False}, "add the cost of each of its answers"),
        (10, {}, "must have been asked on at least 20 rows, got 10"),
    ],
)
def test_scores_that_say_too_little_are_refused(
    stored: tuple[Path, Path],
    tmp_path: Path,
    mildroute: Command,
    rows: int,
    options: dict[str, Any],
    words: str,
) -> None:
    router, table = stored
    scores = scores_of_new(tmp_path / "new.parquet", rows, **options)
    given = ("--table", table, "--scores", scores, "--out", tmp_path / "router")
    result = mildroute("add-expert", router, *given)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "router").exists()


def test_one_thing_is_asked_for_and_one_expert_is_new(
    stored: tuple[Path, Path], tmp_path: Path, mildroute: Command
) -> None:
    router, table = stored
    neither = mildroute("add-expert", router, "--table", table)
    assert "give one of --scores and --suggest" in neither.stderr
    known = mildroute("add-expert", router, "--table", table, "--scores", table)
    assert "does not have, got 0: none" in known.stderr
