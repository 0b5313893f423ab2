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
from mildroute.losses._checks import check_margins, check_scores, check_tau
from mildroute.losses._order import argmax_last, argsort_desc
from mildroute.losses._precision import full_precision, no_autocast

__all__ = ["Decision", "choose", "chosen_costs", "log_posterior", "posterior", "rank"]


# Rules for turning scores into a choice.
Decision: TypeAlias = Literal["consistent", "argmax"]

# Number of transition probabilities per block, so that memory does not grow with the rows.
_BLOCK_ELEMENTS = 1 << 18


def posterior(scores: Tensor, margins: Tensor, *, tau: float = 1.0) -> Tensor:
    """Return each expert's probability of being the right choice, decoded from scores.

    Args:
        scores: Router outputs, shape (n, p); finite.
        margins: The margins of the router's loss, shape (p,), positive.
        tau: Comp-sum parameter of the router's :func:`~mildroute.losses.functional.deferral_loss`,
            from 0; above 1 only for margins that are close:
            ``(tau - 1) * max(margins) < min(margins)``.

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

    Unlike the posterior, it distinguishes experts whose probabilities are too small for a float.

    Example:
        >>> log_posterior(torch.tensor([[0.0, -200.0, -400.0]]), torch.ones(3))
        tensor([[   0., -200., -400.]])
    """
    return _decode(scores, margins, tau, log=True)


def choose(
    scores: Tensor, margins: Tensor, *, decision: Decision = "consistent", tau: float = 1.0
) -> Tensor:
    """Return the expert that should answer each row; ties go to the highest index.

    Args:
        scores: Router outputs, shape (n, p).
        margins: The margins of the router's loss, shape (p,), positive.
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
    """Return the experts of each row from best to worst; the first column is :func:`choose`.

    Experts whose posterior is too small to distinguish are ranked by their scores.

    Args:
        scores: Router outputs, shape (n, p).
        margins: The margins of the router's loss, shape (p,), positive.
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
    """Return the cost of the chosen expert on each row; the mean is the deferral loss.

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
    """Return the values to compare.

    These are the scores if they order the experts as the posterior does, and otherwise its
    logarithm.
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
    # Round, so that experts whose posteriors are equal up to rounding errors tie.
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
            scaled_scores = (2 - tau) / values[0] * scores
            return (
                torch.log_softmax(scaled_scores, dim=1)
                if log
                else torch.softmax(scaled_scores, dim=1)
            )
        block = max(1, _BLOCK_ELEMENTS // scores.shape[1] ** 2)
        return torch.cat(
            [
                _normalize(_log_masses(rows, margins, tau), log=log)
                for rows in torch.split(scores, block)
            ]
        )


def _check_decodable(tau: float, margins: Sequence[float]) -> None:
    """Raise an error if tau is above 1 and the margins are too far apart.

    Above tau = 1 the loss is bounded, and with such margins it has no minimizer to decode.
    """
    if (tau - 1) * max(margins) >= min(margins):
        raise ArgumentError(
            "(tau - 1) * largest margin must be below the smallest margin to decode a posterior,"
            f" got tau {tau} and margins from {min(margins)} to {max(margins)};"
            " train with tau up to 1."
        )


def _normalize(log_masses: Tensor, *, log: bool) -> Tensor:
    """Return the softmax of each row, or its logarithm.

    For such short rows it is several times faster than torch's implementation.
    """
    below_best = log_masses - log_masses.amax(dim=1, keepdim=True)
    masses = below_best.exp()
    total = masses.sum(dim=1, keepdim=True)
    return below_best - total.log() if log else masses / total


def _log_masses(scores: Tensor, margins: Tensor, tau: float) -> Tensor:
    """Return the logarithm of the posterior, up to a constant per row.

    The chain S may stay in its best state for longer than a float can count, so this solves its
    jump chain, which never stays: from each state it jumps to the best state with probability at
    least 1 / (p - 1), so the system is well conditioned for scores of any size. The time spent in a
    state, 1 / (1 - S[k, k]), is added afterwards as a logarithm.
    """
    inverse = 1 / margins
    best, home = scores.max(dim=1, keepdim=True)
    below_best = scores - best
    second = below_best.scatter(1, home, float("-inf")).amax(dim=1, keepdim=True)
    best_other = torch.zeros_like(scores).scatter_(1, home, second * inverse[home])
    jumps = torch.addcmul(-best_other[:, None, :], below_best[:, :, None], inverse).exp_()
    jumps.diagonal(dim1=1, dim2=2).zero_()
    totals = jumps.sum(dim=1)
    own_scores = below_best * inverse
    log_others = best_other + totals.log()
    log_all = torch.logaddexp(log_others, own_scores)
    visits = _visits_between_returns(jumps.div_(totals[:, None, :]), home[:, 0])
    return (
        margins.log() + visits.log() - (log_others - log_all) - (1 - tau) * (log_all - own_scores)
    )


def _visits_between_returns(jumps: Tensor, home: Tensor) -> Tensor:
    """Return the expected number of visits to each state between two visits to ``home``.

    They are proportional to the stationary distribution.

    Args:
        jumps: Probability of the jump from column k to row j, shape (n, p, p), columns sum to 1;
            overwritten.
        home: A state that every other state can reach in one jump, shape (n,).

    Returns:
        Visits, shape (n, p), nonnegative, 1 at home.
    """
    rows = torch.arange(len(home), device=home.device)
    system = jumps.neg_()
    system[rows, home] = 0
    system.diagonal(dim1=1, dim2=2).fill_(1)
    start = torch.zeros_like(system[:, 0])
    start[rows, home] = 1
    solution: Tensor = torch.linalg.solve(system, start)
    return solution.clamp_min_(0)
