"""What is written down of a cell: that it was asked, what was answered, and what a judge said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mildroute.experts.protocol import Answer

__all__ = ["ANSWERS", "ASKED", "SCHEMAS", "VERDICTS", "AnswerEntry", "AskedEntry", "Entry", "VerdictEntry", "written"]

ASKED, ANSWERS, VERDICTS = "asked", "answers", "verdicts"


@dataclass(frozen=True)
class AskedEntry:
    """A call that may cost money is about to be made; if no answer follows, it may have been charged up to its upper bound.

    Example:
        >>> AskedEntry("small", "v1", "ab12", 0.02).worst
        0.02
    """

    expert: str
    version: str
    query: str
    worst: float

    kind = ASKED


@dataclass(frozen=True)
class AnswerEntry:
    """What an expert gave to a query, or why it gave nothing.

    Args:
        expert: Its name.
        version: Its version.
        query: Digest of the query.
        query_id: Name of the query.
        text: The answer, or none.
        error: Why there is none.
        dollars: What it cost.
        doubtful_dollars: What may have been charged besides.
        latency: Seconds.
        tokens_in: Tokens that went in, or none.
        tokens_out: Tokens that came out, or none.
        attempts: Calls made.

    Example:
        >>> AnswerEntry.of(Answer("4"), "small", "v1", "ab12", "q1").text
        '4'
    """

    expert: str
    version: str
    query: str
    query_id: str
    text: str | None
    error: str
    dollars: float
    doubtful_dollars: float
    latency: float
    tokens_in: int | None
    tokens_out: int | None
    attempts: int

    kind = ANSWERS

    @classmethod
    def of(cls, answer: Answer, expert: str, version: str, query: str, query_id: str) -> AnswerEntry:
        """From an answer."""
        return cls(
            expert,
            version,
            query,
            query_id,
            answer.text,
            answer.error,
            float(answer.dollars),
            float(answer.doubtful_dollars),
            float(answer.latency),
            answer.tokens_in,
            answer.tokens_out,
            int(answer.attempts),
        )


@dataclass(frozen=True)
class VerdictEntry:
    """What a judge said of an answer.

    Args:
        expert: Who answered.
        version: In which version.
        query: Digest of the query.
        judge: Name of the judge.
        judge_version: Its version.
        score: From 0 to 1, or none if it could not tell.
        reason: Why.
        dollars: What judging cost.

    Example:
        >>> VerdictEntry("small", "v1", "ab12", "choice", "j1", 1.0, "read C", 0.0).score
        1.0
    """

    expert: str
    version: str
    query: str
    judge: str
    judge_version: str
    score: float | None
    reason: str
    dollars: float

    kind = VERDICTS


Entry = AskedEntry | AnswerEntry | VerdictEntry
SCHEMAS: Mapping[str, pa.Schema] = {
    ANSWERS: (
        pa.schema(
            {
                "expert": pa.string(),
                "version": pa.string(),
                "query": pa.string(),
                "query_id": pa.string(),
                "text": pa.string(),
                "error": pa.string(),
                "dollars": pa.float64(),
                "doubtful_dollars": pa.float64(),
                "latency": pa.float64(),
                "tokens_in": pa.int64(),
                "tokens_out": pa.int64(),
                "attempts": pa.int64(),
            }
        )
    ),
    VERDICTS: (
        pa.schema(
            {
                "expert": pa.string(),
                "version": pa.string(),
                "query": pa.string(),
                "judge": pa.string(),
                "judge_version": pa.string(),
                "score": pa.float64(),
                "reason": pa.string(),
                "dollars": pa.float64(),
            }
        )
    ),
    ASKED: pa.schema({"expert": pa.string(), "version": pa.string(), "query": pa.string(), "worst": pa.float64()}),
}
"""Columns of each kind of entry."""


def written(entry: Entry) -> dict[str, Any]:
    """The line of an entry.

    Example:
        >>> written(AskedEntry("a", "1", "q", 0.1))["kind"]
        'asked'
    """
    return {"kind": entry.kind, **vars(entry)}
