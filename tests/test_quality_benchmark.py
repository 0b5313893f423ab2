"""The quality benchmark's small profile runs, and its rows speak the common language."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "quality"

pytestmark = pytest.mark.skipif("MILDROUTE_DATA" not in os.environ, reason="needs the benchmark data: set MILDROUTE_DATA to its folder")


def rows_of(name: str) -> dict[str, dict[str, Any]]:
    run = subprocess.run([sys.executable, str(FOLDER / name), "--quick", "--json"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return {row["name"]: row for row in json.loads(run.stdout)}


def test_the_small_profile_measures_every_method_on_two_tasks_and_two_ratios() -> None:
    rows = rows_of("run.py")
    assert all(row["ok"] for row in rows.values())
    closed = [name for name in rows if name.startswith("share of best single to oracle closed")]
    assert len(closed) == 2
    for ratio in (1, 100):
        assert 0 <= rows[f"exact regret of the default, ratio 1:{ratio}"]["value"] < 0.01
    assert rows["worst-expert recall / TDEF's, ratio 1:100"]["value"] > 0.9


def test_targets_are_not_below_the_coin_on_a_small_table() -> None:
    rows = rows_of("targets.py")
    assert rows["draws in which the default collapses"]["value"] == 0
    assert sum(row["limit"] is not None for row in rows.values()) >= 4


def test_one_artifact_serves_any_price() -> None:
    assert all(row["ok"] for row in rows_of("frontier.py").values())
