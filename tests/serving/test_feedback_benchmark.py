"""The benchmark of logs with feedback: its small profile runs, and its rows speak the common language."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quality" / "feedback.py"


@pytest.mark.slow
def test_the_small_profile_covers_with_estimates_and_fails_with_plain_means() -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), "--quick", "--json"], capture_output=True, text=True, check=True)
    rows = {row["name"]: row for row in json.loads(run.stdout)}
    assert all(row["ok"] for row in rows.values())
    assert rows["lowest coverage of plain means"]["value"] < 0.5
    assert sum(name.startswith("coverage of") for name in rows) == 15
