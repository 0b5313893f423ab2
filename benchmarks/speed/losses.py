"""Cost of the deferral loss and of decoding, as multiples of the plain operations they replace.

Run: python benchmarks/speed/losses.py [--json] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mildroute.losses.decision import posterior
from mildroute.losses.functional import deferral_loss

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_most, main, reported
from timing import ratio

BATCH = 1024


def problem(experts: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores spread over [-20, 20], soft targets, and distinct margins from 1 to 10.

    Rows of the targets sum to 1.
    """
    generator = torch.Generator().manual_seed(experts)
    scores = 40 * torch.rand(BATCH, experts, generator=generator, dtype=dtype) - 20
    targets = torch.rand(BATCH, experts, generator=generator, dtype=dtype)
    return (
        scores,
        targets / targets.sum(dim=1, keepdim=True),
        torch.logspace(0, 1, experts, dtype=dtype),
    )


def reference(scores: Tensor, rewards: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:
    """Exact float64 loss of each row and its gradient, one expert after the other."""
    scores = scores.double().requires_grad_()
    losses = torch.zeros(len(scores), dtype=torch.float64)
    gradient = torch.zeros_like(scores)
    for expert, margin in enumerate(margins.double()):
        term = rewards[:, expert].double() * (
            torch.logsumexp(scores / margin, dim=1) - scores[:, expert] / margin
        )
        gradient += torch.autograd.grad(term.sum(), scores)[0]
        losses += term.detach()
    return losses, gradient


def loss_rows(rounds: int, exact_rows: int) -> Iterator[Row]:
    seconds = {}
    for experts, limit in ((3, 6), (10, 6), (100, 12), (1000, 20)):
        scores, targets, margins = problem(experts)
        leaf = scores.clone().requires_grad_()
        value, ours, _ = ratio(
            lambda: torch.autograd.grad(deferral_loss(leaf, targets, margins), leaf),  # noqa: B023
            lambda: torch.autograd.grad(F.cross_entropy(leaf, targets), leaf),  # noqa: B023
            rounds=rounds,
        )
        seconds[experts] = ours
        yield at_most(
            f"forward and backward / cross-entropy, p={experts}",
            value,
            limit,
            f"{ours * 1e3:.2f} ms, batch {BATCH}",
            full_only=True,
        )
        yield from error_rows(experts, scores[:exact_rows], targets[:exact_rows], margins)
    growth = seconds[1000] / seconds[100]
    yield at_most("growth of the time from p=100 to p=1000", growth, 15, full_only=True)


def error_rows(experts: int, scores: Tensor, targets: Tensor, margins: Tensor) -> Iterator[Row]:
    exact_losses, exact_gradient = reference(scores, targets, margins)
    leaf = scores.clone().requires_grad_()
    losses = deferral_loss(leaf, targets, margins, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    row_error = float((losses.detach().double() - exact_losses).abs().max())
    relative = float((gradient.double() - exact_gradient).norm() / exact_gradient.norm())
    worst_row = float(
        ((gradient.double() - exact_gradient).norm(dim=1) / exact_gradient.norm(dim=1)).max()
    )
    yield at_most(
        f"largest error of a row's loss, p={experts}",
        row_error,
        1e-5,
        "float32 against exact float64",
    )
    yield at_most(
        f"relative error of the gradient, p={experts}", relative, 1e-4, f"worst row {worst_row:.1e}"
    )


def memory_row(experts: int) -> Row:
    """Largest allocation alive during forward and backward, in multiples of the scores."""
    scores, targets, margins = problem(experts)
    leaf = scores.clone().requires_grad_()
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        torch.autograd.grad(deferral_loss(leaf, targets, margins), leaf)
    alive = peak = 0
    for event in sorted(
        profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()
    ):
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return at_most(
        f"peak memory / scores, p={experts}",
        peak / (scores.numel() * 4),
        32,
        f"{peak / 2**20:.1f} MiB",
    )


def step_rows(rounds: int) -> Iterator[Row]:
    for experts, limit in ((10, 1.5), (100, 2.5)):
        _, targets, margins = problem(experts)
        features = torch.randn(BATCH, 384, generator=torch.Generator().manual_seed(0))
        network = nn.Sequential(nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, experts))
        optimizer = torch.optim.Adam(network.parameters())

        def step(loss: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        value, ours, _ = ratio(
            lambda: step(deferral_loss(network(features), targets, margins)),  # noqa: B023
            lambda: step(F.cross_entropy(network(features), targets)),  # noqa: B023
            rounds=rounds,
        )
        yield at_most(
            f"training step of a 384-256-p MLP / cross-entropy, p={experts}",
            value,
            limit,
            f"{ours * 1e3:.2f} ms",
            full_only=True,
        )


def decode_rows(rounds: int, rows: int) -> Iterator[Row]:
    for experts in (10, 100):
        generator = torch.Generator().manual_seed(experts)
        scores = 4 * torch.randn(rows, experts, generator=generator)
        margins = torch.logspace(0, 1, experts)
        systems = (
            torch.eye(experts) + torch.rand(rows, experts, experts, generator=generator) / experts
        )
        sides = torch.rand(rows, experts, generator=generator)
        value, ours, _ = ratio(
            lambda: posterior(scores, margins),  # noqa: B023
            lambda: torch.linalg.solve(systems, sides),  # noqa: B023
            rounds=rounds,
        )
        yield at_most(
            f"decoding {rows:,} rows / bare batched solve, p={experts}",
            value,
            2,
            f"{ours * 1e3:.1f} ms",
            full_only=True,
        )
        value, ours, _ = ratio(
            lambda: posterior(scores, torch.ones(len(margins))),  # noqa: B023
            lambda: torch.softmax(scores, dim=1),  # noqa: B023
            rounds=rounds,
        )
        yield at_most(
            f"decoding {rows:,} rows, equal margins / softmax, p={experts}",
            value,
            2,
            f"{ours * 1e3:.2f} ms",
            full_only=True,
        )


def measure(quick: bool) -> Iterator[Row]:
    torch.set_num_threads(1)
    rounds, decoded, exact_rows = (3, 1_000, 32) if quick else (31, 10_000, BATCH)
    yield from loss_rows(rounds, exact_rows)
    yield from (memory_row(experts) for experts in (100, 1000))
    yield from step_rows(rounds)
    yield from decode_rows(max(3, rounds // 5), decoded)
    yield reported("torch threads", torch.get_num_threads())


if __name__ == "__main__":
    main(__doc__ or "", measure)
