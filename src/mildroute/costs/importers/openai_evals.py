"""Event logs of OpenAI's evals: JSON lines, of which the first is the specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mildroute.costs.importers.columns import Column, Record
from mildroute.costs.importers.log_format import LogFormat, first_record, read_json_lines, to_text

__all__ = ["OPENAI_EVALS"]


def _is_openai_evals(path: Path) -> bool:
    record = first_record(path)
    return isinstance(record, dict) and "completion_fns" in (record.get("spec") or {})


def _openai_evals_records(path: Path) -> Iterator[Record]:
    events = read_json_lines(path)
    spec = next(events)["spec"]
    samples: dict[str, dict[str, Any]] = {}
    for event in events:
        if "sample_id" in event:
            samples.setdefault(event["sample_id"], {})[event.get("type")] = event.get("data")
    for sample in samples.values():
        yield {"spec": spec, **sample}


def _openai_evals_metrics(record: Record) -> Mapping[str, Any]:
    match = record.get("match") or {}
    return {**(record.get("metrics") or {}), **({"match": match["correct"]} if match else {})}


OPENAI_EVALS = LogFormat(
    "openai-evals",
    _is_openai_evals,
    _openai_evals_records,
    (
        Column("input", "sampling.prompt | match.prompt", required=True, convert=to_text),
        Column("expert", "spec.completion_fns.0", required=True),
        Column("input_tokens", "sampling.usage.prompt_tokens"),
        Column("output_tokens", "sampling.usage.completion_tokens"),
        Column("answer", "sampling.sampled.0 | sampling.sampled", convert=to_text),
        Column("group", "spec.base_eval"),
        Column("reference", "match.expected", convert=to_text),
    ),
    _openai_evals_metrics,
)
