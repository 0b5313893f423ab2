"""Off-policy estimates of the costs of experts and routers, from logged decisions.

Each logged request was answered once, by an expert drawn with known probabilities. Plain means of
logged costs compare experts on different requests, because the router sends each expert what it is
good at. Weighting each answer by its inverse probability corrects that. There are three
estimators, from the simplest to the most precise:

- ``"ips"``, inverse propensity score: mean of weight times cost. Unbiased, with the widest
  intervals.
- ``"snips"``, self-normalized: divided by the sum of the weights. Stays within the range of costs,
  and tolerates an expert that sometimes fails, or gets feedback less often, as long as that has
  nothing to do with the request.
- ``"dr"``, doubly robust: a forecast of all costs, corrected by the weighted errors of the
  forecast.

If the chosen expert gave no answer and another one did, the answer counts for neither expert: the
probability that the other one answers is unknown. The row still counts as a request, and the
expert's missing answers are assumed to be like its other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Matrix, as_choice, as_matrix
from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.outcome_forecasts import fit_outcome_model
from mildroute.evaluation.resampling import Interval
from mildroute.evaluation.weighted_means import WeightedEstimate, effective_rows, weighted_interval
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = [
    "Estimate",
    "Method",
    "estimate_cost_difference",
    "estimate_expert_costs",
    "estimate_policy_cost",
]


# Methods of estimating costs.
Method = Literal["ips", "snips", "dr"]

_FEWEST_EFFECTIVE = 30.0
_MAX_WEIGHT_DEVIATION = 4.0


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimated mean cost.

    Attributes:
        rows: Number of answers behind the estimate.
        effective_rows: Number of equally weighted answers with the same information.
        warnings: Caveats to show with the estimate.

    Example:
        >>> Estimate(0.3, 0.2, 0.4, 0.95, 60, 58.0).warnings
        ()
    """

    rows: int = 0
    effective_rows: float = 0.0
    warnings: tuple[str, ...] = ()


def estimate_expert_costs(
    logged: LoggedDecisions,
    *,
    method: Method = "snips",
    confidence: float = 0.95,
    forecasts: Any = None,
) -> dict[str, Estimate]:
    """Estimate the mean cost of each expert if it answered all requests.

    Args:
        logged: Decisions and their probabilities.
        method: ``"ips"``, ``"snips"`` or ``"dr"``.
        confidence: Confidence of the intervals.
        forecasts: For ``"dr"``: expected costs, shape (n, p), from rows other than these; defaults
            to the result of ``fit_outcome_model``.

    Returns:
        Estimates by name.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> # b gets the hard requests, on which both err more often
        >>> hard = rng.random(4000) < 0.5
        >>> chances = np.where(hard[:, None], [0.1, 0.9], [0.9, 0.1])
        >>> chosen = (rng.random(4000) > chances[:, 0]).astype(int)
        >>> costs = (rng.random(4000) < np.where(hard, 0.6, 0.2)).astype(float)
        >>> logged = LoggedDecisions(("a", "b"), chosen, costs, chances)
        >>> {name: str(estimate) for name, estimate in estimate_expert_costs(logged).items()}
        {'a': '0.4148 [0.3773, 0.4538]', 'b': '0.3888 [0.357, 0.4225]'}
        >>> [round(float(costs[chosen == expert].mean()), 2) for expert in (0, 1)]
        [0.24, 0.55]
    """
    one_each = np.eye(len(logged.experts))
    forecasts = _forecasts(logged, method, forecasts)
    estimates = {}
    for index, name in enumerate(logged.experts):
        target = np.broadcast_to(one_each[index], logged.chances.shape)
        estimates[name] = _estimate(logged, target, method, confidence, forecasts)
    return estimates


