from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from losses.cases import Problem, problems
from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.losses import minimizability_gap


def expected_cost(costs: list[list[float]], shares: list[float], choice: tuple[int, ...]) -> float:
    return sum(
        share * row[expert] for share, row, expert in zip(shares, costs, choice, strict=True)
    )


def shares_of(problem: Problem) -> Tensor:
    weights = problem.scores.abs()[:, 0] + 0.1
    return weights / weights.sum()


@settings(max_examples=200, deadline=None)
@given(problem=problems(max_rows=4))
def test_the_gap_over_every_class_of_routers_that_choose_for_each_input_is_zero(
    problem: Problem,
) -> None:
    """Against all choices, one by one."""
    rows, experts = problem.costs.shape
    costs, shares = problem.costs.tolist(), shares_of(problem)
    every = itertools.product(range(experts), repeat=rows)
    best = min(expected_cost(costs, shares.tolist(), choice) for choice in every)
    assert minimizability_gap(best, problem.costs, shares) == pytest.approx(0, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(problem=problems(max_rows=6))
def test_the_gap_of_routers_that_ignore_the_input(problem: Problem) -> None:
    """What the best single expert pays above the best choice on every input."""
    rows, experts = problem.costs.shape
    costs, shares = problem.costs.tolist(), shares_of(problem).tolist()
    single = min(expected_cost(costs, shares, (expert,) * rows) for expert in range(experts))
    lowest = sum(share * min(row) for share, row in zip(shares, costs, strict=True))
    found = minimizability_gap(single, problem.costs, shares_of(problem))
    assert found == pytest.approx(single - lowest, abs=1e-9)
    assert found >= 0
    equal = minimizability_gap(max(map(max, costs)), problem.costs)
    assert equal == pytest.approx(max(map(max, costs)) - sum(map(min, costs)) / rows, abs=1e-9)


COSTS = torch.tensor([[0.0, 1.0], [1.0, 0.5]])


def test_what_no_class_of_routers_can_pay_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"best_in_class=0\.1"):
        minimizability_gap(0.1, COSTS)
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        minimizability_gap(0.5, COSTS, torch.ones(3))
    with pytest.raises(CostError, match="non-finite"):
        minimizability_gap(0.5, COSTS / 0)


def test_rounding_makes_no_gap_negative() -> None:
    assert minimizability_gap(0.25 - 1e-9, COSTS) == 0
