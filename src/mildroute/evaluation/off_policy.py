"""Off-policy estimates from logged decisions: IPS, SNIPS and doubly robust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.evaluation.intervals import Interval, group_codes
from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.metrics import Matrix, as_choice, as_matrix, check_confidence
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = [
    "Estimate",
    "Method",
    "WeightedEstimate",
    "effective_rows",
    "estimate_cost_difference",
    "estimate_expert_costs",
    "estimate_policy_cost",
    "fit_outcome_model",
    "weighted_interval",
]


# A rough forecast of each expert's cost, for doubly robust estimates, which remain valid if it is
# wrong.


_FOLDS = 5
_FEWEST = 10
_STRENGTH = 3.0


def fit_outcome_model(logged: LoggedDecisions) -> Matrix:
    """Return the expected cost of every expert on every decision.

    The estimates come from ridge regression on what was known about the request. No row is forecast
    by a regression trained on it or on a row of its group; otherwise the intervals would be too
    narrow.

    Args:
        logged: Decisions; without features, their probabilities are used instead.

    Returns:
        Shape (n, p).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> chosen = np.arange(400) % 2
        >>> costs, chances = np.where(chosen, 0.8, 0.2), np.full((400, 2), 0.5)
        >>> seen = LoggedDecisions(("a", "b"), chosen, costs, chances)
        >>> fit_outcome_model(seen).mean(axis=0).round(2)
        array([0.2, 0.8])
    """
    features = _standardized(logged.chances if logged.features is None else logged.features)
    codes = (
        np.arange(logged.rows) if logged.groups is None else group_codes(logged.groups, logged.rows)
    )
    fold = codes % _FOLDS
    forecasts = np.empty(logged.chances.shape)
    for expert in range(len(logged.experts)):
        own = logged.has_answer & (logged.chosen == expert)
        for part in range(_FOLDS):
            learn, held_out = own & (fold != part), fold == part
            forecasts[held_out, expert] = features[held_out] @ _fitted(
                features[learn], logged.costs[learn], 1 / logged.chances[learn, expert], logged
            )
    return np.clip(forecasts, np.nanmin(logged.costs), np.nanmax(logged.costs))


def _standardized(values: Matrix) -> Matrix:
    """Scale columns to mean 0 and deviation 1, and prepend a column of ones."""
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.column_stack([np.ones(len(values)), scaled])


def _fitted(
    known: Matrix, costs: NDArray[np.float64], weights: NDArray[np.float64], logged: LoggedDecisions
) -> NDArray[np.float64]:
    """Fit with inverse probability weights, so that the rows represent all requests.

    With few rows, use only the mean.
    """
    coefficients = np.zeros(known.shape[1])
    if len(costs) < _FEWEST:
        coefficients[0] = costs.mean() if len(costs) else np.nanmean(logged.costs)
        return coefficients
    weights = weights / weights.mean()
    penalty = np.diag([1e-6, *[_STRENGTH] * (known.shape[1] - 1)])
    weighted = known * weights[:, None]
    return np.asarray(
        np.linalg.solve(weighted.T @ known + penalty, weighted.T @ costs), dtype=np.float64
    )


# Intervals of means that depend on few rows of great weight.
#
# With 5% exploration a rarely chosen expert has some sixty answers among 5,000 requests, each with
# a weight of eighty. The normal interval then contains the truth too rarely (down to 88% where 95%
# are promised), above all if errors are rare. Three corrections, chosen by simulation: Student's
# quantile at the number of rows that decide the variance; four more rows of great weight, two at
# each end of the likely costs, as Agresti and Coull (1998) add them for shares; and the center that
# goes with these rows.


# Number of standard deviations of all costs within which another cost is likely.
_LIKELY = 3.0

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedEstimate:
    """An estimate with the contribution of each row.

    Attributes:
        terms: One term per row, shape (n,), whose mean is the estimate, up to terms of lower order.
        weights: Weight of each row's cost, shape (n,).
    """

    value: float
    terms: Vector
    weights: Vector
    total: float


def effective_rows(weights: Any) -> float:
    """Return the number of equally weighted rows with the same information."""
    values = np.abs(np.asarray(weights, dtype=np.float64))
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / squares) if squares else 0.0


def weighted_interval(
    found: WeightedEstimate,
    costs: Any,
    groups: Any = None,
    confidence: float = 0.95,
    *,
    is_difference: bool = False,
) -> Interval:
    """Return the interval of an estimate.

    Args:
        found: The estimate.
        costs: All observed costs, of any expert, as the range of likely costs.
        groups: Group of each row, shape (n,), or `None`.
        confidence: Confidence of the interval.
        is_difference: Whether the estimate is the difference of two estimates.

    Returns:
        Value and limits; all NaN if nothing was observed.
    """
    check_confidence(confidence)
    squares = float((found.weights**2).sum())
    if not np.isfinite(found.value) or not squares:
        still = 0.0 if is_difference and np.isfinite(found.value) else float("nan")
        return Interval(still, still, still, confidence)
    below, above = _likely(
        found.value, np.asarray(costs, dtype=np.float64), is_difference=is_difference
    )
    great = float((np.abs(found.weights) ** 3).sum()) / squares
    more = float(norm.ppf((1 + confidence) / 2)) ** 2
    total = found.total + more * great
    spread, units = _squares(found, groups)
    error = np.sqrt(spread + more / 2 * great**2 * (below**2 + above**2)) / total
    center = found.value + more / 2 * great * (above - below) / total
    freedom = max(1.0, min(squares**2 / float((found.weights**4).sum()), units) - 1)
    half = float(t.ppf((1 + confidence) / 2, freedom)) * error
    low, high = min(center - half, found.value), max(center + half, found.value)
    return Interval(
        found.value,
        float(low if is_difference else max(low, min(0.0, float(np.min(costs))))),
        float(high),
        confidence,
    )


def _likely(value: float, costs: Vector, *, is_difference: bool) -> tuple[float, float]:
    """Return how far below and above the estimate a cost is likely to lie."""
    reach = _LIKELY * float(costs.std())
    if is_difference:
        reach = min(reach, float(np.ptp(costs)) / 2)
        return reach, reach
    return min(reach, max(0.0, value - float(costs.min()))), min(
        reach, max(0.0, float(costs.max()) - value)
    )


def _squares(found: WeightedEstimate, groups: Any) -> tuple[float, int]:
    """Return the sum of squares of the terms, and the number of rows or groups behind it.

    The terms are in units of weight times cost.
    """
    rest = (found.terms - found.terms.mean()) * found.total / len(found.terms)
    if groups is not None:
        codes = group_codes(groups, len(rest))
        if codes.max() > 0:
            rest = np.bincount(codes, rest)
    units = len(rest)
    return float((rest**2).sum()) * units / max(units - 1, 1), units


# The costs that experts and routers would have had, from a log in which each request was answered
# once, by an expert drawn with known probabilities.
#
# Plain means of logged costs compare experts on different requests, because the router sends each
# expert what it is good at. Weighting each answer with the inverse of its probability corrects
# that. Three estimates, from the simplest to the sharpest:
#
# - ``"ips"``, inverse propensity score: mean of weight times cost. Unbiased, and the widest.
# - ``"snips"``, self-normalized: divided by the sum of the weights. Stays within the range of
#   costs, and tolerates an expert that sometimes fails, or gets feedback less often, as long as
#   that has nothing to do with the request.
# - ``"dr"``, doubly robust: a forecast of all costs, corrected by the weighted errors of the
#   forecast.
#
# If the chosen expert gave no answer and another one did, the answer counts for neither expert: the
# probability with which the other one came to answer is unknown. The row still counts as a request,
# and the expert's other answers stand in for those that it failed to give.


# Methods of estimating costs.
Method = Literal["ips", "snips", "dr"]

_FEWEST_EFFECTIVE = 30.0
_ODD = 4.0


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimated mean cost.

    Attributes:
        rows: Number of answers behind the estimate.
        effective_rows: Number of equally weighted answers with the same information.
        warnings: Sentences that a reader of the estimate must know.

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
        >>> # b is asked for hard requests, on which both err more often
        >>> hard = rng.random(4000) < 0.5
        >>> chances = np.where(hard[:, None], [0.1, 0.9], [0.9, 0.1])
        >>> chosen = (rng.random(4000) > chances[:, 0]).astype(int)
        >>> costs = (rng.random(4000) < np.where(hard, 0.6, 0.2)).astype(float)
        >>> logged = LoggedDecisions(("a", "b"), chosen, costs, chances)
        >>> {name: str(found) for name, found in estimate_expert_costs(logged).items()}
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
    """Estimate the mean cost of a router with these choices.

    logged: Decisions and their probabilities.
        logged: Decisions and their chances.
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
        logged, _target(logged, choice), method, confidence, _forecasts(logged, method, forecasts)
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
        _influence(logged, _target(logged, side), method, forecasts) for side in (choice, against)
    )
    weights = one.weights - other.weights
    both = WeightedEstimate(
        one.value - other.value, one.terms - other.terms, weights, (one.total + other.total) / 2
    )
    interval = weighted_interval(both, _seen(logged), logged.groups, confidence, is_difference=True)
    size = effective_rows(weights)
    return Estimate(
        interval.value,
        interval.low,
        interval.high,
        confidence,
        int((weights != 0).sum()),
        size,
        _few(size) if weights.any() else (),
    )


