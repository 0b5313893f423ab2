from __future__ import annotations

import torch

from losses.cases import Problem, every_problem
from losses.reference import choice_of, each_row
from mildroute.losses._order import argmax_last, argsort_desc, runner_up_score


@every_problem(max_experts=9)
def test_the_largest_is_the_highest_index_of_equals(problem: Problem) -> None:
    assert argmax_last(problem.scores).tolist() == [
        choice_of(row) for row in problem.scores.tolist()
    ]


@every_problem(max_experts=9)
def test_descending_sorts_by_value_then_by_index_from_above(problem: Problem) -> None:
    expected = [
        sorted(range(len(row)), key=lambda k: (-row[k], -k)) for row in problem.scores.tolist()
    ]
    assert argsort_desc(problem.scores).tolist() == expected


@every_problem(max_experts=9)
def test_the_runner_up_is_the_best_of_the_others(problem: Problem) -> None:
    expected = each_row(
        lambda row: [max(row[:k] + row[k + 1 :]) for k in range(len(row))], problem.scores
    )
    assert torch.equal(runner_up_score(problem.scores), expected)


def test_equal_leaders_are_each_others_runner_up() -> None:
    assert runner_up_score(torch.tensor([[2.0, 2.0, 1.0]])).tolist() == [[2, 2, 2]]


def test_the_runner_up_carries_a_gradient() -> None:
    scores = torch.tensor([[1.0, 5.0, 3.0]], requires_grad=True)
    runner_up_score(scores).sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 2, 1]]


def test_infinite_scores_keep_their_order() -> None:
    scores = torch.tensor([[float("-inf"), 0.0, float("inf")]])
    assert argmax_last(scores).tolist() == [2]
    assert argsort_desc(scores).tolist() == [[2, 1, 0]]
