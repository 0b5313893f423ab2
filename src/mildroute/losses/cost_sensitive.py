"""The losses of the paper's general algorithm, with a cost c(x, k, j) for every confusion.

A row has a label k and the costs ``c(x, k, .)``, shape (p,), of choosing each expert when k is
right. The cost of the label itself counts as 0. Deferral is the special case in which all other
costs are equal.

``Phi_rho(t) <= Psi(t / rho)`` holds for the hinge and the exponential loss. The paper states it for
the whole comp-sum family, but at t = 0 the left side is 1 and the logistic loss is log 2. Multiply
by :func:`upper_bound_scale` to get a bound.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses._checks import check_margins, check_scores, check_tau
from mildroute.losses._logsumexp import comp_sum, comp_sum_at_zero
from mildroute.losses._order import argmax_last
from mildroute.losses._precision import full_precision, no_autocast
from mildroute.losses.reduction import Reduction, reduce_rows

__all__ = [
    "Form",
    "Psi",
    "cost_sensitive_loss",
    "cost_sensitive_margin_loss",
    "cost_sensitive_zero_one_loss",
    "label_costs",
    "rho_margin_loss",
    "upper_bound_scale",
]


# The function of the margin: hinge, or comp-sum with its ``tau`` (1 is logistic).
Psi: TypeAlias = Literal["hinge", "comp-sum"]

# The paper's maximum over experts, or its smooth bound from the derivation appendix.
Form: TypeAlias = Literal["max", "smooth"]


def upper_bound_scale(tau: float) -> float:
    """Return the factor that makes a comp-sum loss bound the zero-one and rho-margin losses.

    The factor is 1 for tau = 0 and 1 / log 2 for tau = 1.

    Example:
        >>> upper_bound_scale(0.0), round(upper_bound_scale(1.0), 4)
        (1.0, 1.4427)
    """
    check_tau(tau)
    return 1 / comp_sum_at_zero(tau)


def rho_margin_loss(margin: Tensor, rho: float | Tensor) -> Tensor:
    """Return ``min(1, max(0, 1 - margin / rho))``.

    The loss is 1 for a wrong choice, and 0 for a right choice by a margin of at least rho.

    Args:
        margin: Difference of scores, any shape.
        rho: Required margin, positive.

    Returns:
        Values in [0, 1], shape of ``margin``.

    Example:
        >>> rho_margin_loss(torch.tensor([-1.0, 1.0, 3.0]), 2.0)
        tensor([1.0000, 0.5000, 0.0000])
    """
    return (1 - margin / rho).clamp(0, 1)


def label_costs(costs: Tensor, labels: Tensor) -> Tensor:
    """Return the rows ``c(x_i, k_i, .)`` of a full cost tensor, the label's own cost set to 0.

    Args:
        costs: c(x, k, j), shape (n, p, p).
        labels: Label k of each row, shape (n,).

    Returns:
        Shape (n, p).

    Example:
        >>> label_costs(torch.tensor([[[0.0, 0.2], [0.7, 0.0]]]), torch.tensor([1]))
        tensor([[0.7000, 0.0000]])
    """
    rows = torch.arange(len(labels), device=costs.device)
    return costs[rows, labels].scatter(1, labels[:, None], 0)


def cost_sensitive_zero_one_loss(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    *,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the cost of the expert with the largest score, ties to the highest index.

    This is the target loss that the surrogates in this module replace.

    Args:
        scores: Router outputs, shape (n, p).
        labels: Label k of each row, shape (n,).
        costs: c(x, k, j) of the row's label, shape (n, p).
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> scores, costs = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 0.4]])
        >>> cost_sensitive_zero_one_loss(scores, torch.tensor([0]), costs)
        tensor(0.4000)
    """
    _check_labels(scores, labels, costs)
    chosen_costs = costs.gather(1, argmax_last(scores)[:, None])[:, 0] * (
        argmax_last(scores) != labels
    )
    return reduce_rows(chosen_costs, weights, reduction)


