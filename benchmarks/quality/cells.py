"""Cells of a long run: computed in processes, kept as files, and reported with their origin."""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from commit import commit
from rows import Row

RESULTS = Path(__file__).resolve().parents[1] / "results"
WORKERS = 2


def save_cell(target: Path, **arrays: Any) -> None:
    """Write a cell whole or not at all, so that a run can be stopped and started at will."""
    partial = target.with_suffix(f".{os.getpid()}.partial.npz")
    np.savez_compressed(partial, **arrays)
    partial.rename(target)


def run_cells(run_cell: Callable[..., str], jobs: Sequence[tuple[Any, ...]]) -> None:
    """Run every job over two processes, telling progress and time left."""
    start = time.perf_counter()
    with ProcessPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(run_cell, *job) for job in jobs]
        for done, future in enumerate(as_completed(futures), 1):
            spent = (time.perf_counter() - start) / 60
            left = spent / done * (len(jobs) - done)
            print(
                f"{done}/{len(jobs)} cells, {spent:.1f} min, about {left:.0f} min left:"
                f" {future.result()}",
                file=sys.stderr,
                flush=True,
            )


def origin_of(packages: Sequence[str], **figures: str) -> dict[str, str]:
    """Return what a report comes from: the given facts, date, commit, machine and versions."""
    return {
        **{name.replace("_", " "): value for name, value in figures.items()},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "machine": f"{platform.machine()}, two cores, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in packages),
    }


def write_report(
    name: str, title: str, rows: Sequence[Row], packages: Sequence[str], seeds: str
) -> None:
    """A table of all figures of a script in results, with its origin."""
    command = f"python benchmarks/quality/{name}.py"
    origin = origin_of(packages, command=command, seeds=seeds)
    lines = [f"# {title}", "", *(f"- {fact}: {value}" for fact, value in origin.items())]
    lines += ["", "| figure | value | limit | holds | note |", "|---|--:|--:|---|---|"]
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:g}"
        holds = "" if row.limit is None else ("yes" if row.ok else "**no**")
        lines.append(f"| {row.name} | {row.value:.3g} | {limit} | {holds} | {row.note} |")
    (RESULTS / f"{name}.md").write_text("\n".join([*lines, ""]))
