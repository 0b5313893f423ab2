"""Deferral loss, speed and size of the encoders under the default router, on tasks 1 to 7.

Run: MILDROUTE_DATA=... python benchmarks/quality/encoders.py [--json] [--quick] [--store FOLDER]
[--rows N] [--seeds N]
     [--tasks 1,2,...] [--minutes M]
Vectors and cells that are stored already are not computed again, so it may be stopped and started
at will; ``--minutes`` stops by itself, and two processes may share a store if they are given
different tasks. A complete run writes benchmarks/results/encoders.*.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import save_cell
from encoders_report import REFERENCE, Footprint, results_of, rows_of, write_report
from rows import Row, main, reported
from tasks import read, split, task_of
from timing import ratio

from mildroute import TextRouter
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.union import UnionEncoder
from mildroute.fitting.text_router import DEFAULT_ENCODER
from mildroute.persistence import save_router
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.mild import MildRouter

SETS = {
    "1": "routerdc7",
    "2": "routerbench_subset",
    "3": "routerbench_subset",
    "4": "mmlu57",
    "5": "mmlu57",
    "6": "mmlu_pro",
    "7": "mmlu_pro",
}
ENCODERS: dict[str, Callable[[], Any]] = {
    "TF-IDF": ReducedEncoder,
    "hashing": lambda: ReducedEncoder(HashingEncoder()),
    REFERENCE: SentenceEncoder,
    "MiniLM int8": lambda: SentenceEncoder(precision="int8"),
    "TF-IDF + MiniLM int8": lambda: UnionEncoder(
        [ReducedEncoder(), SentenceEncoder(precision="int8")]
    ),
}
# Not 100: the settings of TF-IDF were chosen while looking at test rows of seeds 100 and 101 on
# tasks 2 and 4.
FIRST_SEED, QUICK_TASKS, QUICK_ROWS = 200, ("2",), 30


@dataclass(frozen=True)
class Plan:
    """What is run: tasks, rows of each, seeds, where it is kept, and when to stop."""

    tasks: tuple[str, ...]
    rows: int
    seeds: Sequence[int]
    store: Path
    deadline: float
    quick: bool


@cache
def chosen_rows(name: str, rows: int) -> NDArray[np.intp]:
    """The same random rows of a data set for every task on it."""
    return np.random.default_rng(1).permutation(read(name)[0].num_rows)[:rows]


@cache
def texts_of(name: str, rows: int) -> list[str]:
    table = read(name)[0]
    column = table["text" if "text" in table.column_names else "input"].to_pylist()
    return [column[row] for row in chosen_rows(name, rows)]


def settled(encoder: Any, store: Path | None) -> Any:
    """The encoder on one thread, with sentence vectors kept in the store.

    Encoded once, by the exported model, for all cells.
    """
    parts = encoder.encoders if isinstance(encoder, UnionEncoder) else [encoder]
    for part in parts:
        if isinstance(part, SentenceEncoder):
            part.set_params(threads=1, cache=None if store is None else str(store / "vectors"))
    return encoder


def cell_path(plan: Plan, key: str, label: str, seed: int) -> Path:
    slug = "".join(letter if letter.isalnum() else "-" for letter in label)
    return plan.store / f"{key}_{plan.rows}_{slug}_{seed}.npz"


def run_cell(plan: Plan, key: str, label: str, seed: int) -> None:
    """One encoder on one task at one seed.

    The result is a file of its own, with rows in the numbering of the whole table.
    """
    task, name = task_of(key), SETS[key]
    rows, texts = chosen_rows(name, plan.rows), texts_of(name, plan.rows)
    train, test = split(len(rows), seed)
    encoder = settled(ENCODERS[label](), plan.store)
    seen, unseen = (
        encoder.fit_transform([texts[row] for row in train]),
        encoder.transform([texts[row] for row in test]),
    )
    groups = None if task.groups is None else task.groups[rows[train]]
    router = MildRouter(random_state=seed).fit(seen, task.costs[rows[train]], groups=groups)
    found = {
        "choice": router.predict(unseen).astype(np.int16),
        "test": rows[test],
        "single": task.costs[rows[train]].mean(axis=0).argmin(),
    }
    save_cell(cell_path(plan, key, label, seed), **found)


def missing_cells(plan: Plan) -> list[tuple[str, str, int]]:
    cells = [(key, label, seed) for seed in plan.seeds for key in plan.tasks for label in ENCODERS]
    return [cell for cell in cells if not cell_path(plan, *cell).exists()]


def run_missing(plan: Plan) -> None:
    """Run what is missing until the time is up, telling progress and time left."""
    cells, start = missing_cells(plan), time.perf_counter()
    for done, (key, label, seed) in enumerate(cells, 1):
        if time.perf_counter() > plan.deadline:
            return
        run_cell(plan, key, label, seed)
        spent = (time.perf_counter() - start) / 60
        left = spent / done * (len(cells) - done)
        print(
            f"{done}/{len(cells)} cells, {spent:.1f} min, about {left:.0f} min left: {label} on"
            f" {key}",
            file=sys.stderr,
            flush=True,
        )


def footprints(plan: Plan) -> dict[str, Footprint]:
    """Seconds against the reference on the same texts in turn, and size on disk.

    Kept in the store.
    """
    kept = plan.store / f"footprints_{plan.rows}.json"
    if not kept.exists():
        count, rounds = (4, 1) if plan.quick else (128, 3)
        found = {label: footprint(plan, label, count, rounds) for label in ENCODERS}
        kept.write_text(json.dumps(found))
    return {label: Footprint(*values) for label, values in json.loads(kept.read_text()).items()}


def footprint(plan: Plan, label: str, count: int, rounds: int) -> tuple[float, float, float]:
    name = SETS[plan.tasks[0]]
    texts, costs = (
        texts_of(name, plan.rows),
        task_of(plan.tasks[0]).costs[chosen_rows(name, plan.rows)],
    )
    encoder, reference = settled(ENCODERS[label](), None).fit(texts), reference_encoder()
    bulk = texts[:count]
    speed, seconds, _ = ratio(
        lambda: encoder.transform(bulk), lambda: reference.transform(bulk), rounds=rounds
    )
    with tempfile.TemporaryDirectory() as scratch:
        router = TextRouter(
            encoder=settled(ENCODERS[label](), plan.store), router=BestSingleRouter()
        ).fit(texts, costs)
        folder = save_router(router, Path(scratch) / "router")
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    return speed, 1000 * seconds / count, size


@cache
def reference_encoder() -> Any:
    return settled(ENCODERS[REFERENCE](), None).fit(["any text"])


def default_label() -> str:
    """The row of the table that the library's default encoder is."""
    return next(
        (label for label, make in ENCODERS.items() if repr(make()) == repr(DEFAULT_ENCODER())), ""
    )


