from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem, problems, seeds
from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses.margins import (
    feature_norms,
    reward_mass,
    smoothed_win_counts,
    theory_margins,
    winner_counts,
)
from mildroute.losses.rewards import Reward, rewards_of

Array: TypeAlias = NDArray[np.float64]


def spread_term(counts: Tensor, norms: Tensor, margins: Tensor) -> Tensor:
    """What the paper's margins minimize: ``sum_j m_j X_j^2 / rho_j^2``."""
    return (counts * norms**2 / margins**2).sum()


@every_problem(max_rows=6)
def test_winner_counts_add_up_to_the_rows_and_split_ties(problem: Problem) -> None:
    counts = winner_counts(problem.costs)
    expected = [0.0] * problem.costs.shape[1]
    for row in problem.costs.tolist():
        for expert in (winners := [k for k, cost in enumerate(row) if cost == min(row)]):
            expected[expert] += 1 / len(winners)
    assert counts.tolist() == pytest.approx(expected)
    assert counts.sum().item() == pytest.approx(len(problem.costs))


@settings(max_examples=300, deadline=None)
@given(problem=problems(max_rows=6), silent=st.booleans(), weighted=st.booleans())
def test_the_reward_mass_adds_up_the_label_distributions(
    problem: Problem, silent: bool, weighted: bool
) -> None:
    """Against a loop over plain rows, some of them without any reward."""
    rewards = problem.rewards.clone()
    if silent:
        rewards[0] = 0
    weights = problem.scores.abs()[:, 0] if weighted else None
    expected = [0.0] * rewards.shape[1]
    for row, weight in zip(
        rewards.tolist(), [1.0] * len(rewards) if weights is None else weights.tolist(), strict=True
    ):
        for expert, reward in enumerate(row):
            expected[expert] += weight * reward / sum(row) if sum(row) else 0.0
    assert reward_mass(rewards, weights).tolist() == pytest.approx(expected)


def test_the_reward_mass_by_hand() -> None:
    """Labels (1/2, 1/4, 1/4), none, and (0, 1/3, 2/3)."""
    rewards = torch.tensor([[2.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.1, 0.2]])
    assert reward_mass(rewards).tolist() == pytest.approx([1 / 2, 7 / 12, 11 / 12])
    weights = torch.tensor([1.0, 5.0, 3.0])
    assert reward_mass(rewards, weights).tolist() == pytest.approx([1 / 2, 5 / 4, 9 / 4])


