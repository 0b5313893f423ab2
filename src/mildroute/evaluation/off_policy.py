"""What experts and routers would have cost, from a log in which each request was answered once, by an expert drawn with known chances.

Plain means of logged costs compare experts on different requests: the router sends each what it is good at. Weighting each answer with the
inverse of its chance undoes that. Three estimates, from the simplest to the sharpest:

- ``"ips"``, inverse propensity score: mean of weight times cost. Unbiased, and the widest.
- ``"snips"``, self-normalised: divided by the sum of the weights. Keeps within the range of costs, and does not mind if an expert fails now
  and then, or gets feedback more rarely, as long as that has nothing to do with the request.
- ``"dr"``, doubly robust: a forecast of all costs, corrected by the weighted errors of the forecast.

Where the chosen expert gave no answer and another one did, the answer counts for nobody: the chance with which the other one came to answer
is not known. The row still counts as a request, and the expert's other answers stand for those that it failed to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError, ShapeError
from mildroute.evaluation.checks import Matrix, as_choice, as_matrix
from mildroute.evaluation.logged import Logged
from mildroute.evaluation.outcome_model import forecast_costs
from mildroute.evaluation.replicates import Interval
from mildroute.evaluation.weighted_mean import Influence, effective_rows, interval_of

__all__ = ["Estimate", "Method", "difference_of", "expert_values", "value_of"]

Method = Literal["ips", "snips", "dr"]
"""How costs are estimated."""

_FEWEST_EFFECTIVE = 30.0
_ODD = 4.0


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimated mean cost.

    Attributes:
        rows: Answers that speak for it.
        effective_rows: How many answers of equal weight would say as much.
        warnings: What a reader must know, in sentences.

    Example:
        >>> Estimate(0.3, 0.2, 0.4, 0.95, 60, 58.0).warnings
        ()
    """

    rows: int = 0
    effective_rows: float = 0.0
    warnings: tuple[str, ...] = ()


def expert_values(logged: Logged, *, method: Method = "snips", confidence: float = 0.95, forecasts: Any = None) -> dict[str, Estimate]:
    """Mean cost of each expert if it answered all requests.

    Args:
        logged: Decisions and their chances.
        method: ``"ips"``, ``"snips"`` or ``"dr"``.
        confidence: Of the intervals.
        forecasts: For ``"dr"``: expected costs, shape (n, p), from rows other than these; by default from ``forecast_costs``.

    Returns:
        Estimates by name.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> hard = rng.random(4000) < 0.5                      # b is asked for hard requests, on which everyone errs more often
        >>> chances = np.where(hard[:, None], [0.1, 0.9], [0.9, 0.1])
        >>> chosen = (rng.random(4000) > chances[:, 0]).astype(int)
        >>> costs = (rng.random(4000) < np.where(hard, 0.6, 0.2)).astype(float)
        >>> {name: str(found) for name, found in expert_values(Logged(("a", "b"), chosen, costs, chances)).items()}
        {'a': '0.4148 [0.3773, 0.4538]', 'b': '0.3888 [0.357, 0.4225]'}
        >>> [round(float(costs[chosen == expert].mean()), 2) for expert in (0, 1)]
        [0.24, 0.55]
    """
    one_each = np.eye(len(logged.experts))
    forecasts = _forecasts(logged, method, forecasts)
    found = {}
    for place, name in enumerate(logged.experts):
        target = np.broadcast_to(one_each[place], logged.chances.shape)
        found[name] = _estimate(logged, target, method, confidence, forecasts)
    return found


def value_of(logged: Logged, choice: Any, *, method: Method = "snips", confidence: float = 0.95, forecasts: Any = None) -> Estimate:
    """Mean cost of a router that had chosen so.

    Args:
        logged: Decisions and their chances.
        choice: On each row an expert's place or name, shape (n,), or probabilities, shape (n, p).
        method: As for ``expert_values``.
        confidence: Of the interval.
        forecasts: As for ``expert_values``.

    Returns:
        The estimate.

    Example:
        >>> seen = Logged(("a", "b"), [0, 1] * 50, [0.0, 1.0] * 50, np.full((100, 2), 0.5))
        >>> value_of(seen, ["a"] * 100).value, value_of(seen, np.full((100, 2), 0.5)).value
        (0.0, 0.5)
    """
    return _estimate(logged, _target(logged, choice), method, confidence, _forecasts(logged, method, forecasts))


def difference_of(
    logged: Logged, choice: Any, against: Any, *, method: Method = "snips", confidence: float = 0.95, forecasts: Any = None
) -> Estimate:
    """Mean cost of one router minus that of another, over the same requests: below 0 the first one is cheaper.

    Args:
        logged: Decisions and their chances.
        choice: As for ``value_of``.
        against: Likewise, of the other one.
        method: As for ``expert_values``.
        confidence: Of the interval.
        forecasts: As for ``expert_values``.

    Returns:
        The estimate; narrower than two intervals side by side, where both routers often choose alike.

    Example:
        >>> seen = Logged(("a", "b"), [0, 1] * 50, [0.0, 1.0] * 50, np.full((100, 2), 0.5))
        >>> difference_of(seen, ["a"] * 100, ["b"] * 100).value
        -1.0
    """
    forecasts = _forecasts(logged, method, forecasts)
    one, other = (_influence(logged, _target(logged, side), method, forecasts) for side in (choice, against))
    weights = one.weights - other.weights
    both = Influence(one.value - other.value, one.terms - other.terms, weights, (one.total + other.total) / 2)
    found = interval_of(both, _seen(logged), logged.groups, confidence, is_difference=True)
    size = effective_rows(weights)
    return Estimate(found.value, found.low, found.high, confidence, int((weights != 0).sum()), size, _few(size) if weights.any() else ())


