"""Outcomes of decisions that were carried out elsewhere: one line for each call to an expert.

The gateway calls experts itself and logs each decision with its outcome. Every other integration
logs a decision when it is made, and each call when it has ended, in the folder ``outcomes`` of the
log's folder. Readers of the log join them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mildroute._jsonl import JsonlWriter, log_part, read_rows
from mildroute.decision.settings import DecisionLogConfig
from mildroute.exceptions import ArgumentError

__all__ = ["OUTCOMES", "Outcome", "OutcomeLog", "join_outcomes", "read_outcomes"]

# Folder of the outcomes within the log's folder.
OUTCOMES = "outcomes"

_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


_NUMBERS = (
    "tokens_in",
    "tokens_out",
    "cached_tokens",
    "cost_usd",
    "seconds",
    "first_byte_seconds",
)
# Larger numbers are mistakes, and would dominate every mean.
_MAX_NUMBER = 1e9


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call to an expert.

    A request that was retried or fell back to another expert has several outcomes, reported in the
    order of the calls.

    Args:
        expert: The expert that was called.
        status: HTTP status of the response; 0 without a response.
        reason: Reason for a failure, such as ``"timeout"``; empty if the expert answered.
        tokens_in: Tokens of the request.
        tokens_out: Tokens of the response.
        cached_tokens: Tokens of the request that came from the provider's prompt cache.
        cost_usd: Dollars of the call; if ``None``, they are computed from the tokens and the
            expert's price.
        seconds: Duration of the call.
        first_byte_seconds: Seconds until the first byte of the answer; ``None`` if unknown.

    Example:
        >>> Outcome("small", tokens_in=12, tokens_out=3, cost_usd=0.001).is_answer
        True
    """

    expert: str
    status: int = 200
    reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    first_byte_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers, which come from other programs."""
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _MAX_NUMBER:
                raise ArgumentError(
                    f"{name} of an outcome must be a number from 0 to {_MAX_NUMBER:g}, got"
                    f" {value!r:.40}."
                )

    @property
    def is_answer(self) -> bool:
        """Return whether the expert answered."""
        return not self.reason and 200 <= self.status < 400


_NAMES = tuple(field.name for field in fields(Outcome))


class OutcomeLog:
    """The log of outcomes, for use by one thread at a time."""

    def __init__(self, config: DecisionLogConfig) -> None:
        if config.folder is None:
            raise ArgumentError(
                "outcomes need the folder of the log, got none; set folder under log."
            )
        self._files = JsonlWriter(config.folder / OUTCOMES, config.rows_per_file)

    @property
    def lost(self) -> int:
        """The number of lines that could not be written."""
        return self._files.lost

    def write(
        self, decision_id: str, outcome: Outcome, time: float, baseline_cost_usd: float = 0.0
    ) -> bool:
        """Append one outcome; return whether it was written."""
        row = {
            "decision_id": decision_id,
            "time": time,
            **{name: getattr(outcome, name) for name in _NAMES},
            "baseline_cost_usd": baseline_cost_usd,
        }
        return self._files.append(_encoded(row).encode("utf-8", "replace")) is not None

    def close(self) -> None:
        """Close the file."""
        self._files.close()


def read_outcomes(folder: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Return the outcomes of each decision in the order of their calls.

    Rows that were shipped to a URL may be stored twice; each is read once.
    """
    outcomes: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(log_part(folder, OUTCOMES)):
        earlier = outcomes.setdefault(row["decision_id"], [])
        if row not in earlier:
            earlier.append(row)
    for rows in outcomes.values():
        rows.sort(key=lambda row: row["time"])
    return outcomes


def join_outcomes(row: dict[str, Any], outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a row of the decision log with the outcomes of its calls."""
    last = outcomes[-1]
    is_answered = not last["reason"] and 200 <= last["status"] < 400
    before = (row.get("seconds") or 0.0) + sum(call["seconds"] for call in outcomes[:-1])
    first_byte = last["first_byte_seconds"]
    seconds = before + last["seconds"]
    dollars = [call["cost_usd"] for call in outcomes]
    return {
        **row,
        "served_by": last["expert"] if is_answered else "",
        "attempts": [
            {name: value for name, value in call.items() if name not in _DECISION_FIELDS}
            for call in outcomes
        ],
        "status": last["status"],
        "tokens_in": last["tokens_in"],
        "tokens_out": last["tokens_out"],
        "cost_usd": None if None in dollars else sum(dollars),
        "baseline_cost_usd": last["baseline_cost_usd"],
        "first_byte_seconds": seconds if first_byte is None else before + first_byte,
        "seconds": seconds,
    }


_DECISION_FIELDS = ("decision_id", "time", "first_byte_seconds", "baseline_cost_usd")
