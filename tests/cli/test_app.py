from __future__ import annotations

from typer.testing import CliRunner

from mildroute import __version__
from mildroute.cli.app import app


def test_version_is_printed_and_nothing_else_happens() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"mildroute {__version__}\n")


def test_without_a_command_the_help_is_shown() -> None:
    assert "Route each input to the expert that should answer it." in CliRunner().invoke(app, []).output
