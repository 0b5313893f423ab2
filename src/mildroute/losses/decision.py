"""From scores to a decision: the posterior over experts, the choice and the ranking.

The paper chooses the largest score. With differing margins that is not the Bayes choice, not even
at the minimizer of its loss. At the minimizer the gradients balance: with S[k, j] =
softmax_j(scores / rho_k) and p the posterior, ``q_k = p_k / rho_k`` satisfies q S = q. So q is the
stationary distribution of a Markov chain that the scores define, and the posterior follows from it
exactly, for any margins. This is the ``"consistent"`` decision, the default; ``"argmax"`` is the
paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses._tensors import (
    argmax_last,
    argsort_desc,
    check_margins,
    check_scores,
    check_tau,
    full_precision,
    no_autocast,
)

__all__ = ["Decision", "choose", "chosen_costs", "log_posterior", "posterior", "rank"]


# How scores become a choice.
Decision: TypeAlias = Literal["consistent", "argmax"]

# Transition probabilities held at once: memory does not grow with the rows.
_BLOCK_ELEMENTS = 1 << 18


def posterior(scores: Tensor, margins: Tensor, *, tau: float = 1.0) -> Tensor:
    """Return the probability that each expert is the one to choose.

    It is decoded from the scores of a router trained with these margins.

    Args:
        scores: Router outputs, shape (n, p); finite.
        margins: The margins of its loss, shape (p,), positive.
        tau: The comp-sum parameter of its :func:`~mildroute.losses.functional.deferral_loss`, from
            0; above 1 only for margins that are close: ``(tau - 1) * max(margins) < min(margins)``.

    Returns:
        Posterior, shape (n, p), rows sum to 1; with equal margins ``softmax((2 - tau) * scores /
        margin)``.

    Example:
        >>> # The minimizer for the posterior (.6, .4) and margins (2, 1).
        >>> scores = torch.tensor([[0.0, 0.36687]])
        >>> posterior(scores, torch.tensor([2.0, 1.0]))
        tensor([[0.6000, 0.4000]])
    """
    return _decode(scores, margins, tau, log=False)


def log_posterior(scores: Tensor, margins: Tensor, *, tau: float = 1.0) -> Tensor:
    """Return the logarithm of :func:`posterior`.

    It keeps experts apart whose probability is too small for a float.

    Example:
        >>> log_posterior(torch.tensor([[0.0, -200.0, -400.0]]), torch.ones(3))
        tensor([[   0., -200., -400.]])
    """
    return _decode(scores, margins, tau, log=True)


def choose(
    scores: Tensor, margins: Tensor, *, decision: Decision = "consistent", tau: float = 1.0
) -> Tensor:
    """The expert that should answer each row; ties go to the highest index, as in the paper.

    Args:
        scores: Router outputs, shape (n, p).
        margins: The margins of its loss, shape (p,), positive.
        decision: ``"consistent"`` (largest posterior) or ``"argmax"`` (largest score).
        tau: As in :func:`posterior`.

    Returns:
        Index of an expert, shape (n,).

    Example:
        >>> scores, margins = torch.tensor([[0.0, 0.2]]), torch.tensor([2.0, 1.0])
        >>> choose(scores, margins), choose(scores, margins, decision="argmax")
        (tensor([0]), tensor([1]))
    """
    return argmax_last(_utilities(scores, margins, decision, tau))


def rank(
    scores: Tensor, margins: Tensor, *, decision: Decision = "consistent", tau: float = 1.0
) -> Tensor:
    """Experts of each row from best to worst; the first column is :func:`choose`.

    Experts whose posterior is too small to distinguish are ranked by their scores.

    Args:
        scores: Router outputs, shape (n, p).
        margins: The margins of its loss, shape (p,), positive.
        decision: As in :func:`choose`.
        tau: As in :func:`posterior`.

    Returns:
        Indices of experts, shape (n, p).

    Example:
        >>> rank(torch.tensor([[0.1, 0.3, 0.3]]), torch.ones(3))
        tensor([[2, 1, 0]])
    """
    utilities = _utilities(scores, margins, decision, tau)
    by_score = argsort_desc(torch.where(utilities.isinf(), scores, 0))
    return by_score.gather(
        1, utilities.gather(1, by_score).argsort(dim=1, descending=True, stable=True)
    )


def chosen_costs(costs: Tensor, choice: Tensor) -> Tensor:
    """Cost of the chosen expert on each row: its mean is the deferral loss.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Index of the chosen expert, shape (n,).

    Returns:
        Shape (n,).

    Example:
        >>> chosen_costs(torch.tensor([[0.1, 0.9], [0.2, 0.4]]), torch.tensor([0, 1]))
        tensor([0.1000, 0.4000])
    """
    if choice.shape != costs.shape[:1]:
        raise ShapeError(
            f"choice must be ({len(costs)},), one expert per row, got shape {tuple(choice.shape)}."
        )
    return costs.gather(1, choice[:, None])[:, 0]


def _utilities(scores: Tensor, margins: Tensor, decision: Decision, tau: float) -> Tensor:
    """What is compared.

    Scores where they order the experts as the posterior does, its logarithm elsewhere.
    """
    if decision not in get_args(Decision):
        raise ArgumentError(
            f"decision must be one of {', '.join(get_args(Decision))}, got {decision!r}."
        )
    check_scores(scores, scores)
    check_tau(tau)
    values = check_margins(margins, scores.shape[1])
    if decision == "argmax":
        return scores
    _check_decodable(tau, values)
    if len(set(values)) == 1:
        return scores
    # Rounded, so that experts whose posteriors are equal up to rounding tie.
    return log_posterior(scores, margins, tau=tau).round(
        decimals=5 if scores.dtype == torch.float32 else 10
    )


@torch.no_grad()
def _decode(scores: Tensor, margins: Tensor, tau: float, *, log: bool) -> Tensor:
    check_scores(scores, scores)
    with no_autocast(scores):
        scores, margins = full_precision(scores, margins)
        values = check_margins(margins, scores.shape[1])
        check_tau(tau)
        _check_decodable(tau, values)
        if len(set(values)) == 1:
            temperate = (2 - tau) / values[0] * scores
            return torch.log_softmax(temperate, dim=1) if log else torch.softmax(temperate, dim=1)
        block = max(1, _BLOCK_ELEMENTS // scores.shape[1] ** 2)
        return torch.cat(
            [
                _normalize(_log_masses(rows, margins, tau), log=log)
                for rows in torch.split(scores, block)
            ]
        )


def _check_decodable(tau: float, margins: Sequence[float]) -> None:
    """Above tau = 1 the loss is bounded.

    With margins too far apart it has no minimizer that could be decoded.
    """
    if (tau - 1) * max(margins) >= min(margins):
        raise ArgumentError(
            "(tau - 1) * largest margin must be below the smallest one to decode a posterior, got"
            f" tau {tau} and margins from {min(margins)} to {max(margins)}; train with tau up to 1."
        )


def _normalize(log_masses: Tensor, *, log: bool) -> Tensor:
    """Softmax of each row, or its logarithm.

    For rows as short as these several times faster than torch's own.
    """
    below_best = log_masses - log_masses.amax(dim=1, keepdim=True)
    masses = below_best.exp()
    total = masses.sum(dim=1, keepdim=True)
    return below_best - total.log() if log else masses / total


def _log_masses(scores: Tensor, margins: Tensor, tau: float) -> Tensor:
    """Logarithm of the posterior up to a constant of each row.

    The chain S may stay in its best state for longer than a float can count, so what is solved is
    its jump chain, which never stays: from each state it goes to the best one with probability at
    least 1 / (p - 1), so the system is well conditioned for scores of any size. The time spent in a
    state, 1 / (1 - S[k, k]), comes in afterwards as a logarithm.
    """
    inverse = 1 / margins
    best, home = scores.max(dim=1, keepdim=True)
    below_best = scores - best
    second = below_best.scatter(1, home, float("-inf")).amax(dim=1, keepdim=True)
    best_other = torch.zeros_like(scores).scatter_(1, home, second * inverse[home])
    jumps = torch.addcmul(-best_other[:, None, :], below_best[:, :, None], inverse).exp_()
    jumps.diagonal(dim1=1, dim2=2).zero_()
    totals = jumps.sum(dim=1)
    own = below_best * inverse
    log_others = best_other + totals.log()
    log_all = torch.logaddexp(log_others, own)
    visits = _visits_between_returns(jumps.div_(totals[:, None, :]), home[:, 0])
    return margins.log() + visits.log() - (log_others - log_all) - (1 - tau) * (log_all - own)


def _visits_between_returns(jumps: Tensor, home: Tensor) -> Tensor:
    """Expected visits of each state from one visit of ``home`` to the next.

    Proportional to the stationary distribution.

    Args:
        jumps: Probability of the jump from column k to row j, shape (n, p, p), columns sum to 1;
            overwritten.
        home: A state that every other one reaches at once with some probability, shape (n,).

    Returns:
        Visits, shape (n, p), not negative, 1 at home.
    """
    rows = torch.arange(len(home), device=home.device)
    system = jumps.neg_()
    system[rows, home] = 0
    system.diagonal(dim1=1, dim2=2).fill_(1)
    start = torch.zeros_like(system[:, 0])
    start[rows, home] = 1
    solution: Tensor = torch.linalg.solve(system, start)
    return solution.clamp_min_(0)
