"""The committed results.

A Parquet, a Markdown table and two plots, each with its command, seeds, versions and date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cells import origin_of
from judge import Result, Verdict, significantly
from methods import DEFAULT

PACKAGES = ("mildroute", "numpy", "scikit-learn", "scipy", "torch")
LEFT_EDGE = -30.0
COLOURS = {
    DEFAULT: "#d1495b",
    "TDEF": "#00798c",
    "kNN": "#edae49",
    "linear regression": "#66a182",
    "MILD, winner counts": "#8d6a9f",
}


def write_report(verdict: Verdict, folder: Path, *, command: str, seeds: Sequence[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    origin = origin_of(PACKAGES, command=command, seeds=f"{seeds[0]} to {seeds[-1]}")
    write_parquet(verdict, folder / "quality.parquet", origin)
    (folder / "quality.md").write_text(markdown(verdict, origin))
    plot_tasks(verdict, folder / "quality-tasks.png", origin)
    plot_sweep(verdict, folder / "quality-sweep.png", origin)


def write_parquet(verdict: Verdict, path: Path, origin: dict[str, str]) -> None:
    rows = [
        {
            "task": result.task,
            "method": result.method,
            "cost": result.cost,
            "low": result.low,
            "high": result.high,
            "closed": result.closed,
            "worst_recall": result.worst_recall,
            "default_minus_method": result.against.mean if result.against else None,
            "difference_low": result.against.low if result.against else None,
            "difference_high": result.against.high if result.against else None,
            "p_value": result.against.p_value if result.against else None,
            "significant": result.significant,
        }
        for result in verdict.results
    ]
    rows += [
        {
            "task": f"10 synthetic 1:{ratio}",
            "method": name,
            "cost": values[0],
            "worst_recall": values[1],
            "significant": False,
        }
        for (ratio, name), values in verdict.sweep.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(origin), path)


SCHEMA = pa.schema(
    [("task", pa.string()), ("method", pa.string())]
    + [
        (name, pa.float64())
        for name in ("cost", "low", "high", "closed", "worst_recall", "default_minus_method")
    ]
    + [(name, pa.float64()) for name in ("difference_low", "difference_high", "p_value")]
    + [("significant", pa.bool_())]
)


def markdown(verdict: Verdict, origin: dict[str, str]) -> str:
    tasks = list(verdict.of(DEFAULT))
    methods = list(dict.fromkeys(result.method for result in verdict.results))
    lines = [
        "# Quality benchmark",
        "",
        (
            "Mean test cost (deferral loss), lower is better. `+`: the default is significantly"
            " better than that method, `-`: worse"
        ),
        (
            "(paired per query, bootstrap over queries, Holm's correction over all pairs, 5%)."
            " Generated; do not edit."
        ),
        "",
        *(f"- {name}: {value}" for name, value in origin.items()),
        "",
        "| method | " + " | ".join(tasks) + " |",
        "|---|" + "--:|" * len(tasks),
    ]
    for method in methods:
        found = verdict.of(method)
        cells = [cell(found.get(task)) for task in tasks]
        lines.append(
            f"| {'**' + method + '**' if method == DEFAULT else method} | "
            + " | ".join(cells)
            + " |"
        )
    closed = verdict.of(DEFAULT)
    lines += [
        "| *share of best single to oracle closed by the default* | "
        + " | ".join(f"{closed[task].closed:.1%}" for task in tasks)
        + " |"
    ]
    return "\n".join([*lines, "", *sweep_table(verdict), "", *chosen(verdict), ""])


def cell(result: Result | None) -> str:
    if result is None:
        return ""
    mark = (
        " +"
        if significantly(result, worse=False)
        else " -"
        if significantly(result, worse=True)
        else ""
    )
    return f"{result.cost:.4f}{mark}"


def sweep_table(verdict: Verdict) -> Sequence[str]:
    ratios = sorted({ratio for ratio, _ in verdict.sweep})
    names = list(dict.fromkeys(name for _, name in verdict.sweep))
    lines = [
        "## Task 10: scarce specialists, known posterior",
        "",
        "Exact regret x 1000 / worst-expert recall, means over the seeds.",
        "",
        "| method | " + " | ".join(f"1:{ratio}" for ratio in ratios) + " |",
        "|---|" + "--:|" * len(ratios),
    ]
    for name in names:
        values = [verdict.sweep[ratio, name] for ratio in ratios]
        lines.append(
            f"| {name} | "
            + " | ".join(f"{1000 * value[0]:.2f} / {value[1]:.3f}" for value in values)
            + " |"
        )
    return lines


def chosen(verdict: Verdict) -> Sequence[str]:
    lines = ["## What the default chose", ""]
    for task, remarks in verdict.remarks.items():
        kinds = [remark.split(":")[0] for remark in remarks]
        counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        lines.append(
            f"- {task}: " + "; ".join(f"{kind} ({count} x)" for kind, count in counts.items())
        )
    return lines


def plot_tasks(verdict: Verdict, path: Path, origin: dict[str, str]) -> None:
    tasks = list(verdict.of(DEFAULT))
    figure, axes = plt.subplots(figsize=(9, 0.75 * len(tasks) + 1.6))
    for offset, (method, colour) in enumerate(COLOURS.items()):
        found = verdict.of(method)
        height = np.arange(len(tasks)) + 0.14 * (offset - 2)
        gaps = [
            (verdict.of("best single")[task].cost - verdict.of("oracle")[task].cost)
            for task in tasks
        ]
        closed = np.array([found[task].closed for task in tasks])
        halves = np.array([spread(found[task], gap) for task, gap in zip(tasks, gaps, strict=True)])
        inside = 100 * closed >= LEFT_EDGE
        axes.errorbar(
            100 * closed,
            height,
            xerr=100 * halves,
            fmt="o",
            color=colour,
            label=method,
            markersize=5,
            linewidth=1.2,
        )
        axes.plot(
            np.full((~inside).sum(), LEFT_EDGE + 0.6),
            height[~inside],
            "<",
            color=colour,
            markersize=6,
        )
    axes.axvline(0, color="grey", linewidth=1)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.invert_yaxis()
    axes.set_xlim(LEFT_EDGE, 25)
    axes.set_xlabel(
        "distance from best single expert (0) to oracle (100) that is closed, %\n"
        "bars: 95% of the paired difference to the default; <: further to the left"
    )
    axes.legend(loc="lower right", fontsize=8)
    finish(figure, path, origin)


def spread(result: Result, gap: float) -> float:
    return 0.0 if result.against is None else (result.against.high - result.against.low) / 2 / gap


def plot_sweep(verdict: Verdict, path: Path, origin: dict[str, str]) -> None:
    ratios = sorted({ratio for ratio, _ in verdict.sweep})
    figure, panels = plt.subplots(1, 2, figsize=(12, 4))
    for name in dict.fromkeys(name for _, name in verdict.sweep):
        values = np.array([verdict.sweep[ratio, name] for ratio in ratios])
        style = {
            "color": COLOURS.get(name),
            "linewidth": 2.2 if name == DEFAULT else 1.2,
            "marker": "o",
            "markersize": 3,
            "label": name,
        }
        panels[0].plot(ratios, values[:, 1], **style)
        panels[1].plot(ratios, 1000 * values[:, 0], **style)
    for panel, label in zip(panels, ("worst-expert recall", "exact regret x 1000"), strict=True):
        panel.set_xscale("log")
        panel.set_xticks(ratios, [f"{ratio:,}" for ratio in ratios])
        panel.minorticks_off()
        panel.set_xlabel("how much more often the common expert wins")
        panel.set_ylabel(label)
    panels[1].set_yscale("log")
    panels[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    finish(figure, path, origin)


def finish(figure: plt.Figure, path: Path, origin: dict[str, str]) -> None:
    figure.text(
        0.01,
        0.005,
        f"{origin['command']}, seeds {origin['seeds']}, {origin['date']}",
        fontsize=6,
        color="grey",
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)
