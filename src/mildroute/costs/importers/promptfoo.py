"""promptfoo results: ``promptfoo eval -o results.json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mildroute.costs.importers.columns import Column, Record, value_at
from mildroute.costs.importers.log_format import LogFormat, file_head, read_json, to_text
from mildroute.exceptions import TableError

__all__ = ["PROMPTFOO"]

# Values of ``failureReason``: 0 for success, 1 for a failed assertion, 2 for a failed call.
_CALL_FAILED = 2


def _seconds(milliseconds: float) -> float:
    return milliseconds / 1000


def _is_promptfoo(path: Path) -> bool:
    return path.suffix == ".json" and path.is_file() and b'"promptIdx"' in file_head(path)


def _promptfoo_records(path: Path) -> Iterator[Record]:
    document = read_json(path)
    results = document.get("results", document) if isinstance(document, dict) else {}
    records = results.get("results") if isinstance(results, dict) else None
    if not isinstance(records, list):
        raise TableError(f"{str(path)!r} has no list 'results.results'; is it promptfoo's output?")
    # If there are several prompts, each is a variant of the expert, and the first is the query.
    prompts = list(dict.fromkeys(record.get("promptId") for record in records))
    queries: dict[Any, Any] = {}
    for record in records:
        queries.setdefault(record.get("testIdx"), value_at(record, "prompt.raw"))
    for record in records:
        number = prompts.index(record.get("promptId")) + 1
        yield {
            **record,
            "query": queries[record.get("testIdx")],
            "variant": f"prompt {number}" if len(prompts) > 1 else None,
        }


def _has_error(failure_reason: int) -> bool:
    """Return whether the call failed, as opposed to an answer that failed an assertion."""
    return failure_reason == _CALL_FAILED


PROMPTFOO = LogFormat(
    "promptfoo",
    _is_promptfoo,
    _promptfoo_records,
    (
        Column("input", "query", required=True, convert=to_text),
        Column("expert", "provider.label | provider.id | provider", required=True),
        Column("variant", "variant"),
        Column("dollars", "cost"),
        Column("latency", "latencyMs", convert=_seconds),
        Column("input_tokens", "response.tokenUsage.prompt | tokenUsage.prompt"),
        Column("output_tokens", "response.tokenUsage.completion | tokenUsage.completion"),
        Column("answer", "response.output", convert=to_text),
        Column("group", "testCase.description | testCase.metadata.group"),
        Column("error", "failureReason", convert=_has_error),
    ),
    lambda record: {"score": record.get("score"), **(record.get("namedScores") or {})},
)