def estimate_policy_cost(
    logged: LoggedDecisions,
    choice: Any,
    *,
    method: Method = "snips",
    confidence: float = 0.95,
    forecasts: Any = None,
) -> Estimate:
    """Estimate the mean cost of a router that makes these choices.

    Args:
        logged: Decisions and their probabilities.
        choice: Index or name of an expert for each row, shape (n,), or probabilities, shape (n, p).
        method: As for ``estimate_expert_costs``.
        confidence: Confidence of the interval.
        forecasts: As for ``estimate_expert_costs``.

    Returns:
        The estimate.

    Example:
        >>> seen = LoggedDecisions(("a", "b"), [0, 1] * 50, [0.0, 1.0] * 50, np.full((100, 2), 0.5))
        >>> estimate_policy_cost(seen, ["a"] * 100).value
        0.0
        >>> estimate_policy_cost(seen, np.full((100, 2), 0.5)).value
        0.5
    """
    return _estimate(
        logged,
        _target_probabilities(logged, choice),
        method,
        confidence,
        _forecasts(logged, method, forecasts),
    )


def estimate_cost_difference(
    logged: LoggedDecisions,
    choice: Any,
    against: Any,
    *,
    method: Method = "snips",
    confidence: float = 0.95,
    forecasts: Any = None,
) -> Estimate:
    """Estimate the mean cost of one router minus that of another, over the same requests.

    A result below 0 means that the first one is cheaper.

    Args:
        logged: Decisions and their probabilities.
        choice: As for ``estimate_policy_cost``.
        against: The same for the other router.
        method: As for ``estimate_expert_costs``.
        confidence: Confidence of the interval.
        forecasts: As for ``estimate_expert_costs``.

    Returns:
        The estimate; its interval is narrower than that of two separate estimates if both routers
        often make the same choice.

    Example:
        >>> seen = LoggedDecisions(("a", "b"), [0, 1] * 50, [0.0, 1.0] * 50, np.full((100, 2), 0.5))
        >>> estimate_cost_difference(seen, ["a"] * 100, ["b"] * 100).value
        -1.0
    """
    forecasts = _forecasts(logged, method, forecasts)
    one, other = (
        _weighted_estimate(logged, _target_probabilities(logged, side), method, forecasts)
        for side in (choice, against)
    )
    weights = one.weights - other.weights
    both = WeightedEstimate(
        one.value - other.value, one.terms - other.terms, weights, (one.total + other.total) / 2
    )
    interval = weighted_interval(
        both, _observed_costs(logged), logged.groups, confidence, is_difference=True
    )
    effective = effective_rows(weights)
    return Estimate(
        interval.value,
        interval.low,
        interval.high,
        confidence,
        int((weights != 0).sum()),
        effective,
        _few_answers(effective) if weights.any() else (),
    )


def _estimate(
    logged: LoggedDecisions,
    target: Matrix,
    method: Method,
    confidence: float,
    forecasts: Matrix | None,
) -> Estimate:
    estimate = _weighted_estimate(logged, target, method, forecasts)
    interval = weighted_interval(estimate, _observed_costs(logged), logged.groups, confidence)
    effective = effective_rows(estimate.weights)
    warnings = (
        *_few_answers(effective),
        *_odd_weights(logged, target),
        *_unanswered(logged, target),
    )
    return Estimate(
        interval.value,
        interval.low,
        interval.high,
        confidence,
        int((estimate.weights > 0).sum()),
        effective,
        warnings,
    )


def _weighted_estimate(
    logged: LoggedDecisions, target: Matrix, method: Method, forecasts: Matrix | None
) -> WeightedEstimate:
    answered = logged.has_answer
    # Failures count as missing at random: the probability of an answer is that of the draw times
    # the expert's answer rate.
    weights = np.where(answered, logged.weights(target) / _answer_rates(logged)[logged.chosen], 0.0)
    costs = np.where(answered, logged.costs, 0.0)
    if method == "snips":
        total = float(weights.sum())
        value = float(weights @ costs / total) if total else float("nan")
        return WeightedEstimate(
            value,
            weights * (costs - value) * (logged.rows / total if total else 0.0),
            weights,
            total,
        )
    base = np.zeros(logged.rows) if forecasts is None else (target * forecasts).sum(axis=1)
    errors = (
        costs if forecasts is None else costs - forecasts[np.arange(logged.rows), logged.chosen]
    )
    terms = base + weights * errors
    return WeightedEstimate(
        float(terms.mean()) if weights.any() else float("nan"), terms, weights, float(logged.rows)
    )


