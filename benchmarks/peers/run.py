"""Deferral loss of other projects' own code on our splits, beside the default router.

Run: MILDROUTE_DATA=... python benchmarks/peers/run.py [--json] [--quick] [--store FOLDER]
       [--sources FOLDER] [--python PATH] [--ours FOLDER] [--methods NAME ...]
``benchmarks/peers/environment.sh FOLDER`` clones the projects and installs what they need; give its
folder as ``--sources`` and the Python of its environment as ``--python``. Methods whose project is
missing are left out. ``--ours`` is a ``--store`` of ``benchmarks/quality/run.py``. Cells that are
stored already are not computed again; a complete run writes the table and a Parquet of results.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "quality"), str(HERE.parent)]
from adapters import METHODS, Method
from quality.cells import save_cell
from quality.judge import significantly
from quality.methods import DEFAULT
from quality.pairs import oracle_row
from quality.tasks import Task, columns, experts_of, read, split, task_of
from report import Judged, judged, lost_to, write_report
from rows import Row, at_most, main, reported

from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.knn import KNNRouter
from mildroute.routers.mild import MildRouter

# Those of benchmarks/quality/run.py, so that the default's stored choices pair with the peers'.
SEEDS = range(120, 130)
KEYS = ("1", "2", "3", "4", "5", "6", "7", "8")
QUICK, QUICK_ROWS = ("2",), 250
OURS = (DEFAULT, "oracle", "best single", "kNN")


def parts_of(task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scores and prices (n, p) that a task's costs are made of."""
    if task.name.split()[1] == "routerbench":
        table, _ = read("routerbench_subset")
        scores = columns(table, "score", experts_of(table))[: len(task.costs)]
        return scores, task.costs - (1 - scores)
    prices = np.zeros(task.costs.shape) if task.prices is None else task.prices + 0 * task.costs
    # Rounded: equal scores must stay equal when the price is taken off again.
    return np.round(1 - (task.costs - prices), 9), prices


TABLES = {"2": "routerbench_subset", "3": "routerbench_subset", "4": "mmlu57", "5": "mmlu57"}
TABLES |= {"6": "mmlu_pro", "7": "mmlu_pro"}


def write_inputs(folder: Path, key: str, task: Task, seeds: Sequence[int]) -> None:
    """What an adapter reads: the task, its splits, and texts where prices differ."""
    scores, prices = parts_of(task)
    arrays = {"vectors": task.vectors, "costs": task.costs, "scores": scores, "prices": prices}
    save_cell(folder / f"task_{key}.npz", **arrays)
    for seed in seeds:
        train, test = split(len(task.costs), seed)
        save_cell(folder / f"split_{key}_{seed}.npz", train=train, test=test)
    if key in TABLES:
        texts = read(TABLES[key])[0]["text"].to_pylist()[: len(task.costs)]
        (folder / f"texts_{key}.json").write_text(json.dumps(texts), encoding="utf-8")


def our_cell(folder: Path, ours: Path | None, key: str, seed: int, task: Task) -> dict[str, Any]:
    """Our choices of a split: stored ones of the quality benchmark, or fitted here."""
    stored = None if ours is None else ours / f"{key}_{seed}.npz"
    target = folder / f"ours_{key}_{seed}.npz"
    if stored is not None and stored.exists():
        cell = dict(np.load(stored))
        cell["choice:oracle"] = task.costs[cell["test"]].argmin(axis=1)
        return {name: cell[name] for name in ("test", *(f"choice:{each}" for each in OURS))}
    if not target.exists():
        save_cell(target, **fitted_cell(task, seed))
    return dict(np.load(target))


def fitted_cell(task: Task, seed: int) -> dict[str, NDArray[Any]]:
    train, test = split(len(task.costs), seed)
    groups = None if task.groups is None else task.groups[train]
    X, costs = task.vectors, task.costs
    default = MildRouter(random_state=seed).fit(X[train], costs[train], groups=groups)
    others = {"best single": BestSingleRouter(), "kNN": KNNRouter()}
    found = {"test": test, f"choice:{DEFAULT}": default.predict(X[test])}
    found["choice:oracle"] = costs[test].argmin(axis=1)
    for name, router in others.items():
        found[f"choice:{name}"] = router.fit(X[train], costs[train]).predict(X[test])
    return found


