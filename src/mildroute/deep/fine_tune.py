"""A single fine-tuning run.

The network is evaluated on held-out rows several times per epoch and its best state is kept, since
end-to-end routers overfit within an epoch or two.
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
from mildroute.deep.trainer import CostRows, DeferralTrainer, TextReader
from mildroute.routers.training_rows import Matrix

__all__ = [
    "FineTuneConfig",
    "FineTuneData",
    "comparable_costs",
    "fine_tune",
    "held_out_rows",
    "scores_of_rows",
]


# Evaluations on held-out rows per epoch; evaluations without a gain in cost or loss after which
# training ends; warm-up share of the steps.
_LOOKS, _PATIENCE, _WARM_UP = 2, 3, 0.06
# Number of rows scored at once.
_SCORED = 256
# Minimum number of held-out rows for choosing a state; below it the last state is as good.
_FEWEST = 10


@dataclass(frozen=True)
class FineTuneConfig:
    """The hyperparameters of a fine-tuning run.

    Args:
        progress: Called with the steps done and their number, or `None`.
        weight_decay: Decay of the weights per step, in units of the step.
        optimizer: ``"adamw"``, with gradient clipping; or ``"adam"``, without clipping and with the
            decay added to the gradient of every weight.
        schedule: ``"warm"``: the step size warms up, then falls linearly to zero; ``"falling"``: it
            falls from the start; ``"constant"``: it stays constant.
        steps: Maximum number of steps; 0 for all epochs.
        keep: ``"cost"`` keeps the state that decided best on held-out rows, and three evaluations
            without a gain in cost or loss end the training. ``"loss"`` keeps the state with the
            lowest loss on held-out rows, which does not depend on the decision, and training runs
            to its end.
        trainer: A trainer with its own loss, or `None` for
            :class:`~mildroute.deep.trainer.DeferralTrainer` itself.
    """

    epochs: float = 3.0
    learning_rate: float = 5e-5
    batch_size: int = 32
    seed: int = 0
    progress: Callable[[int, int], None] | None = None
    weight_decay: float = 0.01
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["warm", "falling", "constant"] = "warm"
    steps: int = 0
    keep: Literal["cost", "loss"] = "cost"
    trainer: type[DeferralTrainer] | None = None


@dataclass(frozen=True)
class FineTuneData:
    """The inputs of some rows in a reader's form, with their costs, and weights or `None`.

    Costs have shape (n, p), weights shape (n,).
    """

    inputs: list[dict[str, Any]]
    costs: Matrix
    weights: NDArray[np.float64] | None = None

    def part(self, places: NDArray[np.intp]) -> FineTuneData:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[places]
        return FineTuneData([self.inputs[index] for index in places], self.costs[places], weights)


def held_out_rows(rows: int, share: float, groups: Any, seed: int) -> NDArray[np.intp]:
    """Return rows to hold out, drawn evenly from each group.

    Args:
        rows: Number of rows, n.
        share: Share of the rows to hold out.
        groups: Group of each row, shape (n,), or `None`.
        seed: Seed of the draw.

    Returns:
        Row numbers in ascending order; empty if there would be fewer than ten.
    """
    count = round(share * rows)
    if count < _FEWEST:
        return np.empty(0, dtype=np.intp)
    order = np.random.default_rng(seed).permutation(rows)
    if groups is not None:
        _, group = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        order = order[np.argsort(group[order], kind="stable")]
    return np.sort(order[np.linspace(0, rows - 1, count).round().astype(np.intp)])


def comparable_costs(costs: Matrix, reward: str) -> Matrix:
    """Return costs from 0 up, in units in which rewards sum to 1 per row on average.

    Sign and currency thus do not matter.

    Args:
        costs: Shape (n, p).
        reward: Name of the reward; the complement has its own unit.
    """
    raised = costs - min(costs.min(), 0.0)
    if reward == "complement":
        return np.asarray(raised)
    rewards = (
        raised.max(axis=1, keepdims=True) - raised
        if reward == "gap"
        else raised.sum(axis=1, keepdims=True) - raised
    )
    unit = float(rewards.sum(axis=1).mean())
    return np.asarray(raised / unit) if unit > 0 else np.asarray(raised)


def fine_tune(
    classifier: Classifier,
    train: FineTuneData,
    held_out: FineTuneData,
    deferral: DeferralConfig,
    plan: FineTuneConfig,
) -> float:
    """Train a classifier in place and leave it in its best state on the held-out rows.

    Args:
        classifier: The network and its reader.
        train: Training rows, with costs in the units of the loss.
        held_out: Rows for choosing the state, with weights already multiplied into their costs; may
            be empty.
        deferral: Margins, reward and decision.
        plan: Hyperparameters of the run.

    Returns:
        Number of epochs of training behind the state that was kept.
    """
    with tempfile.TemporaryDirectory(prefix="mildroute-") as scratch, quiet():
        trainer = _trainer(classifier, train, held_out, deferral, plan, scratch)
        trainer.train()
    steps = trainer.state.best_global_step if held_out.inputs else None
    classifier.model.eval().cpu()
    return float(
        trainer.state.epoch if not steps else steps / math.ceil(len(train.inputs) / plan.batch_size)
    )


def scores_of_rows(classifier: Classifier, inputs: list[dict[str, Any]]) -> Matrix:
    """Return the scores of a network, computed on a GPU if there is one."""
    torch = need("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, parts = (
        classifier.model.eval().to(device),
        [np.empty((0, classifier.model.config.num_labels))],
    )
    with torch.inference_mode():
        for start in range(0, len(inputs), _SCORED):
            batch = classifier.reader.batch(inputs[start : start + _SCORED])
            parts.append(
                model(**{name: values.to(device) for name, values in batch.items()})
                .logits.double()
                .cpu()
                .numpy()
            )
    model.cpu()
    return np.concatenate(parts)


def _trainer(
    classifier: Classifier,
    train: FineTuneData,
    held_out: FineTuneData,
    deferral: DeferralConfig,
    plan: FineTuneConfig,
    scratch: str,
) -> DeferralTrainer:
    transformers = need("transformers")
    trainer = (plan.trainer or DeferralTrainer)(
        model=classifier.model,
        args=transformers.TrainingArguments(
            output_dir=scratch,
            **_arguments(classifier, len(train.inputs), bool(held_out.inputs), plan),
        ),
        train_dataset=CostRows(train.inputs, train.costs, train.weights),
        eval_dataset=CostRows(held_out.inputs, held_out.costs) if held_out.inputs else None,
        data_collator=classifier.reader.batch,
        callbacks=[_patience()] if held_out.inputs and plan.keep == "cost" else [],
        margins=deferral.margins,
        reward=deferral.reward,
        decision=deferral.decision,
        optimizers=(_adam(classifier.model, plan) if plan.optimizer == "adam" else None, None),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if plan.progress is not None:
        trainer.add_callback(_telling(plan.progress))
    return trainer


def _arguments(
    classifier: Classifier, rows: int, looks: bool, plan: FineTuneConfig
) -> dict[str, Any]:
    steps = math.ceil(math.ceil(rows / plan.batch_size) * plan.epochs)
    return {
        "num_train_epochs": plan.epochs,
        "learning_rate": plan.learning_rate,
        "per_device_train_batch_size": plan.batch_size,
        "per_device_eval_batch_size": 2 * plan.batch_size,
        "weight_decay": plan.weight_decay,
        "max_steps": plan.steps or -1,
        "seed": plan.seed,
        "report_to": "none",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": need("torch").cuda.is_available(),
        "lr_scheduler_type": "constant" if plan.schedule == "constant" else "linear",
        "warmup_steps": int(_WARM_UP * steps) if plan.schedule == "warm" else 0,
        "max_grad_norm": 0.0 if plan.optimizer == "adam" else 1.0,
        **(_by_length() if isinstance(classifier.reader, TextReader) else {}),
        **(
            _looks(max(1, math.ceil(steps / (_LOOKS * plan.epochs))), plan)
            if looks
            else {"save_strategy": "no"}
        ),
    }


def _adam(model: Any, plan: FineTuneConfig) -> Any:
    """Return Adam as published; the trainer's own would exempt biases and norms from decay."""
    return need("torch").optim.Adam(
        model.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay
    )


