"""Scores of answers: feedback from clients, and samples, in which a judge scores all experts.

Each entry is one line in the folder ``feedback`` or ``samples`` of the log's folder.

A decision may be in the log of another replica, so ids are not looked up; the id itself shows
whether a gateway of this log created it. If a decision has several scores, the last one counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute._jsonl import JsonlWriter, log_part, read_rows
from mildroute.decision.settings import DecisionLogConfig
from mildroute.exceptions import ArgumentError, TableError
from mildroute.routers.frontier.curve import FEWEST_TO_PROMISE

__all__ = [
    "FEEDBACK",
    "SAMPLES",
    "DecisionIds",
    "FeedbackLog",
    "SampleLog",
    "SampleSummary",
    "has_enough_samples",
    "read_feedback",
    "read_samples",
    "summarize_samples",
]


# Folder of the feedback within the log's folder.
FEEDBACK = "feedback"
# Folder of the samples within the log's folder.
SAMPLES = "samples"

_MAX_ID = 128
_MAX_DETAIL = 2000
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class DecisionIds:
    """A source of decision ids, which recognizes ids that were created with the same key.

    Args:
        key: The key, of at most 32 bytes.

    Example:
        >>> ids = DecisionIds(b"secret")
        >>> ids.has_made(ids.new()), ids.has_made("0" * 32)
        (True, False)
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, folder: Path) -> DecisionIds:
        """Return ids with the key of a log's folder, or a random key if none can be stored."""
        key, path = os.urandom(16), folder / ".decision-ids"
        beside = folder / f".{key.hex()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            beside.touch(mode=0o600)
            beside.write_bytes(key)
            # If several processes start at once, all of them use the key of the first.
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)
            key = path.read_bytes()[: hashlib.blake2s.MAX_KEY_SIZE]
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return cls(key)

    def new(self) -> str:
        """Create a unique id for a decision."""
        head = os.urandom(12).hex()
        return head + self._seal(head)

    def has_made(self, decision_id: str) -> bool:
        """Return whether this key created an id."""
        return hmac.compare_digest(self._seal(decision_id[:24]), decision_id[24:])

    def _seal(self, head: str) -> str:
        return hashlib.blake2s(head.encode(), digest_size=4, key=self._key).hexdigest()


class FeedbackLog:
    """The log of feedback, which is the scores of decisions.

    Args:
        config: Settings of the decision log, which must have a folder.
        clock: Function that returns seconds since 1970.

    Attributes:
        ids: Source of the ids of this log's decisions.
    """

    def __init__(self, config: DecisionLogConfig, clock: Callable[[], float] = time.time) -> None:
        if config.folder is None:
            raise ArgumentError(
                "feedback needs the folder of the log, got none; set folder under log."
            )
        self.ids = DecisionIds.of(config.folder)
        self._files = JsonlWriter(config.folder / FEEDBACK, config.rows_per_file)
        self._clock = clock

    @property
    def lost(self) -> int:
        """The number of lines that could not be written."""
        return self._files.lost

    def write(self, decision_id: Any, score: Any, client: str, detail: Any = None) -> bool:
        """Append one entry; a client's mistake raises ``ArgumentError``.

        Args:
            decision_id: Value of the header ``x-mildroute-decision-id``.
            score: Score from 0 (useless) to 1 (perfect).
            client: Name of the client's key.
            detail: Comment on the score, or ``None``; at most 2,000 characters.

        Returns:
            Whether the entry was written; ``False`` if the disk is full or missing.
        """
        row = {
            "decision_id": _validate_id(decision_id),
            "score": _validate_score(score),
            "time": self._clock(),
            "key": client,
        }
        line = _encoded(row | {"detail": _validate_detail(detail)})
        return self._files.append(line.encode("utf-8", "replace")) is not None

    def close(self) -> None:
        """Close the file."""
        self._files.close()


