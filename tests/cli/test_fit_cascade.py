"""Cascades from the command line: fit --cascade, and evaluate with answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute.costs.table import CostTable
from mildroute.persistence import load_router
from tests.support.answered import PRICES, answered_columns, answered_table
from tests.support.pages import ROOT


@pytest.fixture(scope="module")
def fitted(
    mildroute: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """A stored cascade, its held-out rows, and what fit said."""
    folder = tmp_path_factory.mktemp("cascade")
    source = answered_table(600, 0).save(folder / "costs.parquet")
    router, held_out = folder / "router", folder / "held.parquet"
    result = mildroute(
        "fit",
        source,
        "--cascade",
        "--router",
        "RegressionRouter",
        "--quality",
        0.95,
        "--out",
        router,
        "--hold-out",
        held_out,
        "--json",
    )
    assert result.exit_code == 0, result.output
    return router, held_out, json.loads(result.stdout)


def test_fit_stores_a_cascade_whose_shares_name_its_looks(
    fitted: tuple[Path, Path, dict[str, Any]],
) -> None:
    folder, held_out, said = fitted
    router = load_router(folder)
    names = [str(name) for name in router.experts_]
    assert names[:3] == list(PRICES)
    assert len(names) > 3
    assert said["experts"] == names
    assert sum(said["point"]["shares"][3:]) > 0
    assert CostTable.read(held_out, answers=True).answers("small")


def test_evaluate_follows_the_looks_on_held_out_answers(
    fitted: tuple[Path, Path, dict[str, Any]], mildroute: Callable[..., Any]
) -> None:
    folder, held_out, _ = fitted
    result = mildroute("evaluate", folder, held_out, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["savings"]["reference"] == "large"
    bill = found["evaluation"]["dollars_per_1000"]["value"]
    assert 1.0 < bill < 20.0
    text = mildroute("evaluate", folder, held_out)
    assert text.exit_code == 0, text.output
    assert "then decide at" in text.stdout or ", else " in text.stdout


def test_a_table_without_answers_is_refused_with_the_way_out(
    fitted: tuple[Path, Path, dict[str, Any]], mildroute: Callable[..., Any], tmp_path: Path
) -> None:
    source = CostTable.from_data(answered_columns(60, 1)).save(tmp_path / "plain.parquet")
    for arguments in (
        ("evaluate", fitted[0], source),
        ("fit", source, "--cascade", "--quality", 0.95, "--out", tmp_path / "router"),
    ):
        refused = mildroute(*arguments)
        assert refused.exit_code == 2
        said = " ".join(refused.stderr.split())
        assert "got no column 'answer:small'" in said
        assert "collect with --answers" in said
    assert not (tmp_path / "router").exists()


def test_a_table_without_dollars_is_refused_with_the_way_out(
    mildroute: Callable[..., Any], tmp_path: Path
) -> None:
    columns = {
        name: values
        for name, values in answered_columns(60, 1).items()
        if not name.startswith("cost:")
    }
    source = CostTable.from_data(columns, answers=True).save(tmp_path / "free.parquet")
    refused = mildroute("fit", source, "--cascade", "--out", tmp_path / "router")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "a cascade needs dollars" in said
    assert "give prices" in said


def test_the_commands_of_the_guide_run_one_after_the_other(
    mildroute: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts are columns of the queries, so that nothing is called."""
    monkeypatch.chdir(tmp_path)
    columns = answered_columns(300, 0)
    with Path("queries.jsonl").open("w") as queries:
        for row in range(300):
            said = {name: columns[f"answer:{name}"][row] for name in PRICES}
            right = [name for name in PRICES if columns[f"score:{name}"][row]]
            known = {"reference": said[right[0]][-3] if right else "E"}
            query = {name: columns[name][row] for name in ("query_id", "input")}
            queries.write(json.dumps(query | said | known) + "\n")
    experts = {
        name: {"kind": "people", "field": name, "price": {"per_answer": price}}
        for name, price in PRICES.items()
    }
    Path("experts.yaml").write_text(json.dumps({"experts": experts}))
    page = (ROOT / "docs" / "guide" / "cascades.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    commands = [line.split()[1:] for block in blocks for line in block.splitlines()]
    assert [command[0] for command in commands] == ["collect", "fit", "evaluate", "fit", "evaluate"]
    for command in commands:
        quick = ["--router", "RegressionRouter"] if command[0] == "fit" else []
        result = mildroute(*command, *quick)
        assert result.exit_code == 0, result.output
        assert "has learned from" not in result.output, "the rows are held out"
    first, second = (
        CostTable.read(name) for name in ("held_out.parquet", "plain_held_out.parquet")
    )
    assert first.query_ids == second.query_ids
    assert "Second look" in Path("report.html").read_text()
