"""The quality benchmark's small profile runs, and its rows speak the common language."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quality" / "run.py"


@pytest.mark.skipif("MILDROUTE_DATA" not in os.environ, reason="needs the benchmark data: set MILDROUTE_DATA to its folder")
def test_the_small_profile_measures_every_method_on_two_tasks_and_two_ratios() -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), "--quick", "--json"], capture_output=True, text=True, check=True)
    rows = {row["name"]: row for row in json.loads(run.stdout)}
    assert all(row["ok"] for row in rows.values())
    closed = [name for name in rows if name.startswith("share of best single to oracle closed")]
    assert len(closed) == 2
    for ratio in (1, 100):
        assert 0 <= rows[f"exact regret of the default, ratio 1:{ratio}"]["value"] < 0.01
    assert rows["worst-expert recall / TDEF's, ratio 1:100"]["value"] > 0.9
