"""What the stored choices of the peers say, and the committed table and Parquet of it.

Differences are judged as those of ``benchmarks/quality``: paired per query, a bootstrap over
queries, Holm's correction over all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from adapters import METHODS
from numpy.typing import NDArray
from quality.cells import origin_of
from quality.judge import Result, significantly, task_results
from quality.methods import DEFAULT
from quality.pairs import holm
from quality.tasks import Task

PACKAGES = ("mildroute", "numpy", "scikit-learn", "torch")
Cell = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Judged:
    """One method on one task, with the default's cost on the same test rows and seeds."""

    result: Result
    default_cost: float
    seeds: int
    rows: int

    @property
    def is_ahead(self) -> bool:
        """Whether the method's mean cost is below the default's."""
        return self.result.cost < self.default_cost


def judged(
    tasks: Mapping[str, Task],
    ours: Mapping[tuple[str, int], Cell],
    theirs: Mapping[str, Mapping[tuple[str, int], Cell]],
) -> list[Judged]:
    """Judge every method on every task; ours have ``test`` and ``choice:NAME`` for all seeds."""
    found = []
    for key, task in tasks.items():
        for names, cells in by_coverage(key, ours, theirs).items():
            results = {result.method: result for result in task_results(task, cells)}
            rows = sum(len(cell["test"]) for cell in cells.values())
            found += [
                Judged(results[name], results[DEFAULT].cost, len(cells), rows) for name in names
            ]
    p_values = {
        f"{each.result.task}|{each.result.method}": each.result.against.p_value
        for each in found
        if each.result.against
    }
    rejected = holm(p_values)
    return [
        replace(each, result=replace(each.result, significant=name_of(each) in rejected))
        for each in found
    ]


def name_of(each: Judged) -> str:
    return f"{each.result.task}|{each.result.method}"


def by_coverage(
    key: str,
    ours: Mapping[tuple[str, int], Cell],
    theirs: Mapping[str, Mapping[tuple[str, int], Cell]],
) -> dict[tuple[str, ...], dict[int, dict[str, NDArray[Any]]]]:
    """Cells of methods that were asked the same rows, with our choices of these rows."""
    all_seeds = tuple(sorted(seed for task, seed in ours if task == key))
    groups: dict[tuple[Any, ...], list[str]] = {(all_seeds, None): []}
    for name, cells in theirs.items():
        seeds = tuple(sorted(seed for task, seed in cells if task == key and (key, seed) in ours))
        if seeds:
            groups.setdefault((seeds, METHODS[name].rows), []).append(name)
    found = {}
    for (seeds, rows), names in groups.items():
        cells = {seed: restricted(ours[key, seed], rows) for seed in seeds}
        for seed, cell in cells.items():
            for name in names:
                stored = theirs[name][key, seed]
                if not np.array_equal(stored["test"], cell["test"]):
                    raise ValueError(
                        f"test rows of a cell must be those of its split, got others for {name}"
                        f" on task {key} at seed {seed}; delete the cell and run again."
                    )
                cell[f"choice:{METHODS[name].name}"] = stored["choice"]
        own = [name.removeprefix("choice:") for name in ours[key, seeds[0]] if "choice:" in name]
        shown = own if (seeds, rows) == (all_seeds, None) else []
        found[(*shown, *(METHODS[name].name for name in names))] = cells
    return found


def restricted(cell: Cell, rows: int | None) -> dict[str, NDArray[Any]]:
    """A cell with its first test rows only; no number takes all."""
    return {name: values[:rows] for name, values in cell.items()}


def lost_to(found: Sequence[Judged]) -> list[Judged]:
    """Methods and tasks on which the default is significantly worse."""
    return [
        each
        for each in found
        if each.result.method in PEER_NAMES and significantly(each.result, worse=True)
    ]


PEER_NAMES = {method.name for method in METHODS.values()}
# Those that are asked only some test rows.
SAMPLED = {method.name for method in METHODS.values() if method.rows}