def _estimate(
    logged: LoggedDecisions,
    target: Matrix,
    method: Method,
    confidence: float,
    forecasts: Matrix | None,
) -> Estimate:
    influence = _influence(logged, target, method, forecasts)
    interval = weighted_interval(influence, _seen(logged), logged.groups, confidence)
    size = effective_rows(influence.weights)
    warnings = (*_few(size), *_odd_weights(logged, target), *_unanswered(logged, target))
    return Estimate(
        interval.value,
        interval.low,
        interval.high,
        confidence,
        int((influence.weights > 0).sum()),
        size,
        warnings,
    )


def _influence(
    logged: LoggedDecisions, target: Matrix, method: Method, forecasts: Matrix | None
) -> WeightedEstimate:
    answered = logged.has_answer
    # An expert's answers stand in for those that it failed to give: the probability of an answer is
    # that of the draw times the share of answers.
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


def _target(logged: LoggedDecisions, choice: Any) -> Matrix:
    """Return the probabilities of a router, shape (n, p)."""
    choices = np.asarray(choice)
    if choices.ndim == 2:
        matrix = as_matrix(choices, "choice", logged.chances.shape)
        if matrix.min() < 0 or np.abs(matrix.sum(axis=1) - 1).max() > 1e-6:
            raise ArgumentError(
                "probabilities of a choice must not be negative and add up to 1 on each row; divide"
                " them by their sum."
            )
        return matrix
    places = _places(logged, choices.tolist()) if choices.dtype.kind in "OUS" else choices
    return np.eye(len(logged.experts))[as_choice(places, logged.rows, len(logged.experts))]


