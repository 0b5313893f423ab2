"""A training run over Ray Train: workers that can die, checkpoints they come back from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

from mildroute.engine.cluster import connected, quiet_data
from mildroute.engine.training.checkpoints import Progress, read_progress, write_progress
from mildroute.engine.training.linear_training import train_linear
from mildroute.engine.training.network_training import train_network
from mildroute.engine.training.plans import LinearPlan, NetworkPlan
from mildroute.engine.training.shard_source import dataset_of, passes_of, uneven_split
from mildroute.engine.training.shards import Shards
from mildroute.engine.training.team import Distributed
from mildroute.engine.training.worker import Worker
from mildroute.errors import MildrouteError

__all__ = ["RayRun", "train_on_ray"]

_KEEP = 2


@dataclass(frozen=True)
class RayRun:
    """Where and how to run.

    Args:
        workers: Processes that train.
        storage: Folder or URI for checkpoints.
        name: Name of the run: a run of the same name and storage goes on where the last one stopped.
        patience: Seconds of work that a death may cost; checkpoints are no closer than that.
        failures: Deaths of workers that are survived.
        store_bytes: Size of a local cluster's object store, or none for Ray's choice.

    Example:
        >>> RayRun(2, "runs", "june").failures
        3
    """

    workers: int
    storage: str
    name: str
    patience: float = 10.0
    failures: int = 3
    store_bytes: int | None = 1 << 30


def train_on_ray(plan: LinearPlan | NetworkPlan, shards: Shards, run: RayRun) -> Progress:
    """Train on a cluster: the one that is connected, that of ``RAY_ADDRESS``, or a local one.

    Args:
        plan: What to train.
        shards: On what.
        run: Where and how.

    Returns:
        Where the run ended.

    Example:
        >>> train_on_ray.__name__
        'train_on_ray'
    """
    # A worker trains on one processor and its rows are read on another.
    with connected(2 * run.workers, store_bytes=run.store_bytes), quiet_data():
        from ray import train
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            _work,
            train_loop_config={"plan": plan, "shards": shards, "patience": run.patience},
            scaling_config=train.ScalingConfig(num_workers=run.workers, resources_per_worker={"CPU": 1}),
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
    train_linear(plan, worker) if isinstance(plan, LinearPlan) else train_network(plan, worker)


def _tell(figures: dict[str, float], progress: Progress | None) -> None:
    from ray import train

    if progress is None:
        train.report(figures)
        return
    with tempfile.TemporaryDirectory(prefix="mildroute-") as folder:
        write_progress(folder, progress)
        train.report(figures, checkpoint=train.Checkpoint.from_directory(folder))


def _resumed() -> Progress | None:
    from ray import train

    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return read_progress(folder)