def write_report(
    found: Sequence[Judged],
    folder: Path,
    *,
    command: str,
    seeds: Sequence[int],
    versions: Mapping[str, str],
) -> None:
    """Write ``peers.md`` and ``peers.parquet``; ``versions`` are those of the projects."""
    origin = origin_of(PACKAGES, command=command, seeds=f"{seeds[0]} to {seeds[-1]}")
    origin["projects"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    found = sorted(found, key=lambda each: order_of(each.result.method))
    rows = [columns_of(each) for each in found]
    table = pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(origin)
    pq.write_table(table, folder / "peers.parquet")
    (folder / "peers.md").write_text(markdown(found, origin, len(seeds)), encoding="utf-8")


SCHEMA = pa.schema(
    [("task", pa.string()), ("method", pa.string()), ("seeds", pa.int64()), ("rows", pa.int64())]
    + [
        (name, pa.float64())
        for name in ("cost", "low", "high", "default_cost", "closed", "worst_recall")
    ]
    + [
        (name, pa.float64())
        for name in ("default_minus_method", "difference_low", "difference_high", "p_value")
    ]
    + [("significant", pa.bool_())]
)


def columns_of(each: Judged) -> dict[str, Any]:
    result, gap = each.result, each.result.against
    return {
        "task": result.task,
        "method": result.method,
        "seeds": each.seeds,
        "rows": each.rows,
        "cost": result.cost,
        "low": result.low,
        "high": result.high,
        "default_cost": each.default_cost,
        "closed": result.closed,
        "worst_recall": result.worst_recall,
        "default_minus_method": gap.mean if gap else None,
        "difference_low": gap.low if gap else None,
        "difference_high": gap.high if gap else None,
        "p_value": gap.p_value if gap else None,
        "significant": result.significant,
    }


def markdown(found: Sequence[Judged], origin: Mapping[str, str], seeds: int) -> str:
    """The report: differences with intervals, costs, methods that are ahead, adaptations."""
    cells = {(each.result.method, each.result.task): each for each in found}
    tasks = list(dict.fromkeys(each.result.task for each in found))
    methods = list(dict.fromkeys(each.result.method for each in found))
    head = ["| method | " + " | ".join(tasks) + " |", "|---|" + "--:|" * len(tasks)]

    def table(write: Any, names: Sequence[str]) -> list[str]:
        lines = []
        for name in names:
            row = [write(cells[name, task]) if (name, task) in cells else "" for task in tasks]
            lines.append(f"| {name} | " + " | ".join(row) + " |")
        return [*head, *lines]

    peers = [name for name in methods if name in PEER_NAMES]
    return "\n".join(
        [
            "# Other projects' own code on our splits",
            "",
            *(f"- {name}: {value}" for name, value in origin.items()),
            "",
            "## Default minus method",
            "",
            *GAPS,
            "",
            *table(gap_cell, peers),
            "",
            "## Mean costs",
            "",
            f"Mean test cost (deferral loss) of {seeds} seeds, lower is better.",
            *FEWER,
            "",
            *table(lambda each: cost_cell(each, seeds), methods),
            "",
            "## Methods ahead of the default",
            "",
            "Methods whose mean cost is below that of the default on the same rows and seeds.",
            "",
            *ahead(found),
            "",
            "## Adaptations",
            "",
            *(f"- {each.name}: {each.note}." for each in METHODS.values() if each.name in peers),
            *(f"- {name}: not run, for time." for name in sorted(PEER_NAMES - set(peers))),
            "",
        ]
    )


GAPS = (
    "Difference of mean test cost (deferral loss) with its 95% interval, in thousandths; below 0"
    " the default is better.",
    "`+`: the default is significantly better, `-`: significantly worse (paired per query,"
    " bootstrap over queries, Holm's correction over all pairs, 5%).",
    "Methods with fewer seeds have wider intervals: not significant does not mean equal.",
)
FEWER = (
    "Parentheses hold the number of seeds of methods that were run on fewer, for time, and the"
    " default's cost on the same rows and seeds.",
    "Compare such a cost with that one only.",
)


def order_of(name: str) -> int:
    """Ours first, then the peers in the order of their list."""
    names = [DEFAULT, "oracle", "best single", "kNN", *(each.name for each in METHODS.values())]
    return names.index(name)


def mark_of(result: Result) -> str:
    """Whether the default is significantly better or worse."""
    return "" if not result.significant else " -" if significantly(result, worse=True) else " +"


def cost_cell(each: Judged, seeds: int) -> str:
    is_whole = each.seeds == seeds and each.result.method not in SAMPLED
    fewer = "" if is_whole else f" ({each.seeds}; {each.default_cost:.4f})"
    return f"{each.result.cost:.4f}{fewer}"


def gap_cell(each: Judged) -> str:
    gap = each.result.against
    if gap is None:
        return ""
    mean, low, high = (f"{1000 * value + 0.0:+.1f}" for value in (gap.mean, gap.low, gap.high))
    return f"{mean} [{low}, {high}]{mark_of(each.result)}"


def ahead(found: Sequence[Judged]) -> list[str]:
    """Every method and task with a mean cost below the default's."""
    lines = [
        f"- {each.result.method} on {each.result.task}: {each.result.cost:.4f}, the default"
        f" {each.default_cost:.4f}"
        f" ({'significant' if each.result.significant else 'not significant'})."
        for each in found
        if each.result.method in PEER_NAMES and each.is_ahead
    ]
    return lines or ["None."]
