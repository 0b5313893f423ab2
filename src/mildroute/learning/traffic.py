"""Decisions of a log with their outcomes, and the evidence that they give about two routers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.decision.feedback import read_feedback, read_samples
from mildroute.decision.log import read_decisions
from mildroute.decision.targets import describe_target
from mildroute.evaluation.sequential import explored_gain
from mildroute.fitting.routed_input import RoutedInput
from mildroute.fitting.targets import point_of
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["RouterPair", "Row", "read_traffic", "scored_rows"]

Row = Mapping[str, Any]
Vector = NDArray[np.float64]

_COLUMNS = (
    *("decision_id", "time", "router", "reason", "served_by", "cost_usd", "text", "request_id"),
    *("conversation", "target", "selected", "experts", "propensities", "first_choice"),
)
# Reasons of decisions that no router made.
_FORCED = ("pinned", "sticky")


def read_traffic(log: str | Path) -> list[dict[str, Any]]:
    """Return the decisions of a log by time, each with its ``score`` and ``sample``, if any.

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


def scored_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the decisions for training, which have a text and a score or a sample."""
    return [
        row
        for row in rows
        if row["text"] is not None and (row["score"] is not None or row["sample"] is not None)
    ]


@dataclass(frozen=True)
class RouterPair:
    """Two routers on the same decisions.

    Args:
        candidate: The router that may be promoted, which was fitted on earlier decisions.
        current: The router in use; ``None`` means the first choices in the log.
        weight: Error that one dollar is worth.
        bound: Maximum cost of an answer, error and dollars together; larger costs are capped.
        min_propensity: Minimum probability with which a decision had to choose an expert that one
            of the routers would choose; other decisions are ignored.
        target: Target at which the router in use decides; ``None`` means its own. Decisions at
            other targets are ignored.
    """

    candidate: TextRouter
    current: TextRouter | None
    weight: float
    bound: float
    min_propensity: float
    target: Target | None = None

    def gains(self, rows: Sequence[Row]) -> tuple[Vector, Vector]:
        """Return the candidate's gain on each decision with evidence, and the bounds of the gains.

        A sample contains the cost of both routers' choices. Any other decision yields an unbiased
        estimate if both choices had a known probability of being drawn. Only the first decision of
        a conversation counts, and only the first one of a text that recurs without an id, because
        a single draw decided all of them.
        """
        counted = first_decisions(rows, self.target)
        if not counted:
            return np.zeros(0), np.zeros(0)
        texts = [row["text"] for row in counted]
        keys = [row["request_id"] or row["text"] for row in counted]
        proposed = self.candidate.explain(texts, request_ids=keys)
        if self.current is None:
            names = [row["first_choice"] or row["selected"] for row in counted]
        else:
            has_prices = isinstance(self.current.router_, FrontierRouter)
            point = point_of(self.current, self.target if has_prices else None)
            current = self.current.explain(texts, point=point, request_ids=keys)
            names = [routed.name for routed in current]
        pairs = [
            gain
            for row, name, proposal in zip(counted, names, proposed, strict=True)
            if (gain := self._gain(row, name, proposal)) is not None
        ]
        gains = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return gains[:, 0], gains[:, 1]

    def _gain(self, row: Row, current: str, proposal: RoutedInput) -> tuple[float, float] | None:
        """Return the cost of the current choice minus that of the proposal, and its bound.

        The bound depends on the source of the costs and not on the request. Return ``None`` if the
        costs are unknown.
        """
        names = (current, proposal.name)
        sampled = [self._sampled_cost(row, name) for name in names]
        if not np.isnan(sampled).any():
            return sampled[0] - sampled[1], self.bound
        if row["score"] is None or row["served_by"] != row["selected"]:
            return None
        propensities = dict(zip(row["experts"] or (), row["propensities"] or (), strict=True))
        chances = [propensities.get(name, 0.0) for name in names]
        if min(chances) < self.min_propensity:
            return None
        largest = self.bound / self.min_propensity
        if current == proposal.name:
            return 0.0, largest
        gain = explored_gain(
            min(1 - row["score"] + self.weight * (row["cost_usd"] or 0.0), self.bound),
            [name == row["selected"] for name in names],
            chances,
            [self._expected_cost(proposal, name) for name in names],
        )
        return gain, largest

    def _sampled_cost(self, row: Row, expert: str) -> float:
        """Return the cost of an expert on a sample; NaN if it is unknown."""
        sample = row["sample"]
        if sample is None or expert not in sample["experts"]:
            return math.nan
        index = sample["experts"].index(expert)
        score, dollars = sample["scores"][index], sample["cost_usd"][index]
        if score is None:
            return math.nan
        return min(float(1 - score + self.weight * (dollars or 0.0)), self.bound)

    def _expected_cost(self, forecast: RoutedInput, name: str) -> float:
        """Return the cost of an expert that the candidate expects."""
        if name not in forecast.experts or forecast.scores is None:
            return 0.5
        index = forecast.experts.index(name)
        dollars = 0.0 if forecast.dollars is None else forecast.dollars[index]
        return min(max(1 - forecast.scores[index], 0.0) + self.weight * dollars, self.bound)


def first_decisions(rows: Iterable[Row], target: Target | None = None) -> list[Row]:
    """Return the decisions that routers made at a target or their own, one per conversation."""
    first: dict[str, Row] = {}
    targets = ("", describe_target(target))
    for row in rows:
        if row["text"] is not None and row["target"] in targets and row["reason"] not in _FORCED:
            first.setdefault(row["conversation"] or row["request_id"] or row["text"], row)
    return list(first.values())
