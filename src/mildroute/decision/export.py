"""Build a cost table from the decision log and its feedback.

The table has one row for each decision with a score. A row holds the score, dollars and seconds of
the expert that answered; the cells of the other experts are empty, because their answers are
unknown. The row of a sample holds the judge's scores, dollars and seconds of all its experts, and
``propensity:<expert>`` is 1 for each of them, because sampling does not depend on the request. In
addition to the columns of a cost table, the table has columns for estimates, which ``CostTable``
ignores: ``selected``, ``shadow``, ``propensity:<expert>`` (the probability of choosing that
expert), ``posterior:<expert>`` and ``propensity``, the probability that the row's cell was filled.
The last of these is empty

- if the chosen expert failed, or was overtaken, and another one answered: the answer is that of the
  other expert, but the probability that it answers is unknown, and its seconds include those of the
  failure. Estimates count such a row as a request but count its answer for no expert; otherwise an
  expert would be judged by requests that reached it because others had failed;
- if the client named the expert itself: nothing was drawn at random, and the probabilities are
  empty as well.

A look of a cascade is a choice like an expert and has its own column, with the score of the
resulting answer and the dollars and seconds of all its calls.

The client carries out the decisions of ``POST /v1/route``. Their feedback is that of the chosen
expert, whose dollars and seconds the gateway does not know. If a log has only such decisions, the
table has only scores; otherwise, these decisions are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mildroute._jsonl import check_log
from mildroute.decision.feedback import (
    SampleSummary,
    read_feedback,
    read_samples,
    summarize_samples,
)
from mildroute.decision.log import read_decisions
from mildroute.exceptions import TableError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoggedCostTable", "costs_from_log"]


_COLUMNS = (
    *(
        "decision_id",
        "time",
        "experts",
        "posterior",
        "reason",
        "selected",
        "propensity",
        "propensities",
        "served_by",
    ),
    *("attempts", "status", "cost_usd", "seconds", "conversation", "shadow", "text", "look"),
)
_KINDS = (("score:", "score"), ("cost:", "cost_usd"), ("latency:", "seconds"))


@dataclass(frozen=True)
class LoggedCostTable:
    """A cost table from a log, with counts of the decisions that were left out.

    A row has one filled cell, or several if the row is a sample.

    Attributes:
        arrow: The table.
        experts: Names of the experts.
        decisions: Number of decisions in the log.
        without_score: Number of decisions without a score.
        without_answer: Number of decisions that were not answered by an expert of a router.
        unknown: Number of scores for decisions that are not in the log.
        samples: Number of rows that are samples, and whether they suffice to fit a router.
        notes: Sentences about the limits of the table.
    """

    arrow: pa.Table
    experts: tuple[str, ...]
    decisions: int
    without_score: int
    without_answer: int
    unknown: int
    samples: SampleSummary
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of decisions with a score, and of samples."""
        return int(self.arrow.num_rows)

    def save(self, target: str | Path) -> Path | str:
        """Write the table in the format of the suffix; estimates can only read Parquet."""
        from mildroute.costs.writing import write_table

        return write_table(self.arrow, target)


def costs_from_log(folder: str | Path, *, only_with_text: bool = False) -> LoggedCostTable:
    """Join decisions, feedback and samples.

    Texts are part of the table only if every row has one. Without them, experts and routers whose
    choices are known, such as a shadow router's, can be estimated; other routers cannot.

    Args:
        folder: Folder of the log, or the URL that it was shipped to.
        only_with_text: Whether to leave out decisions whose text was not logged.

    Returns:
        The table.

    Example:
        >>> costs_from_log("no/such/log")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: the log 'no/such/log' is not a folder; check the path.
    """
    check_log(folder)
    scores = read_feedback(folder)
    samples = {row["decision_id"]: row for row in read_samples(folder)}
    summary = summarize_samples(samples.values())
    logged = _LoggedRows()
    for row in read_decisions(folder, _COLUMNS):
        sample = samples.pop(row["decision_id"], None)
        logged.add(row, scores, sample, only_with_text=only_with_text)
    for sample in samples.values():
        logged.add_sample({}, sample)
    logged.finish()
    if not logged.rows:
        raise TableError(
            f"no decision of the log {str(folder)!r} has both an answer and a score, among"
            f" {logged.decisions:,} decisions and {len(scores):,} scores; send scores to POST"
            " /v1/feedback, or let the gateway sample (sampling in gateway.yaml)."
        )
    if len(logged.experts) < 2:
        raise TableError(
            "a table needs at least two experts, got"
            f" {', '.join(map(repr, logged.experts)) or 'none'}; log a router with several."
        )
    unknown = len(scores.keys() - logged.ids)
    counts = (logged.decisions, logged.without_score, logged.without_answer, unknown)
    table = _table(logged.rows, logged.experts, logged.kinds)
    return LoggedCostTable(table, tuple(logged.experts), *counts, summary, logged.notes())


