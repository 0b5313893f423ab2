"""Evidence from a log: gains of one router over another, and residuals of the experts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.decision.feedback import read_feedback, read_samples
from mildroute.decision.log import read_decisions
from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.off_policy import Estimate, estimate_cost_difference
from mildroute.evaluation.sequential import canary_gains
from mildroute.fitting.text_router import RoutedInput, TextRouter
from mildroute.learning.trail import State

__all__ = ["RouterPair", "Row", "read_traffic", "residual_series"]

Row = Mapping[str, Any]

_COLUMNS = (
    *("decision_id", "time", "router", "reason", "served_by", "attempts", "cost_usd", "text"),
    *("request_id", "conversation", "target", "look", "selected", "experts", "propensities"),
)
# Reasons of requests that no router decided.
_FORCED = ("pinned", "sticky")
# Minimum number of answers for an off-policy estimate.
_FEWEST_EFFECTIVE = 30.0


def read_traffic(log: str | Path) -> list[dict[str, Any]]:
    """Return the decisions of a log by time, with ``score`` and ``sample``, or `None` for them.

    A sample has the scores of several experts on the request, all by one judge.
    """
    scores = read_feedback(log)
    samples = {row["decision_id"]: row for row in read_samples(log)}
    rows = []
    for row in read_decisions(log, _COLUMNS):
        sample = samples.get(row["decision_id"])
        text = row["text"] if sample is None else sample["text"]
        score = scores.get(row["decision_id"])
        rows.append({**row, "text": text, "score": score, "sample": sample})
    return sorted(rows, key=lambda row: (row["time"], row["decision_id"]))


@dataclass(frozen=True)
class RouterPair:
    """Two routers on the same decisions.

    Only the first decision counts for each conversation, and for each text that recurs without an
    id, because the gateway made one random draw for all of them.

    Args:
        decisions: Decisions in chronological order.
        current: The router that serves.
        candidate: The router that gets a share.
        digests: Digests of both routers.
        state: Shares of the candidate and their times, price weight and maximum cost.
        settle: Seconds after a change of the share during which gateways pick up the new pointer;
            such decisions do not count.
    """

    decisions: Sequence[Row]
    current: TextRouter
    candidate: TextRouter
    digests: tuple[str, str]
    state: State
    settle: float

    @cached_property
    def rows(self) -> list[Row]:
        """Return the decisions that may count."""
        first_rows: dict[str, Row] = {}
        for row in self.decisions:
            if row["text"] is not None and not row["target"] and row["reason"] not in _FORCED:
                first_rows.setdefault(row["conversation"] or row["request_id"] or row["text"], row)
        return list(first_rows.values())

    @cached_property
    def choices(self) -> list[tuple[RoutedInput, RoutedInput]]:
        """Return both routers' decisions for each row, whichever router decided it."""
        texts = [row["text"] for row in self.rows]
        if not texts:
            return []
        keys = [row["request_id"] or row["text"] for row in self.rows]
        both = (
            router.explain(texts, request_ids=keys) for router in (self.current, self.candidate)
        )
        return list(zip(*both, strict=True))

    @property
    def differing(self) -> int:
        """Return the number of rows on which the routers choose different experts."""
        return sum(one.name != two.name for one, two in self.choices)

    def gains(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the candidate's gain on each informative decision, and the bounds of the gains.

        A sample shows what both routers would have cost. Other decisions are informative only if a
        random draw assigned them to one of the two routers.
        """
        pairs = [
            gain
            for row, (one, two) in zip(self.rows, self.choices, strict=True)
            if (gain := self._gain(row, one, two)) is not None
        ]
        gains = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return gains[:, 0], gains[:, 1]

    def _gain(self, row: Row, one: RoutedInput, two: RoutedInput) -> tuple[float, float] | None:
        state = self.state
        sampled = [_sampled_cost(row, each.name, state.weight) for each in (one, two)]
        if not np.isnan(sampled).any():
            costs = np.clip(sampled, 0.0, state.bound)
            return float(costs[0] - costs[1]), state.bound
        share = state.share_at(row["time"], self.settle)
        names = [digest[:16] for digest in self.digests]
        if not share or row["score"] is None or row["router"] not in names:
            return None
        bound = state.bound / min(share, 1 - share)
        if one.name == two.name:
            return 0.0, bound
        # The outcome model of the router that was fitted last knows most, and has not seen the
        # decisions that it is judged by.
        model = two if self.digests[1] == state.candidate else one
        expected = [_expected_cost(model, each.name, state.weight) for each in (one, two)]
        is_canary = row["router"] == names[1]
        costs = canary_gains([self._cost(row)], [is_canary], share, [expected], state.bound)
        return float(costs[0]), bound

    def _cost(self, row: Row) -> float:
        return float(1 - row["score"] + self.state.weight * (row["cost_usd"] or 0.0))

    def off_policy(self) -> Estimate | None:
        """Return the candidate's cost minus the other's by exploration alone, or `None` if unknown.

        The interval is valid for a single look, so the estimate can drop a candidate but never
        promotes one.
        """
        experts = self.candidate.experts_.tolist()
        explored = [
            (row, [each.expert for each in both])
            for row, both in zip(self.rows, self.choices, strict=True)
            if row["score"] is not None
            and list(row["experts"] or ()) == experts == list(both[0].experts)
            and min(row["propensities"] or (0.0,)) > 0
            and row["served_by"] == row["selected"]
        ]
        if len(explored) < _FEWEST_EFFECTIVE:
            return None
        rows = [row for row, _ in explored]
        logged = LoggedDecisions(
            tuple(experts),
            np.array([experts.index(row["selected"]) for row in rows]),
            np.array([self._cost(row) for row in rows]),
            np.array([row["propensities"] for row in rows]),
        )
        current, candidate = np.array([places for _, places in explored]).T
        estimate = estimate_cost_difference(logged, candidate, current, method="dr")
        return estimate if estimate.effective_rows >= _FEWEST_EFFECTIVE else None


def _sampled_cost(row: Row, expert: str, weight: float) -> float:
    """Return the cost of an expert on a sample; NaN if it is unknown."""
    sample = row["sample"]
    if sample is None or expert not in sample["experts"]:
        return math.nan
    index = sample["experts"].index(expert)
    score, dollars = sample["scores"][index], sample["cost_usd"][index]
    return math.nan if score is None else float(1 - score + weight * (dollars or 0.0))


def _expected_cost(forecast: RoutedInput, name: str, weight: float) -> float:
    if name not in forecast.experts or forecast.scores is None:
        return 0.5
    index = forecast.experts.index(name)
    dollars = 0.0 if forecast.dollars is None else forecast.dollars[index]
    return 1 - forecast.scores[index] + weight * dollars


_Series = dict[tuple[str, str], list[tuple[float, float]]]


def residual_series(rows: Sequence[Row], router: TextRouter, digest: str, state: State) -> _Series:
    """Return observed minus expected values under the current router, by expert and kind.

    Each value has its time. Kinds are ``"score"`` by feedback, ``"sampled score"`` by the judge of
    samples, and ``"dollars"``, in logarithms. Of another router's decisions only samples count,
    because it sends an expert different requests.
    """
    recent = [row for row in rows if row["text"] is not None and row["time"] >= state.epoch]
    series: _Series = {}
    forecasts = router.explain([row["text"] for row in recent]) if recent else []
    for row, forecast in zip(recent, forecasts, strict=True):
        for expert, kind, value in _observed(row, digest):
            expected = _expectation(forecast, expert, kind)
            if expected is None or row["time"] < state.since(expert, kind):
                continue
            residual = value - expected if kind != "dollars" else math.log(value / expected)
            series.setdefault((expert, kind), []).append((row["time"], residual))
    return series


def _observed(row: Row, digest: str) -> Iterator[tuple[str, str, float]]:
    expert = row["served_by"]
    is_own = row["router"] == digest[:16] and not row["look"]
    if expert and is_own and len(row["attempts"] or ()) == 1:
        if row["score"] is not None:
            yield expert, "score", row["score"]
        if row["cost_usd"]:
            yield expert, "dollars", row["cost_usd"]
    sample = row["sample"] or {"experts": (), "scores": ()}
    for name, score in zip(sample["experts"], sample["scores"], strict=True):
        if score is not None:
            yield name, "sampled score", score


def _expectation(forecast: RoutedInput, expert: str, kind: str) -> float | None:
    """Return a router's expectation; without one, any constant will do."""
    if expert not in forecast.experts:
        return None
    values = forecast.dollars if kind == "dollars" else forecast.scores
    value = 1.0 if values is None else values[forecast.experts.index(expert)]
    return value if kind != "dollars" or value > 0 else None
