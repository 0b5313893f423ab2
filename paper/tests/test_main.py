"""``python -m paper`` runs tables, resumes, and shows results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mildroute.exceptions import ArgumentError
from paper import __main__, tables
from paper.__main__ import reproduce_tables
from paper.config import Costs, Data, Experts

LINE = tables.Line(
    "toy", Data("toy", train=120), Experts("synthetic", (0.7, 0.3)), Costs(), "I cifar10"
)


@pytest.fixture(autouse=True)
def toy_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        tables.TABLES, "1a", tables.PaperTable("1a", "a toy", (LINE,), ("tdef", "mild"))
    )


def reproduce(*arguments: Any) -> Any:
    app = typer.Typer()
    app.command()(reproduce_tables)
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_a_table_is_run_shown_beside_the_paper_and_not_run_again(tmp_path: Path) -> None:
    first = reproduce("--table", "1a", "--seeds", 2, "--store", tmp_path / "store")
    assert first.exit_code == 0, first.output
    assert "4 cells, 4 of them run now" in first.output
    assert "0.0520" in first.output
    again = json.loads(
        reproduce("--table", "1a", "--seeds", 2, "--store", tmp_path / "store", "--json").stdout
    )
    assert (again["cells"], again["ran"]) == (4, 0)
    assert set(again["lines"][0]["loss"]) == {"tdef", "mild"}
    assert again["lines"][0]["printed"] == {"TDEF": 0.052, "MILD": 0.0403}


def test_stored_results_are_shown_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("--table", "1a", "--seeds", 1, "--store", tmp_path / "store")
    monkeypatch.setattr(__main__, "_STORED", tmp_path / "store")
    shown = reproduce("--stored")
    assert "Table 1a: a toy" in shown.output
    assert "0.0520" in shown.output
    assert "0 cells, 0 of them run now" in shown.output


def test_nothing_to_do_is_an_error_that_names_the_tables() -> None:
    found = reproduce()
    assert isinstance(found.exception, ArgumentError)
    assert "severe" in str(found.exception)


def test_the_profile_of_the_paper_says_what_it_needs(tmp_path: Path) -> None:
    found = reproduce("--table", "1a", "--profile", "paper", "--store", tmp_path)
    assert isinstance(found.exception, ArgumentError)
    assert "raw inputs must be of cifar10" in str(found.exception)


def test_a_quick_run_takes_one_line_one_seed_and_four_methods(tmp_path: Path) -> None:
    found = reproduce("--quick", "--table", "1a", "--store", tmp_path)
    assert "4 cells, 4 of them run now" in found.output
