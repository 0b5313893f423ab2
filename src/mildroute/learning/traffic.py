"""What a log says of two routers, and of the experts: gains of one over the other, residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.off_policy import Estimate, estimate_cost_difference
from mildroute.evaluation.sequential import canary_gains
from mildroute.fitting.text_router import RoutedInput, TextRouter
from mildroute.learning.trail import State
from mildroute.serving.observability.decision_log import read_decisions
from mildroute.serving.observability.feedback import read_feedback, read_samples

__all__ = ["RouterPair", "Row", "read_traffic", "residual_series"]

Row = Mapping[str, Any]

_COLUMNS = (
    *("decision_id", "time", "router", "reason", "served_by", "attempts", "cost_usd", "text"),
    *("request_id", "conversation", "target", "look", "selected", "experts", "propensities"),
)
# No router decided these requests.
_FORCED = ("pinned", "sticky")
# Off-policy estimates of fewer answers say nothing.
_FEWEST_EFFECTIVE = 30.0


def read_traffic(log: str | Path) -> list[dict[str, Any]]:
    """Decisions of a log in the order of time, with ``score`` and ``sample``, or none of them.

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

    Of a conversation, or of a text that comes again without an id, only the first decision counts:
    the gateway has thrown one coin for all.

    Args:
        decisions: In the order of time.
        current: The router that serves.
        candidate: The one that gets a share.
        digests: Of both.
        state: Shares of the candidate and their times, price weight and highest cost.
        settle: Seconds after a change of the share in which gateways take the new pointer; such
            decisions do not count.
    """

    decisions: Sequence[Row]
    current: TextRouter
    candidate: TextRouter
    digests: tuple[str, str]
    state: State
    settle: float

    @cached_property
    def rows(self) -> list[Row]:
        """Decisions that may count."""
        found: dict[str, Row] = {}
        for row in self.decisions:
            if row["text"] is not None and not row["target"] and row["reason"] not in _FORCED:
                found.setdefault(row["conversation"] or row["request_id"] or row["text"], row)
        return list(found.values())

    @cached_property
    def choices(self) -> list[tuple[RoutedInput, RoutedInput]]:
        """What both routers say of each row; of requests alone, whatever router decided it."""
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
        """Rows on which they choose different experts."""
        return sum(one.name != two.name for one, two in self.choices)

    def gains(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the candidate saves on each decision that tells, and the bounds of these gains.

        A sample tells what both would have cost. Of other decisions those tell that a coin gave to
        one of the two routers.
        """
        found = [
            gain
            for row, (one, two) in zip(self.rows, self.choices, strict=True)
            if (gain := self._gain(row, one, two)) is not None
        ]
        gains = np.array(found, dtype=np.float64).reshape(-1, 2)
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
        # The model of the router that was fitted last knows most, and has seen no decision that it
        # is judged by.
        model = two if self.digests[1] == state.candidate else one
        expected = [_expected_cost(model, each.name, state.weight) for each in (one, two)]
        is_canary = row["router"] == names[1]
        costs = canary_gains([self._cost(row)], [is_canary], share, [expected], state.bound)
        return float(costs[0]), bound

    def _cost(self, row: Row) -> float:
        return float(1 - row["score"] + self.state.weight * (row["cost_usd"] or 0.0))

    def off_policy(self) -> Estimate | None:
        """The candidate's cost minus the other's by exploration alone; none if that says nothing.

        Its interval holds at one look, so that it can drop a candidate and never promotes one.
        """
        experts = self.candidate.experts_.tolist()
        kept = [
            (row, [each.expert for each in both])
            for row, both in zip(self.rows, self.choices, strict=True)
            if row["score"] is not None
            and list(row["experts"] or ()) == experts == list(both[0].experts)
            and min(row["propensities"] or (0.0,)) > 0
            and row["served_by"] == row["selected"]
        ]
        if len(kept) < _FEWEST_EFFECTIVE:
            return None
        rows = [row for row, _ in kept]
        logged = LoggedDecisions(
            tuple(experts),
            np.array([experts.index(row["selected"]) for row in rows]),
            np.array([self._cost(row) for row in rows]),
            np.array([row["propensities"] for row in rows]),
        )
        current, candidate = np.array([places for _, places in kept]).T
        found = estimate_cost_difference(logged, candidate, current, method="dr")
        return found if found.effective_rows >= _FEWEST_EFFECTIVE else None


def _sampled_cost(row: Row, expert: str, weight: float) -> float:
    """Cost of an expert on a sample; NaN if it is not known."""
    sample = row["sample"]
    if sample is None or expert not in sample["experts"]:
        return math.nan
    place = sample["experts"].index(expert)
    score, dollars = sample["scores"][place], sample["cost_usd"][place]
    return math.nan if score is None else float(1 - score + weight * (dollars or 0.0))


def _expected_cost(forecast: RoutedInput, name: str, weight: float) -> float:
    if name not in forecast.experts or forecast.scores is None:
        return 0.5
    place = forecast.experts.index(name)
    dollars = 0.0 if forecast.dollars is None else forecast.dollars[place]
    return 1 - forecast.scores[place] + weight * dollars


_Series = dict[tuple[str, str], list[tuple[float, float]]]


def residual_series(rows: Sequence[Row], router: TextRouter, digest: str, state: State) -> _Series:
    """Observed minus expected since the same router serves, by expert and kind, with its time.

    Kinds are ``"score"`` by feedback, ``"sampled score"`` by the judge of samples, and
    ``"dollars"``, in logarithms. Of another router's decisions only samples count: it sends an
    expert other requests.
    """
    known = [row for row in rows if row["text"] is not None and row["time"] >= state.epoch]
    found: _Series = {}
    forecasts = router.explain([row["text"] for row in known]) if known else []
    for row, forecast in zip(known, forecasts, strict=True):
        for expert, kind, value in _observed(row, digest):
            expected = _expectation(forecast, expert, kind)
            if expected is None or row["time"] < state.since(expert, kind):
                continue
            residual = value - expected if kind != "dollars" else math.log(value / expected)
            found.setdefault((expert, kind), []).append((row["time"], residual))
    return found


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
    """What a router expects; of one that does not tell, all that counts is that it is the same."""
    if expert not in forecast.experts:
        return None
    values = forecast.dollars if kind == "dollars" else forecast.scores
    found = 1.0 if values is None else values[forecast.experts.index(expert)]
    return found if kind != "dollars" or found > 0 else None
