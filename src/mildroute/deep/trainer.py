"""The Hugging Face Trainer with the deferral loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mildroute._transformers import need
from mildroute.deep.config import DeferralConfig, Margins, config_for, config_of, write_config
from mildroute.encoders.image_models import prepare_image
from mildroute.encoders.onnx_export import export_module
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses.decision import choose, chosen_costs
from mildroute.losses.functional import deferral_loss
from mildroute.losses.rewards import rewards_of
from mildroute.routers._rewards import MARGIN_RULES
from mildroute.routers.training_rows import Matrix

__all__ = [
    "COSTS",
    "WEIGHTS",
    "CostRows",
    "DeferralTrainer",
    "ImageReader",
    "Reader",
    "TextReader",
    "batch_loss",
    "deferral_metrics",
    "export_scores",
]


# Columns of a data set besides the inputs of the model: costs of each row, p floats, and a weight,
# which may be missing.
COSTS, WEIGHTS = "costs", "weights"


class DeferralTrainer(need("transformers").Trainer):  # type: ignore[misc]
    """A trainer of any sequence or image classifier as a router; its labels are the experts.

    A data set has the inputs of the model and a column ``costs``, p floats per row. An optional
    column ``weights`` weights rows and should have a mean of 1. Evaluation reports
    ``eval_deferral_loss``, the mean cost of the chosen experts, alongside ``eval_best_single`` and
    ``eval_oracle``. Margins, reward and decision are written into the config of the model.

    Args:
        arguments: Keyword arguments of ``transformers.Trainer``: ``model``, ``args``,
            ``train_dataset`` and so on.
        margins: ``"uniform"``, ``"theory"``, ``"winner_counts"`` or an array of shape (p,).
            Defaults to the model's config, else ``"uniform"``.
        reward: ``"gap"``, ``"complement"`` or ``"sum"``. Defaults to the model's config, else
            ``"gap"``.
        decision: ``"consistent"`` or ``"argmax"``. Defaults to the model's config, else
            ``"consistent"``.
        experts: Names of the experts, or `None` to keep the model's labels.
        compute_metrics: Additional metrics of an evaluation, or `None`.

    Attributes:
        deferral: The config in use.

    Example:
        >>> DeferralTrainer.__mro__[1].__name__  # a model and a run are in the tests
        'Trainer'
    """

    # Our loss is the mean of a batch, so the Trainer must divide it by the number of accumulated
    # batches.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        *,
        margins: Margins | None = None,
        reward: str | None = None,
        decision: str | None = None,
        experts: list[str] | None = None,
        compute_metrics: Callable[[Any], dict[str, float]] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(compute_metrics=self._with_deferral(compute_metrics), **arguments)
        # Versions without that attribute ask this one instead.
        self.model_accepts_loss_kwargs = False
        self.label_names = [COSTS]
        settings = {"margins": margins, "reward": reward, "decision": decision}
        self.deferral = self._settled(
            {name: value for name, value in settings.items() if value is not None}
        )
        write_config(self.model.config, self.deferral, experts)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Return the deferral loss of a batch, and on request the model's outputs."""
        if COSTS not in inputs:
            raise ArgumentError(
                f"a batch must have a column {COSTS!r}, p floats a row, got {sorted(inputs)}; name"
                " it so in the data set."
            )
        rest = {name: value for name, value in inputs.items() if name not in (COSTS, WEIGHTS)}
        outputs = model(**rest)
        loss = batch_loss(outputs["logits"], inputs[COSTS], self.deferral, inputs.get(WEIGHTS))
        return (loss, outputs) if return_outputs else loss

    def _settled(self, wanted: dict[str, Any]) -> DeferralConfig:
        """Return explicit settings, else those of the model's config, else the defaults."""
        stored = config_of(self.model.config)
        if stored is not None and not wanted:
            return stored
        if stored is not None:
            wanted = {
                "margins": stored.margins,
                "reward": stored.reward,
                "decision": stored.decision,
            } | wanted
        margins = wanted.get("margins")
        by_costs = isinstance(margins, str) and margins in MARGIN_RULES
        if by_costs or wanted.get("reward") == "complement":
            return config_for(_column_of(self.train_dataset), **wanted)
        return config_for(np.zeros((1, self.model.config.num_labels)), **wanted)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns += [
            name for name in (COSTS, WEIGHTS) if name not in self._signature_columns
        ]

    def _with_deferral(
        self, others: Callable[[Any], dict[str, float]] | None
    ) -> Callable[[Any], dict[str, float]]:
        def metrics(found: Any) -> dict[str, float]:
            logits = (
                found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
            )
            return deferral_metrics(logits, found.label_ids, self.deferral) | (
                others(found) if others is not None else {}
            )

        return metrics


