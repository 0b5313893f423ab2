"""Slow, obvious float64 forms of what the package computes fast: plain loops over plain lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Row = Sequence[float]


def choice_of(scores: Row) -> int:
    """The largest score, ties to the highest index."""
    return max(range(len(scores)), key=lambda k: (scores[k], k))


def margin_of(scores: Row, expert: int) -> float:
    """Score of the expert minus the best other one."""
    return scores[expert] - max(scores[j] for j in range(len(scores)) if j != expert)


def ramp(margin: float, rho: float) -> float:
    """The rho-margin loss."""
    return min(1.0, max(0.0, 1 - margin / rho))


def comp_sum(u: float, tau: float) -> float:
    """The comp-sum function of the paper, as it is printed."""
    return math.log1p(u) if tau == 1 else ((1 + u) ** (1 - tau) - 1) / (1 - tau)


def odds(scores: Row, expert: int, rho: float) -> list[float]:
    """``exp((f_j - f_k) / rho)`` of every other expert j."""
    return [math.exp((scores[j] - scores[expert]) / rho) for j in range(len(scores)) if j != expert]


def deferral_row(scores: Row, rewards: Row, margins: Row, tau: float = 1.0) -> float:
    """One row of the deferral loss: the sum over j inside."""
    return math.fsum(
        w * comp_sum(math.fsum(odds(scores, k, margins[k])), tau) for k, w in enumerate(rewards)
    )


def pairwise_row(scores: Row, rewards: Row, margins: Row, tau: float = 1.0) -> float:
    """One row of the pairwise loss: the sum over j outside."""
    return math.fsum(
        w * math.fsum(comp_sum(u, tau) for u in odds(scores, k, margins[k]))
        for k, w in enumerate(rewards)
    )


def hinge_row(scores: Row, rewards: Row, margins: Row) -> float:
    """One row of the hinge loss."""
    return math.fsum(
        w * max(0.0, 1 - margin_of(scores, k) / margins[k]) for k, w in enumerate(rewards)
    )


def ramp_row(scores: Row, rewards: Row, margins: Row) -> float:
    """What the surrogates bound: ``sum_k w_k * Phi_rho_k(margin of k)``."""
    return math.fsum(w * ramp(margin_of(scores, k), margins[k]) for k, w in enumerate(rewards))


def wrong_row(scores: Row, rewards: Row) -> float:
    """What they bound in the end: ``sum_k w_k * 1[margin of k <= 0]``."""
    return math.fsum(w for k, w in enumerate(rewards) if margin_of(scores, k) <= 0)


def deferral_gradient_row(scores: Row, rewards: Row, margins: Row, tau: float = 1.0) -> list[float]:
    """Gradient of one row of the deferral loss in its scores."""
    gradient = [0.0] * len(scores)
    for k, w in enumerate(rewards):
        terms = [math.exp((f - scores[k]) / margins[k]) for f in scores]
        slope = w * math.fsum(terms) ** -tau / margins[k]
        for j, term in enumerate(terms):
            gradient[j] += slope * term
        gradient[k] -= slope * math.fsum(terms)
    return gradient


def chain(scores: Row, margins: Row) -> list[list[float]]:
    """S[k][j] = softmax_j(scores / rho_k)."""
    best = max(scores)
    rows = [[math.exp((f - best) / rho) for f in scores] for rho in margins]
    return [[term / math.fsum(row) for term in row] for row in rows]


def ldam_row(scores: Row, winner: int, counts: Row, s: float, max_margin: float) -> float:
    """Cross-entropy of the scaled scores after the winner's score is lowered by its margin."""
    rarity = [count**-0.25 for count in counts]
    lowered = [s * f for f in scores]
    lowered[winner] -= s * max_margin * rarity[winner] / max(rarity)
    return comp_sum(math.fsum(odds(lowered, winner, 1.0)), 1.0)


def cost_sensitive_terms(
    scores: Row, label: int, costs: Row, rho: float, psi: str, tau: float
) -> list[float]:
    """``c_j * Psi((f_k - f_j) / rho)`` of every other expert j."""
    others = [j for j in range(len(scores)) if j != label]
    leads = [(scores[label] - scores[j]) / rho for j in others]
    values = [
        max(0.0, 1 - lead) if psi == "hinge" else comp_sum(math.exp(-lead), tau) for lead in leads
    ]
    return [costs[j] * value for j, value in zip(others, values, strict=True)]


def each_row(function: Callable[..., object], *columns: Tensor, **shared: object) -> Tensor:
    """Apply a function of plain rows to each row of the tensors; ``shared`` is the same for all."""
    plain = {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in shared.items()
    }
    results = [
        function(*row, **plain)
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return torch.tensor(results, dtype=torch.float64)