def _looks(steps: int, plan: FineTuneConfig) -> dict[str, Any]:
    """Return arguments that evaluate at regular steps and restore the best state at the end."""
    return {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": steps,
        "save_steps": steps,
        "save_total_limit": 1,
        "save_only_model": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": "deferral_loss" if plan.keep == "cost" else "loss",
        "greater_is_better": False,
    }


def _by_length() -> dict[str, Any]:
    """Return arguments that batch texts of similar length, so that little padding is needed.

    The name of the option depends on the version of transformers.
    """
    options = need("transformers").TrainingArguments.__dataclass_fields__
    return (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in options
        else {"group_by_length": True}
    )


def _patience() -> Any:
    """Return a callback that ends training after several evaluations without a gain.

    A gain in loss counts too: a network with random weights lowers its loss for epochs before it
    changes its first choice.
    """

    class EarlyStopping(need("transformers").TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.lowest: dict[str, float] = {}
            self.waited = 0

        def on_evaluate(
            self, _args: Any, _state: Any, control: Any, metrics: dict[str, float], **_rest: Any
        ) -> None:
            seen = {name: metrics[name] for name in ("eval_deferral_loss", "eval_loss")}
            gains = [value < self.lowest.get(name, math.inf) for name, value in seen.items()]
            self.lowest = {
                name: min(value, self.lowest.get(name, math.inf)) for name, value in seen.items()
            }
            self.waited = 0 if any(gains) else self.waited + 1
            control.should_training_stop = control.should_training_stop or self.waited >= _PATIENCE

    return EarlyStopping()


def _telling(progress: Callable[[int, int], None]) -> Any:
    class Telling(need("transformers").TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
            progress(state.global_step, state.max_steps)

    return Telling()
