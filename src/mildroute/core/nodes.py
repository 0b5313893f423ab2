"""Few temperatures that stand for many: where to evaluate ``logsumexp(t * scores)`` so that all margins can be served.

Each distinct margin needs a logsumexp of its own, so p margins cost p^2 a row. But ``g(t) = logsumexp(t * scores)`` is analytic
in ``log t``: a Chebyshev interpolant through M nodes gives it at every ``t = 1 / margin``, with an error that falls like
``r ** -M``. How fast depends on the zero of ``sum_j exp(t * scores_j)`` nearest to the real axis. The worst scores known (a
search found none worse; there is no proof) are one expert above p - 1 equal ones: their zeros lie at the angle
``atan(pi / log(p - 1))``, whatever the size of the scores, which gives r, and the error of that family is below
``r ** (1 - M) / 2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["Nodes", "node_count", "nodes_for"]

_TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-13}
"""Largest error of an interpolated logsumexp, near the rounding error of each dtype."""


@dataclass(frozen=True)
class Nodes:
    """Nodes and the weights that carry their values to the experts.

    Attributes:
        inverse: Temperatures ``t`` at which logsumexp is evaluated, shape (M,).
        weights: Value of expert k = ``sum_m weights[k, m] * value at node m``, shape (p, M).

    Example:
        >>> nodes_for((1.0, 2.0, 2.0), torch.float32, torch.device("cpu")).weights
        tensor([[1., 0.],
                [0., 1.],
                [0., 1.]])
    """

    inverse: Tensor
    weights: Tensor


def node_count(experts: int, ratio: float, tolerance: float) -> int:
    """Nodes needed for ``experts`` margins whose largest is ``ratio`` times the smallest.

    Example:
        >>> node_count(100, ratio=10.0, tolerance=1e-5), node_count(1000, ratio=10.0, tolerance=1e-5)
        (23, 31)
    """
    angle = math.atan2(math.pi, math.log(max(experts - 1, 1)))
    height = angle / (math.log(ratio) / 2)
    return 1 + math.ceil(math.log(0.5 / tolerance) / math.asinh(height))


@lru_cache(maxsize=64)
def nodes_for(margins: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Nodes:
    """The fewest nodes that serve these margins: the distinct ones themselves, or Chebyshev nodes where that is less.

    Example:
        >>> len(nodes_for((2.0, 2.0, 2.0), torch.float32, torch.device("cpu")).inverse)
        1
    """
    # What is cached must be fit for training, also if it is first asked for in inference.
    with torch.inference_mode(False), torch.no_grad():
        inverse, weights = _exact_or_chebyshev(margins, _TOLERANCE[dtype])
        return Nodes(inverse.to(device, dtype), weights.to(device, dtype))


def _exact_or_chebyshev(margins: tuple[float, ...], tolerance: float) -> tuple[Tensor, Tensor]:
    distinct = sorted(set(margins))
    if len(distinct) > 2:
        count = node_count(len(margins), distinct[-1] / distinct[0], tolerance)
        if count < len(distinct):
            return _chebyshev(margins, count)
    wanted = torch.tensor(margins, dtype=torch.float64)
    exact = torch.tensor(distinct, dtype=torch.float64)
    return 1 / exact, (wanted[:, None] == exact).to(torch.float64)


def _chebyshev(margins: tuple[float, ...], count: int) -> tuple[Tensor, Tensor]:
    """Chebyshev nodes in log t, and the barycentric weights of each margin."""
    targets = -torch.tensor(margins, dtype=torch.float64).log()
    low, high = targets.min(), targets.max()
    angles = (2 * torch.arange(count, dtype=torch.float64) + 1) * math.pi / (2 * count)
    points = angles.cos()
    signs = torch.ones(count, dtype=torch.float64)
    signs[1::2] = -1
    distance = ((2 * targets - low - high) / (high - low))[:, None] - points
    hit = distance.abs() < 1e-14
    terms = signs * angles.sin() / torch.where(hit, 1.0, distance)
    weights = torch.where(hit.any(dim=1, keepdim=True), hit.to(terms.dtype), terms / terms.sum(dim=1, keepdim=True))
    return ((low + high) / 2 + (high - low) / 2 * points).exp(), weights
