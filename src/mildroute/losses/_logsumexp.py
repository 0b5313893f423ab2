"""Each expert's surprise ``log sum_j exp((f_j - f_k) / rho_k)``, and its sums in one pass.

Every logistic and comp-sum deferral loss is ``sum_k w_k * phi(surprise_k)``.
:func:`log_margin_sum` is the plain, differentiable form. Training calls
:func:`row_losses`, which processes the rows in blocks that fit a processor's cache, and computes
one exponential per node for both the loss and its gradient.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mildroute.losses._checks import check_margins
from mildroute.losses._interpolation import InterpolationNodes, interpolation_nodes

# Number of exponentials per block, 1 MiB of float32, so that memory does not grow with the batch.
_BLOCK_ELEMENTS = 1 << 18


def comp_sum(surprise: Tensor, tau: float) -> Tensor:
    """Return the comp-sum transform of ``u = exp(surprise) - 1``.

    It is ``((1 + u)^(1 - tau) - 1) / (1 - tau)``, and the surprise itself at tau = 1.

    Args:
        surprise: Values of at least 0, any shape.
        tau: 1 is the logistic loss, 0 the exponential loss, 2 the mean absolute error.
    """
    if tau == 1:
        return surprise
    return torch.expm1((1 - tau) * surprise) / (1 - tau)


def log_margin_sum(scores: Tensor, margins: Tensor) -> Tensor:
    """Return each expert's surprise, differentiable in scores and margins.

    The surprise is ``log sum_j exp((f_j - f_k) / rho_k)``.

    Args:
        scores: Router outputs, shape (n, p).
        margins: Confidence margin of each expert, shape (p,), positive.

    Returns:
        Surprises, shape (n, p), nonnegative up to rounding.
    """
    below_best = scores - scores.detach().amax(dim=1, keepdim=True)
    inverse = 1 / margins
    values = () if torch.compiler.is_compiling() else tuple(check_margins(margins, scores.shape[1]))
    if margins.requires_grad or not values:
        return (
            torch.logsumexp(below_best[:, None, :] * inverse[:, None], dim=2) - below_best * inverse
        )
    nodes = interpolation_nodes(values, scores.dtype, scores.device)
    partition = torch.logsumexp(below_best[:, None, :] * nodes.inverse[:, None], dim=2)
    return partition @ nodes.weights.T - below_best * inverse


def row_losses(scores: Tensor, rewards: Tensor, margins: Tensor, tau: float) -> Tensor:
    """Return ``sum_k rewards_k * comp_sum(surprise_k)`` per row, shape (n,)."""
    if rewards.requires_grad or margins.requires_grad or torch.compiler.is_compiling():
        return (rewards * comp_sum(log_margin_sum(scores, margins), tau)).sum(dim=1)
    losses: Tensor = _RowLosses.apply(scores, rewards, margins, tau)  # type: ignore[no-untyped-call]
    return losses


class _RowLosses(torch.autograd.Function):
    """Losses and their gradient in one pass; second derivatives use the plain form."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, rewards: Tensor, margins: Tensor, tau: float) -> Tensor:
        nodes = interpolation_nodes(
            tuple(check_margins(margins, scores.shape[1])), scores.dtype, scores.device
        )
        losses, gradient = _losses_and_gradient(
            scores, rewards, 1 / margins, nodes, tau, ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(gradient, scores, rewards, margins)
        ctx.tau = tau
        return losses

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        gradient, scores, rewards, margins = ctx.saved_tensors
        if torch.is_grad_enabled():
            losses = rewards * comp_sum(log_margin_sum(scores, margins), ctx.tau)
            (gradient,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
        return upstream[0][:, None] * gradient, None, None, None


def _losses_and_gradient(
    scores: Tensor,
    rewards: Tensor,
    inverse: Tensor,
    nodes: InterpolationNodes,
    tau: float,
    with_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    below_best = scores - scores.amax(dim=1, keepdim=True)
    rows, experts = scores.shape
    block = min(rows, max(1, _BLOCK_ELEMENTS // (experts * len(nodes.inverse))))
    buffer = scores.new_empty(block, len(nodes.inverse), experts)
    losses = scores.new_empty(rows)
    gradient = torch.empty_like(scores) if with_gradient else None
    for start in range(0, rows, max(block, 1)):
        part = slice(start, start + block)
        exponentials = buffer[: min(block, rows - start)]
        torch.mul(below_best[part, None, :], nodes.inverse[:, None], out=exponentials).exp_()
        totals = exponentials.sum(dim=2)
        surprise = totals.log() @ nodes.weights.T - below_best[part] * inverse
        losses[part] = (rewards[part] * comp_sum(surprise, tau)).sum(dim=1)
        if gradient is not None:
            slopes = rewards[part] if tau == 1 else rewards[part] * torch.exp((1 - tau) * surprise)
            pull = slopes @ nodes.weights * nodes.inverse / totals
            gradient[part] = torch.bmm(pull[:, None, :], exponentials)[:, 0] - slopes * inverse
    return losses, gradient


def comp_sum_at_zero(tau: float) -> float:
    """Return the comp-sum loss where two scores are equal, ``comp_sum(log 2)``."""
    return math.log(2) if tau == 1 else math.expm1((1 - tau) * math.log(2)) / (1 - tau)
