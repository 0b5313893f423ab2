"""The report is a function of the store, and says what was not run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paper.report import lines_table, main, network_table, report_of
from paper.results import Store
from paper.tables import TABLES
from paper.tests.results import network, results_on

I_CIFAR = TABLES["1a"].lines[0]


def test_a_report_of_a_store_is_a_markdown_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "linear")
    store.append(list(results_on(I_CIFAR, {"tdef": 0.5, "mild": 0.25, "mild-mass": 0.2}).values()))
    text = report_of(store, seeds=2)
    assert "| I cifar10 | -0.0117 | " in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1
    file = tmp_path / "report.md"
    arguments = ["--store", str(store.folder), "--report", str(file)]
    for expected, more in ((1, ["--check"]), (0, []), (0, ["--check"])):
        monkeypatch.setattr(sys, "argv", ["report", *arguments, *more])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == expected
    assert file.read_text(encoding="utf-8") == report_of(store)


def test_report_and_page_are_those_of_the_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["report", "--check"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def test_what_was_not_run_is_said() -> None:
    assert network_table([]).startswith("Not run")
    assert lines_table("2a", {}).startswith("Not run: `python -m paper --table 2a`")


def test_cells_are_counted_by_the_edge_they_lie_at() -> None:
    results = [network("I cifar10", "tdef", seed, [1.0, 0.0, 1.0, 1.0]) for seed in range(2)]
    results += [network("I cifar10", "mild", 0, [0.0, 0.0, 1.0, 1.0])]
    table = network_table(results)
    assert "| 1a I cifar10 | 2 | 1.0000 | 0.7500 | -0.2500 [" in table
    assert "tdef (lowest decay 2; of 2)" in table
