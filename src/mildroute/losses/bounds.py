"""The paper's margin bounds as numbers: the worst cost of a linear router on new inputs.

Such bounds are loose. Use them to compare margins and norms, not to guarantee a figure. The paper's
constant is larger than its proof requires: ``f -> Phi_rho(f_k - f_j)`` depends on only two scores,
so its Lipschitz constant is ``sqrt(2) / rho``, not ``2 sqrt(p) / rho``. With ``constant="sharp"``
the complexity term is smaller by a factor of ``sqrt(2 p)``, and the bound still holds.

A bound holds for margins that are fixed before the sample is drawn. With ``uniform=True`` it holds
for all margins in (0, 1] at once, so they may be chosen on the sample. In return the complexity
term doubles, and the confidence term gains the log of the log of every margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError, MarginError, ShapeError
from mildroute.losses._checks import check_margins, check_scores
from mildroute.losses._order import runner_up_score
from mildroute.losses.cost_sensitive import cost_sensitive_margin_loss, rho_margin_loss

__all__ = [
    "ComplexityEstimate",
    "Constant",
    "MarginBound",
    "deferral_margin_bound",
    "empirical_margin_loss",
    "expected_margin_bound",
    "margin_bound",
    "rademacher_bound",
    "rademacher_complexity",
]


# Lipschitz constant of the margin loss: the paper's, or the smaller constant that its proof allows.
Constant: TypeAlias = Literal["paper", "sharp"]


@dataclass(frozen=True)
class MarginBound:
    """A bound and its three terms.

    Attributes:
        empirical: Margin loss on the sample.
        complexity: Term for choosing among all functions of the given norm.
        confidence: Term for holding with probability ``1 - delta``.

    Example:
        >>> MarginBound(empirical=0.25, complexity=0.5, confidence=0.125).total
        0.875
    """

    empirical: float
    complexity: float
    confidence: float

    @property
    def total(self) -> float:
        """Return the bound, which is the sum of its terms."""
        return self.empirical + self.complexity + self.confidence


class ComplexityEstimate(NamedTuple):
    """A Monte-Carlo mean and its standard error.

    Example:
        >>> ComplexityEstimate(0.25, 0.01).value
        0.25
    """

    value: float
    standard_error: float


def empirical_margin_loss(scores: Tensor, rewards: Tensor, margins: Tensor) -> float:
    """Return the mean over rows of ``sum_k w_k * Phi_{rho_k}(f_k - max_{j != k} f_j)``.

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
    """Return a bound on the empirical class-sensitive Rademacher complexity.

    The bound is ``sqrt(p) F / m * sqrt(sum_j m_j X_j^2 / rho_j^2)``.

    Args:
        counts: Number of rows labeled with each expert, shape (p,); they sum to m.
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


def rademacher_complexity(
    features: Tensor,
    labels: Tensor,
    margins: Tensor,
    *,
    weight_norm: float,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> ComplexityEstimate:
    """Estimate the empirical class-sensitive Rademacher complexity of linear functions.

    This is the paper's definition, ``E sup_f sum_ik e_ik f(x_i, k) / rho_{k_i} / m`` over random
    signs e, for the functions ``f(x, k) = w_k . x`` with a Frobenius norm of w of at most
    ``weight_norm``. :func:`rademacher_bound` is an upper bound on it.

    Args:
        features: Features of each row, shape (m, d).
        labels: Label of each row, shape (m,).
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm F of the weights.
        draws: Number of draws of the signs.
        generator: Random generator for the signs; defaults to torch's.

    Example:
        >>> rademacher_complexity(  # one row: F |x| sqrt(p) / rho for any signs
        ...     torch.tensor([[3.0, 4.0]]), torch.tensor([1]), torch.ones(4), weight_norm=1.0
        ... )
        ComplexityEstimate(value=10.0, standard_error=0.0)
    """
    check_margins(margins, len(margins))
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ShapeError(
            f"features must be (m, d) with a label for each of m >= 1 rows, got shapes"
            f" {tuple(features.shape)} and {tuple(labels.shape)}."
        )
    if draws < 2:
        raise ArgumentError(f"draws must be at least 2, got {draws}.")
    scaled = (features / margins.to(features.dtype)[labels][:, None]).T
    norms = torch.empty(draws, dtype=torch.float64)
    for draw in range(draws):
        signs = torch.randint(2, (len(labels), len(margins)), generator=generator)
        # The supremum of <w, G> over |w| <= F is F |G|.
        norms[draw] = (scaled @ (2 * signs - 1).to(scaled.dtype)).norm()
    norms *= weight_norm / len(labels)
    return ComplexityEstimate(float(norms.mean()), float(norms.std()) / math.sqrt(draws))


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
    uniform: bool = False,
) -> MarginBound:
    """Bound the expected cost-sensitive zero-one loss by the sample alone.

    This is the second inequality of the paper's theorem, with its corollary for norm-bounded
    functions. It holds with probability ``1 - delta`` over the sample. Norms must be fixed before
    the sample is drawn, and so must the margins unless ``uniform`` is set.

    Args:
        scores: Router outputs, shape (m, p).
        labels: Label of each row, shape (m,).
        costs: c(x, k, j) of the row's label, shape (m, p), in [0, 1].
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm of the router's weights, with the intercept.
        feature_norms: Largest feature norm among the rows of each label, a number or shape (p,).
        delta: Probability that the bound fails.
        constant: ``"paper"`` or ``"sharp"``.
        uniform: Whether the bound holds for all margins in (0, 1] at once.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]] * 500)
        >>> labels, costs = torch.tensor([0, 1] * 500), torch.ones(1000, 2)
        >>> bound = margin_bound(scores, labels, costs, torch.ones(2), weight_norm=2.0)
        >>> bound.empirical, round(bound.complexity, 3), round(bound.confidence, 3)
        (0.0, 0.716, 0.129)
        >>> every = margin_bound(
        ...     scores, labels, costs, torch.ones(2), weight_norm=2.0, uniform=True
        ... )
        >>> round(every.complexity, 3), round(every.confidence, 3)
        (1.431, 0.145)
    """
    empirical = _bounded_margin_loss(scores, labels, costs, margins)
    rows, experts = scores.shape
    counts = torch.bincount(labels, minlength=experts).to(margins.dtype)
    complexity = rademacher_bound(
        counts, margins, weight_norm=weight_norm, feature_norms=feature_norms
    )
    return MarginBound(
        empirical,
        _complexity_term(complexity, constant, experts, uniform=uniform),
        3 * _deviation(delta / 2, delta, rows, margins, uniform=uniform),
    )


def expected_margin_bound(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    margins: Tensor,
    *,
    label_shares: Tensor,
    weight_norm: float,
    feature_norms: float | Tensor = 1.0,
    delta: float = 0.05,
    constant: Constant = "paper",
    uniform: bool = False,
) -> MarginBound:
    """Bound the expected cost-sensitive zero-one loss with the complexity expected of a sample.

    This is the first inequality of the paper's theorem. Its confidence term is less than a third as
    large as in :func:`margin_bound`. In return it requires knowledge of the distribution: the
    probability of each label, and norms that hold for every input and not only for the sample.

    Args:
        scores: Router outputs, shape (m, p).
        labels: Label of each row, shape (m,).
        costs: c(x, k, j) of the row's label, shape (m, p), in [0, 1].
        margins: Confidence margins, shape (p,), positive.
        label_shares: Probability of each label, shape (p,); they sum to 1.
        weight_norm: Norm of the router's weights, with the intercept.
        feature_norms: Largest feature norm of any input of each label, a number or shape (p,).
        delta: Probability that the bound fails.
        constant: ``"paper"`` or ``"sharp"``.
        uniform: Whether the bound holds for all margins in (0, 1] at once.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]] * 500)
        >>> labels, costs = torch.tensor([0, 1] * 500), torch.ones(1000, 2)
        >>> margins, shares = torch.ones(2), torch.tensor([0.5, 0.5])
        >>> bound = expected_margin_bound(
        ...     scores, labels, costs, margins, label_shares=shares, weight_norm=2.0
        ... )
        >>> round(bound.complexity, 3), round(bound.confidence, 3)
        (0.716, 0.039)
    """
    empirical = _bounded_margin_loss(scores, labels, costs, margins)
    rows, experts = scores.shape
    if label_shares.shape != (experts,) or abs(float(label_shares.sum()) - 1) > 1e-5:
        raise ArgumentError(
            f"label_shares must be {experts} probabilities that sum to 1, got"
            f" {label_shares.tolist()}."
        )
    # By Jensen's inequality, the expected root is at most the root of the expected counts.
    complexity = rademacher_bound(
        rows * label_shares, margins, weight_norm=weight_norm, feature_norms=feature_norms
    )
    return MarginBound(
        empirical,
        _complexity_term(complexity, constant, experts, uniform=uniform),
        _deviation(delta, delta, rows, margins, uniform=uniform),
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
    uniform: bool = False,
) -> MarginBound:
    """Bound the deferral loss from a sample with rewards instead of labels, as routers have.

    The bound is on the expectation of ``sum_k w_k * 1[choice != k]``, which is the deferral loss
    plus a constant that no router changes. The proof is the paper's: the Lipschitz constants of a
    row's experts add up, weighted by its rewards. If each row rewards one expert with 1, this is
    :func:`margin_bound`.

    Args:
        scores: Router outputs, shape (m, p).
        rewards: Rewards, shape (m, p), not negative.
        margins: Confidence margins, shape (p,), positive.
        weight_norm: Norm of the router's weights, with the intercept.
        row_norms: Feature norm of each row, with the 1 of the intercept, shape (m,).
        delta: Probability that the bound fails.
        constant: ``"paper"`` or ``"sharp"``.
        uniform: Whether the bound holds for all margins in (0, 1] at once.

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
        _complexity_term(complexity, constant, experts, uniform=uniform),
        largest_loss * 3 * _deviation(delta / 2, delta, rows, margins, uniform=uniform),
    )


