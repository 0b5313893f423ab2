"""Train a router from shards, in one process or with Ray Train."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.distributed.cluster import connected, quiet_data
from mildroute.distributed.linear import train_linear
from mildroute.distributed.mlp import train_network
from mildroute.distributed.shards import (
    Rows,
    Shards,
    dataset_of,
    open_shards,
    passes_of,
    read_piece,
    rows_of,
    uneven_split,
)
from mildroute.distributed.statistics import LinearConfig, MLPConfig
from mildroute.distributed.worker import (
    Distributed,
    SingleProcess,
    TrainingProgress,
    Worker,
    read_progress,
    write_progress,
)
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.routers._decision import MARGIN_RULES
from mildroute.routers.mild import MildRouter

__all__ = ["RayRun", "TrainingResult", "to_router", "train", "train_on_ray"]


# What training leaves: a router as any other, and how it came about.


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a run.

    Args:
        router: A fitted :class:`~mildroute.routers.mild.MildRouter`, ready to predict and to be
            saved.
        objective: Penalized mean loss at the end (linear), or mean held-out cost of the epoch that
            was kept (network).
        steps: Steps of the search, or epochs.
        passes: Passes over all rows.
        rows: Rows of a pass.
        seconds: Of all passes but the first, which only counts and measures; without starting
            processes.

    Example:
        >>> TrainingResult.__name__
        'TrainingResult'
    """

    router: MildRouter
    objective: float
    steps: int
    passes: int
    rows: int
    seconds: float


def to_router(
    plan: LinearConfig | MLPConfig, shards: Shards, progress: TrainingProgress
) -> TrainingResult:
    """A router from where a run ended."""
    linear = isinstance(plan, LinearConfig)
    margins = progress.arrays["margins"]
    # A linear problem is solved in units of the mean margin; the paper's margins sum to 1.
    unit = 1 / len(margins) if linear and plan.margins in MARGIN_RULES else 1.0
    router = MildRouter.from_coefficients(
        experts=shards.experts,
        margin_values=unit * margins,
        rows=progress.rows,
        reward=plan.reward,
        decision=plan.decision,
        features="raw",
        **_parameters(plan),
        **(_of_linear(progress, unit) if linear else _of_network(progress)),
    )
    figure = float(progress.arrays["value" if linear else "paid"])
    return TrainingResult(
        router,
        figure,
        progress.done,
        progress.passes,
        progress.rows,
        float(progress.arrays["seconds"]),
    )


def _parameters(plan: LinearConfig | MLPConfig) -> dict[str, Any]:
    return {
        "margins": plan.margins if isinstance(plan.margins, str) else list(plan.margins),
        "alpha": plan.alpha if isinstance(plan, LinearConfig) else "cv",
        "hidden_layer_sizes": None if isinstance(plan, LinearConfig) else plan.hidden_layer_sizes,
    }


def _of_linear(progress: TrainingProgress, unit: float) -> dict[str, Any]:
    return {
        "weights": unit * progress.arrays["weights"],
        "intercept": unit * progress.arrays["intercept"],
        "gradient_norm": float(progress.arrays["gradient"]),
        "selection": (
            f"trained on {progress.rows} rows in {progress.done} steps and {progress.passes}"
            " passes: as asked"
        ),
    }


def _of_network(progress: TrainingProgress) -> dict[str, Any]:
    best = progress.part("best")
    return {
        "layers": [best[str(place)] for place in range(len(best))],
        "selection": (
            f"a network trained on {progress.rows} rows for {progress.done} epochs, the best of"
            " them kept: as asked"
        ),
    }


# A training run over Ray Train: workers that can die, checkpoints they come back from.


_KEEP = 2


@dataclass(frozen=True)
class RayRun:
    """Where and how to run.

    Args:
        storage: Folder or URI for checkpoints.
        name: Name of the run: a run of the same name and storage continues where the last one
            stopped.
        patience: Seconds of work that a death may cost; checkpoints are no closer than that.
        store_bytes: Size of a local cluster's object store, or none for Ray's choice.
    """

    workers: int
    storage: str
    name: str
    patience: float = 10.0
    failures: int = 3
    store_bytes: int | None = 1 << 30


def train_on_ray(plan: LinearConfig | MLPConfig, shards: Shards, run: RayRun) -> TrainingProgress:
    """Train on a cluster: the one that is connected, that of ``RAY_ADDRESS``, or a local one."""
    # A worker trains on one processor and its rows are read on another.
    with connected(2 * run.workers, store_bytes=run.store_bytes), quiet_data():
        from ray import train
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            _work,
            train_loop_config={"plan": plan, "shards": shards, "patience": run.patience},
            scaling_config=train.ScalingConfig(
                num_workers=run.workers, resources_per_worker={"CPU": 1}
            ),
            run_config=train.RunConfig(
                name=run.name,
                storage_path=run.storage,
                failure_config=train.FailureConfig(max_failures=run.failures),
                checkpoint_config=train.CheckpointConfig(num_to_keep=_KEEP),
            ),
            datasets={"train": dataset_of(shards)},
            dataset_config=uneven_split(),
        )
        result = trainer.fit()
        if result.checkpoint is None:
            raise MildrouteError(f"the run {run.name!r} has left no checkpoint: {result.error}.")
        with result.checkpoint.as_directory() as folder:
            return read_progress(folder)


