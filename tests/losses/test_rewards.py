from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import Problem, every_problem, problems
from losses.reference import choice_of
from mildroute.exceptions import ArgumentError, CostError, MildrouteError, ShapeError
from mildroute.losses.rewards import (
    complement_rewards,
    complement_scale,
    gap_rewards,
    rewards_of,
    sum_rewards,
    winner_targets,
)

COSTS = torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.25, 0.0]], dtype=torch.float64)


def paid(problem: Problem) -> Tensor:
    """Cost of the expert with the largest score, one row after the other."""
    chosen = [choice_of(row) for row in problem.scores.tolist()]
    return torch.stack([problem.costs[row, expert] for row, expert in enumerate(chosen)])


def missed(problem: Problem, rewards: Tensor) -> Tensor:
    """``sum_k w_k * 1[choice != k]``, one row after the other."""
    chosen = [choice_of(row) for row in problem.scores.tolist()]
    return torch.stack(
        [rewards[row].sum() - rewards[row, expert] for row, expert in enumerate(chosen)]
    )


def test_rewards_of_a_small_table() -> None:
    assert sum_rewards(COSTS).tolist() == [[2, 1, 1], [0.25, 0.5, 0.75]]
    assert complement_rewards(COSTS, 2.0).tolist() == [[1, 0.5, 0.5], [0.75, 0.875, 1]]
    assert gap_rewards(COSTS).tolist() == [[1, 0, 0], [0, 0.25, 0.5]]


@every_problem()
def test_sum_rewards_give_the_deferral_loss_up_to_a_constant(problem: Problem) -> None:
    """The paper's Lemma 1."""
    experts = problem.costs.shape[1]
    identity = missed(problem, sum_rewards(problem.costs)) - (experts - 2) * problem.costs.sum(
        dim=1
    )
    assert (identity - paid(problem)).abs().max() <= 1e-9


@settings(max_examples=500, deadline=None)
@given(problem=problems(), scale=st.floats(1, 10))
def test_complement_rewards_give_the_deferral_loss_up_to_a_constant(
    problem: Problem, scale: float
) -> None:
    """The paper's Lemma 2, for costs up to the scale."""
    experts, costs = problem.costs.shape[1], scale * problem.costs
    identity = (
        missed(problem, complement_rewards(costs, scale)) + problem.costs.sum(dim=1) - (experts - 1)
    )
    assert (scale * identity - paid(replace(problem, costs=costs))).abs().max() <= 1e-9


@settings(max_examples=500, deadline=None)
@given(problem=problems(), constant=st.floats(-100, 100), shift=st.floats(-100, 100))
def test_any_constant_minus_the_costs_gives_the_deferral_loss(
    problem: Problem, constant: float, shift: float
) -> None:
    """``sum_k (m - c_k) 1[choice != k]`` is the cost of the choice plus a constant, and the gap
    reward is one such m.
    """
    experts, costs = problem.costs.shape[1], problem.costs + shift
    for level in (
        torch.full((len(costs), 1), constant, dtype=torch.float64),
        costs.amax(dim=1, keepdim=True),
    ):
        identity = missed(problem, level - costs) + costs.sum(dim=1) - (experts - 1) * level[:, 0]
        assert (identity - paid(problem) - shift).abs().max() <= 1e-9
    assert torch.equal(gap_rewards(costs), costs.amax(dim=1, keepdim=True) - costs)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), shift=st.floats(-100, 100))
def test_gap_rewards_are_not_negative_and_the_worst_expert_gets_none(
    problem: Problem, shift: float
) -> None:
    rewards = gap_rewards(problem.costs + shift)
    assert rewards.min() >= 0
    assert torch.equal(rewards.amin(dim=1), torch.zeros(len(rewards), dtype=torch.float64))


@every_problem()
def test_every_reward_prefers_the_cheapest_expert(problem: Problem) -> None:
    best = winner_targets(-problem.costs) > 0
    for name in ("sum", "complement", "gap"):
        rewards = rewards_of(problem.costs, name, scale=complement_scale(problem.costs))
        assert rewards.min() >= 0, name
        assert (rewards.amax(dim=1, keepdim=True) - rewards)[best].max() <= 1e-12, name


def test_rows_on_which_all_experts_agree_teach_nothing() -> None:
    assert gap_rewards(torch.full((2, 3), 0.7)).count_nonzero() == 0


def test_the_scale_is_the_largest_cost_and_at_least_one() -> None:
    assert complement_scale(torch.tensor([[0.0, 2.5], [4.0, 1.0]])) == 4.0
    assert complement_scale(torch.tensor([[0.0, 0.5]])) == 1.0
    assert complement_scale(torch.zeros(0, 2)) == 1.0


def test_rounding_above_the_scale_is_forgiven_and_gives_no_negative_reward() -> None:
    assert complement_rewards(
        torch.tensor([[0.0, 1 + 1e-7]], dtype=torch.float64), 1.0
    ).tolist() == [[1, 0]]


def test_rewards_by_name_are_the_functions() -> None:
    assert torch.equal(rewards_of(COSTS, "sum"), sum_rewards(COSTS))
    assert torch.equal(rewards_of(COSTS, "gap"), gap_rewards(COSTS))
    assert torch.equal(rewards_of(COSTS, "complement", scale=2.0), complement_rewards(COSTS, 2.0))


def test_tied_winners_share_a_row() -> None:
    targets = winner_targets(
        torch.tensor([[3.0, 3.0, 3.0, 0.0], [0.0, 1.0, 0.0, 1.0], [2.0, 0.0, 0.0, 0.0]])
    )
    assert torch.allclose(
        targets, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0], [0, 0.5, 0, 0.5], [1, 0, 0, 0]])
    )


def test_an_empty_table_has_empty_rewards() -> None:
    empty = torch.zeros(0, 3)
    assert (
        sum_rewards(empty).shape
        == gap_rewards(empty).shape
        == complement_rewards(empty, 1.0).shape
        == (0, 3)
    )


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: sum_rewards(torch.tensor([[0.0, -0.25]])), CostError, "-0.25"),
        (lambda: sum_rewards(torch.tensor([[0.0, float("inf")]])), CostError, "1 non-finite"),
        (lambda: gap_rewards(torch.zeros(3)), ShapeError, r"\(3,\)"),
        (lambda: complement_rewards(COSTS, 0.0), ArgumentError, r"got 0\.0"),
        (lambda: complement_rewards(COSTS, float("nan")), ArgumentError, "nan"),
        (lambda: complement_rewards(2 * COSTS, 1.5), CostError, r"1\.5, got 2\.0"),
        (lambda: complement_scale(torch.zeros(3, 1)), ShapeError, r"\(3, 1\)"),
        (lambda: rewards_of(COSTS, "complement"), ArgumentError, "None"),
        (lambda: rewards_of(COSTS, "worst"), ArgumentError, "'worst'"),  # type: ignore[arg-type]
    ],
)
def test_bad_costs_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
