"""lm-evaluation-harness samples: ``lm_eval --log_samples --output_path FOLDER``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mildroute.costs.importers.columns import Column, Record
from mildroute.costs.importers.log_format import (
    LogFormat,
    first_record,
    read_json,
    read_json_lines,
    to_text,
)

__all__ = ["LM_EVAL"]


def _is_lm_eval(path: Path) -> bool:
    if path.is_dir():
        return any(path.rglob("samples_*.jsonl"))
    record = first_record(path)
    return isinstance(record, dict) and {"doc_id", "resps"} <= record.keys()


def _lm_eval_records(path: Path) -> Iterator[Record]:
    for file in sorted(path.rglob("samples_*.jsonl")) if path.is_dir() else [path]:
        model = _lm_eval_model(file)
        task = file.stem.removeprefix("samples_").rsplit("_", 1)[0]
        answers: dict[Any, dict[str, Any]] = {}
        for record in read_json_lines(file):
            answer = answers.setdefault(record.get("doc_id"), {**record, "scores": {}})
            answer["scores"] |= _scores_of(record)
        for record in answers.values():
            yield {**record, "model": model, "task": task}


def _scores_of(record: Record) -> dict[str, Any]:
    """Return a record's scores, named as in lm_eval's tables: ``exact_match,strict-match``.

    Each answer has one record per filter.
    """
    filter_name = record.get("filter", "none")
    suffix = "" if filter_name == "none" else f",{filter_name}"
    return {f"{name}{suffix}": record.get(name) for name in record.get("metrics", ())}


def _lm_eval_model(samples: Path) -> str:
    """Return the model from the results next to a samples file, or else the folder's name."""
    for results in sorted(samples.parent.glob("results_*.json")):
        document = read_json(results)
        model = document.get("model_name") or document.get("config", {}).get("model")
        if model:
            return str(model)
    return samples.parent.name


LM_EVAL = LogFormat(
    "lm-eval",
    _is_lm_eval,
    _lm_eval_records,
    (
        Column(
            "input",
            "arguments.gen_args_0.arg_0.0 | arguments.gen_args_0.arg_0 | arguments.0.0 | doc",
            required=True,
            convert=to_text,
        ),
        Column("expert", "model", required=True),
        Column("answer", "filtered_resps.0 | resps.0.0", convert=to_text),
        Column("group", "task"),
        Column("reference", "target", convert=to_text),
    ),
    lambda record: record["scores"],
)
