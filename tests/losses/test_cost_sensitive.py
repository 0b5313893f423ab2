from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import Problem, every_problem, problems, taus
from losses.reference import choice_of, cost_sensitive_terms, each_row, ramp
from mildroute.exceptions import ArgumentError, MarginError, MildrouteError, ShapeError
from mildroute.losses.cost_sensitive import (
    cost_sensitive_loss,
    cost_sensitive_margin_loss,
    cost_sensitive_zero_one_loss,
    label_costs,
    rho_margin_loss,
    upper_bound_scale,
)

TINY = 1e-12
psis = st.sampled_from(["hinge", "comp-sum"])


def rows_of(
    problem: Problem, loss: Callable[..., Tensor] = cost_sensitive_loss, **options: object
) -> Tensor:
    return loss(
        problem.scores, problem.labels, problem.costs, problem.margins, reduction="none", **options
    )


def terms_of(problem: Problem, psi: str, tau: float) -> Tensor:
    rho = problem.margins[problem.labels]
    return each_row(
        cost_sensitive_terms, problem.scores, problem.labels, problem.costs, rho, psi=psi, tau=tau
    )


@settings(max_examples=500, deadline=None)
@given(problem=problems(), psi=psis, tau=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]))
def test_the_max_form_is_its_formula(problem: Problem, psi: str, tau: float) -> None:
    expected = terms_of(problem, psi, tau).amax(dim=1)
    torch.testing.assert_close(rows_of(problem, psi=psi, tau=tau), expected, rtol=1e-10, atol=TINY)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), psi=psis, tau=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]))
def test_the_smooth_form_is_its_formula(problem: Problem, psi: str, tau: float) -> None:
    """A sum over experts, and for the logistic loss the logarithm of a sum of powers."""
    terms = terms_of(problem, psi, tau)
    expected = terms.exp().sum(dim=1).log() if psi == "comp-sum" and tau == 1 else terms.sum(dim=1)
    torch.testing.assert_close(
        rows_of(problem, psi=psi, tau=tau, form="smooth"), expected, rtol=1e-10, atol=TINY
    )


def slow_margin_row(
    scores: list[float], label: int, costs: list[float], margins: list[float]
) -> float:
    return max(
        costs[j] * ramp(scores[label] - scores[j], margins[label])
        for j in range(len(scores))
        if j != label
    )


def slow_zero_one_row(scores: list[float], label: int, costs: list[float]) -> float:
    return 0.0 if choice_of(scores) == label else costs[choice_of(scores)]


@every_problem()
def test_margin_and_zero_one_losses_are_their_formulas(problem: Problem) -> None:
    margin = each_row(
        slow_margin_row, problem.scores, problem.labels, problem.costs, margins=problem.margins
    )
    wrong = each_row(slow_zero_one_row, problem.scores, problem.labels, problem.costs)
    torch.testing.assert_close(
        rows_of(problem, cost_sensitive_margin_loss), margin, rtol=1e-12, atol=TINY
    )
    assert torch.equal(
        cost_sensitive_zero_one_loss(
            problem.scores, problem.labels, problem.costs, reduction="none"
        ),
        wrong,
    )


@settings(max_examples=500, deadline=None)
@given(problem=problems(), tau=taus, psi=psis)
def test_zero_one_below_margin_below_max_below_smooth(
    problem: Problem, tau: float, psi: str
) -> None:
    scale = upper_bound_scale(tau) if psi == "comp-sum" else 1.0
    chain = [
        cost_sensitive_zero_one_loss(
            problem.scores, problem.labels, problem.costs, reduction="none"
        ),
        rows_of(problem, cost_sensitive_margin_loss),
        scale * rows_of(problem, psi=psi, tau=tau),
        scale * rows_of(problem, psi=psi, tau=tau, form="smooth"),
    ]
    for lower, upper in pairwise(chain):
        assert (upper - lower).min() >= -TINY


def test_without_its_scale_the_logistic_loss_is_no_bound() -> None:
    """The paper takes ``Phi_rho(t) <= Psi(t / rho)`` for the whole comp-sum family.

    At 0 it reads 1 <= log 2 = 0.69.
    """
    problem = torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 1.0]]), torch.ones(2)
    assert cost_sensitive_margin_loss(*problem).item() == 1
    assert cost_sensitive_loss(*problem).item() == pytest.approx(math.log(2))
    assert upper_bound_scale(1.0) * cost_sensitive_loss(*problem).item() == pytest.approx(1)


