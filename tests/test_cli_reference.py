"""The command-line reference is what its generator writes, and holds all that --help tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mildroute.cli.app import app
from tests.support.pages import generator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cli" / "reference.md"
GENERATOR = generator(ROOT / "docs" / "cli" / "reference.py")


PATHS = [path for path, _ in GENERATOR.commands(typer.main.get_command(app), "mildroute")]


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == GENERATOR.page(), "run: python docs/cli/reference.py"


@pytest.mark.parametrize("path", PATHS)
def test_the_page_has_every_option_that_help_shows(path: str) -> None:
    told = CliRunner().invoke(app, [*path.split()[1:], "--help"]).output
    section = GENERATOR.page().split(f"\n## {path}\n")[1].split("\n## ")[0]
    options = set(
        re.findall(
            r"^  .*?(--[a-z][a-z-]*)(?=[ \n])", told.partition("Options:")[2], flags=re.MULTILINE
        )
    )
    defined = set(
        re.findall(
            r"(--[a-z][a-z-]*)", " ".join(re.findall(r"^`-.*$", section, flags=re.MULTILINE))
        )
    )
    assert "--help" in options
    assert options <= defined | set(re.findall(r"`(--[a-z][a-z-]*)`", section))
    assert defined <= set(re.findall(r"--[a-z][a-z-]*", told))


def test_every_command_shows_an_example_of_itself() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [path for path in PATHS if f"For example:\n\n```text\n{path}" not in text] == []
