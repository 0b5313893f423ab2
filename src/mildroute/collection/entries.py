"""The entries of the store: calls that were started, answers and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mildroute.experts.base import Answer

__all__ = [
    "ANSWERS",
    "SCHEMAS",
    "STARTED",
    "VERDICTS",
    "CallFinished",
    "CallStarted",
    "Entry",
    "Judged",
    "to_row",
]

# Kinds of entries.
STARTED = "started"
ANSWERS = "answers"
VERDICTS = "verdicts"


@dataclass(frozen=True)
class CallStarted:
    """An attempt at a call that may cost money, recorded before it is made.

    If no answer follows, the call may have been charged up to its upper bound.

    Args:
        expert: Name of the expert.
        version: Version of the expert.
        query: Digest of the query.
        worst: Upper bound on the dollars of this attempt and of earlier ones that may have been
            charged.
        attempt: Number of the attempt at this call, from 1.
        judge: Name of the judge if the call is for a verdict; empty otherwise.
    """

    expert: str
    version: str
    query: str
    worst: float
    attempt: int = 1
    judge: str = ""

    kind = STARTED


@dataclass(frozen=True)
class CallFinished:
    """An expert's answer to a query; see :class:`~mildroute.experts.Answer`.

    Args:
        expert: Name of the expert.
        version: Version of the expert.
        query: Digest of the query.
        query_id: Name of the query.
    """

    expert: str
    version: str
    query: str
    query_id: str
    text: str | None
    error: str
    dollars: float
    unconfirmed_cost: float
    latency: float
    tokens_in: int | None
    tokens_out: int | None
    attempts: int
    logprob: float | None

    kind = ANSWERS

    @classmethod
    def from_answer(
        cls, answer: Answer, expert: str, version: str, query: str, query_id: str
    ) -> CallFinished:
        """Return the entry of an answer."""
        return cls(
            expert,
            version,
            query,
            query_id,
            answer.text,
            answer.error,
            float(answer.dollars),
            float(answer.unconfirmed_cost),
            float(answer.latency),
            answer.tokens_in,
            answer.tokens_out,
            int(answer.attempts),
            answer.logprob,
        )


@dataclass(frozen=True)
class Judged:
    """A judge's verdict on an answer; see :class:`~mildroute.judges.Verdict`.

    Args:
        expert: Name of the expert that answered.
        version: Version of the expert.
        query: Digest of the query.
        judge: Name of the judge.
        judge_version: Version of the judge.
    """

    expert: str
    version: str
    query: str
    judge: str
    judge_version: str
    score: float | None
    reason: str
    dollars: float
    unconfirmed_cost: float = 0.0

    kind = VERDICTS


Entry = CallStarted | CallFinished | Judged

# The columns of each kind of entry.
SCHEMAS: Mapping[str, pa.Schema] = {
    ANSWERS: pa.schema(
        {
            "expert": pa.string(),
            "version": pa.string(),
            "query": pa.string(),
            "query_id": pa.string(),
            "text": pa.string(),
            "error": pa.string(),
            "dollars": pa.float64(),
            "unconfirmed_cost": pa.float64(),
            "latency": pa.float64(),
            "tokens_in": pa.int64(),
            "tokens_out": pa.int64(),
            "attempts": pa.int64(),
            "logprob": pa.float64(),
        }
    ),
    VERDICTS: pa.schema(
        {
            "expert": pa.string(),
            "version": pa.string(),
            "query": pa.string(),
            "judge": pa.string(),
            "judge_version": pa.string(),
            "score": pa.float64(),
            "reason": pa.string(),
            "dollars": pa.float64(),
            "unconfirmed_cost": pa.float64(),
        }
    ),
    STARTED: pa.schema(
        {"expert": pa.string(), "version": pa.string(), "query": pa.string(), "worst": pa.float64()}
    ),
}


def to_row(entry: Entry) -> dict[str, Any]:
    """Return the row of an entry in a journal."""
    return {"kind": entry.kind, **vars(entry)}
