"""A small real table on disk, and the command as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from tests.support.small_table import small_table


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