def read_feedback(folder: str | Path) -> dict[str, float]:
    """Return the last score of each decision that has one."""
    last: dict[str, tuple[float, float]] = {}
    for row in read_rows(log_part(folder, FEEDBACK), ["decision_id", "score", "time"]):
        entry = (row["time"], row["score"])
        if not all(isinstance(value, (int, float)) for value in entry) or not 0 <= entry[1] <= 1:
            raise TableError(
                f"feedback must have a time and a score from 0 to 1, got {entry!r:.80} of decision"
                f" {row['decision_id']!r:.60}; remove the line from {str(folder)!r}."
            )
        if row["decision_id"] not in last or entry[0] >= last[row["decision_id"]][0]:
            last[row["decision_id"]] = entry
    return {name: score for name, (_, score) in last.items()}


def _validate_id(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= _MAX_ID
        or not value.isascii()
        or not value.isprintable()
    ):
        raise ArgumentError(
            "decision_id must be the text of the header x-mildroute-decision-id, got"
            f" {value!r:.60}."
        )
    return value


def _validate_score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ArgumentError(
            f"score must be a number from 0 to 1, got {value!r:.60}; divide by the largest score."
        )
    return float(value)


def _validate_detail(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_DETAIL):
        raise ArgumentError(
            f"detail must be a text of at most {_MAX_DETAIL:,} characters; shorten it."
        )
    return value


class SampleLog:
    """The log of samples, which has their answers only if texts are logged.

    Args:
        config: Settings of the decision log, which must have a folder.

    Attributes:
        folder: Folder of the decision log.
    """

    def __init__(self, config: DecisionLogConfig) -> None:
        if config.folder is None:
            raise ArgumentError(
                "samples need the folder of the log, got none; set folder under log."
            )
        self.folder = config.folder
        self._files = JsonlWriter(config.folder / SAMPLES, config.rows_per_file)
        self._log_prompts = config.log_prompts

    @property
    def lost(self) -> int:
        """The number of lines that could not be written."""
        return self._files.lost

    def write(self, row: Mapping[str, Any], answers: Sequence[str | None]) -> None:
        """Append one entry, with the answers if texts are logged."""
        texts = {"answers": list(answers)} if self._log_prompts else {}
        self._files.append(_encoded({**row, **texts}).encode("utf-8", "replace"))

    def close(self) -> None:
        """Close the file."""
        self._files.close()


def read_samples(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Yield each sample of a log once, although shipped rows may be stored twice."""
    seen: set[str] = set()
    for row in read_rows(log_part(folder, SAMPLES)):
        if row["decision_id"] not in seen:
            seen.add(row["decision_id"])
            yield row


def has_enough_samples(folder: str | Path, experts: Sequence[str]) -> bool:
    """Return whether enough samples have a score for each expert to fit a router."""
    full = 0
    for row in read_samples(folder):
        scores = dict(zip(row["experts"], row["scores"], strict=True))
        full += all(scores.get(name) is not None for name in experts)
        if full >= FEWEST_TO_PROMISE:
            return True
    return False


@dataclass(frozen=True)
class SampleSummary:
    """Counts of samples and of scores.

    Args:
        rows: Number of samples.
        full: Number of samples with a score for every expert that was ever sampled.
        scores: Number of scores of each expert.
    """

    rows: int
    full: int
    scores: Mapping[str, int]

    @property
    def is_enough(self) -> bool:
        """Return whether there are enough samples to fit a router."""
        return self.full >= FEWEST_TO_PROMISE

    def __str__(self) -> str:
        """Return a sentence with the counts and with what a fit still requires."""
        counts = f"{self.rows:,} samples, {self.full:,} of them with a score for every expert"
        if self.is_enough:
            return f"{counts}: enough to fit a router"
        rare = min(self.scores, key=lambda name: self.scores[name], default="")
        few = f", and {rare} has {self.scores[rare]:,} scores" if rare else ""
        return (
            f"{counts}: a fit needs {FEWEST_TO_PROMISE} of these{few}; let the gateway sample more"
        )


def summarize_samples(rows: Iterable[Mapping[str, Any]]) -> SampleSummary:
    """Count samples and the scores of each expert."""
    scored = [
        {name: score is not None for name, score in zip(row["experts"], row["scores"], strict=True)}
        for row in rows
    ]
    counts: Counter[str] = Counter({name: 0 for row in scored for name in row})
    counts.update(name for row in scored for name, has_score in row.items() if has_score)
    full = sum(all(row.get(name) for name in counts) for row in scored)
    return SampleSummary(len(scored), full, dict(counts))
