"""The table of end-to-end against frozen.

Intervals, the paired difference and training time, with command, seeds, versions and date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cells import origin_of
from numpy.typing import NDArray
from pairs import Difference, bootstrap_means, difference, gap_columns, oracle_row, query_costs
from rows import Row, reported
from tasks import Task

FROZEN, DEEP = "frozen MiniLM, MildRouter", "MiniLM end to end, DeepRouter"
SINGLE, ORACLE = "best single", "oracle"
PACKAGES = (
    "mildroute",
    "accelerate",
    "numpy",
    "onnxruntime",
    "scikit-learn",
    "torch",
    "transformers",
)


@dataclass(frozen=True)
class Cell:
    """One method at one seed.

    Test rows, the expert chosen on each, the best single expert of the training rows, seconds of
    training.
    """

    test: NDArray[Any]
    choice: NDArray[Any]
    single: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """Deferral loss with its 95% interval, mean seconds of training, and a difference.

    The difference is that to the frozen router, paired per query.
    """

    method: str
    cost: float
    low: float
    high: float
    seconds: float | None = None
    to_frozen: Difference | None = None


def results_of(task: Task, cells: Mapping[str, list[Cell]]) -> list[Result]:
    paid = {
        label: query_costs(task, [(cell.test, cell.choice) for cell in found])
        for label, found in cells.items()
    }
    first = cells[FROZEN]
    paid[SINGLE] = query_costs(
        task, [(cell.test, np.full(len(cell.test), cell.single)) for cell in first]
    )
    paid[ORACLE] = query_costs(
        task, [(cell.test, task.costs[cell.test].argmin(axis=1)) for cell in first]
    )
    results = []
    for label, values in paid.items():
        tested = values[~np.isnan(values)]
        low, high = np.quantile(bootstrap_means(tested), [0.025, 0.975])
        seconds = (
            float(np.mean([cell.seconds for cell in cells[label]])) if label in cells else None
        )
        gap = difference(values, paid[FROZEN]) if label != FROZEN else None
        results.append(Result(label, float(tested.mean()), float(low), float(high), seconds, gap))
    return results


def rows_of(results: list[Result], task: str) -> Iterator[Row]:
    """The figures in the language of all benchmarks.

    Which router is better is a finding, not a bound.
    """
    losses = {result.method: result.cost for result in results}
    yield oracle_row(losses.pop(ORACLE) - min(losses.values()))
    for result in results:
        gap = result.to_frozen
        note = f"[{result.low:.4f}, {result.high:.4f}]"
        note += f"; minus frozen {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]" if gap else ""
        yield reported(f"deferral loss, {result.method}, {task}", result.cost, note)
    for result in results:
        if result.seconds is not None:
            yield reported(
                f"seconds of training, {result.method}, {task}",
                result.seconds,
                "frozen: fitting and encoding",
            )


def verdict(results: list[Result]) -> str:
    """Which router to pick, in one sentence."""
    found = {result.method: result for result in results}
    gap, times = found[DEEP].to_frozen, [found[label].seconds or 0.0 for label in (DEEP, FROZEN)]
    price = f"it takes {times[0] / max(times[1], 1e-9):.0f} x the training time"
    if gap is None or gap.low <= 0 <= gap.high:
        return f"Pick the frozen router: end to end is not significantly different, and {price}."
    if gap.mean > 0:
        return f"Pick the frozen router: end to end is significantly worse, and {price}."
    return (
        "Pick end to end where training time matters little: it is significantly better by"
        f" {-gap.mean:.4f}, and {price}."
    )


def write_report(
    results: list[Result], folder: Path, *, task: str, command: str, rows: int, seeds: Sequence[int]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    origin = origin_of(
        PACKAGES,
        task=task,
        command=command,
        rows=(
            f"{rows:,} rows, 80% to train (a tenth of those to choose the state of the network by)"
            " and 20% to test"
        ),
        seeds=f"{seeds[0]} to {seeds[-1]}",
    )
    table = pa.Table.from_pylist([plain_row(result) for result in results])
    pq.write_table(table.replace_schema_metadata(origin), folder / "deep.parquet")
    (folder / "deep.md").write_text(markdown(results, origin))


def plain_row(result: Result) -> dict[str, Any]:
    return {
        "method": result.method,
        "cost": result.cost,
        "low": result.low,
        "high": result.high,
        "seconds": result.seconds,
        **gap_columns(result.to_frozen, "frozen"),
    }


def markdown(results: list[Result], origin: dict[str, str]) -> str:
    lines = [
        "# End to end against frozen vectors",
        "",
        (
            "Mean test cost (deferral loss) with its 95% interval, lower is better. Generated; do"
            " not edit."
        ),
        "",
        *(f"- {name}: {value}" for name, value in origin.items()),
        "",
        "| method | deferral loss | minus frozen, paired per query | seconds of training |",
        "|---|--:|--:|--:|",
        *(
            f"| {r.method} | {r.cost:.4f} [{r.low:.4f}, {r.high:.4f}] | {gap_cell(r)} |"
            f" {seconds_cell(r)} |"
            for r in results
        ),
        "",
        verdict(results),
    ]
    return "\n".join([*lines, ""])


def gap_cell(result: Result) -> str:
    gap = result.to_frozen
    return f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]" if gap else ""


def seconds_cell(result: Result) -> str:
    return f"{result.seconds:,.0f}" if result.seconds is not None else ""