def version_of(method: Method, sources: Path | None, python: Path) -> str:
    """Commit or version of a method's project; empty if it is missing."""
    if method.source.startswith("pip:"):
        package = {"llmrouter": "llmrouter-lib"}.get(method.source[4:], method.source[4:])
        code = f"from importlib.metadata import version; print(version({package!r}))"
        command = [str(python), "-c", code]
    elif sources is None or not (sources / method.source).is_dir():
        return ""
    else:
        command = ["git", "-C", str(sources / method.source), "rev-parse", "--short=12", "HEAD"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def run_method(
    name: str, folder: Path, sources: Path, python: Path, keys: Sequence[str], seeds: Sequence[int]
) -> None:
    """Start the adapter of a method in the environment of the peers."""
    command = [str(python), "-W", "ignore", str(HERE / "adapters.py"), name, str(folder)]
    command += [str(sources), "--tasks", *keys, "--seeds", *map(str, seeds)]
    # LiteLLM would fetch a list of prices, and Hugging Face look for newer models.
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
    # The peers have an environment of their own: nothing of ours may be imported there.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(command, env={**inherited, **offline}, stdout=sys.stderr, check=False)
    if run.returncode:
        print(f"{name} ended with exit code {run.returncode}", file=sys.stderr)


def stored_cells(name: str, folder: Path) -> dict[tuple[str, int], dict[str, NDArray[Any]]]:
    """Choices of a method that are stored, by task and seed."""
    found = {}
    for path in sorted(folder.glob(f"{name}_[0-9]_*.npz")):
        _, key, seed = path.stem.rsplit("_", 2)
        found[key, int(seed)] = dict(np.load(path))
    return found


def measure(
    quick: bool,
    store: Path | None,
    sources: Path | None,
    python: Path,
    ours: Path | None,
    methods: Sequence[str],
) -> Iterator[Row]:
    keys, seeds = (QUICK, SEEDS[:1]) if quick else (KEYS, SEEDS)
    versions = {name: version_of(METHODS[name], sources, python) for name in METHODS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        tasks = {key: task_of(key, QUICK_ROWS if quick else None) for key in keys}
        for key, task in tasks.items():
            write_inputs(folder, key, task, seeds)
        for name in methods:
            if versions[name]:
                run_method(name, folder, sources or folder, python, keys, seeds)
        theirs = {name: stored_cells(name, folder) for name in METHODS}
        own = {
            (key, seed): our_cell(folder, ours, key, seed, task)
            for key, task in tasks.items()
            for seed in seeds
        }
    found = judged(tasks, own, theirs)
    if not quick:
        projects = {METHODS[name].project: version for name, version in versions.items() if version}
        command = "python benchmarks/peers/run.py --sources FOLDER --python PATH"
        write_report(
            found, HERE.parent / "results", command=command, seeds=seeds, versions=projects
        )
    yield from rows_of(found, [name for name in METHODS if not theirs[name]])


def rows_of(found: Sequence[Judged], missing: Sequence[str]) -> Iterator[Row]:
    costs: dict[str, dict[str, float]] = {}
    for each in found:
        costs.setdefault(each.result.task, {})[each.result.method] = each.result.cost
    complete = [each for each in found if each.result.method in OURS]
    excess = max(costs[each.result.task]["oracle"] - each.result.cost for each in complete)
    yield oracle_row(excess)
    lost = [f"{each.result.method} on {each.result.task}" for each in lost_to(found)]
    yield at_most(
        "methods and tasks on which the default is significantly worse",
        len(lost),
        0,
        "; ".join(lost),
        full_only=True,
    )
    for method in METHODS.values():
        judged_on = [each for each in found if each.result.method == method.name]
        better = [each for each in judged_on if significantly(each.result, worse=False)]
        if judged_on:
            yield reported(
                f"tasks on which the default is significantly better than {method.name}",
                len(better),
                f"of {len(judged_on)}",
            )
    names = "; ".join(METHODS[name].name for name in missing)
    yield reported("methods left out", len(missing), names)


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--store": {"type": Path, "help": "where cells are kept"},
            "--sources": {"type": Path, "help": "folder of the clones"},
            "--python": {"type": Path, "default": Path(sys.executable), "help": "of the peers"},
            "--ours": {"type": Path, "help": "cells of benchmarks/quality/run.py"},
            "--methods": {"nargs": "*", "choices": list(METHODS), "default": list(METHODS)},
        },
    )