def measure(
    quick: bool, store: Path | None, rows: int, seeds: int, tasks: str, minutes: float
) -> Iterator[Row]:
    deadline = time.perf_counter() + 60 * minutes
    first, last = FIRST_SEED, FIRST_SEED + seeds
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        if quick:
            plan = Plan(QUICK_TASKS, QUICK_ROWS, range(first, first + 1), folder, deadline, quick)
        else:
            plan = Plan(tuple(tasks.split(",")), rows, range(first, last), folder, deadline, quick)
        yield from rows_of_plan(plan)


def rows_of_plan(plan: Plan) -> Iterator[Row]:
    plan.store.mkdir(parents=True, exist_ok=True)
    run_missing(plan)
    left = missing_cells(plan)
    if left:
        yield reported("cells left to run", len(left), "start it again with the same --store")
        return
    cells = {
        (key, label): [dict(np.load(cell_path(plan, key, label, seed))) for seed in plan.seeds]
        for key in plan.tasks
        for label in ENCODERS
    }
    results = results_of({key: task_of(key) for key in plan.tasks}, cells, default_label())
    costs = footprints(plan)
    if not plan.quick and plan.tasks == tuple(SETS):
        command = (
            f"python benchmarks/quality/encoders.py --rows {plan.rows} --seeds {len(plan.seeds)}"
        )
        write_report(
            results,
            costs,
            HERE.parent / "results",
            command=command,
            rows=plan.rows,
            seeds=plan.seeds,
        )
    yield from rows_of(results, costs, default_label())


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--store": {"type": Path},
            "--rows": {"type": int, "default": 3000},
            "--seeds": {"type": int, "default": 3},
            "--tasks": {"default": ",".join(SETS)},
            "--minutes": {"type": float, "default": float("inf")},
        },
    )
