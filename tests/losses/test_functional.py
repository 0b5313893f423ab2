from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem, problems, seeds, taus
from losses.reference import (
    deferral_row,
    each_row,
    hinge_row,
    ldam_row,
    pairwise_row,
    ramp_row,
    wrong_row,
)
from mildroute.exceptions import ArgumentError, MarginError, MildrouteError, ShapeError
from mildroute.losses.cost_sensitive import upper_bound_scale
from mildroute.losses.functional import (
    cross_entropy,
    deferral_loss,
    hinge_loss,
    ldam_loss,
    pairwise_loss,
    tdef_loss,
    weighted_cross_entropy,
)
from mildroute.losses.margins import smoothed_win_counts
from mildroute.losses.rewards import winner_targets

# Rounding allowed where two float64 sums may be equal.
TINY = 1e-12


def rows_of(loss: Callable[..., Tensor], problem: Problem, **options: object) -> Tensor:
    return loss(problem.scores, problem.rewards, problem.margins, reduction="none", **options)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), tau=taus)
def test_the_deferral_loss_is_its_formula(problem: Problem, tau: float) -> None:
    expected = each_row(
        deferral_row, problem.scores, problem.rewards, margins=problem.margins, tau=1.0
    )
    torch.testing.assert_close(rows_of(deferral_loss, problem), expected, rtol=1e-10, atol=TINY)
    if abs(tau - 1) > 1e-3:  # nearer to 1 the printed formula loses digits
        expected = each_row(
            deferral_row, problem.scores, problem.rewards, margins=problem.margins, tau=tau
        )
        torch.testing.assert_close(
            rows_of(deferral_loss, problem, tau=tau), expected, rtol=1e-10, atol=TINY
        )


@settings(max_examples=500, deadline=None)
@given(problem=problems(), tau=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]))
def test_the_pairwise_loss_is_its_formula(problem: Problem, tau: float) -> None:
    expected = each_row(
        pairwise_row, problem.scores, problem.rewards, margins=problem.margins, tau=tau
    )
    torch.testing.assert_close(
        rows_of(pairwise_loss, problem, tau=tau), expected, rtol=1e-10, atol=TINY
    )


@every_problem()
def test_the_hinge_loss_is_its_formula(problem: Problem) -> None:
    expected = each_row(hinge_row, problem.scores, problem.rewards, margins=problem.margins)
    torch.testing.assert_close(rows_of(hinge_loss, problem), expected, rtol=1e-12, atol=TINY)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), tau=taus)
def test_scaled_losses_bound_the_margin_loss_which_bounds_the_error(
    problem: Problem, tau: float
) -> None:
    ramp = each_row(ramp_row, problem.scores, problem.rewards, margins=problem.margins)
    assert (ramp - each_row(wrong_row, problem.scores, problem.rewards)).min() >= -TINY
    bounds = [
        upper_bound_scale(tau) * rows_of(loss, problem, tau=tau)
        for loss in (deferral_loss, pairwise_loss)
    ]
    for bound in (*bounds, rows_of(hinge_loss, problem)):
        assert (bound - ramp).min() >= -TINY


def test_without_its_scale_the_logistic_loss_is_no_bound() -> None:
    """The paper states the bound without a scale.

    At equal scores the error counts 1 and the loss log 2 < 1.
    """
    scores, rewards, margins = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), torch.ones(2)
    assert wrong_row([0.0, 0.0], [1.0, 0.0]) == ramp_row([0.0, 0.0], [1.0, 0.0], [1.0, 1.0]) == 1
    for loss in (deferral_loss, pairwise_loss):
        assert loss(scores, rewards, margins).item() == pytest.approx(math.log(2))
        assert upper_bound_scale(1.0) * loss(scores, rewards, margins).item() == pytest.approx(1)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), tau=taus)
