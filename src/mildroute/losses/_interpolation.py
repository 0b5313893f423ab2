"""Interpolation of ``logsumexp(t * scores)`` from a few temperatures t that serve all margins.

Each distinct margin needs its own logsumexp, so p margins cost p^2 per row. But ``g(t) =
logsumexp(t * scores)`` is analytic in ``log t``: a Chebyshev interpolant through M nodes gives it
at every ``t = 1 / margin``, with an error that falls like ``r ** -M``. The rate depends on the zero
of ``sum_j exp(t * scores_j)`` nearest to the real axis. The worst known scores are one expert above
p - 1 equal experts; a search found nothing worse, but there is no proof. Their zeros are at the
angle ``atan(pi / log(p - 1))`` for scores of any size. This angle determines r, and the error for
such scores is below ``r ** (1 - M) / 2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

# Maximum error of an interpolated logsumexp, near each dtype's rounding error.
_TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-13}


@dataclass(frozen=True)
class InterpolationNodes:
    """Interpolation nodes, with the weights that interpolate from nodes to experts.

    Attributes:
        inverse: Temperatures ``t`` at which logsumexp is evaluated, shape (M,).
        weights: The value of expert k is ``sum_m weights[k, m] * value at node m``, shape (p, M).
    """

    inverse: Tensor
    weights: Tensor


def node_count(experts: int, ratio: float, tolerance: float) -> int:
    """Return the number of nodes for ``experts`` margins with this ratio of extremes."""
    angle = math.atan2(math.pi, math.log(max(experts - 1, 1)))
    height = angle / (math.log(ratio) / 2)
    return 1 + math.ceil(math.log(0.5 / tolerance) / math.asinh(height))


@lru_cache(maxsize=64)
def interpolation_nodes(
    margins: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> InterpolationNodes:
    """Return the smallest set of nodes that serves these margins.

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
    """Return Chebyshev nodes in log t, and each margin's barycentric weights."""
    targets = -torch.tensor(margins, dtype=torch.float64).log()
    low, high = targets.min(), targets.max()
    angles = (2 * torch.arange(count, dtype=torch.float64) + 1) * math.pi / (2 * count)
    points = angles.cos()
    signs = torch.ones(count, dtype=torch.float64)
    signs[1::2] = -1
    distance = ((2 * targets - low - high) / (high - low))[:, None] - points
    is_node = distance.abs() < 1e-14
    terms = signs * angles.sin() / torch.where(is_node, 1.0, distance)
    weights = torch.where(
        is_node.any(dim=1, keepdim=True),
        is_node.to(terms.dtype),
        terms / terms.sum(dim=1, keepdim=True),
    )
    return ((low + high) / 2 + (high - low) / 2 * points).exp(), weights
