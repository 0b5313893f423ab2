"""The minimizability gap, which the paper's consistency bound adds to the regret.

For scores f from a class of routers, if margins are equal and rewards add up to at most 1 on every
input, the bound is

``E(f) - E* + M <= sqrt(2 (E'(f) - E'* + M'))``

with the deferral loss E, its lowest value E* in the class and its minimizability gap M on the left,
and the same for the surrogate on the right. The gap is the excess cost of the class's best router
over the best choice on every input. It is zero if the class contains that choice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError
from mildroute.losses._checks import check_costs, check_weights

__all__ = ["minimizability_gap"]


def minimizability_gap(
    best_in_class: float, expected_costs: Tensor, shares: Tensor | None = None
) -> float:
    """Return the minimizability gap of the deferral loss for a class of routers.

    The gap is ``E* - E_x[min_k E[c_k | x]]``. Like the paper, this assumes that the class can give
    any scores to a single input, and so choose any expert there.

    Args:
        best_in_class: Lowest expected cost E* of a router in the class.
        expected_costs: Expected cost of each expert on each input, shape (n, p). Do not pass the
            costs of single answers: their row-wise minimum is the oracle's cost.
        shares: Probability of each input, shape (n,); by default all inputs are equally likely.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5]])
        >>> best_single = float(costs.mean(dim=0).min())
        >>> minimizability_gap(best_single, costs)  # of routers that ignore the input
        0.375
    """
    best_costs = check_costs(expected_costs).amin(dim=1)
    if shares is None:
        shares = torch.full_like(best_costs, 1 / max(len(best_costs), 1))
    check_weights(shares, len(best_costs))
    bayes = float(shares.to(best_costs.dtype) @ best_costs)
    if best_in_class < bayes - 1e-6 * (1 + abs(bayes)):
        raise ArgumentError(
            f"no router can pay less than the best choice on every input, {bayes:.6g}, got"
            f" best_in_class={best_in_class:.6g}; pass expected costs, not single answers' costs."
        )
    return max(best_in_class - bayes, 0.0)
