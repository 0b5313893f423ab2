"""Build a cost table from the decision log and its feedback.

The table has one row for each decision with a score. The row has the score, dollars and seconds of
the expert that answered, and nothing for the others, whose answers are unknown. A sample has those
of all its experts, with the judge's scores, and ``propensity:<expert>`` is 1 for each of them:
sampling does not depend on the request. In addition to the columns of a cost table, the table has
columns for estimates, which ``CostTable`` ignores: ``selected``, ``shadow``,
``propensity:<expert>`` (the probability of choosing that expert), ``posterior:<expert>`` and
``propensity``, the probability that the row's cell was filled. That one is empty

- if the chosen expert failed, or was overtaken, and another one answered: the answer is that of the
  other expert, but the probability that it answers is unknown, and its seconds include those of the
  failure. Estimates count such a row as a request but count its answer for no expert; otherwise an
  expert would be judged by requests that reached it because others had failed;
- if the client named the expert itself: nothing was drawn at random, and the probabilities are
  empty as well.

A look of a cascade is a choice like an expert and has its own column: the score of the resulting
answer, and the dollars and seconds of all its calls.

Decisions of ``POST /v1/route`` were carried out by the client, and their feedback is that of the
chosen expert, whose dollars and seconds the gateway does not know. A log with only such decisions
gives a table of scores; in a log with others they are left out.
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
    """A cost table with one filled cell per row, or several if the row is a sample.

    It also counts the decisions that are not in it.

    Attributes:
        without_answer: Decisions that no expert answered, or that were answered by one that no
            router knows.
        unknown: Scores for decisions that are not in the log.
        samples: Number of rows that are samples, and whether they suffice to fit a router.
        notes: Sentences on what can and cannot be done with the table.
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
        """Decisions that have a score, and samples."""
        return int(self.arrow.num_rows)

    def save(self, target: str | Path) -> Path | str:
        """Write the table; the suffix sets the format, and estimates can only read Parquet."""
        from mildroute.costs.writing import write_table

        return write_table(self.arrow, target)


def costs_from_log(folder: str | Path, *, only_with_text: bool = False) -> LoggedCostTable:
    """Join decisions, feedback and samples.

    Texts are part of the table only if every row has one. Without them, experts and routers whose
    choices are known, such as a shadow router's, can be estimated; other routers cannot.

    Args:
        folder: Of the log, or the URL that it was shipped to.
        only_with_text: Leave out decisions whose text was not kept.

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
            f" {', '.join(map(repr, logged.experts)) or 'none'}; log a router of several."
        )
    unknown = len(scores.keys() - logged.ids)
    counts = (logged.decisions, logged.without_score, logged.without_answer, unknown)
    table = _table(logged.rows, logged.experts, logged.kinds)
    return LoggedCostTable(table, tuple(logged.experts), *counts, summary, logged.notes())


@dataclass
class _LoggedRows:
    """Rows of the table under construction."""

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
                "known": row.get("experts", ()),
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

        Clients named them, or all others had failed.
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
                    f"{bare:,} of {len(self.rows):,} rows have no text, so that the table has no"
                    " input: experts can be estimated, but no other router; switch on log_prompts,"
                    " or leave out those rows with only_with_text"
                ),
            )
        if self.without_call:
            notes += (
                (
                    f"{len(self.without_call):,} decisions of /v1/route are left out, whose dollars"
                    " and seconds are not known"
                ),
            )
        if fallbacks:
            notes += (
                (
                    f"{fallbacks:,} answers came from another expert than the one chosen; they"
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
    posteriors = ((row.get("known", row["experts"]), row["posterior"]) for row in rows)
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

    0 if the router at the time did not know it, empty if nothing was recorded.
    """
    import pyarrow as pa

    filled = []
    for names, values in rows:
        line = np.full(len(experts), np.nan if not values or len(values) != len(names) else 0.0)
        for name, value in zip(names or (), values or (), strict=False):
            line[experts[name]] = value
        filled.append(line)
    matrix = np.array(filled)
    return {
        prefix + name: pa.array(matrix[:, index], mask=np.isnan(matrix[:, index]))
        for name, index in experts.items()
    }