def test_the_sum_inside_is_tighter_than_the_sum_outside(problem: Problem, tau: float) -> None:
    slack = rows_of(pairwise_loss, problem, tau=tau) - rows_of(deferral_loss, problem, tau=tau)
    assert slack.min() >= -TINY * (1 + rows_of(pairwise_loss, problem, tau=tau).max())


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_experts=2), tau=taus)
def test_the_two_sums_agree_for_two_experts(problem: Problem, tau: float) -> None:
    torch.testing.assert_close(
        rows_of(pairwise_loss, problem, tau=tau),
        rows_of(deferral_loss, problem, tau=tau),
        rtol=1e-10,
        atol=TINY,
    )


@settings(max_examples=500, deadline=None)
@given(problem=problems(), step=st.sampled_from([-1e-7, 1e-7]))
def test_comp_sum_losses_are_continuous_at_the_logistic_one(problem: Problem, step: float) -> None:
    for loss in (deferral_loss, pairwise_loss):
        jump = rows_of(loss, problem, tau=1 + step) - rows_of(loss, problem, tau=1.0)
        assert jump.abs().max() <= 1e-5


@settings(max_examples=500, deadline=None)
@given(problem=problems(), rho=st.floats(0.1, 10))
def test_equal_margins_give_soft_cross_entropy_at_that_temperature(
    problem: Problem, rho: float
) -> None:
    mass = problem.rewards.sum(dim=1) + 1
    rewards = problem.rewards + 1 / problem.rewards.shape[1]
    expected = mass * F.cross_entropy(
        problem.scores / rho, rewards / mass[:, None], reduction="none"
    )
    margins = torch.full_like(problem.margins, rho)
    torch.testing.assert_close(
        deferral_loss(problem.scores, rewards, margins, reduction="none"),
        expected,
        rtol=1e-10,
        atol=TINY,
    )


@every_problem()
def test_tdef_is_the_deferral_loss_with_unit_margins(problem: Problem) -> None:
    expected = deferral_loss(problem.scores, problem.rewards, torch.ones_like(problem.margins))
    assert torch.equal(tdef_loss(problem.scores, problem.rewards), expected)


@every_problem()
def test_cross_entropy_looks_at_the_winner_alone(problem: Problem) -> None:
    expected = F.cross_entropy(problem.scores, winner_targets(problem.rewards))
    torch.testing.assert_close(
        cross_entropy(problem.scores, problem.rewards), expected, rtol=1e-10, atol=TINY
    )
    assert torch.equal(
        cross_entropy(problem.scores, problem.rewards),
        cross_entropy(problem.scores, 5 * problem.rewards - 2),
    )


@every_problem()
def test_weighted_cross_entropy_weighs_winners_by_their_rarity(problem: Problem) -> None:
    mass = smoothed_win_counts(problem.counts)
    rarity = mass.sum() / (len(mass) * mass)
    losses = -(winner_targets(problem.rewards) * rarity * F.log_softmax(problem.scores, dim=1)).sum(
        dim=1
    )
    torch.testing.assert_close(
        weighted_cross_entropy(problem.scores, problem.rewards, problem.counts),
        losses.mean(),
        rtol=1e-10,
        atol=TINY,
    )


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=st.integers(2, 6), s=st.floats(0.5, 10), max_margin=st.floats(0, 1))
def test_ldam_lowers_the_score_of_the_winner(
    seed: int, experts: int, s: float, max_margin: float
) -> None:
    problem = draw_problem(seed, rows=3, experts=experts)
    counts = problem.counts + 1
    winners = problem.rewards.argmax(dim=1)
    expected = each_row(
        ldam_row, problem.scores, winners, counts=counts, s=s, max_margin=max_margin
    )
    actual = ldam_loss(
        problem.scores, problem.rewards, counts, s=s, max_margin=max_margin, reduction="none"
    )
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def test_ldam_of_the_usual_scale_neither_overflows_nor_divides_by_zero() -> None:
    scores = torch.tensor([[50.0, -50.0], [0.0, 0.0], [-50.0, 50.0]], requires_grad=True)
    losses = ldam_loss(
        scores, torch.tensor([[1.0, 0.0]] * 3), torch.tensor([100.0, 1.0]), reduction="none"
    )
    losses.sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(losses).all()
    assert torch.isfinite(scores.grad).all()
    margin = 0.5 * 100**-0.25
    assert losses.tolist() == pytest.approx(
        [0, 30 * margin + math.log1p(math.exp(-30 * margin)), 3000 + 30 * margin], abs=1e-3
    )


