"""Feedback: how good the answer to a decision was, as the client says.

One line each, in the folder ``feedback`` of the log's folder.

A decision may be in the log of another replica, so that ids are not looked up. Where one decision
has several scores, the last one counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mildroute._jsonl import JsonlWriter, log_part, read_rows
from mildroute.exceptions import ArgumentError
from mildroute.serving.config import DecisionLogConfig

__all__ = ["FEEDBACK", "FeedbackLog", "read_feedback"]


# Folder of the feedback within that of the log.
FEEDBACK = "feedback"

_LONGEST_ID, _LONGEST_DETAIL = 128, 2000
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class FeedbackLog:
    """Writes scores of decisions.

    Args:
        clock: Seconds since 1970.
    """

    def __init__(self, config: DecisionLogConfig, clock: Callable[[], float] = time.time) -> None:
        if config.folder is None:
            raise ArgumentError(
                "feedback needs the folder of the log, got none; name one under log."
            )
        self._files = JsonlWriter(config.folder / FEEDBACK, config.rows_per_file)
        self._clock = clock

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._files.lost

    def write(self, decision_id: Any, score: Any, client: str, detail: Any = None) -> bool:
        """Append one line; what a client may have got wrong is an ``ArgumentError``.

        Args:
            decision_id: As the header ``x-mildroute-decision-id`` said.
            score: From 0, useless, to 1, perfect.
            client: Name of the client's key.
            detail: Words on the score, or none; at most 2,000 characters.

        Returns:
            Whether it was written; false if the disk is full or gone.
        """
        row = {
            "decision_id": _checked_id(decision_id),
            "score": _checked_score(score),
            "time": self._clock(),
            "key": client,
        }
        return self._files.append(
            _encoded(row | {"detail": _checked_detail(detail)}).encode("utf-8", "replace")
        )

    def close(self) -> None:
        """End the file."""
        self._files.close()


def read_feedback(folder: str | Path) -> dict[str, float]:
    """The score of each decision that has one: the last that was given."""
    last: dict[str, tuple[float, float]] = {}
    for row in read_rows(log_part(folder, FEEDBACK), ["decision_id", "score", "time"]):
        given = (row["time"], row["score"])
        if row["decision_id"] not in last or given[0] >= last[row["decision_id"]][0]:
            last[row["decision_id"]] = given
    return {name: score for name, (_, score) in last.items()}


def _checked_id(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= _LONGEST_ID
        or not value.isascii()
        or not value.isprintable()
    ):
        raise ArgumentError(
            "decision_id must be the text of the header x-mildroute-decision-id, got"
            f" {value!r:.60}."
        )
    return value


def _checked_score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ArgumentError(
            f"score must be a number from 0 to 1, got {value!r:.60}; divide by the largest score."
        )
    return float(value)


def _checked_detail(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_DETAIL):
        raise ArgumentError(
            f"detail must be a text of at most {_LONGEST_DETAIL:,} characters; shorten it."
        )
    return value