def test_the_reward_mass_is_how_often_labels_are_drawn() -> None:
    """The paper's sample: a label for each row, drawn in proportion to its rewards."""
    rewards = rewards_of(torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.0, 0.2]]), "sum")
    draws = torch.multinomial(
        rewards, 200_000, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    drawn = torch.bincount(draws.flatten(), minlength=3) / 200_000
    assert drawn.tolist() == pytest.approx(reward_mass(rewards).tolist(), abs=0.01)


@settings(max_examples=200, deadline=None)
@given(problem=problems(max_rows=6))
def test_for_one_right_expert_the_gap_counts_wins_and_the_sum_hardly_tells_experts_apart(
    problem: Problem,
) -> None:
    """The label p-1 to p-2: of n rows with s wins, ``(s (p-1) + (n-s) (p-2)) / (p-1)^2``."""
    rows, experts = problem.costs.shape
    costs = 1 - torch.eye(experts, dtype=torch.float64)[problem.labels]
    wins = torch.bincount(problem.labels, minlength=experts).double()
    assert reward_mass(rewards_of(costs, "gap")).tolist() == pytest.approx(wins.tolist())
    expected = (wins * (experts - 1) + (rows - wins) * (experts - 2)) / (experts - 1) ** 2
    assert reward_mass(rewards_of(costs, "sum")).tolist() == pytest.approx(expected.tolist())


@settings(max_examples=200, deadline=None)
@given(problem=problems(max_rows=6), reward=st.sampled_from(["sum", "gap"]), factor=st.floats(1, 9))
def test_the_unit_of_the_costs_does_not_move_the_reward_mass(
    problem: Problem, reward: Reward, factor: float
) -> None:
    assert reward_mass(rewards_of(factor * problem.costs, reward)).tolist() == pytest.approx(
        reward_mass(rewards_of(problem.costs, reward)).tolist()
    )


@settings(max_examples=200, deadline=None)
@given(problem=problems(max_rows=6))
def test_feature_norms_are_the_largest_of_the_rows_with_a_reward(problem: Problem) -> None:
    rewards = problem.rewards * (problem.costs > problem.costs.median())
    norms = [math.sqrt(sum(x * x for x in row)) for row in problem.scores.tolist()]
    for expert, found in enumerate(feature_norms(problem.scores, rewards).tolist()):
        own = [norm for norm, row in zip(norms, rewards.tolist(), strict=True) if row[expert] > 0]
        assert found == pytest.approx(max(own, default=max(norms)))


def test_under_the_sum_reward_a_linear_router_has_equal_feature_norms() -> None:
    problem = draw_problem(3, rows=20, experts=3)
    norms = feature_norms(problem.scores, rewards_of(problem.costs + 0.1, "sum"))
    assert norms.tolist() == [problem.scores.norm(dim=1).max().item()] * 3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("distinct", [0, 1, 2, 3])
def test_a_shared_margin_of_small_experts_minimizes_the_bound(seed: int, distinct: int) -> None:
    """Against SciPy, over margins with a sum of 1 of which those of the small experts are equal."""
    counts = (draw_problem(seed, rows=1, experts=6).counts + 1).sort(descending=True).values
    owners = np.minimum(np.arange(6), distinct)

    def margins(free: Array) -> Array:
        values = np.exp(free)[owners]
        return np.asarray(values / values.sum())

    best = minimize(
        lambda free: float((counts.numpy() / margins(free) ** 2).sum()),
        np.zeros(distinct + 1),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 20_000, "maxfev": 20_000},
    )
    found = theory_margins(counts, distinct=distinct)
    assert found.tolist() == pytest.approx(margins(best.x).tolist(), rel=1e-4)


def test_all_experts_with_margins_of_their_own_are_the_default() -> None:
    assert torch.equal(theory_margins(COUNTS, distinct=2), theory_margins(COUNTS))


def test_counts_of_a_small_table() -> None:
    costs = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
    assert torch.allclose(
        winner_counts(costs), torch.tensor([1 / 3 + 1 / 2 + 1, 1 / 3, 1 / 3 + 1 / 2])
    )


def test_counts_of_whole_number_costs() -> None:
    assert winner_counts(torch.tensor([[0, 1], [0, 0]])).tolist() == [1.5, 0.5]


def test_the_paper_margins_by_hand() -> None:
    margins = theory_margins(torch.tensor([64.0, 27.0, 1.0], dtype=torch.float64))
    assert margins.tolist() == pytest.approx([4 / 8, 3 / 8, 1 / 8])


