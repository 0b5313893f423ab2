"""The fast loss kernel and its Chebyshev nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mildroute.losses._tensors import check_margins

# A few temperatures that stand in for many: where to evaluate ``logsumexp(t * scores)`` so that all
# margins can be served.
#
# Each distinct margin needs its own logsumexp, so p margins cost p^2 per row. But
# ``g(t) = logsumexp(t * scores)`` is analytic in ``log t``: a Chebyshev interpolant through M nodes
# gives it at every ``t = 1 / margin``, with an error that falls like ``r ** -M``. How fast depends
# on the zero of ``sum_j exp(t * scores_j)`` nearest to the real axis. The worst known scores (a
# search found no worse ones; there is no proof) are one expert above p - 1 equal ones: their zeros
# lie at the angle ``atan(pi / log(p - 1))``, whatever the size of the scores, which gives r, and
# the error of that family is below ``r ** (1 - M) / 2``.


# Largest error of an interpolated logsumexp, near the rounding error of each dtype.
_TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-13}


@dataclass(frozen=True)
class InterpolationNodes:
    """The nodes, with the weights that interpolate from them to the experts.

    Attributes:
        inverse: Temperatures ``t`` at which logsumexp is evaluated, shape (M,).
        weights: The value of expert k is ``sum_m weights[k, m] * value at node m``, shape (p, M).
    """

    inverse: Tensor
    weights: Tensor


def node_count(experts: int, ratio: float, tolerance: float) -> int:
    """Return the number of nodes for ``experts`` margins whose extremes have this ratio."""
    angle = math.atan2(math.pi, math.log(max(experts - 1, 1)))
    height = angle / (math.log(ratio) / 2)
    return 1 + math.ceil(math.log(0.5 / tolerance) / math.asinh(height))


@lru_cache(maxsize=64)
def interpolation_nodes(
    margins: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> InterpolationNodes:
    """Return the fewest nodes that serve these margins.

    They are the distinct margins themselves, or Chebyshev nodes if those are fewer.
    """
    # The cached tensors must be usable in training, even if first requested in inference mode.
    with torch.inference_mode(False), torch.no_grad():
        inverse, weights = _exact_or_chebyshev(margins, _TOLERANCE[dtype])
        return InterpolationNodes(inverse.to(device, dtype), weights.to(device, dtype))


def _exact_or_chebyshev(margins: tuple[float, ...], tolerance: float) -> tuple[Tensor, Tensor]:
    distinct = sorted(set(margins))
    if len(distinct) > 2:
        count = node_count(len(margins), distinct[-1] / distinct[0], tolerance)
        if count < len(distinct):
            return _chebyshev(margins, count)
    margins_tensor = torch.tensor(margins, dtype=torch.float64)
    exact = torch.tensor(distinct, dtype=torch.float64)
    return 1 / exact, (margins_tensor[:, None] == exact).to(torch.float64)


def _chebyshev(margins: tuple[float, ...], count: int) -> tuple[Tensor, Tensor]:
    """Return Chebyshev nodes in log t, and the barycentric weights of each margin."""
    targets = -torch.tensor(margins, dtype=torch.float64).log()
    low, high = targets.min(), targets.max()
    angles = (2 * torch.arange(count, dtype=torch.float64) + 1) * math.pi / (2 * count)
    points = angles.cos()
    signs = torch.ones(count, dtype=torch.float64)
    signs[1::2] = -1
    distance = ((2 * targets - low - high) / (high - low))[:, None] - points
    hit = distance.abs() < 1e-14
    terms = signs * angles.sin() / torch.where(hit, 1.0, distance)
    weights = torch.where(
        hit.any(dim=1, keepdim=True), hit.to(terms.dtype), terms / terms.sum(dim=1, keepdim=True)
    )
    return ((low + high) / 2 + (high - low) / 2 * points).exp(), weights


# The surprise ``log sum_j exp((f_j - f_k) / rho_k)`` of each expert, and sums of it with their
# gradient in one pass.
#
# Every logistic and comp-sum deferral loss is ``sum_k w_k * phi(surprise_k)``.
# :func:`log_margin_sum` is the plain, differentiable form. :func:`row_losses` is the one that
# training calls: it goes through the rows in blocks that fit a processor's cache, and one
# exponential per node serves both the loss and its gradient.


# Exponentials held at once: 1 MiB of float32, so memory does not grow with the batch.
_BLOCK_ELEMENTS = 1 << 18


def comp_sum(surprise: Tensor, tau: float) -> Tensor:
    """Return the comp-sum transform of ``u = exp(surprise) - 1``.

    It is ``((1 + u)^(1 - tau) - 1) / (1 - tau)``, and the identity of the surprise at tau = 1.

    Args:
        surprise: Values of at least 0, any shape.
        tau: 1 is the logistic loss, 0 the exponential one, 2 the mean absolute error.
    """
    if tau == 1:
        return surprise
    return torch.expm1((1 - tau) * surprise) / (1 - tau)


def log_margin_sum(scores: Tensor, margins: Tensor) -> Tensor:
    """Return the surprise of each expert, differentiable in scores and margins.

    The surprise is ``log sum_j exp((f_j - f_k) / rho_k)``.

    Args:
        scores: Router outputs, shape (n, p).
        margins: Confidence margin of each expert, shape (p,), positive.

    Returns:
        Surprises, shape (n, p), not negative up to rounding.
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
    """Return ``sum_k rewards_k * comp_sum(surprise_k)`` of each row, shape (n,)."""
    if rewards.requires_grad or margins.requires_grad or torch.compiler.is_compiling():
        return (rewards * comp_sum(log_margin_sum(scores, margins), tau)).sum(dim=1)
    losses: Tensor = _RowLosses.apply(scores, rewards, margins, tau)  # type: ignore[no-untyped-call]
    return losses


class _RowLosses(torch.autograd.Function):
    """The losses and their gradient in one pass; second derivatives go through the plain form."""

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
