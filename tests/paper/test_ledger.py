"""The ledger is a function of the store, byte for byte, and says what the figures say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.paper.config import ExperimentConfig, Method
from benchmarks.paper.networks import NETWORK_METHODS, RECIPES
from benchmarks.paper.paper_tables import TABLES, Line, cells_of, printed_figures
from benchmarks.paper.report import ledger_of, write_ledger
from benchmarks.paper.run import Result, Store
from benchmarks.paper.summaries import CAUSES, cause_of, figures_of
from paper.toys import made_up

ROWS = 40


def paid(rate: float) -> tuple[float, ...]:
    """Errors on the first of some rows."""
    return tuple(float(row < rate * ROWS) for row in range(ROWS))


def results_on(line: Line, rates: Mapping[str, float], seeds: int = 2) -> dict[str, Result]:
    cells = [
        (
            ExperimentConfig(
                line.data, line.experts, line.costs, Method(method, line.network), seed
            ),
            rate,
        )
        for method, rate in rates.items()
        for seed in range(seeds)
    ]
    return {cell.key: made_up(cell, paid(rate)) for cell, rate in cells}


def full_store(folder: Path) -> Store:
    """Every cell, in two files that overlap."""
    store = Store(folder)
    results = [
        made_up(cell, paid((place * 7 % 10) / 10))
        for place, cell in enumerate(cells_of(list(TABLES), seeds=2))
    ]
    store.append(results[:300])
    store.append(results[200:])
    return store


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    store = full_store(tmp_path / "store")
    paths = [tmp_path / name for name in ("one.md", "two.md")]
    counts = [write_ledger(store, path, seeds=2) for path in paths]
    assert counts == [len(cells_of(list(TABLES), seeds=2))] * 2
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_files_of_the_store_may_be_merged_without_a_change(tmp_path: Path) -> None:
    store, merged = full_store(tmp_path / "store"), Store(tmp_path / "merged")
    merged.append(list(store.read().values()))
    assert ledger_of(store.read(), seeds=2) == ledger_of(merged.read(), seeds=2)


def test_every_table_has_a_section_and_an_empty_one_names_the_command() -> None:
    text = ledger_of({})
    for name, table in TABLES.items():
        assert f"## {name}: {table.title}" in text
        assert f"`python -m benchmarks.paper --table {name}`" in text


def test_printed_figures_stand_beside_ours(tmp_path: Path) -> None:
    text = ledger_of(results_on(TABLES["1a"].lines[0], {"tdef": 0.5, "mild": 0.25}), seeds=2)
    (line,) = [
        line for line in text.splitlines() if line.startswith("| I cifar10 | 0.0520 ± 0.0022 |")
    ]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "I cifar10",
        "0.0520 ± 0.0022",
        "0.0403 ± 0.0018",
        "0.9000",
        "0.5000 ± 0.0000",
        "0.2500 ± 0.0000 (+)",
        *["-"] * 5,
        "0.1000",
    ]
    assert "| -0.0117 | -0.2500 [-0.3902, -0.1098] |" in text


def test_tables_of_markdown_are_rectangular(tmp_path: Path) -> None:
    widths = set()
    for block in ledger_of(full_store(tmp_path).read(), seeds=2).split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            assert len({line.count("|") for line in lines}) == 1
            widths.add(lines[0].count("|"))
    assert len(widths) > 2


def test_the_noise_section_compares_with_the_clean_table() -> None:
    results = results_on(TABLES["noise"].lines[0], {"tdef": 0.5}) | results_on(
        TABLES["3b"].lines[0], {"tdef": 0.25}
    )
    (line,) = [
        line
        for line in ledger_of(results, seeds=2).splitlines()
        if line.startswith("| mmlu two subjects | +0.2500")
    ]
    assert line.endswith("| - | - | - | - | - | - |")


def test_end_to_end_figures_stand_beside_the_papers_and_those_on_frozen_vectors() -> None:
    network, linear = (
        next(line for line in TABLES[name].lines if line.row == "I svhn")
        for name in ("1a-e2e", "1a")
    )
    results = results_on(network, {"tdef": 0.5, "mild": 0.25}) | results_on(
        linear, {"tdef": 0.25}, seeds=3
    )
    section = ledger_of(results, seeds=3).split("## 1a-e2e: ")[1].split("\n## ")[0]
    losses, _, _, default, beside = [
        line for line in section.splitlines() if line.startswith("| I svhn |")
    ]
    assert losses.startswith(f"| I svhn | {printed_figures()['1a', 'I svhn', 'TDEF'].loss:.4f}")
    assert "| 0.5000 ± 0.0000 | 0.2500 ± 0.0000 (+) | - |" in losses
    assert default == "| I svhn | - | - | - | - | - |"
    # Two seeds are in both; the network pays .25 more.
    assert beside.startswith("| I svhn | 0.2500 ± 0.0000; +0.2500 [")
    assert beside.endswith("| - | - | - | - | - |")


def test_our_default_end_to_end_stands_beside_every_other_method() -> None:
    network = TABLES["1a-e2e"].lines[0]
    results = results_on(network, {"tdef": 0.5, "mild-tuned": 0.25, "mildroute": 0.25})
    section = (
        ledger_of(results, seeds=2)
        .split("## 1a-e2e: ")[1]
        .split("\n## ")[0]
        .split("What mildroute adds")[1]
    )
    (line,) = [
        line
        for line in section.split("The linear router")[0].splitlines()
        if line.startswith(f"| {network.row} |")
    ]
    against_tdef, printed, decoded, tuned, consistent = line.removesuffix(" |").split(" | ")[1:]
    assert against_tdef.startswith("-0.2500 [")
    assert tuned.startswith("+0.0000 [")
    assert printed == decoded == consistent == "-"


def test_the_ledger_says_how_the_small_network_differs_from_the_papers() -> None:
    section = ledger_of({}).split("## End to end")[1]
    assert RECIPES["resnet-small"].unstated in section
    for name in TABLES["1a-e2e"].methods:
        assert NETWORK_METHODS[name].what in section


@pytest.mark.parametrize(
    ("rates", "cause"),
    [
        ({"tdef": 0.5, "mild": 0.1, "mild-tuned": 0.1}, ""),
        ({"tdef": 0.5, "mild": 0.9, "mild-decoded": 0.5, "mild-tuned": 0.1}, "decision"),
        ({"tdef": 0.5, "mild": 0.9, "mild-decoded": 0.9, "mild-tuned": 0.1}, "open"),
        ({"tdef": 0.5, "mild": 0.9, "mild-decoded": 0.5, "mild-tuned": 0.8}, "decision, reward"),
        ({"tdef": 0.5, "mild": 0.525, "mild-tuned": 0.475}, "noise"),
        ({"tdef": 0.9, "mild": 0.9, "mild-tuned": 0.9}, "single"),
        ({"tdef": 0.5}, ""),
    ],
)
def test_causes_follow_from_the_figures(rates: dict[str, float], cause: str) -> None:
    table = TABLES["1a"]
    (figures,) = figures_of(table, results_on(table.lines[0], rates), 2)
    assert cause_of(figures) == cause
    assert set(filter(None, cause.split(", "))) <= set(CAUSES)
