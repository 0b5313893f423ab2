from __future__ import annotations

import io
from functools import partial

import pytest
import torch
from torch import Tensor

from losses.cases import LOSSES, Case, draw_problem
from mildroute.losses.functional import LossModule, deferral_loss

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
