"""The table of all lines is a function of the store, and says what was not run."""

from __future__ import annotations

from pathlib import Path

from paper.report import lines_table, network_table, write_table
from paper.results import Store
from paper.tables import TABLES
from paper.tests.results import network, results_on

I_CIFAR = TABLES["1a"].lines[0]


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    store = Store(tmp_path / "paper")
    store.append(list(results_on(I_CIFAR, {"tdef": 0.5, "mild": 0.25, "mild-mass": 0.2}).values()))
    assert write_table(store, tmp_path / "one.md", seeds=2) == 6
    write_table(store, tmp_path / "two.md", seeds=2)
    text = (tmp_path / "one.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.md").read_text(encoding="utf-8")
    assert "| I cifar10 | -0.0117 | " in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_what_was_not_run_is_said() -> None:
    assert network_table([]).startswith("Not run")
    assert lines_table("2a", {}).startswith("Not run: `python -m paper --table 2a`")


def test_cells_are_counted_by_the_edge_they_lie_at() -> None:
    results = [network("I cifar10", "tdef", seed, [1.0, 0.0, 1.0, 1.0]) for seed in range(2)]
    results += [network("I cifar10", "mild", 0, [0.0, 0.0, 1.0, 1.0])]
    table = network_table(results)
    assert "| 1a I cifar10 | 2 | 1.0000 | 0.7500 | -0.2500 [" in table
    assert "tdef (lowest decay 2; of 2)" in table