def _answer_rates(logged: LoggedDecisions) -> NDArray[np.float64]:
    """Return the share of its requests that each expert answered; 1 if it had no request."""
    count = len(logged.experts)
    answered = np.bincount(logged.chosen[logged.has_answer], minlength=count)
    failed = np.bincount(logged.chosen[logged.has_failed], minlength=count)
    return np.where(answered > 0, answered / np.maximum(answered + failed, 1), 1.0)


def _target_probabilities(logged: LoggedDecisions, choice: Any) -> Matrix:
    """Return the probabilities of a router, shape (n, p)."""
    choices = np.asarray(choice)
    if choices.ndim == 2:
        matrix = as_matrix(choices, "choice", logged.chances.shape)
        if matrix.min() < 0 or np.abs(matrix.sum(axis=1) - 1).max() > 1e-6:
            raise ArgumentError(
                "choice probabilities must be non-negative and sum to 1 in each row; divide them by"
                " their sum."
            )
        return matrix
    indices = _expert_indices(logged, choices.tolist()) if choices.dtype.kind in "OUS" else choices
    return np.eye(len(logged.experts))[as_choice(indices, logged.rows, len(logged.experts))]


def _expert_indices(logged: LoggedDecisions, names: Sequence[Any]) -> NDArray[np.intp]:
    index_of = {name: index for index, name in enumerate(logged.experts)}
    for name in names:
        if name not in index_of:
            raise ArgumentError(
                f"choice must name one of {', '.join(logged.experts)}, got {name!r:.60}; leave out"
                " such rows with take()."
            )
    return np.array([index_of[name] for name in names], dtype=np.intp)


def _forecasts(logged: LoggedDecisions, method: str, forecasts: Any) -> Matrix | None:
    if method not in get_args(Method):
        raise ArgumentError(f"method must be 'ips', 'snips' or 'dr', got {method!r}.")
    if not logged.has_answer.any():
        raise ShapeError(
            "at least one chosen expert must have answered, but no decision has a cost; check the"
            " log."
        )
    if method != "dr":
        return None
    return (
        fit_outcome_model(logged)
        if forecasts is None
        else as_matrix(forecasts, "forecasts", logged.chances.shape)
    )


def _observed_costs(logged: LoggedDecisions) -> NDArray[np.float64]:
    return logged.costs[logged.has_answer]


def _few_answers(effective: float) -> tuple[str, ...]:
    if effective >= _FEWEST_EFFECTIVE:
        return ()
    return (
        (
            f"only {effective:.0f} effective answers: with fewer than {_FEWEST_EFFECTIVE:.0f} the"
            " interval is rough; explore more or log longer"
        ),
    )


def _odd_weights(logged: LoggedDecisions, target: Matrix) -> tuple[str, ...]:
    """Warn if the mean weight is far from 1.

    Then the log does not match its recorded propensities.
    """
    error = (
        float(np.sqrt(((target**2 / logged.chances).sum(axis=1) - 1).clip(min=0).sum()))
        / logged.rows
    )
    mean = float(logged.weights(target).mean())
    if abs(mean - 1) <= _MAX_WEIGHT_DEVIATION * error + 1e-9:
        return ()
    return (
        (
            f"the weights have a mean of {mean:.2f} where 1 is expected: the logged propensities"
            " are wrong, or scoring depends on which expert answered"
        ),
    )


def _unanswered(logged: LoggedDecisions, target: Matrix) -> tuple[str, ...]:
    failed = int((logged.has_failed & (logged.weights(target) > 0)).sum())
    if not failed:
        return ()
    return (f"missing answers: {failed:,}; they are assumed to be like the others",)
