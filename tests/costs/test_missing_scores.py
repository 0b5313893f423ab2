"""Partial tables: experts that were not asked on some rows, and routers fitted on the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute import CostTable, Target, fit
from mildroute.exceptions import CostError, TableError

EASY, HARD = "add one and two", "prove the theorem of four colors"


def columns(rows: int, seed: int, *, asked: Any = None) -> dict[str, Any]:
    """Small knows easy questions; large knows all, for ten times the money."""
    rng = np.random.default_rng(seed)
    is_hard = rng.random(rows) < 0.5
    scores = (rng.random((rows, 2)) < np.where(is_hard[:, None], [0.1, 0.9], [0.9, 0.9])) * 1.0
    texts = [f"{HARD if hard else EASY} {seed} {row}" for row, hard in enumerate(is_hard)]
    found: dict[str, Any] = {"query_id": [f"{seed}-{row}" for row in range(rows)], "input": texts}
    known = np.ones((rows, 2), bool) if asked is None else asked
    for place, (name, price) in enumerate((("small", 0.001), ("large", 0.01))):
        found[f"score:{name}"] = np.where(known[:, place], scores[:, place], np.nan)
        found[f"cost:{name}"] = np.where(known[:, place], price, np.nan)
    return found


def one_each(rows: int, seed: int) -> dict[str, Any]:
    """A log: one of both was asked, with known chances."""
    rng = np.random.default_rng(seed)
    chance = np.where(rng.random(rows) < 0.5, 0.2, 0.7)
    first = rng.random(rows) < chance
    found = columns(rows, seed, asked=np.column_stack([first, ~first]))
    return {**found, "propensity:small": chance, "propensity:large": 1 - chance}


def test_scores_that_are_missing_can_be_kept(tmp_path: Path) -> None:
    table = CostTable.from_data(one_each(40, 0), missing="keep")
    assert table.is_partial
    assert table.dollars is not None
    assert table.propensities is not None
    np.testing.assert_array_equal(np.isnan(table.scores), np.isnan(table.dollars))
    np.testing.assert_allclose(table.propensities.sum(axis=1), 1.0)
    again = CostTable.read(table.save(tmp_path / "t.parquet"), missing="keep")
    assert again.content_hash == table.content_hash
    assert table.take([1, 0]).propensities is not None
    assert table.select(["large", "small"]).is_partial
    assert not CostTable.from_data(columns(40, 0)).is_partial


@pytest.mark.parametrize("missing", ["raise", "zero"])
def test_without_the_word_they_are_refused_with_the_way_out(missing: str) -> None:
    with pytest.raises(TableError, match=r"set missing .* to keep"):
        CostTable.from_data(one_each(40, 0), missing=missing)


def test_dollars_of_an_expert_that_was_asked_are_still_needed() -> None:
    found = one_each(40, 0)
    row = int(np.flatnonzero(~np.isnan(found["score:small"]))[0])
    found["cost:small"][row] = np.nan
    with pytest.raises(TableError, match=r"cost:small.*dollars"):
        CostTable.from_data(found, missing="keep")
    found = one_each(40, 0)
    found["propensity:small"][3] = 1.5
    with pytest.raises(TableError, match="propensity must lie"):
        CostTable.from_data(found, missing="keep")


def test_tables_of_other_experts_are_joined() -> None:
    full = CostTable.from_data(columns(30, 1))
    log = CostTable.from_data(one_each(20, 2), missing="keep")
    both = full.concat(log)
    assert (both.rows, both.experts) == (50, ("small", "large"))
    assert both.propensities is not None
    assert (both.propensities[:30] == 1).all()
    np.testing.assert_array_equal(both.propensities[30:], log.propensities)
    other = CostTable.from_data(
        {"query_id": ["x"], "input": ["?"], "score:large": [1.0], "score:new": [0.5]}
    )
    wide = full.concat(other)
    assert wide.experts == ("small", "large", "new")
    assert wide.dollars is None
    assert wide.propensities is not None
    assert wide.propensities[-1].tolist() == [0.0, 1.0, 1.0]
    assert not wide.propensities[:-1, 2].any()
    assert full.concat(full).rows == 30


def test_a_log_beside_few_full_rows_makes_a_better_router() -> None:
    few = CostTable.from_data(columns(60, 3))
    log = CostTable.from_data(one_each(800, 4), missing="keep")
    target = Target("quality", 0.9)
    found = fit(few.concat(log), target=target)
    assert found.point is not None
    assert "47% of the scores are estimates" in found.warnings[0]
    test = CostTable.from_data(columns(2000, 5))
    choice = found.router.predict(test.inputs)
    score = test.scores[np.arange(2000), choice].mean()
    assert score > 0.85 * 0.9
    assert 0.3 < (choice == 0).mean() < 0.7
    low, high = found.point.score_interval
    assert low < score < high or abs(found.point.score - score) < 0.04
    assert not any("estimates" in each for each in fit(few, target=target).warnings)


def test_a_log_alone_is_enough_and_dollars_need_not_be_there() -> None:
    log = {name: value for name, value in one_each(600, 6).items() if "cost:" not in name}
    found = fit(CostTable.from_data(log, missing="keep"))
    assert found.point is None
    assert "estimates" in found.warnings[0]
    choice = found.router.predict([f"{EASY} 7 7", f"{HARD} 7 7"])
    assert choice[1] == 1


def test_an_expert_that_was_hardly_asked_is_refused_by_name() -> None:
    asked = np.column_stack([np.arange(100) < 5, np.ones(100, bool)])
    table = CostTable.from_data(columns(100, 0, asked=asked), missing="keep")
    with pytest.raises(CostError, match="at least 20 rows, got 5 for expert 'small'"):
        fit(table)


def test_a_cascade_needs_all_answers() -> None:
    asked = np.column_stack([np.arange(100) < 50, np.ones(100, bool)])
    found = columns(100, 0, asked=asked)
    found |= {f"answer:{name}": ["a"] * 100 for name in ("small", "large")}
    table = CostTable.from_data(found, missing="keep", answers=True)
    with pytest.raises(TableError, match="answers of all experts on all rows"):
        fit(table, cascade=True)
