"""Exploration: drawing an expert other than the router's choice, to learn from its answer."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mildroute.decision.days import ROUNDING, start_of_day
from mildroute.decision.prediction import Prediction
from mildroute.decision.settings import ExplorationConfig

__all__ = ["Choice", "Draw", "ExplorationBudget", "explored_propensities", "possible_draws"]

# Probability of a vertex, and the expert that is chosen there without exploration.
Choice = tuple[float, str]


class ExplorationBudget:
    """A daily limit on the expected cost of exploration, for this process and UTC days.

    Args:
        config: Settings with the limit, which is ``None`` for no limit.
        now: Function that returns seconds since 1970.
    """

    def __init__(self, config: ExplorationConfig, now: Callable[[], float] = time.time) -> None:
        self._limit = config.max_dollars_per_day
        self._now = now
        self._day = start_of_day(now())
        self._spent = 0.0

    @property
    def left(self) -> float:
        """The dollars that remain today; NaN without a limit."""
        if self._limit is None:
            return math.nan
        today = start_of_day(self._now())
        if today > self._day:
            self._day = today
            self._spent = 0.0
        return self._limit - self._spent

    def covers(self, dollars: float) -> bool:
        """Return whether an amount may be spent now."""
        remaining = self.left
        return self._limit is None or (remaining > ROUNDING and dollars <= remaining + ROUNDING)

    def spend(self, dollars: float) -> None:
        """Count the expected cost of a draw."""
        if self._limit is not None and dollars > 0:
            self._spent = self._limit - self.left + dollars


@dataclass(frozen=True)
class Draw:
    """The experts that may be drawn in place of the choice at one vertex.

    Args:
        rate: Probability that any expert is drawn.
        chances: Probability that each expert is drawn; they add up to the rate.
        dollars: Expected extra dollars of each expert, compared with the choice.
    """

    rate: float
    chances: Mapping[str, float]
    dollars: Mapping[str, float]

    @property
    def max_dollars(self) -> float:
        """The largest expected extra charge."""
        return max(self.dollars.values(), default=0.0)

    def expert(self, number: float) -> str | None:
        """Return the expert that a number in [0, 1) selects; ``None`` keeps the choice."""
        if number >= self.rate:
            return None
        sums = list(accumulate(self.chances.values()))
        # The sums may end below the rate because of rounding; the last expert gets the difference.
        return [*self.chances][min(bisect_right(sums, number), len(sums) - 1)]


def possible_draws(
    prediction: Prediction,
    choices: Sequence[Choice],
    eligible: Sequence[str],
    config: ExplorationConfig,
) -> list[Draw]:
    """Return the draw at each vertex; an empty list if nothing may be drawn.

    Nothing is drawn if a limit cannot be checked: the gap and the minimum quality need expected
    scores, and the budget needs expected dollars.

    Args:
        prediction: The router's view of the input.
        choices: Probability and choice of each vertex.
        eligible: Experts that can serve the request.
        config: Rule, rate and limits of the draw.
    """
    scores = dict(zip(prediction.experts, prediction.scores or (), strict=False))
    dollars = dict(zip(prediction.experts, prediction.dollars or (), strict=False))
    needs_scores = config.kind == "gap" or config.min_quality > 0
    if (needs_scores and not scores) or (config.max_dollars_per_day is not None and not dollars):
        return []
    candidates = [name for name in eligible if name in prediction.experts]
    lowest = config.min_quality * max([scores.get(name, 0.0) for name in candidates], default=0.0)
    weight = prediction.price_weight or 0.0
    costs = {name: weight * dollars.get(name, 0.0) - scores.get(name, 0.0) for name in candidates}
    draws = []
    for _, choice in choices:
        names = [name for name in candidates if name == choice or scores.get(name, 0.0) >= lowest]
        if len(names) < 2:
            return []
        if config.kind == "gap":
            chances = _gap_chances({name: costs[name] for name in names}, choice, config)
            rate = min(config.rate, sum(chances.values()))
        else:
            chances = dict.fromkeys(names, config.rate / len(names))
            rate = config.rate
        paid = dollars.get(choice, 0.0)
        extra = {name: max(0.0, dollars.get(name, 0.0) - paid) for name in chances}
        draws.append(Draw(rate, chances, extra))
    return draws


def _gap_chances(
    costs: Mapping[str, float], choice: str, config: ExplorationConfig
) -> dict[str, float]:
    """Return the probability of each other expert by inverse-gap weighting.

    The rule is that of Abe and Long (1999), as in SquareCB, scaled down if the probabilities add up
    to more than the rate. The choice keeps the remaining probability, even if the outcome model
    prefers another expert.
    """
    best = min(costs.values())
    gaps = {name: cost - best for name, cost in costs.items() if name != choice}
    # At an extreme price, a gap may be infinite or NaN.
    chances = {
        name: 1.0 / (len(costs) + config.gamma * gap)
        for name, gap in gaps.items()
        if gap < math.inf
    }
    scale = min(1.0, config.rate / max(sum(chances.values()), config.rate))
    return {name: scale * chances.get(name, 0.0) for name in gaps}


def explored_propensities(choices: Sequence[Choice], draws: Sequence[Draw]) -> dict[str, float]:
    """Return the probability that each expert comes first, over the vertices and their draws."""
    propensities: dict[str, float] = {}
    for (chance, choice), draw in zip(choices, draws, strict=True):
        propensities[choice] = propensities.get(choice, 0.0) + chance * (1.0 - draw.rate)
        for name, share in draw.chances.items():
            propensities[name] = propensities.get(name, 0.0) + chance * share
    return propensities
