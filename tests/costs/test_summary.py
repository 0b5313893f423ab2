from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mildroute.costs.prices import PriceList
from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError

COLUMNS: dict[str, Any] = {
    "query_id": ["p", "q", "r", "s"],
    "input": ["one", "two", "one", "four"],
    "group": ["g", "g", "h", "g"],
    "score:a": [1.0, 1.0, 0.0, 0.5],
    "score:b": [1.0, 0.0, 0.0, 1.0],
    "score:c": [0.0, 0.0, 0.0, 0.5],
    "cost:a": [0.02, 0.02, 0.02, 0.02],
    "cost:b": [0.01, 0.01, 0.01, 0.01],
    "cost:c": [0.03, 0.03, 0.03, 0.03],
}


def test_a_small_table_worked_out_by_hand() -> None:
    summary = describe(COLUMNS)
    assert summary.rows == 4
    a, b, c = summary.experts
    assert (a.score, b.score, c.score) == (0.625, 0.5, 0.125)
    assert (a.dollars_per_1000, b.dollars_per_1000) == pytest.approx((20, 10))
    # a and b share the first row, a wins the second, all share the third, b wins the fourth
    assert (a.wins, b.wins, c.wins) == pytest.approx(
        ((0.5 + 1 + 1 / 3) / 4, (0.5 + 1 + 1 / 3) / 4, 1 / 12)
    )
    assert (a.wins_alone, b.wins_alone, c.wins_alone) == (0.25, 0.25, 0.0)
    assert (summary.best_single, summary.best_single_cost) == ("a", 0.375)
    assert summary.oracle_score == 0.75
    assert summary.oracle_dollars_per_1000 == pytest.approx(1000 * (0.01 + 0.02 + 0.01 + 0.01) / 4)
    assert summary.possible_gain == pytest.approx(0.125)
    assert summary.decided == 0.75
    assert summary.imbalance == pytest.approx(5.5)
    assert summary.groups == {"g": 3, "h": 1}
    assert summary.repeated_texts == 1
    assert summary.dominated == {"c": "a"}


def test_warnings_are_sentences_about_what_was_found() -> None:
    text = " ".join(describe(COLUMNS).warnings)
    for word in (
        "1 row repeats the text",
        "'c' is dominated: 'a' is never worse and never more expensive",
        "only 4 rows",
    ):
        assert word in text
    plain = describe({"score:a": [1] * 9 + [0], "score:b": [0] * 9 + [1]})
    assert "collapse risk: 'a' wins 90%" in plain.warnings[0]
    assert any("no dollars" in warning for warning in plain.warnings)
    sound = describe(
        {"score:a": [1, 0] * 150, "score:b": [0, 1] * 150, "cost:a": [1] * 300, "cost:b": [2] * 300}
    )
    assert sound.warnings == ()
    assert any(
        "nothing to learn" in warning
        for warning in describe({"score:a": [1, 0], "score:b": [1, 0]}).warnings
    )


def test_a_price_weight_moves_wins_and_oracle() -> None:
    summary = describe(COLUMNS, price_weight=100)
    assert summary.best_single == "b"
    # costs: a 2,2,3,2.5; b 1,2,2,1; c 4,4,4,3.5, so b wins three rows alone and shares the second
    assert [expert.wins for expert in summary.experts] == [0.125, 0.875, 0.0]
    assert summary.oracle_cost == pytest.approx(1.5)
    assert summary.oracle_dollars_per_1000 == pytest.approx(10)
    assert summary.oracle_score == pytest.approx(0.5)
    with pytest.raises(TableError, match="give a price list"):
        describe({"score:a": [1], "score:b": [0]}, price_weight=1)
    with pytest.raises(ArgumentError):
        describe(COLUMNS, price_weight=-1)


@given(
    st.integers(1, 40),
    st.integers(2, 5),
    st.booleans(),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 9),
)
def test_a_summary_agrees_with_a_slow_count(
    rows: int, experts: int, priced: bool, weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores, dollars = (
        rng.integers(0, 3, size=(rows, experts)) / 2,
        rng.integers(0, 3, size=(rows, experts)) / 2,
    )
    columns = {f"score:{place}": scores[:, place] for place in range(experts)}
    columns |= {f"cost:{place}": dollars[:, place] for place in range(experts)} if priced else {}
    weight = weight if priced else 0.0
    summary = describe(columns, price_weight=weight)
    costs = (1 - scores) + weight * dollars
    wins, alone, paid = np.zeros(experts), np.zeros(experts), 0.0
    for row in range(rows):
        best = [place for place in range(experts) if costs[row, place] == min(costs[row])]
        for place in best:
            wins[place] += 1 / len(best)
        alone[best[0]] += len(best) == 1
        paid += min(dollars[row, place] for place in best)
    np.testing.assert_allclose([expert.wins for expert in summary.experts], wins / rows, atol=1e-12)
    np.testing.assert_allclose([expert.wins_alone for expert in summary.experts], alone / rows)
    assert summary.oracle_cost == pytest.approx(costs.min(axis=1).mean())
    assert summary.oracle_dollars_per_1000 == (
        pytest.approx(1000 * paid / rows) if priced else None
    )
    assert set(map(int, summary.dominated)) == slow_dominated(
        scores, dollars if priced else np.zeros_like(dollars)
    )


def slow_dominated(scores: Any, dollars: Any) -> set[int]:
    found = set()
    for one in range(scores.shape[1]):
        for other in range(scores.shape[1]):
            never_worse = all(scores[:, other] >= scores[:, one]) and all(
                dollars[:, other] <= dollars[:, one]
            )
            if never_worse and (
                any(scores[:, other] > scores[:, one]) or any(dollars[:, other] < dollars[:, one])
            ):
                found.add(one)
    return found


def test_a_file_and_its_table_have_the_same_summary(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        f"{kind}:{name}": rng.integers(0, 2, 1000) * 1.0
        for kind in ("score", "cost")
        for name in "abc"
    }
    columns |= {
        "query_id": [f"q{row}" for row in range(1000)],
        "input": [f"text {row // 2}" for row in range(1000)],
    }
    table = CostTable.from_data(columns)
    summary = describe(table)
    assert summary.content_hash == table.content_hash
    assert summary.repeated_texts == 500
    assert describe(table.save(tmp_path / "shards", shards=3)) == summary


def test_a_summary_is_json_and_keeps_prices_and_repairs() -> None:
    table = CostTable.from_data(
        {"input": ["x"], "score:a": [1], "score:b": [None]}, missing="zero"
    ).with_prices(PriceList.of({"a": 1, "b": 2}), output_tokens=9)
    kept = json.loads(json.dumps(describe(table).as_dict()))
    assert kept["prices"]["prices"]["b"] == {"input": 2.0, "output": 2.0}
    assert len(kept["repairs"]) == 2
    assert kept["experts"][0]["name"] == "a"


def test_too_many_groups_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mildroute.costs.summary._MAX_GROUPS", 2)
    assert describe({"group": [1, 2, 3], "score:a": [1, 1, 1], "score:b": [0, 0, 0]}).groups is None


def test_importing_the_summary_loads_no_heavy_library() -> None:
    code = (
        "import sys, mildroute.costs, mildroute.costs.summary\nheavy = {'torch', 'sklearn',"
        " 'scipy', 'pandas', 'polars', 'fsspec', 'datasets', 'litellm',"
        " 'pyarrow.dataset'}\nsys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
