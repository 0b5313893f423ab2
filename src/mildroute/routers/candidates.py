"""Points of a router's search: what was tried, what it cost on held-out rows, and which one is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.calibration import IDENTITY, Calibration
from mildroute.routers.decode import log_posterior
from mildroute.routers.order import largest
from mildroute.routers.views import View

__all__ = ["Candidate", "Choice", "mean_and_error", "paid_on_held_out", "pick", "table_of"]


@dataclass(frozen=True)
class Candidate:
    """One point of the search with its cost on rows that it has not seen.

    Attributes:
        view: Features.
        reward: Name of the reward.
        margins: Short name of the margins.
        penalty: Penalty, infinite for the best single expert.
        paid: Cost of its choice on each held-out row, shape (n,).
        scores: Its calibrated scores on each held-out row, shape (n, p).
        rho: Its margins, shape (p,).
        calibration: What has calibrated them.

    Example:
        >>> Candidate("none", "gap", "uniform", np.inf, np.zeros(1), np.zeros((1, 2), np.float32), np.ones(2)).rank
        0
    """

    view: View
    reward: str
    margins: str
    penalty: float
    paid: NDArray[np.float64]
    scores: NDArray[np.float32]
    rho: NDArray[np.float64]
    calibration: Calibration = IDENTITY

    @property
    def rank(self) -> int:
        """Simplicity: the best single expert, then a linear router on the vector itself, other features, differing margins."""
        if self.view == "none":
            return 0
        if self.margins != "uniform":
            return 3
        return 1 if self.view == "raw" else 2


@dataclass(frozen=True)
class Choice:
    """The candidate taken and why.

    Example:
        >>> flat = Candidate("none", "gap", "uniform", np.inf, np.zeros(1), np.zeros((1, 2), np.float32), np.ones(2))
        >>> Choice(flat, "it is the only one").reason
        'it is the only one'
    """

    taken: Candidate
    reason: str


def paid_on_held_out(
    scores: NDArray[np.float32], costs: NDArray[np.float64], rho: NDArray[np.float64], decision: str
) -> NDArray[np.float64]:
    """Cost of what each row's scores choose, shape (n,).

    Example:
        >>> paid_on_held_out(np.array([[1.0, 0.0]], dtype=np.float32), np.array([[0.2, 0.7]]), np.ones(2), "consistent")
        array([0.2])
    """
    equal = np.ptp(rho) == 0 or decision == "argmax"
    utilities = scores if equal else log_posterior(scores.astype(np.float64), rho)
    return np.asarray(costs[np.arange(len(costs)), largest(utilities)])


def pick(candidates: list[Candidate], sample_weight: NDArray[np.float64] | None = None) -> Choice:
    """The one-standard-error rule on paired differences.

    The candidate of the lowest held-out cost is taken, unless a simpler kind (the best single expert; a linear router on the
    vector itself, as TDEF is; one on other features; all before differing margins) is within one standard error of it, measured
    on the differences row by row.

    Example:
        >>> flat = Candidate("none", "gap", "uniform", np.inf, np.array([0.5, 0.5]), np.zeros((2, 2), np.float32), np.ones(2))
        >>> pick([flat]).reason
        'the best single expert: nothing that was tried is better by more than one standard error'
    """
    means = np.array([mean_and_error(candidate.paid, sample_weight)[0] for candidate in candidates])
    lowest = candidates[int(means.argmin())]
    for rank in range(lowest.rank):
        peers = [number for number, candidate in enumerate(candidates) if candidate.rank == rank]
        if not peers:
            continue
        simpler = candidates[min(peers, key=lambda number: means[number])]
        excess, error = mean_and_error(simpler.paid - lowest.paid, sample_weight)
        if excess <= error:
            return Choice(simpler, _reason(simpler, excess, error))
    return Choice(lowest, _reason(lowest, 0.0, 0.0))


def table_of(candidates: list[Candidate], sample_weight: NDArray[np.float64] | None = None) -> dict[str, list[Any]]:
    """What was tried, as columns.

    Example:
        >>> flat = Candidate("none", "gap", "uniform", np.inf, np.array([0.5, 0.5]), np.zeros((2, 2), np.float32), np.ones(2))
        >>> table_of([flat])["mean_cost"]
        [0.5]
    """
    columns: dict[str, list[Any]] = {
        name: [getattr(candidate, name) for candidate in candidates] for name in ("view", "reward", "margins", "penalty")
    }
    found = [mean_and_error(candidate.paid, sample_weight) for candidate in candidates]
    columns["mean_cost"] = [mean for mean, _ in found]
    columns["standard_error"] = [error for _, error in found]
    return columns


def mean_and_error(values: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> tuple[float, float]:
    """Weighted mean and its standard error.

    Example:
        >>> mean_and_error(np.array([0.0, 2.0, 0.0, 2.0]), None), mean_and_error(np.array([0.0, 2.0]), np.array([1.0, 0.0]))
        ((1.0, 0.5), (0.0, 0.0))
    """
    weight = np.ones_like(values) if sample_weight is None else sample_weight
    mean = np.average(values, weights=weight)
    variance = np.average((values - mean) ** 2, weights=weight)
    effective = weight.sum() ** 2 / (weight**2).sum()
    return float(mean), float(np.sqrt(variance / effective))


def _reason(taken: Candidate, excess: float, error: float) -> str:
    if taken.view == "none":
        return "the best single expert: nothing that was tried is better by more than one standard error"
    name = f"{taken.view} features, {taken.reward} reward, {taken.margins} margins, penalty {taken.penalty:g}"
    if taken.reward == "regression":
        name = f"{taken.view} features, cost regression"
    if excess == 0:
        return f"{name}: lowest cost on held-out rows"
    return f"{name}: simpler, and within one standard error of the lowest cost on held-out rows ({excess:.4g} above, error {error:.4g})"