def test_ldam_of_a_tie_is_the_mean_of_its_winners() -> None:
    scores, counts = torch.tensor([[0.3, -0.2]]), torch.tensor([4.0, 1.0])
    either = [
        ldam_loss(scores, torch.tensor([rewards]), counts).item()
        for rewards in ([1.0, 0.0], [0.0, 1.0])
    ]
    assert ldam_loss(scores, torch.ones(1, 2), counts).item() == pytest.approx(sum(either) / 2)


@pytest.mark.parametrize("loss", [weighted_cross_entropy, ldam_loss])
def test_an_expert_that_never_wins_gives_a_finite_loss(loss: Callable[..., Tensor]) -> None:
    for counts in (torch.tensor([10, 0, 3]), torch.zeros(3)):
        assert torch.isfinite(loss(torch.zeros(2, 3), torch.eye(3)[:2], counts))


ZEROS, ONES, UNIT = torch.zeros(2, 3), torch.ones(2, 3), torch.ones(3)


@pytest.mark.parametrize("loss", [deferral_loss, pairwise_loss, hinge_loss])
def test_bad_margins_are_refused(loss: Callable[..., Tensor]) -> None:
    with pytest.raises(MarginError, match=r"-2\.0 for expert 1"):
        loss(ZEROS, ONES, torch.tensor([1.0, -2.0, 1.0]))
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        loss(ZEROS, ONES, torch.ones(2))


def test_bad_margins_are_refused_while_they_are_learned() -> None:
    with pytest.raises(MarginError, match=r"-2\.0 for expert 1"):
        deferral_loss(ZEROS, ONES, torch.tensor([1.0, -2.0, 1.0], requires_grad=True))
    with pytest.raises(ShapeError, match=r"\(1,\)"):
        deferral_loss(ZEROS, ONES, torch.ones(1, requires_grad=True))


@pytest.mark.parametrize("loss", [deferral_loss, pairwise_loss])
def test_a_negative_tau_is_refused(loss: Callable[..., Tensor]) -> None:
    with pytest.raises(ArgumentError, match=r"-0\.5"):
        loss(ZEROS, ONES, UNIT, tau=-0.5)


@pytest.mark.parametrize(
    ("loss", "last"),
    [
        (deferral_loss, (UNIT,)),
        (pairwise_loss, (UNIT,)),
        (hinge_loss, (UNIT,)),
        (tdef_loss, ()),
        (cross_entropy, ()),
        (weighted_cross_entropy, (UNIT,)),
        (ldam_loss, (UNIT,)),
    ],
)
def test_scores_and_rewards_of_other_shapes_are_refused(
    loss: Callable[..., Tensor], last: tuple[Tensor, ...]
) -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 2\)"):
        loss(ZEROS, torch.ones(2, 2), *last)
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        loss(ZEROS[0], ONES[0], *last)


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: ldam_loss(ZEROS, ONES, UNIT, s=0.0), ArgumentError, "s=0.0"),
        (lambda: ldam_loss(ZEROS, ONES, UNIT, max_margin=-1.0), ArgumentError, "max_margin=-1.0"),
        (lambda: ldam_loss(ZEROS, ONES, torch.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: weighted_cross_entropy(ZEROS, ONES, torch.ones(4)), ShapeError, r"\(4,\)"),
        (lambda: tdef_loss(ZEROS, ONES, weights=torch.ones(3)), ShapeError, r"\(3,\)"),
        (lambda: tdef_loss(ZEROS, ONES, reduction="median"), ArgumentError, "'median'"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
