"""The paper's two inequalities on structured prediction, and where they end.

A structured SVM (Tsochantaridis et al., 2005) rescales the slack, ``max_j max(0, c_j (1 - v_j))``
with v_j the lead of the label over j, or the margin, ``max_j max(0, c_j - v_j)``, as max-margin
Markov networks do. The loss of conditional random fields is bounded by ``max_j log(1 + e^(c_j -
v_j))``. All are written out here. With one margin rho for all labels, f / rho stands for f.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from losses.cases import Problem, problems

from mildroute.losses import cost_sensitive_loss, cost_sensitive_margin_loss

Surrogate = Callable[[float, float], float]


def struct_svm(cost: float, lead: float) -> float:
    return max(0.0, cost * (1 - lead))


def markov_network(cost: float, lead: float) -> float:
    return max(0.0, cost - lead)


def random_field(cost: float, lead: float) -> float:
    return math.log1p(math.exp(cost - lead))


def structured(surrogate: Surrogate, problem: Problem, rho: float) -> list[float]:
    """``max_{j != k} Phi_{c_j}((f_k - f_j) / rho)`` of each row."""
    return [
        max(
            surrogate(costs[j], (scores[label] - scores[j]) / rho)
            for j in range(len(scores))
            if j != label
        )
        for scores, label, costs in zip(
            problem.scores.tolist(), problem.labels.tolist(), problem.costs.tolist(), strict=True
        )
    ]


def ours(problem: Problem, rho: float, psi: str) -> list[float]:
    margins = torch.full_like(problem.margins, rho)
    found: list[float] = cost_sensitive_loss(
        problem.scores,
        problem.labels,
        problem.costs,
        margins,
        psi=psi,  # type: ignore[arg-type]
        reduction="none",
    ).tolist()
    return found


every_problem = given(problem=problems(max_rows=6), rho=st.floats(0.1, 10))


@settings(max_examples=300, deadline=None)
@every_problem
def test_the_hinge_form_is_no_larger_than_struct_svm(problem: Problem, rho: float) -> None:
    """The paper says lower bound; with equal margins the two are the same."""
    assert ours(problem, rho, "hinge") == pytest.approx(structured(struct_svm, problem, rho))


@settings(max_examples=300, deadline=None)
@every_problem
def test_the_logistic_form_is_no_larger_than_the_loss_of_random_fields(
    problem: Problem, rho: float
) -> None:
    """For costs of at most 1: ``c log(1 + e^-v) <= log(1 + e^(c - v))``."""
    assert problem.costs.max() <= 1
    for lower, upper in zip(
        ours(problem, rho, "comp-sum"), structured(random_field, problem, rho), strict=True
    ):
        assert lower <= upper + 1e-12


@settings(max_examples=300, deadline=None)
@every_problem
def test_the_margin_loss_is_no_larger_than_the_multiplicative_one(
    problem: Problem, rho: float
) -> None:
    """``min(1, max(0, max_j c_j (1 - v_j / rho)))``, on which the bounds of that paper rest."""
    margins = torch.full_like(problem.margins, rho)
    found = cost_sensitive_margin_loss(
        problem.scores, problem.labels, problem.costs, margins, reduction="none"
    ).tolist()
    for lower, upper in zip(found, structured(struct_svm, problem, rho), strict=True):
        assert lower <= min(1.0, upper) + 1e-12


def test_the_hinge_form_is_not_below_the_loss_of_markov_networks() -> None:
    """A cost of 0.5 and a lead of 0.5: 0.25 against 0. Rescaling the margin is another loss."""
    scores, labels = torch.tensor([[0.5, 0.0]]), torch.tensor([0])
    hinge = cost_sensitive_loss(
        scores, labels, torch.tensor([[0.0, 0.5]]), torch.ones(2), psi="hinge"
    )
    assert float(hinge) == pytest.approx(0.25) == struct_svm(0.5, 0.5)
    assert markov_network(0.5, 0.5) == 0


@pytest.mark.parametrize("lead", [-3.0, -1.0, 0.0])
def test_it_is_below_where_the_label_does_not_lead(lead: float) -> None:
    for cost in (0.0, 0.3, 1.0):
        assert struct_svm(cost, lead) <= markov_network(cost, lead) + 1e-12


def test_costs_above_one_break_the_logistic_inequality() -> None:
    """A cost of 2 and a lead of -4: ``2 log(1 + e^4) = 8.04`` against ``log(1 + e^6) = 6.00``."""
    loss = cost_sensitive_loss(
        torch.tensor([[-4.0, 0.0]]), torch.tensor([0]), torch.tensor([[0.0, 2.0]]), torch.ones(2)
    )
    assert float(loss) == pytest.approx(8.036, abs=1e-3)
    assert random_field(2.0, -4.0) == pytest.approx(6.002, abs=1e-3)
