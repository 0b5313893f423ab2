"""Everything a report says of one choice, and that it is fit for JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from mildroute.evaluation.expert_usage import effective_experts, expert_shares
from mildroute.evaluation.metrics import deferral_loss, gap_closed, oracle, regret
from mildroute.evaluation.policy_evaluation import evaluate_choices
from mildroute.evaluation.posterior_calibration import brier_score
from mildroute.evaluation.specialist_recall import (
    exactly_one_right_recall,
    expert_recall,
    worst_recall,
)
from mildroute.exceptions import ArgumentError, ShapeError
from tests.support.evaluation_cases import CHOICE, COSTS, tables

GROUPS = np.array(["law", "art", "law", "art"], dtype=object)


@given(tables())
@settings(max_examples=40)
def test_every_figure_is_that_of_the_metric_and_lies_in_its_interval(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    costs, choice = table
    found = evaluate_choices(choice, costs, 1 - costs)
    expected = {
        "deferral_loss": deferral_loss(costs, choice),
        "regret": regret(costs, choice).mean(),
        "gap_closed": gap_closed(costs, choice),
        "worst_recall": worst_recall(costs, choice),
        "exactly_one_right_recall": exactly_one_right_recall(1 - costs, choice),
        "effective_experts": effective_experts(expert_shares(choice, costs.shape[1])),
    }
    for name, value in expected.items():
        interval = getattr(found, name)
        assert interval.value == pytest.approx(value, nan_ok=True), name
        assert np.isnan(value) or interval.low <= interval.value <= interval.high, name
    assert [row.recall.value for row in found.per_expert] == pytest.approx(
        expert_recall(costs, choice).tolist(), nan_ok=True
    )
    json.dumps(found.as_dict(), allow_nan=False)


def test_experts_and_groups_get_a_row_each() -> None:
    found = evaluate_choices(
        CHOICE, COSTS, 1 - COSTS, COSTS / 1000, groups=GROUPS, experts=["a", "b", "c"]
    )
    assert [row.name for row in found.per_expert] == ["a", "b", "c"]
    assert [row.share for row in found.per_expert] == [0.5, 0.25, 0.25]
    assert sum(row.oracle_share for row in found.per_expert) == pytest.approx(1)
    art, law = found.per_group
    # rows 1 and 3 are art: paid 1 and .25, the best single expert (b) 0 and .25, the oracle the
    # same
    assert (art.name, art.rows, art.deferral_loss.value, art.best_single_loss, art.oracle_loss) == (
        "art",
        2,
        0.625,
        0.125,
        0.125,
    )
    assert (law.name, law.score, law.dollars_per_1000) == ("law", 0.75, pytest.approx(0.25))
    assert found.dollars_per_1000 is not None
    assert found.dollars_per_1000.value == pytest.approx(1.75 / 4)


def test_the_rows_that_lose_most_come_first_and_rows_without_loss_are_not_listed() -> None:
    costs = np.stack([np.arange(15) / 20, np.zeros(15)], axis=1)
    found = evaluate_choices(np.zeros(15, dtype=int), costs, 1 - costs, experts=["a", "b"])
    assert [lost.row for lost in found.lost] == list(range(14, 4, -1))
    assert (found.lost[0].regret, found.lost[0].chosen, found.lost[0].best) == (0.7, "a", "b")
    assert evaluate_choices(oracle(costs), costs, 1 - costs).lost == ()


def test_the_reference_can_be_the_one_of_the_training_rows() -> None:
    found = evaluate_choices(CHOICE, COSTS, 1 - COSTS, reference=0, experts=["a", "b", "c"])
    assert found.reference == "a"
    assert found.gap_closed.value == pytest.approx(0.75 / 1.75)
    assert found.difference.value == pytest.approx(-0.75 / 4)


def test_a_posterior_adds_its_calibration() -> None:
    posterior = np.full(COSTS.shape, 1 / 3)
    assert evaluate_choices(CHOICE, COSTS, 1 - COSTS).brier_score is None
    assert evaluate_choices(
        CHOICE, COSTS, 1 - COSTS, posterior=posterior
    ).brier_score == pytest.approx(brier_score(posterior, COSTS))


def test_intervals_are_about_groups_or_rows_as_asked() -> None:
    rng = np.random.default_rng(0)
    costs = np.repeat(rng.random((20, 2)), 30, axis=0)
    groups = np.repeat(np.arange(20), 30)
    wide, narrow = (
        evaluate_choices(np.zeros(600, dtype=int), costs, 1 - costs, groups=groups, clusters=each)
        for each in (groups, np.arange(600))
    )
    assert wide.deferral_loss.high - wide.deferral_loss.low > 3 * (
        narrow.deferral_loss.high - narrow.deferral_loss.low
    )
    assert len(narrow.per_group) == 20


def test_an_expert_that_wins_one_row_has_no_recall_in_resamples_without_it() -> None:
    """Neither rounding nor an empty count may pass for a recall of 0."""
    costs = np.ones((30, 3))
    costs[:, 0] = 0.1
    costs[0] = [1.0, 0.1, 1.0]
    choice = np.zeros(30, dtype=int)
    choice[0] = 1
    found = evaluate_choices(choice, costs, np.clip(1 - costs, 0, 1))
    assert [row.recall.low for row in found.per_expert[:2]] == [1.0, 1.0]
    assert (found.worst_recall.low, found.worst_recall.value) == (1.0, 1.0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="scores"):
        evaluate_choices(CHOICE, COSTS, COSTS[:, :2])
    with pytest.raises(ArgumentError, match="reference"):
        evaluate_choices(CHOICE, COSTS, COSTS, reference=3)
