"""Recall of each expert, of the worst one, and where exactly one expert is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from mildroute.evaluation.metrics import oracle
from mildroute.evaluation.specialist_recall import (
    exactly_one_right_recall,
    expert_recall,
    winners,
    worst_recall,
)
from mildroute.exceptions import ArgumentError
from tests.support.evaluation_cases import CHOICE, COSTS, tables


def slow_recall(costs: np.ndarray, choice: np.ndarray, expert: int) -> float:
    found = won = 0
    for row, chosen in zip(costs.tolist(), choice, strict=True):
        best = min(row)
        if max(row) > best and row[expert] == best:
            won += 1
            found += row[chosen] == best
    return found / won if won else float("nan")


def test_recall_by_hand() -> None:
    # row 2 ties everywhere and is left out; row 1 is won by the last two and lost by our choice
    assert expert_recall(COSTS, CHOICE).tolist() == [1.0, 0.5, 0.0]
    assert worst_recall(COSTS, CHOICE) == 0.0


def test_a_tied_row_is_right_when_sent_to_any_winner() -> None:
    costs = [[0, 0, 1]]
    assert expert_recall(costs, [1]) == pytest.approx([1.0, 1.0, np.nan], nan_ok=True)
    assert expert_recall(costs, [2]) == pytest.approx([0.0, 0.0, np.nan], nan_ok=True)


def test_only_rows_won_alone_count_on_demand() -> None:
    assert expert_recall(COSTS, CHOICE, ties="alone") == pytest.approx(
        [1.0, 1.0, np.nan], nan_ok=True
    )


def test_recall_has_no_value_where_all_rows_tie() -> None:
    assert np.isnan(worst_recall([[1.0, 1.0]], [0]))
    assert np.isnan(worst_recall([[1.0]], [0], ties="alone"))


def test_exactly_one_right_by_hand() -> None:
    scores = [[1, 0, 0], [0.6, 0.2, 0.4], [0, 0.5, 0], [1, 1, 0], [0, 0, 0]]
    assert exactly_one_right_recall(scores, [0, 1, 1, 2, 0]) == pytest.approx(2 / 3)
    assert exactly_one_right_recall(scores, [0, 1, 1, 2, 0], threshold=0.55) == pytest.approx(1 / 2)
    assert np.isnan(exactly_one_right_recall([[1, 1]], [0]))


@given(tables())
def test_recall_agrees_with_a_slow_count(table: tuple[np.ndarray, np.ndarray]) -> None:
    costs, choice = table
    expected = [slow_recall(costs, choice, expert) for expert in range(costs.shape[1])]
    assert expert_recall(costs, choice) == pytest.approx(expected, nan_ok=True)


@given(tables())
def test_the_oracle_recalls_every_expert(table: tuple[np.ndarray, np.ndarray]) -> None:
    costs, _ = table
    recalls = expert_recall(costs, oracle(costs))
    assert (np.isnan(recalls) | (recalls == 1)).all()
    assert winners(costs).any(axis=1).all()


def test_an_unknown_rule_for_ties_is_refused() -> None:
    with pytest.raises(ArgumentError, match="ties"):
        expert_recall(COSTS, CHOICE, ties="none")  # type: ignore[arg-type]
