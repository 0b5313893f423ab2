"""The paper's margin bounds as numbers.

What a fitted linear router can cost on new inputs, at worst.

Such bounds are loose; they serve to compare margins and norms, not to promise a figure. The paper's
constant is larger than its own proof needs: ``f -> Phi_rho(f_k - f_j)`` touches two scores, so it
is ``sqrt(2) / rho``-Lipschitz, not ``2 sqrt(p) / rho``. With ``constant="sharp"`` the complexity
term is smaller by ``sqrt(2 p)`` and the bound still holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.losses._tensors import check_margins, check_scores, runner_up_score
from mildroute.losses.cost_sensitive import cost_sensitive_margin_loss, rho_margin_loss

__all__ = [
    "Constant",
    "MarginBound",
    "deferral_margin_bound",
    "empirical_margin_loss",
    "margin_bound",
    "rademacher_bound",
]


# Lipschitz constant of the margin loss: the paper's, or the smaller one that its proof allows.
Constant: TypeAlias = Literal["paper", "sharp"]


@dataclass(frozen=True)
class MarginBound:
    """A bound and its three terms.

    Attributes:
        empirical: Margin loss on the sample.
        complexity: Price of having chosen among all functions of that norm.
        confidence: Price of holding with probability ``1 - delta``.

    Example:
        >>> MarginBound(empirical=0.25, complexity=0.5, confidence=0.125).total
        0.875
    """

    empirical: float
    complexity: float
    confidence: float

    @property
    def total(self) -> float:
        """The bound: the sum of its terms."""
        return self.empirical + self.complexity + self.confidence


def empirical_margin_loss(scores: Tensor, rewards: Tensor, margins: Tensor) -> float:
    """Mean over rows of ``sum_k w_k * Phi_{rho_k}(f_k - max_{j != k} f_j)``.

    Args:
        scores: Router outputs, shape (n, p).
        rewards: Rewards, shape (n, p), not negative.
        margins: Confidence margins, shape (p,), positive.

    Example:
        >>> scores, rewards = torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 0.5]])
        >>> empirical_margin_loss(scores, rewards, torch.tensor([2.0, 1.0]))
        1.0
    """
    check_scores(scores, rewards)
    check_margins(margins, scores.shape[1])
    return float(
        (rewards * rho_margin_loss(scores - runner_up_score(scores), margins)).sum(dim=1).mean()
    )


def rademacher_bound(
    counts: Tensor, margins: Tensor, *, weight_norm: float, feature_norms: float | Tensor = 1.0
) -> float:
    """Bound of the empirical class-sensitive Rademacher complexity.

    ``sqrt(p) F / m * sqrt(sum_j m_j X_j^2 / rho_j^2)``.

    Args:
        counts: Rows labeled with each expert, shape (p,); they sum to m.
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm F of the weights of the linear functions (Frobenius, with the intercept).
        feature_norms: Largest feature norm X_j among the rows of each label, a number or shape
            (p,).

    Example:
        >>> round(rademacher_bound(torch.tensor([50.0, 50.0]), torch.ones(2), weight_norm=1.0), 4)
        0.1414
    """
    check_margins(margins, len(counts))
    spread = float((counts * torch.as_tensor(feature_norms) ** 2 / margins**2).sum())
    return math.sqrt(len(counts)) * weight_norm / float(counts.sum()) * math.sqrt(spread)


def margin_bound(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    margins: Tensor,
    *,
    weight_norm: float,
    feature_norms: float | Tensor = 1.0,
    delta: float = 0.05,
    constant: Constant = "paper",
) -> MarginBound:
    """Bound of the expected cost-sensitive zero-one loss.

    The paper's theorem with its corollary for norm-bounded functions.

    Holds with probability ``1 - delta`` over a sample of rows, for margins and norms that were
    fixed before seeing it.

    Args:
        scores: Router outputs, shape (m, p).
        labels: Label of each row, shape (m,).
        costs: c(x, k, j) of the row's label, shape (m, p), in [0, 1].
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm of the router's weights, with the intercept.
        feature_norms: Largest feature norm among the rows of each label, a number or shape (p,).
        delta: Probability of being wrong.
        constant: ``"paper"`` or ``"sharp"``.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]] * 500)
        >>> labels, costs = torch.tensor([0, 1] * 500), torch.ones(1000, 2)
        >>> bound = margin_bound(scores, labels, costs, torch.ones(2), weight_norm=2.0)
        >>> bound.empirical, round(bound.complexity, 3), round(bound.confidence, 3)
        (0.0, 0.716, 0.129)
    """
    if costs.numel() and not (float(costs.min()) >= 0 and float(costs.max()) <= 1):
        raise CostError(
            f"the bound needs costs in [0, 1], got {float(costs.min())} to {float(costs.max())};"
            " scale them first."
        )
    empirical = float(cost_sensitive_margin_loss(scores, labels, costs, margins))
    rows, experts = scores.shape
    counts = torch.bincount(labels, minlength=experts).to(margins.dtype)
    complexity = rademacher_bound(
        counts, margins, weight_norm=weight_norm, feature_norms=feature_norms
    )
    lipschitz = _lipschitz(constant, experts)
    return MarginBound(
        empirical, 2 * math.sqrt(2) * lipschitz * complexity, _confidence(delta, rows)
    )


def deferral_margin_bound(
    scores: Tensor,
    rewards: Tensor,
    margins: Tensor,
    *,
    weight_norm: float,
    row_norms: Tensor,
    delta: float = 0.05,
    constant: Constant = "paper",
) -> MarginBound:
    """The same bound for a sample with rewards instead of labels, as a fitted router has it.

    Bounds the expectation of ``sum_k w_k * 1[choice != k]``, which is the deferral loss plus a
    constant that no router changes. The proof is the paper's: the Lipschitz constants of a row's
    experts add up, weighted by its rewards. Where each row rewards one expert with 1, this is
    :func:`margin_bound`.

    Args:
        scores: Router outputs, shape (m, p).
        rewards: Rewards, shape (m, p), not negative.
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm of the router's weights, with the intercept.
        row_norms: Feature norm of each row, with the 1 of the intercept, shape (m,).
        delta: Probability of being wrong.
        constant: ``"paper"`` or ``"sharp"``.

    Example:
        >>> rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 500)
        >>> bound = deferral_margin_bound(
        ...     2 * rewards, rewards, torch.ones(2), weight_norm=2.0, row_norms=torch.ones(1000)
        ... )
        >>> bound.empirical, round(bound.complexity, 3), round(bound.confidence, 3)
        (0.0, 0.716, 0.129)
    """
    empirical = empirical_margin_loss(scores, rewards, margins)
    rows, experts = scores.shape
    if row_norms.shape != (rows,):
        raise ShapeError(
            f"row_norms must be ({rows},), one per row, got shape {tuple(row_norms.shape)}."
        )
    slopes = (rewards / margins).sum(dim=1) * row_norms
    complexity = math.sqrt(experts) * weight_norm / rows * float(slopes.norm())
    largest_loss = float(rewards.sum(dim=1).max())
    return MarginBound(
        empirical,
        2 * math.sqrt(2) * _lipschitz(constant, experts) * complexity,
        largest_loss * _confidence(delta, rows),
    )


def _lipschitz(constant: Constant, experts: int) -> float:
    if constant == "paper":
        return 2 * math.sqrt(experts)
    if constant == "sharp":
        return math.sqrt(2)
    raise ArgumentError(f"constant must be paper or sharp, got {constant!r}.")


def _confidence(delta: float, rows: int) -> float:
    if not 0 < delta < 1:
        raise ArgumentError(f"delta must lie between 0 and 1, got {delta}.")
    return 3 * math.sqrt(math.log(2 / delta) / (2 * rows))
