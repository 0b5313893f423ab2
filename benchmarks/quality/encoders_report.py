"""The encoders' table.

Intervals, paired differences, speed and size, each with its command, seeds, versions and date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cells import origin_of
from pairs import (
    Difference,
    bootstrap_means,
    difference,
    gap_columns,
    holm,
    oracle_row,
    query_costs,
)
from rows import Row, at_most, reported
from tasks import Task

REFERENCE = "MiniLM fp32"
SINGLE, ORACLE = "best single", "oracle"
PACKAGES = (
    "mildroute",
    "numpy",
    "onnxruntime",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
)


@dataclass(frozen=True)
class Footprint:
    """What an encoder takes.

    Time of bulk encoding against the reference, milliseconds a text, megabytes of artifact.
    """

    time_ratio: float
    milliseconds: float
    megabytes: float


@dataclass(frozen=True)
class EncoderResult:
    """One encoder on one task.

    Deferral loss with its 95% interval, and its difference (encoder - other) to reference and
    default.
    """

    task: str
    encoder: str
    cost: float
    low: float
    high: float
    to_reference: Difference | None = None
    to_default: Difference | None = None
    differs_from_reference: bool = False
    differs_from_default: bool = False


def results_of(
    tasks: Mapping[str, Task], cells: Mapping[tuple[str, str], list[dict[str, Any]]], default: str
) -> list[EncoderResult]:
    """Return every encoder on every task, with Holm's correction.

    It is over all pairs with the reference, and over all pairs with the default.
    """
    results: list[EncoderResult] = []
    for key, task in tasks.items():
        results += task_results(
            task,
            {label: found for (cell_key, label), found in cells.items() if cell_key == key},
            default,
        )
    for field, flag in (
        ("to_reference", "differs_from_reference"),
        ("to_default", "differs_from_default"),
    ):
        p_values = {
            str(place): getattr(result, field).p_value
            for place, result in enumerate(results)
            if getattr(result, field)
        }
        rejected = holm(p_values)
        results = [
            replace(result, **{flag: str(place) in rejected})
            for place, result in enumerate(results)
        ]
    return results


def task_results(
    task: Task, cells: Mapping[str, list[dict[str, Any]]], default: str
) -> list[EncoderResult]:
    paid = {
        label: query_costs(task, [(cell["test"], cell["choice"]) for cell in found])
        for label, found in cells.items()
    }
    first = next(iter(cells.values()))
    paid[SINGLE] = query_costs(
        task, [(cell["test"], np.full(len(cell["test"]), cell["single"])) for cell in first]
    )
    paid[ORACLE] = query_costs(
        task, [(cell["test"], task.costs[cell["test"]].argmin(axis=1)) for cell in first]
    )
    results = []
    for label, values in paid.items():
        tested = values[~np.isnan(values)]
        low, high = np.quantile(bootstrap_means(tested), [0.025, 0.975])
        against = {
            field: difference(values, paid[other])
            for field, other in (("to_reference", REFERENCE), ("to_default", default))
            if other in paid and label not in (other, ORACLE)
        }
        results.append(
            EncoderResult(
                task.name, label, float(tested.mean()), float(low), float(high), **against
            )
        )
    return results


def rows_of(
    results: list[EncoderResult], costs: Mapping[str, Footprint], default: str
) -> Iterator[Row]:
    """The figures in the language of all benchmarks."""
    better = [
        f"{r.encoder} on {r.task}"
        for r in results
        if r.differs_from_default and r.to_default and r.to_default.mean < 0
    ]
    name = (
        f"encoders and tasks on which the default, {default or 'not in the table'}, is"
        " significantly worse"
    )
    yield at_most(name, len(better), 0, "; ".join(better), full_only=True)
    worse = [
        r.task
        for r in results
        if r.encoder == "MiniLM int8"
        and r.differs_from_reference
        and r.to_reference
        and r.to_reference.mean > 0
    ]
    name = "tasks on which MiniLM int8 is significantly worse than fp32"
    yield at_most(name, len(worse), 0, "; ".join(worse), full_only=True)
    oracle = {result.task: result.cost for result in results if result.encoder == ORACLE}
    yield oracle_row(max(oracle[r.task] - r.cost for r in results if r.encoder != ORACLE))
    for result in results:
        gap = result.to_reference
        note = f"[{result.low:.4f}, {result.high:.4f}]"
        note += f"; to {REFERENCE} {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]" if gap else ""
        yield reported(f"deferral loss, {result.encoder}, {result.task}", result.cost, note)
    for label, cost in costs.items():
        note = f"{cost.milliseconds:.2f} ms a text on one thread; {cost.megabytes:.1f} MB"
        yield reported(f"encode time / {REFERENCE}, {label}", cost.time_ratio, note)


def write_report(
    results: list[EncoderResult],
    costs: Mapping[str, Footprint],
    folder: Path,
    *,
    command: str,
    rows: int,
    seeds: Sequence[int],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    origin = origin_of(
        PACKAGES,
        command=command,
        rows=f"{rows:,} random rows of each data set, 80% to train and 20% to test",
        seeds=f"{seeds[0]} to {seeds[-1]}",
    )
    table = pa.Table.from_pylist(
        [plain_row(result, costs.get(result.encoder)) for result in results]
    )
    pq.write_table(table.replace_schema_metadata(origin), folder / "encoders.parquet")
    (folder / "encoders.md").write_text(markdown(results, costs, origin))


def plain_row(result: EncoderResult, cost: Footprint | None) -> dict[str, Any]:
    return {
        "task": result.task,
        "encoder": result.encoder,
        "cost": result.cost,
        "low": result.low,
        "high": result.high,
        **gap_columns(result.to_reference, "reference"),
        "significant": result.differs_from_reference,
        "time_ratio": cost.time_ratio if cost else None,
        "megabytes": cost.megabytes if cost else None,
    }


def markdown(
    results: list[EncoderResult], costs: Mapping[str, Footprint], origin: dict[str, str]
) -> str:
    tasks = list(dict.fromkeys(result.task for result in results))
    labels = list(dict.fromkeys(result.encoder for result in results))
    found = {(result.encoder, result.task): result for result in results}
    head = ["| encoder | " + " | ".join(tasks) + " |", "|---|" + "--:|" * len(tasks)]
    lines = [
        "# Encoders under the default router",
        "",
        (
            "Mean test cost (deferral loss) with its 95% interval, lower is better. Generated; do"
            " not edit."
        ),
        "",
        *(f"- {name}: {value}" for name, value in origin.items()),
        "",
        *head,
        *(
            f"| {label} | " + " | ".join(loss_cell(found[label, task]) for task in tasks) + " |"
            for label in labels
        ),
        "",
        (
            f"Difference to {REFERENCE}, paired per query, below 0 is better; `*`: significant"
            " (bootstrap, Holm's correction, 5%)."
        ),
        "",
        *head,
        *(
            f"| {label} | " + " | ".join(gap_cell(found[label, task]) for task in tasks) + " |"
            for label in labels
            if label in costs
        ),
        "",
        (
            f"Time of bulk encoding on one thread, as a multiple of {REFERENCE} on the same texts"
            " in turn, and size of the stored artifact."
        ),
        "",
        "| encoder | time ratio | MB |",
        "|---|--:|--:|",
        *(
            f"| {label} | {cost.time_ratio:.4f} | {cost.megabytes:.1f} |"
            for label, cost in costs.items()
        ),
    ]
    return "\n".join([*lines, ""])


def loss_cell(result: EncoderResult) -> str:
    return f"{result.cost:.4f} [{result.low:.4f}, {result.high:.4f}]"


def gap_cell(result: EncoderResult) -> str:
    gap = result.to_reference
    if gap is None:
        return ""
    return (
        f"{gap.mean:+.4f} [{gap.low:+.4f},"
        f" {gap.high:+.4f}]{' *' if result.differs_from_reference else ''}"
    )
