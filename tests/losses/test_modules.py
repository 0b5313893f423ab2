from __future__ import annotations

import io
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from losses.cases import LOSSES, Case, draw_problem
from losses.reference import cost_sensitive_terms, deferral_row
from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses import (
    CostSensitiveLoss,
    CrossEntropyLoss,
    LDAMLoss,
    MILDLoss,
    TDEFLoss,
    complement_rewards,
    cross_entropy,
    deferral_loss,
    ldam_loss,
    posterior,
    rewards_of,
    tdef_loss,
    winner_counts,
)
from mildroute.losses.loss_module import LossModule

PROBLEM = draw_problem(0, rows=4, experts=3)
REWARDED = {name: case for name, case in LOSSES.items() if case.takes[:2] == ("scores", "rewards")}


@pytest.mark.parametrize("case", REWARDED.values(), ids=REWARDED.keys())
def test_a_module_is_its_function_with_remembered_arguments(case: Case) -> None:
    tensors = {name: getattr(PROBLEM, name) for name in case.takes[2:]}
    module = LossModule(case.function, **tensors, **case.options)
    assert torch.equal(module(PROBLEM.scores, PROBLEM.rewards), case(PROBLEM))


def test_tensors_move_with_the_module() -> None:
    module = LossModule(deferral_loss, margins=torch.tensor([1.0, 2.0, 3.0])).to(torch.float64)
    assert module.margins.dtype == torch.float64
    assert module(PROBLEM.scores, PROBLEM.rewards).dtype == torch.float64


def test_tensors_are_saved_and_loaded_with_the_module() -> None:
    module = LossModule(deferral_loss, margins=PROBLEM.margins, tau=0.5)
    assert list(module.state_dict()) == ["margins"]
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = LossModule(deferral_loss, margins=torch.ones_like(PROBLEM.margins), tau=0.5)
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(
        fresh(PROBLEM.scores, PROBLEM.rewards), module(PROBLEM.scores, PROBLEM.rewards)
    )


def test_nothing_of_a_module_is_trained() -> None:
    assert not list(LossModule(deferral_loss, margins=PROBLEM.margins).parameters())


def test_a_function_of_ones_own_needs_nothing_else() -> None:
    def squared(scores: Tensor, rewards: Tensor, *, center: Tensor, power: int) -> Tensor:
        return ((scores - rewards - center) ** power).sum()

    module = LossModule(squared, center=torch.tensor(1.0), power=2)
    assert module(torch.tensor([[4.0]]), torch.tensor([[1.0]])).item() == 4
    assert repr(module) == "LossModule(squared, power=2)"


def test_a_function_without_a_name_is_shown_as_it_is() -> None:
    assert "functools.partial" in repr(
        LossModule(partial(deferral_loss, tau=0.5), margins=torch.ones(2))
    )


def test_gradients_flow_through_a_module() -> None:
    scores = PROBLEM.scores.clone().requires_grad_()
    LossModule(deferral_loss, margins=PROBLEM.margins)(scores, PROBLEM.rewards).backward()
    assert scores.grad is not None
    assert scores.grad.abs().sum() > 0


# Modules of scores and costs.

COSTS = PROBLEM.costs
CONFUSIONS = torch.tensor([[0.0, 1.0, 0.2], [0.5, 0.0, 1.0], [1.0, 0.3, 0.0]])
MODULES: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
    "MILD": (
        MILDLoss([0.5, 0.3, 0.2]),
        lambda: deferral_loss(
            PROBLEM.scores, rewards_of(COSTS, "sum"), torch.tensor([0.5, 0.3, 0.2])
        ),
    ),
    "MILD, comp-sum, gap": (
        MILDLoss([0.5, 0.3, 0.2], reward="gap", tau=0.5),
        lambda: deferral_loss(
            PROBLEM.scores, rewards_of(COSTS, "gap"), torch.tensor([0.5, 0.3, 0.2]), tau=0.5
        ),
    ),
    "TDEF": (
        TDEFLoss.from_costs(3 * COSTS),
        lambda: tdef_loss(
            PROBLEM.scores, complement_rewards(COSTS, max(1.0, 3 * float(COSTS.max())))
        ),
    ),
    "cross-entropy": (CrossEntropyLoss(), lambda: cross_entropy(PROBLEM.scores, -COSTS)),
    "LDAM": (
        LDAMLoss.from_costs(COSTS, s=3.0, max_margin=0.7),
        lambda: ldam_loss(
            PROBLEM.scores, -COSTS, winner_counts(COSTS).float(), s=3.0, max_margin=0.7
        ),
    ),
}
every_module = pytest.mark.parametrize(("module", "expected"), MODULES.values(), ids=MODULES.keys())


