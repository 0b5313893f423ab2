"""A linear router trained from Parquet shards on two Ray workers.

Beside it stand bare torch loops over the same shards.

Run: python benchmarks/speed/engine.py [--json] [--quick]
(5,000,000 rows of 384 numbers, about 4 GB on disk; --quick: 20,000 rows)
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from rows import Row, at_least, at_most, main, reported

from mildroute.distributed.cluster import connected
from mildroute.distributed.linear import lbfgs_steps
from mildroute.distributed.shards import (
    Piece,
    Shards,
    open_shards,
    read_piece,
    rows_of,
    vector_column,
)
from mildroute.distributed.statistics import LinearConfig
from mildroute.distributed.training import TrainingResult, train

WIDTH, EXPERTS = 384, ("small", "middle", "large")
SHARD, QUICK_SHARD = 62_500, 5_000
PLAN = LinearConfig(alpha=1e-4)


def generate(folder: Path, shards: int, shard_rows: int) -> float:
    """Vectors with a falling spectrum, experts that are right by chances linear in them.

    The size in GB.
    """
    folder.mkdir(parents=True)
    truth = np.random.default_rng(0).normal(size=(WIDTH, len(EXPERTS))).astype(np.float32)
    spectrum = (1 / np.sqrt(1 + np.arange(WIDTH))).astype(np.float32)
    for place in range(shards):
        random = np.random.default_rng([1, place])
        numbers = random.standard_normal((shard_rows, WIDTH), dtype=np.float32)
        vectors = (numbers * spectrum).astype(np.float16)
        chances = 1 / (
            1
            + np.exp(
                -(vectors.astype(np.float32) @ truth + np.array([1.5, 0.0, -0.5], dtype=np.float32))
            )
        )
        scores = (random.random(chances.shape) < chances).astype(np.float32)
        columns = {f"score:{name}": scores[:, expert] for expert, name in enumerate(EXPERTS)}
        table = pa.table({"vector": vector_column(vectors), **columns})
        pq.write_table(
            table, folder / f"{place:04d}.parquet", compression="none", use_dictionary=False
        )
        print(
            f"\rwrote {place + 1} of {shards} shards of {shard_rows:,} rows",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e9


def bare_pass(
    shards: Shards, pieces: tuple[Piece, ...], weights: np.ndarray, threads: int
) -> tuple[float, np.ndarray]:
    """Loss and gradient by torch alone: read, widen, multiply, softmax, backward."""
    import torch

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)
    unknown = torch.from_numpy(weights).float().requires_grad_()
    total = 0.0
    for piece in pieces:
        for part in rows_of(read_piece(shards, piece), shards):
            gains = torch.from_numpy(part.costs.max(axis=1, keepdims=True) - part.costs).float()
            for start in range(0, len(gains), 8192):
                block = slice(start, start + 8192)
                scores = torch.from_numpy(part.vectors[block]).float() @ unknown[:-1] + unknown[-1]
                loss = -(gains[block] * scores.log_softmax(dim=1)).sum()
                loss.backward()
                total += float(loss.detach())
    assert unknown.grad is not None
    return total, unknown.grad.numpy()


def bare_rate(shards: Shards) -> tuple[float, str]:
    """Rows a second of the faster of two bare loops.

    One process with two threads, or two processes with half of the shards each.
    """
    weights = np.zeros((WIDTH + 1, len(EXPERTS)))
    bare_pass(shards, shards.pieces[:4], weights, 2)
    start = time.perf_counter()
    bare_pass(shards, shards.pieces, weights, 2)
    one = shards.rows / (time.perf_counter() - start)
    halves = [shards.pieces[::2], shards.pieces[1::2]]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for each in [pool.submit(bare_pass, shards, half[:2], weights, 1) for half in halves]:
            each.result()
        start = time.perf_counter()
        for each in [pool.submit(bare_pass, shards, half, weights, 1) for half in halves]:
            each.result()
        two = shards.rows / (time.perf_counter() - start)
    return (
        max(one, two),
        f"bare: one process of two threads {one:,.0f}, two processes {two:,.0f} rows/s",
    )


class Watch(threading.Thread):
    """Looks at the training workers from outside: the most memory of each, and a kill if wanted."""

    def __init__(self, storage: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.storage, self.most, self.killed, self.ended = storage, 0, 0, False

    def run(self) -> None:
        while not self.ended:
            for pid in workers_of(os.getpid()):
                self.most = max(self.most, resident(pid))
                if (
                    self.storage is not None
                    and not self.killed
                    and list(self.storage.rglob("progress.npz"))
                ):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = pid
            time.sleep(0.1)


def workers_of(parent: int) -> list[int]:
    """Training workers below a process."""
    found = {int(path.parent.name): read(str(path)) for path in Path("/proc").glob("[0-9]*/stat")}
    parents = {pid: int(text.rsplit(")", 1)[1].split()[1]) for pid, text in found.items() if text}

    def below(pid: int) -> bool:
        return pid == parent or (pid in parents and below(parents[pid]))

    return [
        pid for pid in parents if below(pid) and "RayTrainWorker" in read(f"/proc/{pid}/cmdline")
    ]


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def resident(pid: int) -> int:
    lines = [line for line in read(f"/proc/{pid}/status").splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def run(
    shards: Shards, folder: Path, name: str, *, kill: bool = False
) -> tuple[TrainingResult, Watch, float]:
    watch = Watch(folder / name if kill else None)
    watch.start()
    start = time.perf_counter()
    found = train(
        shards, PLAN, workers=2, storage=str(folder), name=name, patience=0.0 if kill else 10.0
    )
    watch.ended = True
    watch.join()
    return found, watch, time.perf_counter() - start


def per_row(found: TrainingResult) -> float:
    """Seconds for each row of each pass."""
    return found.seconds / (found.passes - 1) / found.rows


def optimum_in_memory(shards: Shards) -> float:
    """The objective at the optimum of the same rows, in memory and in float64."""
    from mildroute.routers._decision import scaled_rewards
    from mildroute.routers._linear_model import deferral_row_loss, minimize_linear, whiten

    parts = [part for piece in shards.pieces for part in rows_of(read_piece(shards, piece), shards)]
    costs = np.concatenate([part.costs for part in parts])
    design = whiten(np.concatenate([part.vectors for part in parts]).astype(np.float64))
    loss = deferral_row_loss(scaled_rewards(costs, PLAN.reward, None), np.ones(len(EXPERTS)))
    return minimize_linear(design, loss, len(EXPERTS), alpha=PLAN.alpha).objective


def further_decrease(shards: Shards, found: TrainingResult, steps: int) -> float:
    """Relative decrease of the objective that the bare loop still finds from where training ended.

    About 0 at the optimum.
    """
    router = found.router
    parts = (part for piece in shards.pieces for part in rows_of(read_piece(shards, piece), shards))
    unit, total, squares, rows = 0.0, np.zeros(WIDTH), 0.0, 0
    for part in parts:
        unit += float((part.costs.max(axis=1, keepdims=True) - part.costs).sum())
        vectors = part.vectors.astype(np.float32)
        total += vectors.sum(axis=0, dtype=np.float64)
        squares += float(np.square(vectors).sum(dtype=np.float64))
        rows += len(vectors)
    ridge = PLAN.alpha * (squares / rows - float((total / rows) @ (total / rows)))
    shape = (WIDTH + 1, len(EXPERTS))

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        loss, gradient = bare_pass(shards, shards.pieces, weights, 2)
        penalised = np.vstack([2 * ridge * weights[:-1], np.zeros(shape[1])])
        return (
            loss / unit + ridge * float((weights[:-1] ** 2).sum()),
            (gradient / unit + penalised).ravel(),
        )

    start = np.vstack([router.weights_, router.intercept_])
    first, _ = objective(start.ravel())
    search = lbfgs_steps(objective, start.ravel())
    return (first - min(next(search).value for _ in range(steps))) / first


def measure(quick: bool) -> Iterator[Row]:
    shards, shard_rows = (4, QUICK_SHARD) if quick else (80, SHARD)
    folder = Path(tempfile.mkdtemp(prefix="mildroute-engine-"))
    try:
        yield reported(
            "GB of shards",
            generate(folder / "many", shards, shard_rows),
            f"{shards * shard_rows:,} rows of {WIDTH} float16 numbers",
        )
        with connected(4, store_bytes=1 << 30):
            many = open_shards(str(folder / "many"))
            large = yield from large_rows(many, folder / "runs", quick)
            if quick:
                yield optimum_row(many, large)
                return
            generate(folder / "few", 8, shard_rows)
            yield from small_rows(open_shards(str(folder / "few")), large, folder / "runs")
    finally:
        shutil.rmtree(folder)


def large_rows(many: Shards, folder: Path, quick: bool) -> Generator[Row, None, TrainingResult]:
    for piece in many.pieces:
        Path(piece.path).read_bytes()  # into memory, so that nobody waits for the disk
    rates = [bare_rate(many)]
    large, watch, wall = run(many, folder, "many")
    if not quick:
        rates.append(bare_rate(many))
    bare, note = max(rates)
    speed = 1 / per_row(large)
    told = (
        f"{speed:,.0f} rows/s over {large.passes} passes, {wall:.0f} s with the start; the better"
        f" of {len(rates)} times: {note}"
    )
    # small data ends before the workers are warm, so only the large run is held to the bounds
    name = "rows a second / the faster bare torch loop" + (", small" if quick else "")
    yield at_least(name, speed / bare, 0.7, told, full_only=True)
    yield at_most(
        "GiB resident in a worker at most",
        watch.most / 2**30,
        3.0,
        "shared memory of the object store included",
    )
    note = "three steps of L-BFGS over the bare loop, from where training ended"
    yield at_most(
        f"further decrease by the bare loop, relative, {many.rows:,} rows",
        further_decrease(many, large, 3),
        1e-3,
        note,
    )
    return large


def small_rows(few: Shards, large: TrainingResult, folder: Path) -> Iterator[Row]:
    small, _, _ = run(few, folder, "few")
    grown = per_row(large) / per_row(small)
    yield at_most(f"seconds a row at {large.rows:,} / at {few.rows:,} rows", grown, 1.1)
    yield optimum_row(few, small)
    killed, watch, _ = run(few, folder, "killed", kill=True)
    assert watch.killed
    yield at_most(
        "objective after a killed worker / undisturbed - 1, absolute",
        abs(killed.objective / small.objective - 1),
        1e-3,
    )


def optimum_row(shards: Shards, found: TrainingResult) -> Row:
    return at_most(
        f"objective above the optimum in memory, relative, {shards.rows:,} rows",
        found.objective / optimum_in_memory(shards) - 1,
        1e-3,
    )


if __name__ == "__main__":
    main(__doc__ or "", measure)
