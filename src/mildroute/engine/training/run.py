"""Train a router from Parquet shards that are larger than memory, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mildroute.engine.training.checkpoints import Progress, read_progress, write_progress
from mildroute.engine.training.linear_training import train_linear
from mildroute.engine.training.network_training import train_network
from mildroute.engine.training.on_ray import RayRun, train_on_ray
from mildroute.engine.training.plans import LinearPlan, NetworkPlan
from mildroute.engine.training.results import Trained, trained
from mildroute.engine.training.shards import Rows, Shards, open_shards, read_piece, rows_of
from mildroute.engine.training.team import Alone
from mildroute.engine.training.worker import Worker
from mildroute.errors import ArgumentError, MildrouteError

__all__ = ["train"]

Tell = Callable[[dict[str, float]], None]


def train(
    shards: str | Shards,
    plan: LinearPlan | NetworkPlan,
    *,
    storage: str = "",
    name: str = "",
    workers: int = 0,
    patience: float = 10.0,
    progress: Tell | None = None,
) -> Trained:
    """Train a router from Parquet shards, a piece at a time.

    A linear router reaches the optimum that ``MildRouter`` would reach if all rows were in memory.

    Args:
        shards: A folder, file or URI, or what :func:`~mildroute.engine.training.shards.open_shards` found there.
        plan: What to train.
        storage: Folder (or, with workers, any URI that Ray knows) for checkpoints; empty for none.
        name: Name of the run there. A run of a name that exists goes on where that one stopped.
        workers: Ray workers that train; 0 trains in this process, without Ray.
        patience: Seconds of work that the death of a Ray worker may cost; its checkpoints are no closer than that.
        progress: Called with the figures of each step of a run in this process, or none.

    Returns:
        The router, and how it came about.

    Example:
        >>> import tempfile
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> from mildroute.engine.training.shards import vector_column
        >>> X, folder = np.random.default_rng(0).normal(size=(200, 3)), tempfile.mkdtemp()
        >>> right = (X[:, 0] > 0).astype(float)
        >>> pq.write_table(pa.table({"vector": vector_column(X), "score:a": right, "score:b": 1 - right}), f"{folder}/0.parquet")
        >>> found = train(folder, LinearPlan(penalty=1e-3))
        >>> found.router.experts_[found.router.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])]
        array(['a', 'b'], dtype=object)
    """
    if workers < 0:
        raise ArgumentError(f"workers must be at least 0, got {workers}; 0 trains in this process.")
    if workers and not (storage and name):
        raise ArgumentError("a run with workers must have a storage and a name, where its checkpoints go; pass both.")
    known = open_shards(shards) if isinstance(shards, str) else shards
    place = storage if not storage or "://" in storage else str(Path(storage).expanduser().absolute())
    end = train_on_ray(plan, known, RayRun(workers, place, name, patience)) if workers else _here(plan, known, place, name, progress)
    return trained(plan, known, end)


def _here(plan: LinearPlan | NetworkPlan, shards: Shards, storage: str, name: str, tell: Tell | None) -> Progress:
    folder = Path(storage) / name if storage else None

    def told(figures: dict[str, float], progress: Progress | None) -> None:
        if folder is not None and progress is not None:
            _replace(folder, progress)
        if tell is not None:
            tell(figures)

    resumed = read_progress(folder) if folder is not None and (folder / "progress.npz").exists() else None
    worker = Worker(shards, lambda: _rows(shards), Alone(), told, resumed)
    end = train_linear(plan, worker) if isinstance(plan, LinearPlan) else train_network(plan, worker)
    if end is None:
        raise MildrouteError("training must end with a router, got none; the team has no leader.")
    return end


def _rows(shards: Shards) -> Iterator[Rows]:
    for piece in shards.pieces:
        yield from rows_of(read_piece(shards, piece), shards)


def _replace(folder: Path, progress: Progress) -> None:
    """A checkpoint is whole or not there."""
    beside = folder.with_name(f"{folder.name}.new")
    beside.mkdir(parents=True, exist_ok=True)
    write_progress(beside, progress)
    folder.mkdir(parents=True, exist_ok=True)
    (beside / "progress.npz").replace(folder / "progress.npz")
    beside.rmdir()
