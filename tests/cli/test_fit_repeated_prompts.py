"""A table in which each prompt is there five times, from the command line to new prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.questions import FRESH, questions, table_of


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The table with a tenth of its scores flipped, new prompts, and a folder for the router."""
    folder = tmp_path_factory.mktemp("repeats")
    texts, scores, _ = questions(300, 4)
    rows = np.repeat(np.arange(300), 5)
    judged = scores[rows]
    flipped = np.random.default_rng(0).random(judged.shape) < 0.1
    table = table_of([texts[row] for row in rows], np.where(flipped, 1 - judged, judged))
    table.save(folder / "costs.parquet")
    FRESH.save(folder / "new.parquet")
    return folder / "costs.parquet", folder / "new.parquet", folder / "router"


def test_what_fit_promises_is_confirmed_on_new_prompts(
    files: tuple[Path, Path, Path], mildroute: Callable[..., Any]
) -> None:
    table, new, router = files
    said = mildroute("fit", table, "--quality", "0.9", "--out", router, "--json")
    assert said.exit_code == 0, said.output
    point = json.loads(said.stdout)["point"]
    measured = json.loads(mildroute("evaluate", router, new, "--json").stdout)["savings"]
    # Both have an interval: they overlap, and the measured value lies near the promised ones.
    for name in ("saved", "kept"):
        low, high = point[f"{name}_interval"]
        found = measured[name]
        assert found["high"] >= low, (name, low, high, found)
        assert found["low"] <= high, (name, low, high, found)
    assert measured["kept"]["value"] >= 0.9 - 0.02


def test_the_screens_begin_with_the_three_lines(
    files: tuple[Path, Path, Path], mildroute: Callable[..., Any]
) -> None:
    table, new, router = files
    fitted = mildroute("fit", table, "--quality", "0.9", "--out", router).stdout
    for screen in (fitted, mildroute("evaluate", router, new).stdout):
        lines = [line.strip() for line in screen.splitlines()]
        roles = [line for line in lines if line.startswith(("your base", "simplest", "router"))]
        assert [role.split("  ")[0] for role in roles[:3]] == [
            "your baseline",
            "simplest alternative",
            "router",
        ]
        assert "your baseline: all to large, the most expensive" in lines
    assert "1,500 rows are 300 different prompts; everything is cross-validated by prompt" in fitted
    inspected = mildroute("inspect", table).stdout
    assert "your baseline: all to large, the most expensive" in inspected


def test_the_baseline_is_an_option(
    files: tuple[Path, Path, Path], mildroute: Callable[..., Any]
) -> None:
    table, _, router = files
    options = ("--quality", "0.9", "--out", router, "--baseline", "small")
    said = mildroute("fit", table, *options)
    assert "of the bill of small" in said.stdout or "more than small" in said.stdout
    wrong = mildroute("fit", table, "--baseline", "smal", "--out", router)
    assert wrong.exit_code != 0
