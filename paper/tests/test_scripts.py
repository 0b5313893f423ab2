"""Quick runs of the scripts that print rows: their limits hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["one_step", "verify"])
def test_a_quick_run_holds_its_limits(script: str) -> None:
    if "MILDROUTE_DATA" not in os.environ:
        pytest.skip("needs the benchmark data: set MILDROUTE_DATA to its folder")
    run = subprocess.run(
        [sys.executable, "-m", f"paper.{script}", "--json", "--quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    rows = json.loads(run.stdout)
    assert [row for row in rows if not row["ok"]] == []
    assert [row for row in rows if row["limit"] is not None]