@settings(max_examples=500, deadline=None)
@given(margin=st.floats(-50, 50), rho=st.floats(0.01, 100), tau=taus)
def test_the_scale_makes_each_comp_sum_function_a_bound(
    margin: float, rho: float, tau: float
) -> None:
    """One pair of experts, the label's lead being ``margin``."""
    pair = (
        torch.tensor([[margin, 0.0]], dtype=torch.float64),
        torch.tensor([0]),
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([rho, 1.0]),
    )
    assert (
        upper_bound_scale(tau) * cost_sensitive_loss(*pair, tau=tau).item()
        >= ramp(margin, pair[3][0].item()) - TINY
    )


def test_the_scale_is_one_over_the_value_at_equal_scores() -> None:
    assert upper_bound_scale(0.0) == 1
    assert upper_bound_scale(1.0) == pytest.approx(1 / math.log(2))
    assert upper_bound_scale(2.0) == pytest.approx(2)
    assert upper_bound_scale(3.0) == pytest.approx(8 / 3)
    assert upper_bound_scale(1 + 1e-9) == pytest.approx(upper_bound_scale(1.0), rel=1e-8)


@settings(max_examples=500, deadline=None)
@given(problem=problems(), step=st.sampled_from([-1e-7, 1e-7]))
def test_the_max_form_is_continuous_at_the_logistic_loss(problem: Problem, step: float) -> None:
    assert (rows_of(problem, tau=1 + step) - rows_of(problem)).abs().max() <= 1e-5


def test_the_rho_margin_loss_falls_from_one_to_zero() -> None:
    values = rho_margin_loss(torch.tensor([-1.0, 0.0, 0.5, 2.0, 3.0]), 2.0)
    assert values.tolist() == [1, 1, 0.75, 0, 0]
    assert rho_margin_loss(torch.ones(2), torch.tensor([2.0, 4.0])).tolist() == [0.5, 0.75]


def test_label_costs_are_the_label_rows_with_its_own_cost_zero() -> None:
    costs = torch.arange(18.0).reshape(2, 3, 3)
    assert label_costs(costs, torch.tensor([2, 0])).tolist() == [[6, 7, 0], [0, 10, 11]]
    assert costs[0, 2, 2] == 8


def test_the_cost_of_the_label_itself_never_counts() -> None:
    problem = (
        torch.tensor([[5.0, 0.0]]),
        torch.tensor([0]),
        torch.tensor([[1.0, 0.0]]),
        torch.ones(2),
    )
    assert cost_sensitive_zero_one_loss(*problem[:3]).item() == 0
    assert cost_sensitive_margin_loss(*problem).item() == 0
    assert (
        cost_sensitive_loss(*problem).item()
        == cost_sensitive_loss(*problem, form="smooth").item()
        == 0
    )


ARGUMENTS = torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(2, 3), torch.ones(3)


@pytest.mark.parametrize("loss", [cost_sensitive_loss, cost_sensitive_margin_loss])
def test_bad_margins_and_labels_are_refused(loss: Callable[..., Tensor]) -> None:
    scores, labels, costs, margins = ARGUMENTS
    with pytest.raises(MarginError, match=r"0\.0 for expert 2"):
        loss(scores, labels, costs, torch.tensor([1.0, 1.0, 0.0]))
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        loss(scores, labels, costs, torch.ones(2))
    with pytest.raises(ShapeError, match=r"labels must be \(2,\), one per row, got shape \(3,\)"):
        loss(scores, torch.zeros(3, dtype=torch.int64), costs, margins)


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: cost_sensitive_loss(*ARGUMENTS, form="mean"), ArgumentError, "'mean'"),  # type: ignore[arg-type]
        (lambda: cost_sensitive_loss(*ARGUMENTS, psi="square"), ArgumentError, "'square'"),  # type: ignore[arg-type]
        (lambda: cost_sensitive_loss(*ARGUMENTS, tau=-1.0), ArgumentError, "-1.0"),
        (lambda: upper_bound_scale(-2.0), ArgumentError, "-2.0"),
        (
            lambda: cost_sensitive_zero_one_loss(ARGUMENTS[0], ARGUMENTS[1], torch.ones(2, 2)),
            ShapeError,
            r"\(2, 3\) and \(2, 2\)",
        ),
        (
            lambda: cost_sensitive_zero_one_loss(ARGUMENTS[0], ARGUMENTS[1][:1], ARGUMENTS[2]),
            ShapeError,
            r"\(1,\)",
        ),
        (
            lambda: cost_sensitive_margin_loss(*ARGUMENTS, weights=torch.ones(1)),
            ShapeError,
            r"\(1,\)",
        ),
    ],
)
def test_bad_arguments_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
