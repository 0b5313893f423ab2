"""HELM run folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mildroute.costs.importers.columns import Column, Record
from mildroute.costs.importers.log_format import LogFormat, read_json, to_text

__all__ = ["HELM"]


def _is_helm(path: Path) -> bool:
    return path.is_dir() and any(path.rglob("per_instance_stats.json"))


def _helm_records(path: Path) -> Iterator[Record]:
    for file in sorted(path.rglob("per_instance_stats.json")):
        run = file.parent
        spec = read_json(run / "run_spec.json")
        instances = {each["id"]: each for each in read_json(run / "instances.json")}
        predictions_file = run / "display_predictions.json"
        predictions = read_json(predictions_file) if predictions_file.exists() else []
        answers = {
            each["instance_id"]: each.get("mapped_output") or each.get("predicted_text")
            for each in predictions
            if not each.get("perturbation")
        }
        for record in read_json(file):
            if not record.get("perturbation"):
                yield {
                    "instance": instances.get(record["instance_id"], {}),
                    "spec": spec,
                    "answer": answers.get(record["instance_id"]),
                    "stats": {stat["name"]["name"]: stat.get("mean") for stat in record["stats"]},
                }


def _helm_scenario(name: str) -> str:
    return name.split(":", 1)[0]


_HELM_COUNTS = ("num_", "inference_", "batch_size", "training_", "max_prob", "logprob", "finish_")

HELM = LogFormat(
    "helm",
    _is_helm,
    _helm_records,
    (
        Column("input", "instance.input.text", required=True),
        Column("expert", "spec.adapter_spec.model", required=True),
        Column("latency", "stats.inference_runtime"),
        Column("input_tokens", "stats.num_prompt_tokens"),
        Column("output_tokens", "stats.num_output_tokens | stats.num_completion_tokens"),
        Column("answer", "answer", convert=to_text),
        Column("group", "spec.name", convert=_helm_scenario),
        Column("reference", "instance.references.0.output.text"),
    ),
    lambda record: {
        name: value for name, value in record["stats"].items() if not name.startswith(_HELM_COUNTS)
    },
)
