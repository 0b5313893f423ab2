"""The candidates of a router's search: their settings, held-out costs and the selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._calibration import IDENTITY, Calibration
from mildroute.routers._decision import log_posterior
from mildroute.routers._order import argmax_last, chosen_costs
from mildroute.routers.feature_sets import FeatureSet


@dataclass(frozen=True)
class SearchResult:
    """One point of the search with its cost on held-out rows.

    Attributes:
        paid: Cost of the candidate's choice on each held-out row, shape (n,).
        scores: The candidate's calibrated scores on each held-out row, shape (n, p).
        rho: The candidate's margins, shape (p,).
    """

    view: FeatureSet
    reward: str
    margins: str
    alpha: float
    paid: NDArray[np.float64]
    scores: NDArray[np.float32]
    rho: NDArray[np.float64]
    calibration: Calibration = IDENTITY

    @property
    def rank(self) -> int:
        """Return the position in the order of simplicity.

        The best single expert comes first, then a linear router on the raw vector, other features,
        and differing margins.
        """
        if self.view == "none":
            return 0
        if self.margins != "uniform":
            return 3
        return 1 if self.view == "raw" else 2


@dataclass(frozen=True)
class Selection:
    """The selected candidate and the reason for its selection."""

    taken: SearchResult
    reason: str


def held_out_costs(
    scores: NDArray[np.float32], costs: NDArray[np.float64], rho: NDArray[np.float64], decision: str
) -> NDArray[np.float64]:
    """Return the cost of each row's chosen expert, shape (n,)."""
    equal = np.ptp(rho) == 0 or decision == "argmax"
    utilities = scores if equal else log_posterior(scores.astype(np.float64), rho)
    return chosen_costs(costs, argmax_last(utilities))


def select_one_se(
    candidates: list[SearchResult],
    sample_weight: NDArray[np.float64] | None = None,
    clusters: NDArray[np.intp] | None = None,
) -> Selection:
    """Apply the one-standard-error rule to paired differences.

    Select the candidate with the lowest held-out cost, unless a simpler kind is within one standard
    error of it, measured on the differences row by row. From simple to complex, the kinds are the
    best single expert, a linear router on the raw vector (as in TDEF), one on other features, and
    one with differing margins.
    """
    means = np.array([mean_and_error(candidate.paid, sample_weight)[0] for candidate in candidates])
    lowest = candidates[int(means.argmin())]
    for rank in range(lowest.rank):
        peers = [index for index, candidate in enumerate(candidates) if candidate.rank == rank]
        if not peers:
            continue
        simpler = candidates[min(peers, key=lambda index: means[index])]
        excess, error = mean_and_error(simpler.paid - lowest.paid, sample_weight, clusters)
        if excess <= error:
            return Selection(simpler, _reason(simpler, excess, error))
    return Selection(lowest, _reason(lowest, 0.0, 0.0))


def to_cv_results(
    candidates: list[SearchResult],
    sample_weight: NDArray[np.float64] | None = None,
    clusters: NDArray[np.intp] | None = None,
) -> dict[str, list[Any]]:
    """Return the candidates tried, as columns."""
    columns: dict[str, list[Any]] = {
        name: [getattr(candidate, name) for candidate in candidates]
        for name in ("view", "reward", "margins", "alpha")
    }
    means_and_errors = [
        mean_and_error(candidate.paid, sample_weight, clusters) for candidate in candidates
    ]
    columns["mean_cost"] = [mean for mean, _ in means_and_errors]
    columns["standard_error"] = [error for _, error in means_and_errors]
    return columns


def mean_and_error(
    values: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    clusters: NDArray[np.intp] | None = None,
) -> tuple[float, float]:
    """Return the weighted mean and its standard error over whole clusters."""
    weight = np.ones_like(values) if sample_weight is None else sample_weight
    mean = np.average(values, weights=weight)
    if clusters is not None:
        sums = np.bincount(clusters, weight * (values - mean))
        return float(mean), float(np.sqrt((sums**2).sum()) / weight.sum())
    variance = np.average((values - mean) ** 2, weights=weight)
    effective = weight.sum() ** 2 / (weight**2).sum()
    return float(mean), float(np.sqrt(variance / effective))


def _reason(taken: SearchResult, excess: float, error: float) -> str:
    if taken.view == "none":
        return (
            "the best single expert: no other candidate is better by more than one standard error"
        )
    name = (
        f"{taken.view} features, {taken.reward} reward, {taken.margins} margins, penalty"
        f" {taken.alpha:g}"
    )
    if taken.reward == "regression":
        name = f"{taken.view} features, cost regression"
    if excess == 0:
        return f"{name}: lowest cost on held-out rows"
    return (
        f"{name}: simpler, and within one standard error of the lowest cost on held-out rows"
        f" ({excess:.4g} above, error {error:.4g})"
    )
