"""Training of a router with Ray Train on vectors that do not fit in one machine's memory."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn

from mildroute._optional import needs_extra
from mildroute.costs.schema import DOLLARS, SCORE
from mildroute.exceptions import ArgumentError, MildrouteError, ShapeError, TableError
from mildroute.losses.margins import reward_mass, theory_margins, winner_counts
from mildroute.losses.modules import MILDLoss
from mildroute.losses.rewards import rewards_of
from mildroute.routers._batches import positive_spread
from mildroute.routers.mild import MildRouter

with needs_extra("ray", extra="ray", user="mildroute.ray"):
    from ray import train
    from ray.data import Dataset
    from ray.data.aggregate import AggregateFnV2
    from ray.train.torch import TorchTrainer, prepare_model

__all__ = ["train_router"]


_STATE = "state.pt"
# Maximum number of worker deaths per run.
_MAX_FAILURES = 3
# Size of the shuffle buffer, in batches.
_SHUFFLED_BATCHES = 16
_WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class _VectorsAndCosts:
    """A callable that converts a table to vectors and costs."""

    experts: tuple[str, ...]
    vector: str
    price_weight: float

    def __call__(self, table: pa.Table) -> dict[str, NDArray[np.float32]]:
        """Return the vectors, shape (n, d), and the costs, shape (n, p)."""
        costs = 1 - self._numbers(table, SCORE)
        if self.price_weight:
            costs += self.price_weight * self._numbers(table, DOLLARS)
        return {"vector": self._vectors(table), "cost": costs.astype(np.float32)}

    def _numbers(self, table: pa.Table, prefix: str) -> NDArray[np.float64]:
        columns = [table.column(f"{prefix}{name}").to_numpy() for name in self.experts]
        numbers = np.stack(columns, axis=1).astype(np.float64)
        if not np.isfinite(numbers).all():
            expert = self.experts[int((~np.isfinite(numbers)).any(axis=0).argmax())]
            raise TableError(
                f"every {prefix.rstrip(':')} must be known and finite, got nulls or NaN for"
                f" {expert!r}; drop those rows first."
            )
        return numbers

    def _vectors(self, table: pa.Table) -> NDArray[np.float32]:
        vectors = _to_matrix(table.column(self.vector))
        if not np.isfinite(vectors).all():
            raise TableError("vectors must be finite, got NaN or infinity; drop those rows first.")
        return vectors


def _to_matrix(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Return a column of equal-length lists or Ray tensors as an array, shape (n, d)."""
    if column.null_count:
        raise TableError(
            f"every row must have a vector, got {column.null_count} nulls; drop those rows first."
        )
    lists = column.combine_chunks()
    if isinstance(lists, pa.ExtensionArray):
        lists = lists.storage
    numbers = lists.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers, dtype=np.float32).reshape(len(lists), -1)


