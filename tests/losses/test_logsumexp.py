from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem
from losses.reference import deferral_gradient_row, deferral_row, each_row, odds
from mildroute.losses import _logsumexp as surprise
from mildroute.losses._interpolation import interpolation_nodes
from mildroute.losses._logsumexp import comp_sum, comp_sum_at_zero, log_margin_sum, row_losses
from mildroute.losses.functional import deferral_loss


def spread_margins(experts: int, ratio: float) -> Tensor:
    """Distinct margins from 1 to ``ratio``."""
    return torch.logspace(0, math.log10(ratio), experts, dtype=torch.float64)


def soft_problem(experts: int, ratio: float) -> Problem:
    """Scores over [-20, 20], rewards whose rows sum to 1, distinct margins.

    Many experts, few rows.
    """
    problem = draw_problem(experts, rows=3, experts=experts, spread=20.0)
    rewards = problem.rewards / problem.rewards.sum(dim=1, keepdim=True)
    return Problem(
        problem.scores,
        rewards,
        problem.costs,
        problem.labels,
        spread_margins(experts, ratio),
        problem.counts,
    )


def with_gradient(problem: Problem, tau: float = 1.0) -> tuple[Tensor, Tensor]:
    scores = problem.scores.clone().requires_grad_()
    losses = deferral_loss(scores, problem.rewards, problem.margins, tau=tau, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    return losses.detach(), gradient


def slow_with_gradient(problem: Problem, tau: float = 1.0) -> tuple[Tensor, Tensor]:
    """Losses and gradient by the slow formulas, at the values that the tensors hold after rounding
    to their dtype.
    """
    losses = each_row(
        deferral_row, problem.scores, problem.rewards, margins=problem.margins, tau=tau
    )
    return losses, each_row(
        deferral_gradient_row, problem.scores, problem.rewards, margins=problem.margins, tau=tau
    )


@pytest.mark.parametrize("ratio", [10.0, 1000.0])
@pytest.mark.parametrize("experts", [2, 3, 10, 40, 150])
@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_float64_losses_and_gradients_match_the_slow_form(
    experts: int, ratio: float, tau: float
) -> None:
    problem = soft_problem(experts, ratio)
    losses, gradient = with_gradient(problem, tau)
    slow_losses, slow_gradient = slow_with_gradient(problem, tau)
    assert ((losses - slow_losses).abs() / slow_losses).max() <= 1e-10
    assert (gradient - slow_gradient).norm() <= 1e-10 * slow_gradient.norm()


@pytest.mark.parametrize("experts", [2, 3, 10, 40, 150])
def test_float32_losses_and_gradients_match_the_slow_form(experts: int) -> None:
    problem = soft_problem(experts, ratio=10.0).to(torch.float32)
    losses, gradient = with_gradient(problem)
    slow_losses, slow_gradient = slow_with_gradient(problem)
    assert losses.dtype == gradient.dtype == torch.float32
    assert (losses - slow_losses).abs().max() <= 1e-5
    assert ((gradient - slow_gradient).norm(dim=1) / slow_gradient.norm(dim=1)).max() <= 1e-4


@every_problem()
def test_surprises_are_their_formula(problem: Problem) -> None:
    margins = problem.margins.tolist()
    expected = each_row(
        lambda row: [math.log1p(sum(odds(row, k, rho))) for k, rho in enumerate(margins)],
        problem.scores,
    )
    torch.testing.assert_close(
        log_margin_sum(problem.scores, problem.margins), expected, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("experts", [4, 100])
def test_every_path_gives_the_same_losses(experts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass, plain with learned rewards, plain with learned margins, and the form that is
    compiled.
    """
    problem = soft_problem(experts, ratio=10.0)
    expected = row_losses(problem.scores, problem.rewards, problem.margins, 1.0)
    learned_rewards = row_losses(
        problem.scores, problem.rewards.clone().requires_grad_(), problem.margins, 1.0
    )
    learned_margins = row_losses(
        problem.scores, problem.rewards, problem.margins.clone().requires_grad_(), 1.0
    )
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    compiled = row_losses(problem.scores, problem.rewards, problem.margins, 1.0)
    for losses in (learned_rewards, learned_margins, compiled):
        torch.testing.assert_close(losses.detach(), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("experts", [3, 60])
def test_the_size_of_the_blocks_does_not_matter(
    experts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = draw_problem(5, rows=17, experts=experts)
    whole = with_gradient(problem, tau=0.5)
    for elements in (1, experts * 40, experts * 400):
        monkeypatch.setattr(surprise, "_BLOCK_ELEMENTS", elements)
        for actual, expected in zip(with_gradient(problem, tau=0.5), whole, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def test_scores_that_need_no_gradient_get_none() -> None:
    problem = draw_problem(6, rows=2, experts=3)
    losses = row_losses(problem.scores, problem.rewards, problem.margins, 1.0)
    assert not losses.requires_grad
    torch.testing.assert_close(losses, with_gradient(problem)[0])


def test_huge_scores_neither_overflow_nor_lose_the_loss() -> None:
    problem = (
        torch.tensor([[1e4, 0.0, -1e4]], dtype=torch.float64),
        torch.tensor([[0.0, 1.0, 0.0]]),
        torch.tensor([1.0, 2.0, 4.0]),
    )
    assert deferral_loss(*problem).item() == pytest.approx(1e4 / 2)
    assert torch.isfinite(
        with_gradient(Problem(*problem[:2], *(problem[0],) * 2, problem[2], problem[2]))[1]
    ).all()


def test_comp_sum_of_known_arguments() -> None:
    log_three = torch.tensor([math.log(3)], dtype=torch.float64)
    for tau, value in (
        (0.0, 2.0),
        (0.5, 2 * (math.sqrt(3) - 1)),
        (1.0, math.log(3)),
        (2.0, 2 / 3),
        (3.0, 4 / 9),
    ):
        assert comp_sum(log_three, tau).item() == pytest.approx(value)


def test_comp_sum_at_equal_scores() -> None:
    for tau in (0.0, 0.5, 1.0, 2.0, 3.0):
        assert comp_sum_at_zero(tau) == pytest.approx(
            comp_sum(torch.tensor(2.0, dtype=torch.float64).log(), tau).item()
        )


def test_a_loss_seen_in_inference_mode_can_be_trained_later() -> None:
    """What is remembered about margins must not be bound to the mode of the first call."""
    interpolation_nodes.cache_clear()
    problem = draw_problem(7, rows=2, experts=3)
    with torch.inference_mode():
        row_losses(problem.scores, problem.rewards, problem.margins, 1.0)
    scores = problem.scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(log_margin_sum(scores, problem.margins).sum(), scores)
    assert torch.isfinite(gradient).all()