def _places(logged: LoggedDecisions, names: Sequence[Any]) -> NDArray[np.intp]:
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
            "at least one chosen expert must have answered, got no cost at all; check the log."
        )
    if method != "dr":
        return None
    return (
        fit_outcome_model(logged)
        if forecasts is None
        else as_matrix(forecasts, "forecasts", logged.chances.shape)
    )


def _seen(logged: LoggedDecisions) -> NDArray[np.float64]:
    return logged.costs[logged.has_answer]


def _few(size: float) -> tuple[str, ...]:
    if size >= _FEWEST_EFFECTIVE:
        return ()
    return (
        (
            f"only {size:.0f} effective answers: with fewer than {_FEWEST_EFFECTIVE:.0f} the"
            " interval is rough; explore more or log longer"
        ),
    )


def _odd_weights(logged: LoggedDecisions, target: Matrix) -> tuple[str, ...]:
    """Warn if the mean of the weights is far from 1, which it should be for any costs.

    If the mean differs from 1, the log does not match its probabilities.
    """
    error = (
        float(np.sqrt(((target**2 / logged.chances).sum(axis=1) - 1).clip(min=0).sum()))
        / logged.rows
    )
    mean = float(logged.weights(target).mean())
    if abs(mean - 1) <= _ODD * error + 1e-9:
        return ()
    return (
        (
            f"the weights have a mean of {mean:.2f} where 1 is expected: chances are not what was"
            " logged, or whether an answer gets a score depends on who gave it"
        ),
    )


def _unanswered(logged: LoggedDecisions, target: Matrix) -> tuple[str, ...]:
    failed = int((logged.has_failed & (logged.weights(target) > 0)).sum())
    if not failed:
        return ()
    return (f"{failed:,} answers failed to come; they are taken to be like the others",)
