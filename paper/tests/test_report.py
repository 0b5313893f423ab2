"""The table of all lines is a function of the store, and says what was not run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paper.config import ExperimentConfig, Method
from paper.network_results import NetworkResult, pooled_gap
from paper.network_study import StudyCell
from paper.report import (
    claims_table,
    lines_table,
    network_table,
    pooled_lines,
    write_table,
)
from paper.run import Result, Store
from paper.summaries import Gap, gap_over_sets, tally_of
from paper.tables import TABLES, Line
from paper.tests.toys import made_up

I_CIFAR, II_CIFAR = (TABLES["1a"].lines[place] for place in (0, 4))
DRAW = np.random.default_rng(0)


def results_on(line: Line, rates: dict[str, float], seeds: int = 2) -> dict[str, Result]:
    cells = {
        (name, seed): ExperimentConfig(line.data, line.experts, line.costs, Method(name), seed)
        for name in rates
        for seed in range(seeds)
    }
    return {
        cell.key: made_up(cell, tuple(float(row < 40 * rates[name]) for row in range(40)))
        for (name, _), cell in cells.items()
    }


def network(row: str, method: str, seed: int, paid: list[float]) -> NetworkResult:
    return NetworkResult(
        StudyCell("1a", row, seed, method),
        scale=5.0,
        weight_decay=1e-3,
        trials=49,
        edges=("lowest decay",),
        loss=float(np.mean(paid)),
        shares=(0.5, 0.5),
        optimal=(0.5, 0.5),
        paid=np.array(paid),
        published_paid=np.array(paid),
        untuned_loss=1.0,
    )


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
    assert "not run" in claims_table({}, [])
    assert network_table([]).startswith("Not run")
    assert lines_table("2a", {}).startswith("Not run: `python -m paper --table 2a`")


def test_lines_that_share_images_are_one_sample() -> None:
    results = results_on(I_CIFAR, {"tdef": 0.5, "mild": 0.25})
    results |= results_on(II_CIFAR, {"tdef": 0.5, "mild": 0.25})
    found = pooled_lines([I_CIFAR, II_CIFAR], "mild", "tdef", results, 2)
    alone = pooled_lines([I_CIFAR], "mild", "tdef", results, 2)
    assert found is not None
    assert alone is not None
    # Twice the same images say no more than once.
    assert found[0] == alone[0]
    assert len(found[1]) == 2


def test_independent_sets_narrow_the_interval() -> None:
    one, two = DRAW.normal(size=(2, 1, 400))
    both, single = gap_over_sets([one, two]), gap_over_sets([one])
    assert both.value == pytest.approx((one.mean() + two.mean()) / 2)
    assert both.high - both.low < 0.8 * (single.high - single.low)


def test_networks_are_paired_by_seed_and_row() -> None:
    results = [network("I cifar10", "tdef", seed, [1.0, 0.0, 1.0, 1.0]) for seed in range(2)]
    results += [network("I cifar10", "mild", 0, [0.0, 0.0, 1.0, 1.0])]
    found = pooled_gap(results, "mild", "tdef")
    assert found is not None
    assert (found[0].value, found[1]) == (-0.25, 1)
    assert pooled_gap(results, "ce", "tdef") is None
    table = network_table(results)
    assert "| 1a I cifar10 | 2 | 0.7500 | 0.7500 | -0.2500 [" in table
    assert "tdef (lowest decay 2; of 2)" in table


def test_lines_are_counted() -> None:
    gaps = [Gap(-1, -2, -0.5), Gap(-1, -2, 1), Gap(1, 0.5, 2), Gap(0, -1, 1)]
    tally = tally_of(gaps)
    assert (tally.lines, tally.better, tally.worse) == (4, 2, 1)
    assert (tally.significantly_better, tally.significantly_worse) == (1, 1)
