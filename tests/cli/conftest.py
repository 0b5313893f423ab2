"""A small real table on disk, and the command as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.costs.table import CostTable

SUMS, SONGS = (
    ("add", "multiply", "what is the sum of"),
    ("sing", "write a poem about", "tell a story of"),
)


def small_table(rows: int = 240, *, dollars: bool = True) -> CostTable:
    """Sums that both experts can do, songs that only the dear one can, and some luck."""
    random = np.random.default_rng(0)
    song = random.random(rows) < 0.4
    starts = [random.choice(SONGS if each else SUMS) for each in song]
    columns: dict[str, Any] = {
        "query_id": [f"q{row}" for row in range(rows)],
        "input": [f"{start} {row}" for row, start in enumerate(starts)],
        "group": ["song" if each else "sum" for each in song],
        "score:small": (
            np.where(song, random.random(rows) < 0.1, random.random(rows) < 0.9).astype(float)
        ),
        "score:large": (random.random(rows) < 0.95).astype(float),
    }
    if dollars:
        columns |= {"cost:small": np.full(rows, 0.001), "cost:large": np.full(rows, 0.01)}
    return CostTable.from_data(columns)


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(small_table().save(tmp_path_factory.mktemp("table") / "costs.parquet"))


@pytest.fixture(scope="session")
def mildroute() -> Callable[..., Any]:
    return lambda *arguments, **more: CliRunner().invoke(
        app, [str(argument) for argument in arguments], **more
    )


@pytest.fixture(scope="session")
def fitted(
    table: Path, mildroute: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """A stored router, its held-out rows and what fit said."""
    folder = tmp_path_factory.mktemp("fitted")
    router, held_out = folder / "router", folder / "held_out.parquet"
    result = mildroute(
        "fit", table, "--quality", 0.95, "--out", router, "--hold-out", held_out, "--json"
    )
    assert result.exit_code == 0, result.output
    return router, held_out, json.loads(result.stdout)