def test_scale_offset_exponent_and_norms_by_hand() -> None:
    counts = torch.tensor([64.0, 16.0], dtype=torch.float64)
    assert theory_margins(counts, exponent=0.5, scale=3.0, offset=0.5).tolist() == pytest.approx(
        [2.5, 1.5]
    )
    assert theory_margins(counts, exponent=0.0).tolist() == [0.5, 0.5]
    norms = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert theory_margins(counts, norms=norms).tolist() == pytest.approx([0.5, 0.5])
    assert theory_margins(counts, norms=torch.tensor([3, 3])).tolist() == pytest.approx(
        theory_margins(counts).tolist()
    )


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=st.integers(2, 8), size=st.floats(1e-3, 1))
def test_no_other_margins_of_equal_sum_have_a_smaller_bound(
    seed: int, experts: int, size: float
) -> None:
    """The paper's optimality of the exponent 1/3, against random positive margins near and far."""
    problem = draw_problem(seed, rows=1, experts=experts)
    counts, norms = problem.counts + 1, problem.margins
    best = theory_margins(counts, norms=norms)
    other = best * torch.exp(size * problem.scores[0])
    other = other / other.sum() * best.sum()
    assert spread_term(counts, norms, best) <= spread_term(counts, norms, other) * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(
    seed=seeds,
    experts=st.integers(2, 8),
    exponent=st.sampled_from([0.0, 1 / 6, 1 / 3]),
    offset=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
)
def test_margins_are_positive_and_sum_to_scale_and_offsets(
    seed: int, experts: int, exponent: float, offset: float
) -> None:
    counts = draw_problem(seed, rows=1, experts=experts).counts
    margins = theory_margins(counts, exponent=exponent, offset=offset)
    assert margins.min() > 0
    assert torch.isfinite(margins).all()
    assert margins.sum().item() == pytest.approx(1.0 + experts * offset)


def test_an_expert_that_never_wins_gets_a_small_positive_margin() -> None:
    margins = theory_margins(torch.tensor([8.0, 0.0, 2.0], dtype=torch.float64))
    cube_roots = [2.0, 1.0, 2 ** (1 / 3)]
    assert margins.tolist() == pytest.approx([root / sum(cube_roots) for root in cube_roots])
    assert theory_margins(torch.zeros(4)).tolist() == [0.25] * 4


def test_counts_of_zero_become_half_of_the_smallest_other() -> None:
    assert smoothed_win_counts(torch.tensor([4.0, 0.0, 10.0, 0.0])).tolist() == [4, 2, 10, 2]
    assert smoothed_win_counts(torch.zeros(2)).tolist() == [1, 1]


def test_margins_keep_the_dtype_of_floating_counts() -> None:
    for given_dtype, expected in (
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ):
        assert theory_margins(torch.tensor([3, 1], dtype=given_dtype)).dtype == expected


def test_huge_and_tiny_counts_stay_finite() -> None:
    margins = theory_margins(torch.tensor([1e20, 1e-15], dtype=torch.float32))
    assert (margins > 0).all()
    assert torch.isfinite(margins).all()


COUNTS = torch.tensor([3.0, 1.0])


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: theory_margins(COUNTS[None]), ShapeError, r"\(1, 2\)"),
        (lambda: theory_margins(-COUNTS), ArgumentError, r"-3\.0"),
        (lambda: theory_margins(COUNTS / 0), ArgumentError, "inf"),
        (lambda: theory_margins(COUNTS * float("nan")), ArgumentError, "nan"),
        (lambda: theory_margins(COUNTS, offset=-5.0), MarginError, r"-4\.\d+ for expert 0"),
        (lambda: theory_margins(COUNTS, offset=-0.5), MarginError, r"-0\.\d+ for expert 1"),
        (lambda: theory_margins(COUNTS, scale=0.0), MarginError, r"0\.0 for expert 0"),
        (lambda: theory_margins(COUNTS, norms=torch.zeros(2)), MarginError, "nan for expert 0"),
        (lambda: theory_margins(COUNTS, norms=torch.ones(3)), ShapeError, r"\(3,\)"),
        (lambda: theory_margins(COUNTS, distinct=3), ArgumentError, "got 3"),
        (lambda: theory_margins(COUNTS, distinct=-1), ArgumentError, "got -1"),
        (lambda: reward_mass(COUNTS), ShapeError, r"\(2,\)"),
        (lambda: reward_mass(COUNTS[None], torch.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: feature_norms(torch.ones(3, 1), COUNTS[None]), ShapeError, r"\(3, 1\)"),
        (lambda: winner_counts(torch.zeros(3)), ShapeError, r"\(3,\)"),
        (lambda: winner_counts(torch.full((2, 2), float("nan"))), CostError, "4 non-finite"),
    ],
)
def test_bad_counts_and_offsets_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