def _work(config: dict[str, Any]) -> None:
    """What each worker does."""
    import torch
    from ray import train

    torch.set_num_threads(1)
    plan, shards, context = config["plan"], config["shards"], train.get_context()
    worker = Worker(
        shards,
        passes_of(train.get_dataset_shard("train"), shards),
        Distributed(context.get_world_rank(), context.get_world_size()),
        _tell,
        _resumed(),
        config["patience"],
    )
    train_linear(plan, worker) if isinstance(plan, LinearConfig) else train_network(plan, worker)


def _tell(figures: dict[str, float], progress: TrainingProgress | None) -> None:
    from ray import train

    if progress is None:
        train.report(figures)
        return
    with tempfile.TemporaryDirectory(prefix="mildroute-") as folder:
        write_progress(folder, progress)
        train.report(figures, checkpoint=train.Checkpoint.from_directory(folder))


def _resumed() -> TrainingProgress | None:
    from ray import train

    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return read_progress(folder)


# Train a router from Parquet shards that are larger than memory, in this process or on a cluster.


Tell = Callable[[dict[str, float]], None]


def train(
    shards: str | Shards,
    plan: LinearConfig | MLPConfig,
    *,
    storage: str = "",
    name: str = "",
    workers: int = 0,
    patience: float = 10.0,
    progress: Tell | None = None,
) -> TrainingResult:
    """Train a router from Parquet shards, a piece at a time.

    A linear router reaches the optimum that ``MildRouter`` would reach if all rows were in memory.

    Args:
        shards: A folder, file or URI, or what :func:`~mildroute.distributed.shards.open_shards`
            found there.
        plan: What to train.
        storage: Folder (or, with workers, any URI that Ray knows) for checkpoints; empty for none.
        name: Name of the run there. A run of a name that exists continues where that one stopped.
        workers: Ray workers that train; 0 trains in this process, without Ray.
        patience: Seconds of work that the death of a Ray worker may cost; its checkpoints are no
            closer than that.
        progress: Called with the figures of each step of a run in this process, or none.

    Returns:
        The router, and how it came about.

    Example:
        >>> import tempfile
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> from mildroute.distributed.shards import vector_column
        >>> X, folder = np.random.default_rng(0).normal(size=(200, 3)), tempfile.mkdtemp()
        >>> right = (X[:, 0] > 0).astype(float)
        >>> columns = {"vector": vector_column(X), "score:a": right, "score:b": 1 - right}
        >>> pq.write_table(pa.table(columns), f"{folder}/0.parquet")
        >>> found = train(folder, LinearConfig(alpha=1e-3))
        >>> found.router.experts_[found.router.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])]
        array(['a', 'b'], dtype=object)
    """
    if workers < 0:
        raise ArgumentError(f"workers must be at least 0, got {workers}; 0 trains in this process.")
    if workers and not (storage and name):
        raise ArgumentError(
            "a run with workers must have a storage and a name, where its checkpoints go; pass"
            " both."
        )
    known = open_shards(shards) if isinstance(shards, str) else shards
    place = (
        storage if not storage or "://" in storage else str(Path(storage).expanduser().absolute())
    )
    end = (
        train_on_ray(plan, known, RayRun(workers, place, name, patience))
        if workers
        else _here(plan, known, place, name, progress)
    )
    return to_router(plan, known, end)


def _here(
    plan: LinearConfig | MLPConfig, shards: Shards, storage: str, name: str, tell: Tell | None
) -> TrainingProgress:
    folder = Path(storage) / name if storage else None

    def told(figures: dict[str, float], progress: TrainingProgress | None) -> None:
        if folder is not None and progress is not None:
            _replace(folder, progress)
        if tell is not None:
            tell(figures)

    resumed = (
        read_progress(folder) if folder is not None and (folder / "progress.npz").exists() else None
    )
    worker = Worker(shards, lambda: _rows(shards), SingleProcess(), told, resumed)
    end = (
        train_linear(plan, worker)
        if isinstance(plan, LinearConfig)
        else train_network(plan, worker)
    )
    if end is None:
        raise MildrouteError("training must end with a router, got none; the team has no leader.")
    return end


def _rows(shards: Shards) -> Iterator[Rows]:
    for piece in shards.pieces:
        yield from rows_of(read_piece(shards, piece), shards)


def _replace(folder: Path, progress: TrainingProgress) -> None:
    """A checkpoint is whole or not there."""
    beside = folder.with_name(f"{folder.name}.new")
    beside.mkdir(parents=True, exist_ok=True)
    write_progress(beside, progress)
    folder.mkdir(parents=True, exist_ok=True)
    (beside / "progress.npz").replace(folder / "progress.npz")
    beside.rmdir()
