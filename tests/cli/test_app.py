from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute import __version__

COMMANDS = ["collect", "inspect", "compare", "fit", "evaluate", "route", "demo"]


def test_version_is_printed_and_nothing_else_happens(mildroute: Callable[..., Any]) -> None:
    result = mildroute("--version")
    assert (result.exit_code, result.output) == (0, f"mildroute {__version__}\n")


def test_without_a_command_the_help_is_shown(mildroute: Callable[..., Any]) -> None:
    assert "Route each input to the expert that should answer it." in mildroute().output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(
    command: str, mildroute: Callable[..., Any]
) -> None:
    text = mildroute(command, "--help").output
    assert f"Example: mildroute {command}" in text
    assert "--json" in text


@pytest.mark.parametrize(
    "arguments",
    [["inspect", "absent.parquet"], ["fit", "absent.parquet"], ["route", "absent", "a text"]],
)
def test_an_error_is_one_line_and_an_exit_code(
    arguments: list[str], mildroute: Callable[..., Any]
) -> None:
    result = mildroute(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def loaded_by(*arguments: str) -> list[str]:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom mildroute.cli.app import"
        f" app\nassert CliRunner().invoke(app, {list(arguments)!r}).exit_code == 0\nprint(*[name"
        " for name in ('numpy', 'pyarrow', 'sklearn', 'torch', 'matplotlib') if name in"
        " sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("--help") == []


def test_a_table_without_dollars_is_inspected_without_a_router(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("input,score:a,score:b\nx,1,0\ny,0,1\n")
    assert loaded_by("inspect", str(tmp_path / "table.csv")) == ["numpy", "pyarrow"]
