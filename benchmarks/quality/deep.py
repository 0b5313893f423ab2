"""MiniLM fine-tuned end to end against the default router on frozen MiniLM vectors.

Same rows, same split, same experts.

Run: MILDROUTE_DATA=... python benchmarks/quality/deep.py [--json] [--quick] [--task 4] [--rows N]
[--epochs E] [--seeds N] [--store FOLDER]
     [--threads N]
Task 4 is the mmlu57 trio, task 1 routerdc7. The network has the gap reward and margins of 1, one
training; to choose them too takes three. Cells that are stored already are not computed again. A
run that is not quick writes benchmarks/results/deep.*.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import save_cell
from deep_report import DEEP, FROZEN, Cell, Result, results_of, rows_of, write_report
from rows import Row, main
from tasks import TASKS, Task, read, split

from mildroute.deep.router import DeepRouter
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.routers.mild import MildRouter

SETS = {"1": "routerdc7", "4": "mmlu57"}
# Seeds that no setting was chosen by; rows of a quick run; texts that the time of encoding is
# measured on.
FIRST_SEED, QUICK_ROWS, ENCODED = 300, 32, 64


@dataclass(frozen=True)
class Plan:
    """What is run: a task, its rows, epochs, tokens, seeds, and where cells are kept."""

    key: str
    rows: int
    epochs: float
    max_tokens: int
    seeds: Sequence[int]
    store: Path
    threads: int
    quick: bool


@dataclass(frozen=True)
class Data:
    """The task and its texts, cut to the chosen rows."""

    task: Task
    texts: list[str]
    rows: NDArray[np.intp]


def data_of(plan: Plan) -> Data:
    task, table = TASKS[plan.key](), read(SETS[plan.key])[0]
    rows = np.random.default_rng(1).permutation(table.num_rows)[: plan.rows]
    column = table["text"].to_pylist()
    return Data(task, [column[row] for row in rows], rows)


def frozen(
    data: Data, train: NDArray[np.intp], test: NDArray[np.intp], seed: int, plan: Plan
) -> tuple[Any, float]:
    """Choices of the default router on stored vectors.

    Its seconds are those of fitting plus encoding the training texts.

    Seconds are of computing, so that other work on the machine does not count.
    """
    task, rows = data.task, data.rows
    start = time.process_time()
    groups = None if task.groups is None else task.groups[rows[train]]
    router = MildRouter(random_state=seed).fit(
        task.vectors[rows[train]], task.costs[rows[train]], groups=groups
    )
    seconds = time.process_time() - start
    encoder = SentenceEncoder(threads=plan.threads, max_tokens=plan.max_tokens).fit(data.texts[:1])
    sample = data.texts[:ENCODED]
    start = time.process_time()
    encoder.transform(sample)
    encoding = (time.process_time() - start) / len(sample) * len(train)
    return router.predict(task.vectors[rows[test]]), seconds + encoding


def end_to_end(
    data: Data, train: NDArray[np.intp], test: NDArray[np.intp], seed: int, plan: Plan
) -> tuple[Any, float]:
    """Choices of the fine-tuned network, run as it would be served."""
    start = time.process_time()

    def tell(done: int, total: int, _word: str) -> None:
        if done % 20 == 0 or done == total:
            spent = (time.process_time() - start) / 60
            left = spent / done * (total - done)
            print(
                f"step {done}/{total}, {spent:.1f} min, at most {left:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

    task, rows = data.task, data.rows
    groups = None if task.groups is None else task.groups[rows[train]]
    settings: dict[str, Any] = {
        "epochs": plan.epochs,
        "max_tokens": plan.max_tokens,
        "threads": plan.threads,
    }
    router = DeepRouter(reward="gap", margins="uniform", random_state=seed, **settings)
    texts = [data.texts[row] for row in train]
    router.fit(texts, task.costs[rows[train]], groups=groups, progress=tell)
    seconds = time.process_time() - start
    print(router.selection_, file=sys.stderr, flush=True)
    return router.predict([data.texts[row] for row in test]), seconds


METHODS: dict[str, Callable[..., tuple[Any, float]]] = {FROZEN: frozen, DEEP: end_to_end}


def cell_of(data: Data, label: str, seed: int, plan: Plan) -> Cell:
    """One method at one seed, from the store where it is there already."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in label)
    kept = (
        plan.store / f"{plan.key}_{plan.rows}_{plan.epochs:g}_{plan.max_tokens}_{slug}_{seed}.npz"
    )
    train, test = split(len(data.rows), seed)
    if not kept.exists():
        choice, seconds = METHODS[label](data, train, test, seed, plan)
        save_cell(kept, choice=choice, seconds=seconds)
    found = np.load(kept)
    single = int(data.task.costs[data.rows[train]].mean(axis=0).argmin())
    return Cell(data.rows[test], found["choice"], single, float(found["seconds"]))


def measure(
    quick: bool, task: str, rows: int, epochs: float, seeds: int, store: Path | None, threads: int
) -> Iterator[Row]:
    chosen = range(FIRST_SEED, FIRST_SEED + seeds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        if quick:
            plan = Plan(task, QUICK_ROWS, 1.0, 48, chosen[:1], Path(scratch), threads, quick)
        else:
            plan = Plan(task, rows, epochs, 128, chosen, folder, threads, quick)
        yield from rows_of_plan(plan)


def rows_of_plan(plan: Plan) -> Iterator[Row]:
    import torch

    torch.set_num_threads(plan.threads)
    plan.store.mkdir(parents=True, exist_ok=True)
    data = data_of(plan)
    cells = {label: [cell_of(data, label, seed, plan) for seed in plan.seeds] for label in METHODS}
    results: list[Result] = results_of(data.task, cells)
    if not plan.quick:
        command = (
            f"python benchmarks/quality/deep.py --task {plan.key} --rows {len(data.rows)} --epochs"
            f" {plan.epochs:g}"
        )
        command += f" --seeds {len(plan.seeds)}"
        write_report(
            results,
            HERE.parent / "results",
            task=data.task.name,
            command=command,
            rows=len(data.rows),
            seeds=plan.seeds,
        )
    yield from rows_of(results, data.task.name)


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--task": {"choices": sorted(SETS), "default": "4"},
            "--rows": {"type": int, "default": 1_000_000},
            "--epochs": {"type": float, "default": 2.0},
            "--seeds": {"type": int, "default": 1},
            "--store": {"type": Path},
            "--threads": {"type": int, "default": 2},
        },
    )
