"""Losses inside torch.compile: the same values and gradients as outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from losses.cases import LOSSES, TRAINABLE, Case, Problem, draw_problem

COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
# A tracer makes the compiler twice as slow.
pytestmark = pytest.mark.no_cover
PROBLEM = draw_problem(0, rows=3, experts=4).to(torch.float32)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def value_and_gradient(
    function: Callable[..., Tensor], case: Case, problem: Problem
) -> tuple[Tensor, Tensor]:
    scores = problem.scores.clone().requires_grad_()
    loss = function(*case.arguments(replace(problem, scores=scores)), **case.options)
    (gradient,) = torch.autograd.grad(loss, scores)
    return loss.detach(), gradient


def assert_compiled_as_eager(case: Case, problem: Problem, **options: object) -> None:
    compiled = value_and_gradient(torch.compile(case.function, **options), case, problem)
    for actual, expected in zip(
        compiled, value_and_gradient(case.function, case, problem), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", TRAINABLE.values(), ids=TRAINABLE.keys())
def test_compiled_losses_are_the_eager_ones(case: Case) -> None:
    assert_compiled_as_eager(case, PROBLEM, backend="aot_eager")


def test_the_compiled_zero_one_loss_is_the_eager_one() -> None:
    case = LOSSES["cost-sensitive zero-one"]
    compiled = torch.compile(case.function, backend="aot_eager")
    torch.testing.assert_close(compiled(*case.arguments(PROBLEM)), case(PROBLEM))


def test_the_deferral_loss_is_one_graph() -> None:
    assert_compiled_as_eager(TRAINABLE["deferral"], PROBLEM, backend="aot_eager", fullgraph=True)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # the backend imports deprecated parts of torch
@pytest.mark.skipif(
    COMPILER is None,
    reason="the default backend needs a C++ compiler, none found as CXX, g++ or clang++",
)
@pytest.mark.slow
def test_the_default_backend_compiles_the_deferral_loss() -> None:
    assert_compiled_as_eager(
        TRAINABLE["deferral"], draw_problem(1, rows=8, experts=5).to(torch.float32)
    )
