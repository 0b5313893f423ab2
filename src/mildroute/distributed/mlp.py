"""Train a network by gradient steps that all workers take together, each on its own rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mildroute.distributed.shards import Rows
from mildroute.distributed.statistics import MLPConfig, Statistics, rewards_of
from mildroute.distributed.worker import (
    TrainingProgress,
    Worker,
    gathered_margins,
    gathered_statistics,
)
from mildroute.losses._logsumexp import row_losses
from mildroute.routers._mlp import (
    StandardizedBatches,
    forward,
    positive_spread,
    start_layers,
    torch_forward,
)
from mildroute.routers._search import held_out_costs

__all__ = ["Perceptron", "train_network"]


class Perceptron(torch.nn.Module):
    """Hidden layers with rectified units.

    Its weights are those of :func:`mildroute.routers._mlp.forward`.
    """

    def __init__(self, layers: list[NDArray[np.float64]]) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList(
            [torch.from_numpy(layer.astype(np.float32)) for layer in layers]
        )

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scores, shape (n, p)."""
        return torch_forward(list(self.layers), vectors)

    def arrays(self) -> list[NDArray[np.float64]]:
        """Weights and biases in turn."""
        return [layer.detach().cpu().numpy().astype(np.float64) for layer in self.layers]


@dataclass(frozen=True)
class _Setting:
    """What stays the same through a run."""

    plan: MLPConfig
    known: Statistics
    margins: NDArray[np.float64]
    center: NDArray[Any]
    spread: NDArray[Any]

    def scaled(self, part: Rows) -> StandardizedBatches:
        return StandardizedBatches(part.vectors, self.center, self.spread)


def train_network(plan: MLPConfig, worker: Worker) -> TrainingProgress | None:
    """Train for the epochs of a plan and keep the best of them.

    Returns:
        Layers and the like for the leader, none for the others.
    """
    setting = _setting(plan, worker)
    start = worker.resumed or TrainingProgress(passes=1, rows=worker.shards.rows)
    start = worker.team.share(start)
    network, optimizer = _network(setting, start)
    best = start
    for epoch in range(start.done, plan.epochs):
        begin = time.monotonic()
        _train_epoch(network, optimizer, setting, worker, epoch)
        paid = _held_out_cost(network.arrays(), setting, worker)
        best = _better(
            best, _Epoch(epoch, paid, time.monotonic() - begin), setting, network, optimizer
        )
        figure = float(best.arrays["paid"]) if worker.team.rank == 0 else float("nan")
        worker.tell(
            {"held_out": paid, "best": figure, "epoch": epoch + 1},
            best if worker.team.rank == 0 else None,
        )
    return best if worker.team.rank == 0 else None


def _setting(plan: MLPConfig, worker: Worker) -> _Setting:
    found = gathered_statistics(worker, plan.sample)
    known: Statistics = worker.team.share(found)
    spread = positive_spread(np.sqrt(known.variances), known.mean)
    # Single precision, like the rows: twice as fast to center and scale.
    center, spread = known.mean.astype(np.float32), spread.astype(np.float32)
    return _Setting(plan, known, gathered_margins(worker, plan, known), center, spread)


def _network(
    setting: _Setting, start: TrainingProgress
) -> tuple[Perceptron, torch.optim.Optimizer]:
    plan, known = setting.plan, setting.known
    layers = start_layers(
        [len(setting.center), *plan.hidden_layer_sizes, len(setting.margins)], plan.seed
    )
    layers[-1] = np.log(
        np.maximum(rewards_of(known.sample.costs, plan.reward, known).mean(axis=0), 1e-6)
    )
    network = Perceptron(
        [start.part("layer")[str(place)] for place in range(len(layers))]
        if start.part("layer")
        else layers
    )
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay
    )
    moments = start.part("moment")
    for place, layer in enumerate(network.layers if moments else ()):
        first, second = (
            torch.tensor(moments[f"{name}.{place}"]) for name in ("exp_avg", "exp_avg_sq")
        )
        optimizer.state[layer] = {
            "step": torch.tensor(float(moments["step"])),
            "exp_avg": first,
            "exp_avg_sq": second,
        }
    return network, optimizer


