"""A table in which each prompt occurs three times, from the command line to new prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.fitting.text_router import TextRouter
from mildroute.persistence import load_router
from tests.support.questions import FRESH, questions, table_of


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of 300 prompts three times, with a tenth of the scores flipped."""
    texts, scores, _ = questions(300, 4)
    rows = np.repeat(np.arange(300), 3)
    judged = scores[rows]
    is_flipped = np.random.default_rng(0).random(judged.shape) < 0.1
    repeated = table_of([texts[row] for row in rows], np.where(is_flipped, 1 - judged, judged))
    return repeated.save(tmp_path_factory.mktemp("repeats") / "costs.parquet")


@pytest.fixture(scope="module")
def new_prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FRESH.save(tmp_path_factory.mktemp("new") / "new.parquet")


@pytest.fixture(scope="module")
def fitted(
    table: Path, mildroute: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The folder of a router for a quality of 0.9, and what fit printed."""
    folder = tmp_path_factory.mktemp("fitted") / "router"
    result = mildroute("fit", table, "--quality", "0.9", "--out", folder)
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_what_fit_promises_is_confirmed_on_new_prompts(
    fitted: tuple[Path, str], new_prompts: Path, mildroute: Callable[..., Any]
) -> None:
    router = load_router(fitted[0])
    assert isinstance(router, TextRouter)
    point = router.operating_point
    assert point is not None
    measured = json.loads(mildroute("evaluate", fitted[0], new_prompts, "--json").stdout)["savings"]
    # Both have an interval: they overlap, and the measured value lies near the promised ones.
    for (low, high), figure in (
        (point.saved_interval, measured["saved"]),
        (point.kept_interval, measured["kept"]),
    ):
        assert figure["high"] >= low
        assert figure["low"] <= high
    assert measured["kept"]["value"] >= 0.9 - 0.02


def test_the_screens_begin_with_the_three_lines(
    fitted: tuple[Path, str], table: Path, new_prompts: Path, mildroute: Callable[..., Any]
) -> None:
    folder, printed = fitted
    for screen in (printed, mildroute("evaluate", folder, new_prompts).stdout):
        lines = [line.strip() for line in screen.splitlines()]
        roles = [line for line in lines if line.startswith(("your base", "simplest", "router"))]
        assert [role.split("  ")[0] for role in roles[:3]] == [
            "your baseline",
            "simplest alternative",
            "router",
        ]
        assert "your baseline: all to large, the most expensive" in lines
    assert "900 rows are 300 different prompts; everything is cross-validated by prompt" in printed
    inspected = mildroute("inspect", table).stdout
    assert "your baseline: all to large, the most expensive" in inspected


def test_the_baseline_is_an_option(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    options = ("--router", "KNNRouter", "--quality", "0.9", "--out", tmp_path / "router")
    result = mildroute("fit", table, *options, "--baseline", "small")
    assert "of the bill of small" in result.stdout or "more than small" in result.stdout
    wrong = mildroute("fit", table, "--baseline", "smal", "--out", tmp_path / "router")
    assert wrong.exit_code != 0