def cost_sensitive_margin_loss(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    margins: Tensor,
    *,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return ``max_{j != k} c(x, k, j) * Phi_{rho_k}(f_k - f_j)``.

    This is the loss of the margin bounds; it is at most the largest cost.

    Args:
        scores: Router outputs, shape (n, p).
        labels: Label k of each row, shape (n,).
        costs: c(x, k, j) of the row's label, shape (n, p), not negative.
        margins: Confidence margin of each label, shape (p,), positive.
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> scores, costs = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.4]])
        >>> cost_sensitive_margin_loss(scores, torch.tensor([0]), costs, torch.tensor([2.0, 1.0]))
        tensor(0.2000)
    """
    lead, others, costs = _leads(scores, labels, costs, margins)
    return reduce_rows(
        (costs * rho_margin_loss(lead, 1.0)).where(others, 0).amax(dim=1), weights, reduction
    )


def cost_sensitive_loss(
    scores: Tensor,
    labels: Tensor,
    costs: Tensor,
    margins: Tensor,
    *,
    psi: Psi = "comp-sum",
    tau: float = 1.0,
    form: Form = "max",
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the paper's general cost-sensitive surrogate.

    ``max`` form: ``max_{j != k} c_j * Psi((f_k - f_j) / rho_k)``. ``smooth`` form: for tau = 1,
    ``log sum_{j != k} (1 + exp((f_j - f_k) / rho_k)) ** c_j``, otherwise the sum over j instead of
    the maximum. Both bound the cost-sensitive margin loss once multiplied by
    :func:`upper_bound_scale`. (The smooth logistic form is at least log(p - 1).)

    Args:
        scores: Router outputs, shape (n, p).
        labels: Label k of each row, shape (n,).
        costs: c(x, k, j) of the row's label, shape (n, p), not negative.
        margins: Confidence margin of each label, shape (p,), positive.
        psi: ``"comp-sum"`` or ``"hinge"``.
        tau: Parameter of the comp-sum family, at least 0; 1 is logistic.
        form: ``"max"`` or ``"smooth"``.
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> scores, costs = torch.zeros(1, 2), torch.tensor([[0.0, 0.5]])
        >>> cost_sensitive_loss(scores, torch.tensor([0]), costs, torch.ones(2))
        tensor(0.3466)
    """
    check_tau(tau)
    with no_autocast(scores):
        lead, others, costs = _leads(scores, labels, costs, margins)
        terms = costs * _psi(lead, psi, tau)
        if form == "max":
            return reduce_rows(terms.where(others, 0).amax(dim=1), weights, reduction)
        if form != "smooth":
            raise ArgumentError(f"form must be max or smooth, got {form!r}.")
        if psi == "comp-sum" and tau == 1:
            return reduce_rows(
                torch.logsumexp(terms.where(others, float("-inf")), dim=1), weights, reduction
            )
        return reduce_rows(terms.where(others, 0).sum(dim=1), weights, reduction)


def _psi(lead: Tensor, psi: Psi, tau: float) -> Tensor:
    if psi == "hinge":
        return (1 - lead).clamp_min(0)
    if psi == "comp-sum":
        return comp_sum(-F.logsigmoid(lead), tau)
    raise ArgumentError(f"psi must be hinge or comp-sum, got {psi!r}.")


def _leads(
    scores: Tensor, labels: Tensor, costs: Tensor, margins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the label's leads, a mask of the other experts, and costs in the same dtype.

    A lead is the score difference to another expert, in units of the label's margin.
    """
    _check_labels(scores, labels, costs)
    scores, costs, margins = full_precision(scores, costs, margins)
    if not torch.compiler.is_compiling():
        check_margins(margins, scores.shape[1])
    lead = (scores.gather(1, labels[:, None]) - scores) / margins[labels][:, None]
    others = torch.arange(scores.shape[1], device=scores.device) != labels[:, None]
    return lead, others, costs


def _check_labels(scores: Tensor, labels: Tensor, costs: Tensor) -> None:
    check_scores(scores, costs)
    if labels.shape != scores.shape[:1]:
        raise ShapeError(
            f"labels must be ({len(scores)},), one per row, got shape {tuple(labels.shape)}."
        )
