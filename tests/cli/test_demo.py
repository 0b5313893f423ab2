from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_the_demo_leaves_table_router_and_report(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("demo", "--out", tmp_path / "demo", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = {row["name"] for row in found["comparison"]["rows"]}
    assert {"best single", "kNN", "TDEF", "MildRouter", "oracle"} <= names
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "costs.parquet",
        "held_out.parquet",
        "router",
        "report.html",
    }
    assert (
        mildroute(
            "evaluate", tmp_path / "demo" / "router", tmp_path / "demo" / "held_out.parquet"
        ).exit_code
        == 0
    )


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "precious.txt").write_text("keep")
    result = mildroute("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "precious.txt" in result.stderr
    assert "must be a folder" in mildroute("demo", "--out", tmp_path / "precious.txt").stderr