@dataclass(frozen=True)
class _Totals:
    """Sums over all rows.

    Args:
        vectors: Sum of the vectors, shape (d,).
        squares: Sum of the squared vectors, shape (d,).
        mass: The paper's m_k under the training reward, shape (p,).
        wins: Number of rows on which each expert is the best, shape (p,).
        rewards: Sum of all rewards.
    """

    rows: int
    vectors: NDArray[np.float64]
    squares: NDArray[np.float64]
    mass: NDArray[np.float64]
    wins: NDArray[np.float64]
    rewards: float

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the mean vector, shape (d,)."""
        return self.vectors / self.rows

    @property
    def variances(self) -> NDArray[np.float64]:
        """Return the variance of each entry, shape (d,)."""
        return np.maximum(self.squares / self.rows - self.mean**2, 0.0)


class _TotalsAggregation(AggregateFnV2[Any, Any]):
    """A one-pass aggregation of the totals that training needs."""

    def __init__(self, rows: _VectorsAndCosts, reward: Literal["gap", "sum"]) -> None:
        super().__init__("totals", zero_factory=dict, on=None, ignore_nulls=False)
        self._rows = rows
        self._reward = reward

    def aggregate_block(self, block: pa.Table) -> dict[str, Any]:
        """Return a block's sums."""
        arrays = self._rows(block)
        vectors = arrays["vector"]
        costs = torch.from_numpy(arrays["cost"]).double()
        if float(costs.min()) < 0:
            raise TableError(
                f"costs must not be negative, got {float(costs.min()):g}; scores must be at most 1."
            )
        rewards = rewards_of(costs, self._reward)
        return {
            "rows": len(costs),
            "vectors": vectors.sum(axis=0, dtype=np.float64),
            "squares": np.square(vectors).sum(axis=0, dtype=np.float64),
            "mass": reward_mass(rewards).numpy(),
            "wins": winner_counts(costs).numpy(),
            "rewards": float(rewards.sum()),
        }

    def combine(self, current_accumulator: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Return the sums of both parts."""
        if not current_accumulator:
            return new
        return {name: np.add(total, new[name]) for name, total in current_accumulator.items()}


def _aggregate(dataset: Dataset, rows: _VectorsAndCosts, reward: Literal["gap", "sum"]) -> _Totals:
    totals = dataset.aggregate(_TotalsAggregation(rows, reward))["totals"]
    if not totals:
        raise TableError("a dataset must have at least one row to train on, got none.")
    arrays = {name: np.asarray(totals[name]) for name in ("vectors", "squares", "mass", "wins")}
    return _Totals(rows=int(totals["rows"]), rewards=float(totals["rewards"]), **arrays)


@dataclass(frozen=True)
class _Plan:
    """The training plan that all workers share.

    Args:
        margins: Margins with a mean of 1, shape (p,).
        unit: Mean sum of a row's rewards; the loss is divided by it.
        ridge: Weight of the squared norm of a linear router's weights.
    """

    sizes: tuple[int, ...]
    center: NDArray[np.float32]
    spread: NDArray[np.float32]
    margins: NDArray[np.float64]
    reward: Literal["gap", "sum"]
    unit: float
    ridge: float
    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    seed: int


def train_router(
    dataset: Dataset,
    *,
    vector: str = "vector",
    price_weight: float = 0.0,
    hidden_layer_sizes: Sequence[int] = (),
    reward: Literal["gap", "sum"] = "gap",
    margins: str | Sequence[float] = "uniform",
    decision: Literal["consistent", "argmax"] = "consistent",
    alpha: float = 1e-4,
    epochs: int = 5,
    batch_size: int = 1024,
    learning_rate: float = 0.01,
    seed: int = 0,
    workers: int = 2,
    run_config: train.RunConfig | None = None,
) -> MildRouter:
    """Train a linear router or a network on all rows of a dataset.

    It minimizes the same loss as ``MildRouter(reward=..., margins=..., alpha=..., features="raw")``
    in memory, with Adam instead of L-BFGS. Nothing is chosen by cross-validation: fit that router
    on a sample to choose ``alpha``, the reward and the margins.

    Reserve at least one more processor in Ray than ``workers``, for reading the rows.

    Args:
        dataset: Rows with a vector column and a column ``score:<expert>`` for each expert.
        vector: Name of the vector column: equal-length lists, or tensors.
        price_weight: Errors per dollar; above 0, each expert needs a column
            ``cost:<expert>``.
        hidden_layer_sizes: Units of each hidden layer; empty for a linear router.
        reward: ``"gap"`` or ``"sum"``.
        margins: ``"uniform"``, ``"theory"`` (the paper's), ``"winner_counts"`` or p numbers.
        decision: ``"consistent"`` (largest posterior) or ``"argmax"`` (largest score).
        alpha: Weight of the squared norm of a linear router, in units of the vectors' variance.
            Ignored if there are hidden layers.
        epochs: Number of passes over the rows.
        batch_size: Number of rows per step of each worker.
        learning_rate: Adam's initial step size, lowered to zero over the run.
        seed: Seed for the initial weights and the order of rows.
        workers: Number of training processes, one processor each.
        run_config: The run's name, storage and failure handling. Defaults to a temporary folder,
            which is enough on one machine.

    Returns:
        The fitted router, which :func:`mildroute.persistence.save_router` can store.

    Example:
        >>> train_router.__name__
        'train_router'
    """
    experts = _experts_of(dataset, vector, price_weight)
    if reward not in ("gap", "sum"):
        raise ArgumentError(f"reward must be gap or sum, got {reward!r}.")
    rows = _VectorsAndCosts(experts, vector, price_weight)
    totals = _aggregate(dataset, rows, reward)
    margin_values = _margins(margins, totals)
    variances = totals.variances
    plan = _Plan(
        sizes=(len(totals.vectors), *hidden_layer_sizes, len(experts)),
        center=totals.mean.astype(np.float32),
        spread=positive_spread(np.sqrt(variances), totals.mean).astype(np.float32),
        margins=margin_values / margin_values.mean(),
        reward=reward,
        unit=totals.rewards / totals.rows or 1.0,
        ridge=0.0 if hidden_layer_sizes else alpha * float(variances.sum() or 1.0),
        epochs=epochs,
        steps=epochs * math.ceil(totals.rows / (workers * batch_size)),
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="mildroute-") as folder:
        result = TorchTrainer(
            _train,
            train_loop_config={"plan": plan},
            scaling_config=train.ScalingConfig(
                num_workers=workers, resources_per_worker={"CPU": 1}
            ),
            run_config=run_config or _default_run_config(folder),
            datasets={"train": dataset.map_batches(rows, batch_format="pyarrow")},
        ).fit()
        if result.checkpoint is None:
            raise MildrouteError(f"training saved no checkpoint: {result.error}.")
        weights = _load_state(result.checkpoint)["model"]
    layers = _unscaled_layers(weights, plan, float(margin_values.mean()))
    kind = "network" if hidden_layer_sizes else "linear router"
    fitted = (
        {"layers": layers}
        if hidden_layer_sizes
        else dict(zip(("weights", "intercept"), layers, strict=True))
    )
    return MildRouter.from_coefficients(
        experts=experts,
        margin_values=margin_values,
        rows=totals.rows,
        selection=f"a {kind} trained on {totals.rows} rows for {epochs} epochs, as requested",
        reward=reward,
        margins=margins if isinstance(margins, str) else list(margins),
        decision=decision,
        alpha="cv" if hidden_layer_sizes else alpha,
        features="raw",
        hidden_layer_sizes=tuple(hidden_layer_sizes) or None,
        **fitted,
    )


def _experts_of(dataset: Dataset, vector: str, price_weight: float) -> tuple[str, ...]:
    schema = dataset.schema()
    names = [] if schema is None else schema.names
    experts = tuple(name.removeprefix(SCORE) for name in names if name.startswith(SCORE))
    columns = [vector, *(f"{DOLLARS}{name}" for name in experts if price_weight)]
    missing = [name for name in columns if name not in names]
    if missing or len(experts) < 2:
        raise TableError(
            f"a dataset must have a column {vector!r} and a column {SCORE}<name> for each of at"
            f" least two experts, and {DOLLARS}<name> with a price weight, got {', '.join(names)}."
        )
    return experts


def _margins(margins: str | Sequence[float], totals: _Totals) -> NDArray[np.float64]:
    """Return the margins, shape (p,)."""
    if isinstance(margins, str):
        counts = {
            "uniform": None,
            "theory": totals.mass,
            "winner_counts": totals.wins,
        }
        if margins not in counts:
            raise ArgumentError(
                f"margins must be {', '.join(counts)} or one number per expert, got {margins!r}."
            )
        mass = counts[margins]
        if mass is None:
            return np.ones(len(totals.wins))
        return np.asarray(theory_margins(torch.from_numpy(mass)).numpy())
    values = np.asarray(margins, dtype=np.float64)
    if values.shape != totals.wins.shape or not (values > 0).all():
        raise ShapeError(
            f"margins must be {len(totals.wins)} positive numbers, one per expert, got"
            f" {list(margins)}."
        )
    return values


def _default_run_config(folder: str) -> train.RunConfig:
    return train.RunConfig(
        storage_path=folder,
        failure_config=train.FailureConfig(max_failures=_MAX_FAILURES),
        checkpoint_config=train.CheckpointConfig(num_to_keep=1),
    )


def _train(config: dict[str, Any]) -> None:
    """Train for all epochs, from the last checkpoint if there is one."""
    plan: _Plan = config["plan"]
    torch.manual_seed(plan.seed)
    network = _network(plan.sizes)
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=plan.learning_rate,
        weight_decay=_WEIGHT_DECAY if len(plan.sizes) > 2 else 0.0,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, 1 - step / plan.steps)
    )
    first_epoch = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        state = _load_state(checkpoint)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first_epoch = state["epochs"]
    model = prepare_model(network)
    loss_function = MILDLoss(torch.from_numpy(plan.margins).float(), reward=plan.reward)
    center = torch.from_numpy(plan.center)
    spread = torch.from_numpy(plan.spread)
    shard = train.get_dataset_shard("train")
    for epoch in range(first_epoch, plan.epochs):
        losses = []
        for batch in shard.iter_torch_batches(
            batch_size=plan.batch_size,
            local_shuffle_buffer_size=_SHUFFLED_BATCHES * plan.batch_size,
            local_shuffle_seed=plan.seed + epoch,
        ):
            loss = (
                loss_function(model((batch["vector"] - center) / spread), batch["cost"]) / plan.unit
            )
            if plan.ridge:
                first_weights = next(network.parameters())
                loss = loss + plan.ridge * ((first_weights / spread) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        _report(
            {"loss": float(np.mean(losses)), "epoch": epoch + 1},
            {
                "model": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "epochs": epoch + 1,
            },
        )


def _network(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers with ReLUs between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _report(metrics: dict[str, float], state: dict[str, Any]) -> None:
    """Report an epoch; the first worker adds a checkpoint."""
    if train.get_context().get_world_rank():
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory(prefix="mildroute-") as folder:
        torch.save(state, Path(folder, _STATE))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def _load_state(checkpoint: train.Checkpoint) -> dict[str, Any]:
    with checkpoint.as_directory() as folder:
        state: dict[str, Any] = torch.load(Path(folder, _STATE), weights_only=True)
    return state


def _unscaled_layers(
    state: dict[str, torch.Tensor], plan: _Plan, unit: float
) -> list[NDArray[np.float64]]:
    """Return alternating weights, shape (inputs, outputs), and biases, for unscaled vectors.

    Args:
        state: The network's parameters for standardized vectors.
        plan: The training plan.
        unit: Mean margin. The network was trained with a mean of 1, and scores and margins scale
            together.
    """
    layers = [
        np.ascontiguousarray(tensor.numpy().T.astype(np.float64)) for tensor in state.values()
    ]
    layers[0] = layers[0] / plan.spread[:, None]
    layers[1] = layers[1] - plan.center @ layers[0]
    layers[-2:] = [unit * layers[-2], unit * layers[-1]]
    return layers