def _train_epoch(
    network: Perceptron, optimizer: Any, setting: _Setting, worker: Worker, epoch: int
) -> None:
    plan, margins = setting.plan, torch.from_numpy(setting.margins).float()
    with ExitStack() as stack:
        model: Any = network
        if worker.team.size > 1:
            from torch.distributed.algorithms.join import Join

            model = torch.nn.parallel.DistributedDataParallel(network)
            # Workers need not have the same number of batches.
            stack.enter_context(Join([model]))
        batches = _batches(setting, worker, epoch)
        share = (
            plan.held_out
            / (plan.held_out - 1)
            * plan.batch_size
            * worker.team.size
            / worker.shards.rows
        )
        for done, (vectors, costs) in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate * max(
                    0.0, 1 - (epoch + min(1.0, done * share)) / plan.epochs
                )
            rewards = torch.from_numpy(rewards_of(costs, plan.reward, setting.known)).float()
            loss = row_losses(model(torch.from_numpy(vectors)), rewards, margins, 1.0).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _batches(
    setting: _Setting, worker: Worker, epoch: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float64]]]:
    """Batches of the rows that are not held out, in random order within each part."""
    random = np.random.default_rng([setting.plan.seed, epoch, worker.team.rank])
    for part in worker.passing():
        rows = np.flatnonzero(~_is_held_out(part, setting.plan))
        rows = random.permutation(rows)
        for start in range(0, len(rows), setting.plan.batch_size):
            taken = rows[start : start + setting.plan.batch_size]
            yield setting.scaled(part).take(taken), part.costs[taken]


def _is_held_out(part: Rows, plan: MLPConfig) -> NDArray[np.bool_]:
    """By place in the part as it is stored, so that the same rows are held out in every epoch."""
    return np.asarray(np.arange(len(part.vectors)) % plan.held_out == plan.held_out - 1)


def _held_out_cost(layers: list[NDArray[np.float64]], setting: _Setting, worker: Worker) -> float:
    """Mean cost of the choices on the held-out rows of all workers."""
    total, rows = 0.0, 0
    for part in worker.passing():
        taken = _is_held_out(part, setting.plan)
        if taken.any():
            scores = forward(layers, setting.scaled(part).take(np.flatnonzero(taken))).astype(
                np.float32
            )
            paid = held_out_costs(scores, part.costs[taken], setting.margins, setting.plan.decision)
            total, rows = total + float(paid.sum()), rows + len(paid)
    parts = worker.team.gather((total, rows))
    mean = sum(part[0] for part in parts) / max(1, sum(part[1] for part in parts)) if parts else 0.0
    return float(worker.team.share(mean))


def _for_raw_rows(
    setting: _Setting, layers: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    return [*setting.scaled(setting.known.sample).for_raw_rows(layers[0], layers[1]), *layers[2:]]


@dataclass(frozen=True)
class _Epoch:
    number: int
    paid: float
    seconds: float


def _better(
    best: TrainingProgress, epoch: _Epoch, setting: _Setting, network: Perceptron, optimizer: Any
) -> TrainingProgress:
    """Where the run stands, with the layers of the best epoch so far."""
    layers, known = network.arrays(), best.arrays
    kept, paid = (
        {name: array for name, array in known.items() if name.startswith("best.")},
        known.get("paid", np.asarray(np.inf)),
    )
    if epoch.paid < float(paid):
        kept, paid = (
            {f"best.{place}": layer for place, layer in enumerate(_for_raw_rows(setting, layers))},
            np.asarray(epoch.paid),
        )
    states = [optimizer.state[layer] for layer in network.layers]
    moments = {
        f"moment.{name}.{place}": state[name].numpy()
        for place, state in enumerate(states)
        for name in ("exp_avg", "exp_avg_sq")
    }
    arrays = {
        "paid": paid,
        "margins": setting.margins,
        "seconds": np.asarray(float(known.get("seconds", 0.0)) + epoch.seconds),
        "moment.step": np.asarray(float(states[0]["step"])),
        **{f"layer.{place}": layer for place, layer in enumerate(layers)},
    }
    return TrainingProgress(
        epoch.number + 1, best.passes + 2, setting.known.rows, {**arrays, **moments, **kept}
    )