def _bounded_margin_loss(scores: Tensor, labels: Tensor, costs: Tensor, margins: Tensor) -> float:
    if costs.numel() and not (float(costs.min()) >= 0 and float(costs.max()) <= 1):
        raise CostError(
            f"the bound needs costs in [0, 1], got {float(costs.min())} to {float(costs.max())};"
            " scale them first."
        )
    return float(cost_sensitive_margin_loss(scores, labels, costs, margins))


def _complexity_term(
    complexity: float, constant: Constant, experts: int, *, uniform: bool
) -> float:
    """Return twice the complexity of the margin losses, by the vector contraction lemma.

    The uniform bound rounds each margin down to a power of 2, which is more than half of it. That
    costs a factor of 2.
    """
    return (2 if uniform else 1) * 2 * math.sqrt(2) * _lipschitz(constant, experts) * complexity


def _lipschitz(constant: Constant, experts: int) -> float:
    if constant == "paper":
        return 2 * math.sqrt(experts)
    if constant == "sharp":
        return math.sqrt(2)
    raise ArgumentError(f"constant must be paper or sharp, got {constant!r}.")


def _deviation(
    probability: float, delta: float, rows: int, margins: Tensor, *, uniform: bool
) -> float:
    """Return ``sqrt(log(1 / probability) / 2m)``, or its form for all margins at once.

    The uniform form is a union bound over the vectors of margins ``(2^-i_1, ..., 2^-i_p)``. Each
    vector gets a share of ``(6 / pi^2)^p / (i_1 ... i_p)^2`` of the failure probability. The
    shares sum to 1, and i_j is at most ``log2(2 / rho_j)``.
    """
    if not 0 < delta < 1:
        raise ArgumentError(f"delta must lie between 0 and 1, got {delta}.")
    union_bound_term = 0.0
    if uniform:
        largest = float(margins.max())
        if largest > 1:
            raise MarginError(
                f"a uniform bound needs margins of at most 1, got {largest}; divide margins, scores"
                " and the norm of the weights by the same number."
            )
        union_bound_term = float(
            (math.log(math.pi**2 / 6) + 2 * torch.log(torch.log2(2 / margins))).sum()
        )
    return math.sqrt((math.log(1 / probability) + union_bound_term) / (2 * rows))
