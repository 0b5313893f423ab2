"""A single fine-tuning run.

The run evaluates the network on held-out rows several times per epoch and keeps the best state,
since end-to-end routers overfit within an epoch or two.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need, quiet
from mildroute.deep.config import DeferralConfig
from mildroute.deep.models import Classifier
from mildroute.deep.trainer import DeferralTrainer
from mildroute.deep.training_data import CostRows, TextReader
from mildroute.routers.training_rows import Matrix

__all__ = [
    "FineTuneConfig",
    "FineTuneData",
    "comparable_costs",
    "fine_tune",
    "held_out_rows",
    "scores_of_rows",
]


_EVALUATIONS_PER_EPOCH = 2
# Number of evaluations without an improvement in cost or loss after which training stops.
_PATIENCE = 3
# Share of the steps during which the learning rate warms up.
_WARM_UP = 0.06
# Number of rows per scoring batch.
_SCORING_BATCH_SIZE = 256
# Minimum number of held-out rows for choosing a state; with fewer, the last state is kept.
_MIN_HELD_OUT = 10


@dataclass(frozen=True)
class FineTuneConfig:
    """The hyperparameters of a fine-tuning run.

    Args:
        progress: Called with the steps done and the total, or `None`.
        weight_decay: The optimizer's weight decay.
        optimizer: ``"adamw"``, with gradient clipping; or ``"adam"``, without clipping and with the
            decay added to every weight's gradient.
        schedule: ``"warm"``, a linear warm-up and a linear decay to zero; or ``"constant"``.
        trainer: A trainer with its own loss; `None` uses
            :class:`~mildroute.deep.trainer.DeferralTrainer`.
    """

    epochs: float = 3.0
    learning_rate: float = 5e-5
    batch_size: int = 32
    seed: int = 0
    progress: Callable[[int, int], None] | None = None
    weight_decay: float = 0.01
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["warm", "constant"] = "warm"
    trainer: type[DeferralTrainer] | None = None


@dataclass(frozen=True)
class FineTuneData:
    """The rows of a training run.

    Args:
        inputs: n inputs in the format of the classifier's reader.
        costs: Shape (n, p).
        weights: Weight of each row, shape (n,), or `None`.
    """

    inputs: list[dict[str, Any]]
    costs: Matrix
    weights: NDArray[np.float64] | None = None

    def part(self, rows: NDArray[np.intp]) -> FineTuneData:
        """Return the rows with these indices."""
        weights = None if self.weights is None else self.weights[rows]
        return FineTuneData([self.inputs[row] for row in rows], self.costs[rows], weights)


def held_out_rows(rows: int, share: float, groups: Any, seed: int) -> NDArray[np.intp]:
    """Return the indices of rows to hold out, drawn evenly from each group.

    Args:
        rows: Number of rows, n.
        share: Share of the rows to hold out.
        groups: Group of each row, shape (n,), or `None`.
        seed: Seed for the draw.

    Returns:
        Indices in ascending order; empty if there would be fewer than ten.
    """
    count = round(share * rows)
    if count < _MIN_HELD_OUT:
        return np.empty(0, dtype=np.intp)
    order = np.random.default_rng(seed).permutation(rows)
    if groups is not None:
        _, group = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        order = order[np.argsort(group[order], kind="stable")]
    return np.sort(order[np.linspace(0, rows - 1, count).round().astype(np.intp)])


def comparable_costs(costs: Matrix, reward: str) -> Matrix:
    """Shift costs to start at 0, and scale them so that a row's rewards sum to 1 on average.

    The result does not depend on the costs' sign or currency.

    Args:
        costs: Shape (n, p).
        reward: Name of the reward. The complement has its own scale, so its costs are only shifted.
    """
    shifted = costs - min(costs.min(), 0.0)
    if reward == "complement":
        return np.asarray(shifted)
    rewards = (
        shifted.max(axis=1, keepdims=True) - shifted
        if reward == "gap"
        else shifted.sum(axis=1, keepdims=True) - shifted
    )
    unit = float(rewards.sum(axis=1).mean())
    return np.asarray(shifted / unit) if unit > 0 else np.asarray(shifted)


def fine_tune(
    classifier: Classifier,
    train: FineTuneData,
    held_out: FineTuneData,
    deferral: DeferralConfig,
    config: FineTuneConfig,
) -> float:
    """Train a classifier in place and restore the state with the best held-out choices.

    Args:
        classifier: The network and its reader.
        train: Training rows, with costs in the loss's units.
        held_out: Rows for choosing the state, with weights already multiplied into their costs.
            If empty, training runs to the end and keeps the last state.
        deferral: Margins, reward and decision.
        config: Hyperparameters of the run.

    Returns:
        Number of epochs to the kept state.
    """
    with tempfile.TemporaryDirectory(prefix="mildroute-") as scratch, quiet():
        trainer = _make_trainer(classifier, train, held_out, deferral, config, scratch)
        trainer.train()
    steps = trainer.state.best_global_step if held_out.inputs else None
    classifier.model.eval().cpu()
    if not steps:
        return float(trainer.state.epoch)
    return float(steps / math.ceil(len(train.inputs) / config.batch_size))


def scores_of_rows(classifier: Classifier, inputs: list[dict[str, Any]]) -> Matrix:
    """Return a network's scores, computed on a GPU if there is one."""
    torch = need("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = classifier.model.eval().to(device)
    parts = [np.empty((0, model.config.num_labels))]
    with torch.inference_mode():
        for start in range(0, len(inputs), _SCORING_BATCH_SIZE):
            batch = classifier.reader.batch(inputs[start : start + _SCORING_BATCH_SIZE])
            parts.append(
                model(**{name: values.to(device) for name, values in batch.items()})
                .logits.double()
                .cpu()
                .numpy()
            )
    model.cpu()
    return np.concatenate(parts)


def _make_trainer(
    classifier: Classifier,
    train: FineTuneData,
    held_out: FineTuneData,
    deferral: DeferralConfig,
    config: FineTuneConfig,
    scratch: str,
) -> DeferralTrainer:
    transformers = need("transformers")
    trainer = (config.trainer or DeferralTrainer)(
        model=classifier.model,
        args=transformers.TrainingArguments(
            output_dir=scratch,
            **_arguments(classifier, len(train.inputs), bool(held_out.inputs), config),
        ),
        train_dataset=CostRows(train.inputs, train.costs, train.weights),
        eval_dataset=CostRows(held_out.inputs, held_out.costs) if held_out.inputs else None,
        data_collator=classifier.reader.batch,
        callbacks=[_early_stopping()] if held_out.inputs else [],
        margins=deferral.margins,
        reward=deferral.reward,
        decision=deferral.decision,
        optimizers=(_adam(classifier.model, config) if config.optimizer == "adam" else None, None),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if config.progress is not None:
        trainer.add_callback(_progress_callback(config.progress))
    return trainer


def _arguments(
    classifier: Classifier, rows: int, has_held_out: bool, config: FineTuneConfig
) -> dict[str, Any]:
    """Return arguments for ``transformers.TrainingArguments``."""
    steps = math.ceil(math.ceil(rows / config.batch_size) * config.epochs)
    evaluation_steps = max(1, math.ceil(steps / (_EVALUATIONS_PER_EPOCH * config.epochs)))
    return {
        "num_train_epochs": config.epochs,
        "learning_rate": config.learning_rate,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": 2 * config.batch_size,
        "weight_decay": config.weight_decay,
        "seed": config.seed,
        "report_to": "none",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": need("torch").cuda.is_available(),
        "lr_scheduler_type": "constant" if config.schedule == "constant" else "linear",
        "warmup_steps": int(_WARM_UP * steps) if config.schedule == "warm" else 0,
        "max_grad_norm": 0.0 if config.optimizer == "adam" else 1.0,
        **(_batching_by_length() if isinstance(classifier.reader, TextReader) else {}),
        **(_evaluation_arguments(evaluation_steps) if has_held_out else {"save_strategy": "no"}),
    }


def _adam(model: Any, config: FineTuneConfig) -> Any:
    """Return Adam with decay on all weights; the Trainer would exempt biases and norms."""
    return need("torch").optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )


def _evaluation_arguments(steps: int) -> dict[str, Any]:
    """Return arguments that evaluate every few steps and restore the best state at the end."""
    return {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": steps,
        "save_steps": steps,
        "save_total_limit": 1,
        "save_only_model": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": "deferral_loss",
        "greater_is_better": False,
    }


def _batching_by_length() -> dict[str, Any]:
    """Return arguments that put texts of similar length into a batch, to save padding.

    The option's name depends on the transformers version.
    """
    options = need("transformers").TrainingArguments.__dataclass_fields__
    return (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in options
        else {"group_by_length": True}
    )


def _early_stopping() -> Any:
    """Return a callback that stops training after several evaluations without an improvement.

    A lower loss counts as well: a network with random weights lowers its loss for epochs before any
    choice changes.
    """

    class EarlyStopping(need("transformers").TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.lowest: dict[str, float] = {}
            self.evaluations_without_gain = 0

        def on_evaluate(
            self, _args: Any, _state: Any, control: Any, metrics: dict[str, float], **_rest: Any
        ) -> None:
            values = {name: metrics[name] for name in ("eval_deferral_loss", "eval_loss")}
            improvements = [
                value < self.lowest.get(name, math.inf) for name, value in values.items()
            ]
            self.lowest = {
                name: min(value, self.lowest.get(name, math.inf)) for name, value in values.items()
            }
            self.evaluations_without_gain = (
                0 if any(improvements) else self.evaluations_without_gain + 1
            )
            control.should_training_stop = (
                control.should_training_stop or self.evaluations_without_gain >= _PATIENCE
            )

    return EarlyStopping()


def _progress_callback(progress: Callable[[int, int], None]) -> Any:
    class ReportProgress(need("transformers").TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
            progress(state.global_step, state.max_steps)

    return ReportProgress()