def batch_loss(logits: Any, costs: Any, deferral: DeferralConfig, weights: Any = None) -> Any:
    """Return the mean :func:`mildroute.losses.functional.deferral_loss` of a batch.

    Args:
        logits: Scores of the network, shape (n, p).
        costs: Shape (n, p).
        deferral: Margins and reward.
        weights: Weight of each row, shape (n,), or `None`. The sum is divided by the number of
            rows, not by their weights: a batch of light rows must count less than one of heavy
            rows.
    """
    if logits.shape != costs.shape:
        raise ShapeError(
            f"costs must be {tuple(logits.shape)}, one column per label of the model, got shape"
            f" {tuple(costs.shape)}."
        )
    # Rows that the scale was not fixed on may cost more; they then give no reward to that expert.
    clamped = (
        costs.float().clamp(max=deferral.reward_scale)
        if deferral.reward == "complement"
        else costs.float()
    )
    rewards = rewards_of(clamped, deferral.reward, scale=deferral.reward_scale)  # type: ignore[arg-type]
    margins = torch.tensor(deferral.margins, device=logits.device)
    return deferral_loss(logits, rewards, margins, weights=weights, reduction="none").mean()


def deferral_metrics(logits: Matrix, costs: Matrix, deferral: DeferralConfig) -> dict[str, float]:
    """Return the cost of a network's choices.

    The best single expert and the oracle on the same rows are reported alongside it.

    Returns:
        ``deferral_loss``, ``best_single`` and ``oracle``.
    """
    scores, cost_tensor = (
        torch.as_tensor(logits, dtype=torch.float64),
        torch.as_tensor(costs, dtype=torch.float64),
    )
    margins = torch.tensor(deferral.margins, dtype=torch.float64)
    choice = choose(scores / (deferral.temperature or 1.0), margins, decision=deferral.decision)  # type: ignore[arg-type]
    return {
        "deferral_loss": float(chosen_costs(cost_tensor, choice).mean()),
        "best_single": float(cost_tensor.mean(dim=0).min()),
        "oracle": float(cost_tensor.amin(dim=1).mean()),
    }


def _column_of(dataset: Any) -> Matrix:
    """Return costs of all training rows; only margins and scales that depend on them need this."""
    if dataset is None or not hasattr(dataset, "__len__"):
        raise ArgumentError(
            "theory margins and the complement reward need a training set with a length; pass"
            " margins as an array."
        )
    if hasattr(dataset, "column_names"):
        return np.asarray(dataset[COSTS], dtype=np.float64)
    return np.asarray(
        [np.asarray(dataset[row][COSTS]) for row in range(len(dataset))], dtype=np.float64
    )


# Inputs that trainers read.


@dataclass(frozen=True)
class TextReader:
    """A reader of texts as tokens."""

    tokenizer: Any
    max_tokens: int

    def rows(self, inputs: Sequence[str]) -> list[dict[str, Any]]:
        """Return the tokens of each text, not padded."""
        encoded = self.tokenizer(list(inputs), truncation=True, max_length=self.max_tokens)
        return [
            {name: values[row] for name, values in encoded.items()} for row in range(len(inputs))
        ]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return rows as padded tensors, with their costs and weights if they have any.

        Rows are padded to the longest one.
        """
        tokens = [{name: row[name] for name in row if name not in (COSTS, WEIGHTS)} for row in rows]
        padded = self.tokenizer.pad(tokens, return_tensors="pt", padding_side="right")
        return {**padded, **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Return inputs to trace a model with."""
        tokens = dict(self.tokenizer("one", "two", return_tensors="pt"))
        return {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}


@dataclass(frozen=True)
class ImageReader:
    """A reader of images as pixels, which are prepared on demand.

    All of them at once may not fit in memory.
    """

    preparation: dict[str, Any]

    def rows(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the images unchanged."""
        return [{"image": image} for image in inputs]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return rows as tensors, with their costs and weights if they have any."""
        pixels = np.stack([prepare_image(row["image"], self.preparation) for row in rows])
        return {"pixel_values": need("torch").from_numpy(pixels), **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Return inputs to trace a model with."""
        return {"pixel_values": need("torch").zeros(2, 3, *self.preparation["crop"])}


# Readers that turn inputs into batches.
Reader = TextReader | ImageReader


class CostRows:
    """A data set of rows with their costs for the trainer.

    Args:
        weights: Weight of each row, shape (n,), or `None`.
    """

    def __init__(
        self, rows: list[dict[str, Any]], costs: Matrix, weights: NDArray[np.float64] | None = None
    ) -> None:
        self.rows = rows
        self.costs = costs.astype(np.float32)
        self.weights = None if weights is None else weights.astype(np.float32)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        """Return inputs, costs and, if there are weights, the weight of a row."""
        row = {**self.rows[place], COSTS: self.costs[place]}
        return row if self.weights is None else {**row, WEIGHTS: self.weights[place]}


def export_scores(model: Any, reader: Reader) -> NDArray[np.uint8]:
    """Return a classifier as ONNX bytes whose only output is its scores.

    Args:
        model: A sequence or image classifier of transformers.
        reader: Reader of the classifier's inputs.

    Returns:
        Bytes as uint8.
    """
    torch, inputs = need("torch"), reader.example()
    if not inputs:
        raise ArgumentError(
            "a model must read something, got a tokenizer without model_input_names; take another"
            " tokenizer."
        )

    class Scores(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(inputs, values, strict=True))).logits

    axes = {0: "n", 1: "t"} if isinstance(reader, TextReader) else {0: "n"}
    return np.frombuffer(export_module(Scores(), inputs, axes), np.uint8)


def _targets(rows: list[dict[str, Any]]) -> dict[str, Any]:
    torch = need("torch")
    return {
        name: torch.from_numpy(np.stack([row[name] for row in rows]))
        for name in (COSTS, WEIGHTS)
        if name in rows[0]
    }