@dataclass
class _LoggedRows:
    """The rows of the table under construction."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    without_call: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    kinds: tuple[tuple[str, str], ...] = _KINDS
    ids: set[str] = field(default_factory=set)
    experts: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    without_score: int = 0
    without_answer: int = 0

    def add(
        self,
        row: dict[str, Any],
        scores: Mapping[str, float],
        sample: Mapping[str, Any] | None,
        *,
        only_with_text: bool,
    ) -> None:
        if row["decision_id"] in self.ids:
            return
        self.ids.add(row["decision_id"])
        self.decisions += 1
        for expert in row["experts"] or ():
            self.experts.setdefault(expert, len(self.experts))
        score = scores.get(row["decision_id"])
        if sample is not None:
            self.add_sample(row, sample)
        elif score is None:
            self.without_score += 1
        elif row.get("text") is not None or not only_with_text:
            self._keep({**row, "score": score})

    def add_sample(self, row: Mapping[str, Any], sample: Mapping[str, Any]) -> None:
        """Add the scores of all experts of a sample, whose decision may be in another log."""
        names = sample["experts"]
        for expert in names:
            self.experts.setdefault(expert, len(self.experts))
        values = zip(sample["scores"], sample["cost_usd"], sample["seconds"], strict=True)
        own_columns = ("decision_id", "time", "text", "conversation")
        self.samples.append(
            {
                "posterior": (),
                "shadow": "",
                "selected": sample.get("served_by") or names[0],
                **row,
                **{name: sample[name] for name in own_columns},
                "served_by": row.get("selected") or sample.get("served_by"),
                "reason": "sample",
                "propensity": 1.0,
                "experts": names,
                "propensities": (1.0,) * len(names),
                "router_experts": row.get("experts", ()),
                "cells": dict(zip(names, values, strict=True)),
            }
        )

    def _keep(self, row: dict[str, Any]) -> None:
        if row["served_by"]:
            self.rows.append({**row, "served_by": row["selected"]} if _is_look(row) else row)
        elif row["selected"] and not row["attempts"] and row["status"] == 200:
            self.without_call.append({**row, "served_by": row["selected"]})
        else:
            self.without_answer += 1

    def finish(self) -> None:
        """Leave out answers of experts that no router of the log knows.

        Clients named these experts, or all other experts had failed.
        """
        if self.without_call and not self.rows and not self.samples:
            self.rows, self.without_call, self.kinds = self.without_call, [], _KINDS[:1]
        routed = [row for row in self.rows if row["served_by"] in self.experts]
        self.without_answer += len(self.rows) - len(routed)
        self.rows = [*routed, *self.samples]

    def notes(self) -> tuple[str, ...]:
        bare = sum(row.get("text") is None for row in self.rows)
        fallbacks = sum(row["served_by"] != row["selected"] for row in self.rows)
        notes: tuple[str, ...] = ()
        if bare:
            notes += (
                (
                    f"{bare:,} of {len(self.rows):,} rows have no text, so the table has no input:"
                    " experts can be estimated, but other routers cannot; enable log_prompts, or"
                    " leave out those rows with only_with_text"
                ),
            )
        if self.without_call:
            notes += (
                (
                    f"{len(self.without_call):,} decisions of /v1/route are left out, because their"
                    " dollars and seconds are unknown"
                ),
            )
        if fallbacks:
            notes += (
                (
                    f"{fallbacks:,} answers came from an expert other than the one chosen; they"
                    " count for no expert in estimates"
                ),
            )
        return notes


def _table(
    rows: Sequence[dict[str, Any]], experts: Mapping[str, int], kinds: Sequence[tuple[str, str]]
) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {"query_id": [row["decision_id"] for row in rows]}
    if all(row.get("text") is not None for row in rows):
        columns["input"] = [row["text"] for row in rows]
    if any(row["conversation"] for row in rows):
        columns["conversation"] = [row["conversation"] or "" for row in rows]
    columns["time"] = [row["time"] for row in rows]
    cells = [
        row.get("cells") or {row["served_by"]: [row[name] for _, name in kinds]} for row in rows
    ]
    for index, (prefix, _) in enumerate(kinds):
        values_of_kind = [{name: values[index] for name, values in row.items()} for row in cells]
        columns |= _cells(prefix, values_of_kind, experts)
    columns |= {name: [row[name] for row in rows] for name in ("selected", "shadow")}
    columns["propensity"] = pa.array(
        [row["propensity"] if _is_drawn(row) and _is_own(row) else None for row in rows],
        pa.float64(),
    )
    columns |= _columns(
        "propensity:",
        ((row["experts"], row["propensities"] if _is_drawn(row) else ()) for row in rows),
        experts,
    )
    posteriors = ((row.get("router_experts", row["experts"]), row["posterior"]) for row in rows)
    columns |= _columns("posterior:", posteriors, experts)
    return pa.table(columns)


def _is_drawn(row: Mapping[str, Any]) -> bool:
    return bool(row["reason"] != "pinned")


def _is_look(row: Mapping[str, Any]) -> bool:
    """Return whether a look of a cascade was chosen and no expert failed in it."""
    return bool(row.get("look")) and not any(call["reason"] for call in row["attempts"])


def _is_own(row: Mapping[str, Any]) -> bool:
    return bool(row["served_by"] == row["selected"])


def _cells(
    prefix: str, rows: Sequence[Mapping[str, float | None]], experts: Mapping[str, int]
) -> dict[str, Any]:
    """Return a column for each expert, filled where it answered."""
    import pyarrow as pa

    return {
        prefix + name: pa.array([row.get(name) for row in rows], pa.float64()) for name in experts
    }


def _columns(
    prefix: str, rows: Iterable[tuple[Sequence[str], Sequence[float]]], experts: Mapping[str, int]
) -> dict[str, Any]:
    """Return a column for each expert.

    A value is 0 if the router at the time did not know the expert, and empty if nothing was
    recorded.
    """
    import pyarrow as pa

    filled = []
    for names, values in rows:
        row = np.full(len(experts), np.nan if not values or len(values) != len(names) else 0.0)
        for name, value in zip(names or (), values or (), strict=False):
            row[experts[name]] = value
        filled.append(row)
    matrix = np.array(filled)
    return {
        prefix + name: pa.array(matrix[:, index], mask=np.isnan(matrix[:, index]))
        for name, index in experts.items()
    }
