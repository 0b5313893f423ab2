"""What all losses promise: the contract of shapes, reductions, dtypes, symmetries and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

import mildroute.losses
from losses.cases import (
    LOSSES,
    PIECEWISE,
    SMOOTH,
    TRAINABLE,
    Case,
    Problem,
    draw_problem,
    problems,
    seeds,
)
from mildroute.losses.functional import deferral_loss

every_loss = pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES.keys())
every_trainable_loss = pytest.mark.parametrize("case", TRAINABLE.values(), ids=TRAINABLE.keys())
every_smooth_loss = pytest.mark.parametrize("case", SMOOTH.values(), ids=SMOOTH.keys())
every_seed = pytest.mark.parametrize("seed", range(3))


def test_every_loss_of_the_package_is_among_the_cases() -> None:
    public = {
        name for name in mildroute.losses.__all__ if name.endswith(("_loss", "cross_entropy"))
    }
    parts = {"rho_margin_loss", "empirical_margin_loss"}  # a function of margins, and a number
    assert {case.function.__name__ for case in LOSSES.values()} == public - parts


@settings(max_examples=500, deadline=None)
@given(problem=problems(), shift=st.floats(-100, 100))
def test_a_constant_added_to_the_scores_of_a_row_changes_nothing(
    problem: Problem, shift: float
) -> None:
    offsets = torch.linspace(shift, 100, len(problem.scores), dtype=torch.float64)[:, None]
    shifted = replace(problem, scores=problem.scores + offsets.round())
    for name, case in LOSSES.items():
        torch.testing.assert_close(
            case(shifted),
            case(problem),
            rtol=1e-9,
            atol=1e-11,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@settings(max_examples=500, deadline=None)
@given(problem=problems(), seed=seeds)
def test_experts_in_another_order_give_the_same_loss(problem: Problem, seed: int) -> None:
    """Ties aside for the zero-one loss, whose choice among equals is by index."""
    order = torch.randperm(problem.scores.shape[1], generator=torch.Generator().manual_seed(seed))
    permuted = problem.permute(order)
    for name, case in TRAINABLE.items():
        torch.testing.assert_close(
            case(permuted),
            case(problem),
            rtol=1e-9,
            atol=1e-11,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    generic = draw_problem(seed, rows=3, experts=problem.scores.shape[1])
    zero_one = LOSSES["cost-sensitive zero-one"]
    torch.testing.assert_close(zero_one(generic.permute(order)), zero_one(generic))


@settings(max_examples=500, deadline=None)
@given(problem=problems(), seed=seeds)
def test_gradients_follow_the_order_of_the_experts_and_add_up_to_zero(
    problem: Problem, seed: int
) -> None:
    order = torch.randperm(problem.scores.shape[1], generator=torch.Generator().manual_seed(seed))
    for name, case in SMOOTH.items():
        gradient = gradient_of(case, problem)
        scale = 1 + gradient.abs().max()
        assert (
            gradient_of(case, problem.permute(order)) - gradient[:, order]
        ).abs().max() <= 1e-9 * scale, name
        assert gradient.sum(dim=1).abs().max() <= 1e-9 * scale, name


def gradient_of(case: Case, problem: Problem, **options: object) -> Tensor:
    scores = problem.scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(case(replace(problem, scores=scores), **options), scores)
    return gradient


def as_function_of_scores(case: Case, problem: Problem) -> Callable[[Tensor], Tensor]:
    return lambda scores: case(replace(problem, scores=scores), reduction="none")


@every_seed
@every_trainable_loss
def test_gradients_match_finite_differences(case: Case, seed: int) -> None:
    problem = draw_problem(seed, rows=2, experts=4)
    assert torch.autograd.gradcheck(
        as_function_of_scores(case, problem), (problem.scores.clone().requires_grad_(),)
    )


@every_seed
@every_smooth_loss
def test_second_derivatives_match_finite_differences(case: Case, seed: int) -> None:
    problem = draw_problem(seed, rows=2, experts=4)
    assert torch.autograd.gradgradcheck(
        as_function_of_scores(case, problem), (problem.scores.clone().requires_grad_(),)
    )


@every_seed
@pytest.mark.parametrize("experts", [4, 60])
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 1.5])
def test_gradients_in_rewards_and_margins_match_finite_differences(
    tau: float, experts: int, seed: int
) -> None:
    problem = draw_problem(seed, rows=1, experts=experts)
    leaves = [
        tensor.clone().requires_grad_()
        for tensor in (problem.scores, problem.rewards, problem.margins)
    ]
    assert torch.autograd.gradcheck(lambda *tensors: deferral_loss(*tensors, tau=tau), leaves)
    assert torch.autograd.gradcheck(
        lambda rewards: deferral_loss(problem.scores, rewards, problem.margins, tau=tau),
        leaves[1:2],
    )
    assert torch.autograd.gradcheck(
        lambda margins: deferral_loss(problem.scores, problem.rewards, margins, tau=tau), leaves[2:]
    )


@every_seed
def test_second_derivatives_hold_for_interpolated_margins(seed: int) -> None:
    """Sixty distinct margins close together are served by fewer nodes than margins."""
    problem = draw_problem(seed, rows=1, experts=60, spread=1.0, ratio=1.2)
    scores = problem.scores.requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda leaf: deferral_loss(leaf, problem.rewards, problem.margins), (scores,)
    )


@every_loss
def test_reductions_agree(case: Case) -> None:
    problem = draw_problem(0, rows=5, experts=3)
    rows = case(problem, reduction="none")
    assert rows.shape == (5,)
    torch.testing.assert_close(case(problem, reduction="sum"), rows.sum())
    torch.testing.assert_close(case(problem), rows.mean())
    torch.testing.assert_close(case(problem, reduction="mean"), rows.mean())


@every_loss
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_weight_of_two_is_the_row_twice_and_of_zero_its_absence(
    case: Case, reduction: str
) -> None:
    problem = draw_problem(1, rows=4, experts=3)
    weighted = case(problem, weights=torch.tensor([1, 2, 0, 1]), reduction=reduction)
    torch.testing.assert_close(
        weighted, case(problem.pick(torch.tensor([0, 1, 1, 3])), reduction=reduction)
    )


@every_trainable_loss
def test_gradients_are_weighted_as_the_rows_are(case: Case) -> None:
    problem, weights = (
        draw_problem(1, rows=3, experts=3),
        torch.tensor([1.0, 2.5, 0.0], dtype=torch.float64),
    )
    expected = weights[:, None] * gradient_of(case, problem, reduction="sum")
    torch.testing.assert_close(
        gradient_of(case, problem, weights=weights, reduction="sum"), expected
    )
    torch.testing.assert_close(
        gradient_of(case, problem, weights=weights), expected / weights.sum()
    )


@every_loss
def test_weights_of_one_change_nothing(case: Case) -> None:
    problem = draw_problem(2, rows=4, experts=3)
    torch.testing.assert_close(case(problem, weights=torch.ones(4)), case(problem))


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept(case: Case, dtype: torch.dtype) -> None:
    problem = draw_problem(3, rows=3, experts=4).to(dtype)
    assert case(problem).dtype == dtype
    torch.testing.assert_close(
        case(problem).double(), case(problem.to(torch.float64)), rtol=1e-5, atol=1e-5
    )


@every_loss
def test_low_precision_scores_are_computed_in_float32(case: Case) -> None:
    problem = draw_problem(4, rows=3, experts=4).to(torch.float32)
    rounded = replace(problem, scores=problem.scores.to(torch.bfloat16))
    assert case(rounded).dtype == torch.float32
    assert torch.equal(case(rounded), case(replace(problem, scores=rounded.scores.float())))


@every_trainable_loss
def test_low_precision_scores_get_gradients_of_their_dtype(case: Case) -> None:
    problem = draw_problem(4, rows=3, experts=4).to(torch.float32)
    rounded = replace(problem, scores=problem.scores.to(torch.bfloat16))
    gradient = gradient_of(case, rounded)
    assert gradient.dtype == torch.bfloat16
    expected = gradient_of(case, replace(problem, scores=rounded.scores.float()))
    torch.testing.assert_close(gradient.float(), expected, rtol=1e-2, atol=1e-3)


@every_loss
@pytest.mark.parametrize("experts", [4, 60])
def test_autocast_changes_nothing(case: Case, experts: int) -> None:
    problem = draw_problem(5, rows=3, experts=experts).to(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = case(problem)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, case(problem))


@every_trainable_loss
def test_autocast_changes_no_gradient(case: Case) -> None:
    """Forward inside of the region and backward after it, as torch asks for."""
    problem = draw_problem(5, rows=3, experts=4).to(torch.float32)
    scores = problem.scores.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = case(replace(problem, scores=scores))
    assert torch.equal(torch.autograd.grad(loss, scores)[0], gradient_of(case, problem))


@every_loss
def test_no_rows_cost_nothing(case: Case) -> None:
    assert case(draw_problem(6, rows=0, experts=3), reduction="sum").item() == 0


@pytest.mark.parametrize("case", PIECEWISE.values(), ids=PIECEWISE.keys())
def test_piecewise_losses_have_finite_gradients_at_their_kinks(case: Case) -> None:
    problem = replace(
        draw_problem(7, rows=3, experts=4), scores=torch.zeros(3, 4, dtype=torch.float64)
    )
    assert torch.isfinite(gradient_of(case, problem)).all()


@pytest.mark.parametrize("name", ["pairwise", "hinge", "cost-sensitive, max"])
def test_margins_are_not_read_while_a_loss_is_compiled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a value would break the graph, so the check is left to calls outside of it."""
    problem = draw_problem(8, rows=2, experts=3)
    expected = LOSSES[name](problem)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(LOSSES[name](problem), expected)
    assert LOSSES[name](replace(problem, margins=-problem.margins)).shape == ()