def _estimate(logged: Logged, target: Matrix, method: Method, confidence: float, forecasts: Matrix | None) -> Estimate:
    influence = _influence(logged, target, method, forecasts)
    found = interval_of(influence, _seen(logged), logged.groups, confidence)
    size = effective_rows(influence.weights)
    warnings = (*_few(size), *_odd_weights(logged, target), *_unanswered(logged, target))
    return Estimate(found.value, found.low, found.high, confidence, int((influence.weights > 0).sum()), size, warnings)


def _influence(logged: Logged, target: Matrix, method: Method, forecasts: Matrix | None) -> Influence:
    answered = logged.has_answer
    # An expert's answers stand for those that it failed to give: the chance of an answer is that of the lot times the share of answers.
    weights = np.where(answered, logged.weights(target) / _answer_rates(logged)[logged.chosen], 0.0)
    costs = np.where(answered, logged.costs, 0.0)
    if method == "snips":
        total = float(weights.sum())
        value = float(weights @ costs / total) if total else float("nan")
        return Influence(value, weights * (costs - value) * (logged.rows / total if total else 0.0), weights, total)
    base = np.zeros(logged.rows) if forecasts is None else (target * forecasts).sum(axis=1)
    errors = costs if forecasts is None else costs - forecasts[np.arange(logged.rows), logged.chosen]
    terms = base + weights * errors
    return Influence(float(terms.mean()) if weights.any() else float("nan"), terms, weights, float(logged.rows))


def _answer_rates(logged: Logged) -> NDArray[np.float64]:
    """Share of each expert's requests that it has answered; 1 where it has none."""
    count = len(logged.experts)
    answered = np.bincount(logged.chosen[logged.has_answer], minlength=count)
    failed = np.bincount(logged.chosen[logged.has_failed], minlength=count)
    return np.where(answered > 0, answered / np.maximum(answered + failed, 1), 1.0)


def _target(logged: Logged, choice: Any) -> Matrix:
    """Probabilities of a router, shape (n, p)."""
    given = np.asarray(choice)
    if given.ndim == 2:
        matrix = as_matrix(given, "choice", logged.chances.shape)
        if matrix.min() < 0 or np.abs(matrix.sum(axis=1) - 1).max() > 1e-6:
            raise ArgumentError("probabilities of a choice must not be negative and add up to 1 on each row; divide them by their sum.")
        return matrix
    places = _places(logged, given.tolist()) if given.dtype.kind in "OUS" else given
    return np.eye(len(logged.experts))[as_choice(places, logged.rows, len(logged.experts))]


def _places(logged: Logged, names: Sequence[Any]) -> NDArray[np.intp]:
    known = {name: place for place, name in enumerate(logged.experts)}
    for name in names:
        if name not in known:
            raise ArgumentError(f"choice must name one of {', '.join(logged.experts)}, got {name!r:.60}; leave out such rows with take().")
    return np.array([known[name] for name in names], dtype=np.intp)


def _forecasts(logged: Logged, method: str, forecasts: Any) -> Matrix | None:
    if method not in get_args(Method):
        raise ArgumentError(f"method must be 'ips', 'snips' or 'dr', got {method!r}.")
    if not logged.has_answer.any():
        raise ShapeError("at least one chosen expert must have answered, got no cost at all; check the log.")
    if method != "dr":
        return None
    return forecast_costs(logged) if forecasts is None else as_matrix(forecasts, "forecasts", logged.chances.shape)


def _seen(logged: Logged) -> NDArray[np.float64]:
    return logged.costs[logged.has_answer]


def _few(size: float) -> tuple[str, ...]:
    if size >= _FEWEST_EFFECTIVE:
        return ()
    return (
        f"only {size:.0f} effective answers: with fewer than {_FEWEST_EFFECTIVE:.0f} the interval is rough; explore more or log longer",
    )


def _odd_weights(logged: Logged, target: Matrix) -> tuple[str, ...]:
    """Weights have the mean 1 whatever the costs: if theirs is another one, the log is not what its chances say."""
    error = float(np.sqrt(((target**2 / logged.chances).sum(axis=1) - 1).clip(min=0).sum())) / logged.rows
    mean = float(logged.weights(target).mean())
    if abs(mean - 1) <= _ODD * error + 1e-9:
        return ()
    return (
        f"the weights have a mean of {mean:.2f} where 1 is expected: chances are not what was logged, or whether an answer gets a score "
        "depends on who gave it",
    )


def _unanswered(logged: Logged, target: Matrix) -> tuple[str, ...]:
    failed = int((logged.has_failed & (logged.weights(target) > 0)).sum())
    if not failed:
        return ()
    return (f"{failed:,} answers failed to come; they are taken to be like the others",)