@every_module
def test_a_module_of_costs_is_its_function(
    module: nn.Module, expected: Callable[[], Tensor]
) -> None:
    assert torch.equal(module(PROBLEM.scores, COSTS), expected())


@every_module
def test_rows_are_weighed_and_reduced(module: Any, expected: Callable[[], Tensor]) -> None:
    weights = torch.tensor([1.0, 2.0, 0.0, 1.0])
    module.reduction = "none"
    rows = module(PROBLEM.scores, COSTS)
    module.reduction = "mean"
    assert rows.shape == (4,)
    torch.testing.assert_close(rows.mean(), expected())
    torch.testing.assert_close(
        module(PROBLEM.scores, COSTS, weights), (rows * weights).sum() / weights.sum()
    )


@every_module
def test_a_step_against_the_gradient_lowers_the_loss(
    module: nn.Module, expected: Callable[[], Tensor]
) -> None:
    scores = PROBLEM.scores.clone().requires_grad_()
    module(scores, COSTS).backward()
    assert scores.grad is not None
    lower = module(scores.detach() - 1e-3 * scores.grad, COSTS)
    assert float(lower) < float(expected())
    assert not list(module.parameters())


@pytest.mark.parametrize("reward", ["sum", "complement", "gap"])
def test_mild_with_theory_margins_by_the_formulas_of_the_paper(reward: Any) -> None:
    """Rewards, m_k, margins and loss in plain Python, from the definitions."""
    table = (2 * COSTS).tolist()
    largest = max(1.0, max(max(row) for row in table))
    rewards = [
        [
            {"sum": sum(row) - cost, "complement": 1 - cost / largest, "gap": max(row) - cost}[
                reward
            ]
            for cost in row
        ]
        for row in table
    ]
    mass = [sum(row[k] / sum(row) for row in rewards) for k in range(3)]
    roots = [m ** (1 / 3) for m in mass]
    margins = [root / sum(roots) for root in roots]
    loss = MILDLoss.from_costs(table, reward=reward)
    assert loss.margins.tolist() == pytest.approx(margins)
    total = sum(
        deferral_row(scores, row, margins)
        for row, scores in zip(rewards, PROBLEM.scores.tolist(), strict=True)
    )
    assert float(loss(PROBLEM.scores, 2 * COSTS)) == pytest.approx(total / len(table))


def test_one_hot_rewards_give_the_loss_of_immax() -> None:
    """C(x) = 1: ``log sum_j exp((f_j - f_y) / rho_y)`` for the label y, in plain Python."""
    margins = [0.5, 0.3, 0.2]
    costs = 1 - torch.eye(3)[PROBLEM.labels]
    expected = [
        math.log(sum(math.exp((f - scores[label]) / margins[label]) for f in scores))
        for scores, label in zip(PROBLEM.scores.tolist(), PROBLEM.labels.tolist(), strict=True)
    ]
    for reward in ("gap", "complement"):
        loss = MILDLoss(margins, reward=reward, reduction="none")  # type: ignore[arg-type]
        assert loss(PROBLEM.scores, costs).tolist() == pytest.approx(expected)


def test_margins_by_name_and_by_value() -> None:
    costs = 1 - np.repeat(np.eye(3), [27, 8, 1], axis=0)
    wins = MILDLoss.from_costs(costs, margins="winner_counts")
    assert wins.margins.tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    assert MILDLoss.from_costs(costs, margins="uniform").margins.tolist() == [1, 1, 1]
    assert MILDLoss.from_costs(costs, margins=np.array([3, 2, 1])).margins.tolist() == [3, 2, 1]
    near = MILDLoss.from_costs(costs).margins
    assert near.sum().item() == pytest.approx(1)
    assert near.max() / near.min() < 1.2
    assert near.dtype == torch.float32


def test_a_module_keeps_its_tensors() -> None:
    loss = MILDLoss.from_costs(COSTS)
    assert list(loss.state_dict()) == ["margins"]
    assert list(LDAMLoss.from_costs(COSTS).state_dict()) == ["counts"]
    assert loss.double().margins.dtype == torch.float64


def test_modules_say_what_they_are() -> None:
    assert repr(MILDLoss([0.5, 0.25], reward="gap", tau=0.5)) == (
        "MILDLoss(margins=[0.5, 0.25], reward='gap', tau=0.5)"
    )
    assert repr(TDEFLoss(reward_scale=1.5)) == "TDEFLoss(reward_scale=1.5)"
    assert repr(CrossEntropyLoss()) == "CrossEntropyLoss()"
    assert repr(LDAMLoss([1.0, 2.0])) == "LDAMLoss(s=30, max_margin=0.5)"
    assert repr(CostSensitiveLoss([1.0, 2.0])) == (
        "CostSensitiveLoss(margins=[1.0, 2.0], psi=comp-sum, tau=1, form='max')"
    )
    assert repr(CostSensitiveLoss([1.0, 2.0], psi="hinge")) == (
        "CostSensitiveLoss(margins=[1.0, 2.0], psi=hinge, form='max')"
    )


