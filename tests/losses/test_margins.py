from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem, seeds
from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses.rewards import (
    reward_mass,
    smoothed_win_counts,
    theory_margins,
    winner_counts,
)


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


def test_counts_and_mass_of_a_small_table() -> None:
    costs = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
    assert torch.allclose(
        winner_counts(costs), torch.tensor([1 / 3 + 1 / 2 + 1, 1 / 3, 1 / 3 + 1 / 2])
    )
    assert reward_mass(costs).tolist() == [1, 3, 3]


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
        (lambda: winner_counts(torch.zeros(3)), ShapeError, r"\(3,\)"),
        (lambda: winner_counts(torch.full((2, 2), float("nan"))), CostError, "4 non-finite"),
    ],
)
def test_bad_counts_and_offsets_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