def test_training_by_adam_reaches_the_posterior_of_the_rewards() -> None:
    """One input: the minimum of the loss decodes to the shares of the mean rewards."""
    costs = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.4]], dtype=torch.float64)
    loss = MILDLoss.from_costs(costs, margins=[2.0, 1.0, 0.5])
    scores = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.05)
    for _ in range(2000):
        optimizer.zero_grad()
        loss(scores.expand(2, 3), costs).backward()
        optimizer.step()
    share = rewards_of(costs, "sum").sum(dim=0) / rewards_of(costs, "sum").sum()
    torch.testing.assert_close(
        posterior(scores.detach(), loss.margins)[0], share, rtol=1e-4, atol=1e-4
    )


# The general cost-sensitive loss.


@pytest.mark.parametrize("psi", ["comp-sum", "hinge"])
def test_the_cost_sensitive_module_by_plain_python(psi: Any) -> None:
    loss = CostSensitiveLoss.from_labels(torch.tensor([0] * 8 + [1]), costs=CONFUSIONS, psi=psi)
    counts = [8, 1, 0.5]  # a label that never occurs counts half of the rarest
    roots = [count ** (1 / 3) for count in counts]
    margins = [root / sum(roots) for root in roots]
    assert loss.margins.tolist() == pytest.approx(margins)
    expected = [
        max(
            cost_sensitive_terms(
                scores, label, CONFUSIONS[label].tolist(), margins[label], psi, 1.0
            )
        )
        for scores, label in zip(PROBLEM.scores.tolist(), PROBLEM.labels.tolist(), strict=True)
    ]
    found = loss(PROBLEM.scores, PROBLEM.labels)
    assert float(found) == pytest.approx(sum(expected) / len(expected))


def test_costs_of_pairs_of_rows_and_of_every_label_agree() -> None:
    once = CostSensitiveLoss([1.0, 0.5, 0.7], costs=CONFUSIONS)
    each = CostSensitiveLoss([1.0, 0.5, 0.7])
    labels = PROBLEM.labels
    expected = once(PROBLEM.scores, labels)
    assert torch.equal(each(PROBLEM.scores, labels, CONFUSIONS[labels]), expected)
    every = CONFUSIONS.expand(len(labels), 3, 3)
    assert torch.equal(each(PROBLEM.scores, labels, every), expected)


def test_a_network_trained_on_costs_of_confusions_prefers_the_cheap_confusion() -> None:
    """The input says nothing and labels are equally likely: answer 2 is wrong most cheaply."""
    costs = torch.tensor([[0.0, 1.0, 0.2], [1.0, 0.0, 0.2], [0.6, 0.6, 0.0]])
    labels = torch.tensor([0, 1, 2])
    loss = CostSensitiveLoss.from_labels(labels, costs=costs, form="smooth")
    scores = torch.zeros(1, 3, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss(scores.expand(3, 3), labels).backward()
        optimizer.step()
    assert int(scores.argmax()) == 2


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: MILDLoss([1.0, -1.0]), MarginError, "-1.0"),
        (lambda: MILDLoss(torch.ones(1, 2)), ShapeError, r"\(1, 2\)"),
        (lambda: MILDLoss(torch.tensor(1.0)), ShapeError, r"\(\)"),
        (lambda: MILDLoss([1.0, 1.0], reward="profit"), ArgumentError, "'profit'"),  # type: ignore[arg-type]
        (lambda: MILDLoss.from_costs(COSTS, margins="wide"), ArgumentError, "'wide'"),  # type: ignore[arg-type]
        (lambda: MILDLoss.from_costs(COSTS, margins=[1.0]), ShapeError, "1 numbers"),
        (lambda: MILDLoss.from_costs(-COSTS), CostError, "at least 0"),
        (lambda: TDEFLoss()(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]])), CostError, "2.0"),
        (lambda: CostSensitiveLoss([1.0, 1.0], costs=CONFUSIONS), ShapeError, r"\(3, 3\)"),
        (
            lambda: CostSensitiveLoss([1.0] * 3)(PROBLEM.scores, PROBLEM.labels),
            ArgumentError,
            "costs must be given",
        ),
    ],
)
def test_bad_arguments_of_modules_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
