"""The Hugging Face Trainer with the deferral loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mildroute._transformers import need
from mildroute.deep.config import DeferralConfig, Margins, config_for, config_of, write_config
from mildroute.deep.training_data import COSTS, WEIGHTS
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses.decision import choose, chosen_costs
from mildroute.losses.functional import deferral_loss
from mildroute.losses.rewards import rewards_of
from mildroute.routers._rewards import MARGIN_RULES
from mildroute.routers.training_rows import Matrix

__all__ = ["DeferralTrainer", "batch_loss", "deferral_metrics"]


class DeferralTrainer(need("transformers").Trainer):  # type: ignore[misc]
    """A trainer that turns any sequence or image classifier into a router; labels are the experts.

    A dataset has the model's inputs and a column ``costs``, p floats per row. An optional
    column ``weights`` weights rows and should have a mean of 1. Evaluation reports
    ``eval_deferral_loss``, the mean cost of the chosen experts, alongside ``eval_best_single`` and
    ``eval_oracle``. Margins, reward and decision are written into the model's config.

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
        compute_metrics: Function for additional evaluation metrics, or `None`.

    Attributes:
        deferral: The current config.

    Example:
        >>> DeferralTrainer.__mro__[1].__name__  # a model and a run are in the tests
        'Trainer'
    """

    # The loss is a batch's mean, so the Trainer must divide it by the number of accumulated
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
        super().__init__(compute_metrics=self._add_deferral_metrics(compute_metrics), **arguments)
        # Other versions of transformers read this attribute instead.
        self.model_accepts_loss_kwargs = False
        self.label_names = [COSTS]
        settings = {"margins": margins, "reward": reward, "decision": decision}
        self.deferral = self._choose_config(
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
        """Return a batch's deferral loss, and the model's outputs if requested."""
        if COSTS not in inputs:
            raise ArgumentError(
                f"a batch must have a column {COSTS!r}, p floats per row, got {sorted(inputs)};"
                " name it so in the dataset."
            )
        model_inputs = {
            name: value for name, value in inputs.items() if name not in (COSTS, WEIGHTS)
        }
        outputs = model(**model_inputs)
        loss = batch_loss(outputs["logits"], inputs[COSTS], self.deferral, inputs.get(WEIGHTS))
        return (loss, outputs) if return_outputs else loss

    def _choose_config(self, settings: dict[str, Any]) -> DeferralConfig:
        """Return the config from explicit settings, else from the model, else from the defaults."""
        stored = config_of(self.model.config)
        if stored is not None and not settings:
            return stored
        if stored is not None:
            settings = {
                "margins": stored.margins,
                "reward": stored.reward,
                "decision": stored.decision,
            } | settings
        margins = settings.get("margins")
        needs_costs = isinstance(margins, str) and margins in MARGIN_RULES
        if needs_costs or settings.get("reward") == "complement":
            return config_for(_costs_of(self.train_dataset), **settings)
        return config_for(np.zeros((1, self.model.config.num_labels)), **settings)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns += [
            name for name in (COSTS, WEIGHTS) if name not in self._signature_columns
        ]

    def _add_deferral_metrics(
        self, others: Callable[[Any], dict[str, float]] | None
    ) -> Callable[[Any], dict[str, float]]:
        def metrics(evaluation: Any) -> dict[str, float]:
            scores = evaluation.predictions
            scores = scores[0] if isinstance(scores, tuple) else scores
            deferral_values = deferral_metrics(scores, evaluation.label_ids, self.deferral)
            return deferral_values | (others(evaluation) if others is not None else {})

        return metrics


def batch_loss(logits: Any, costs: Any, deferral: DeferralConfig, weights: Any = None) -> Any:
    """Return a batch's mean :func:`mildroute.losses.functional.deferral_loss`.

    Args:
        logits: The network's scores, shape (n, p).
        costs: Shape (n, p).
        deferral: Margins and reward.
        weights: Weight of each row, shape (n,), or `None`. The sum is divided by the number of
            rows, not by their weights, so that a batch counts in proportion to its weight.
    """
    if logits.shape != costs.shape:
        raise ShapeError(
            f"costs must be {tuple(logits.shape)}, one column per model label, got shape"
            f" {tuple(costs.shape)}."
        )
    # A row outside the training set may cost more than the scale; that expert then gets no reward.
    clamped = (
        costs.float().clamp(max=deferral.reward_scale)
        if deferral.reward == "complement"
        else costs.float()
    )
    rewards = rewards_of(clamped, deferral.reward, scale=deferral.reward_scale)  # type: ignore[arg-type]
    margins = torch.tensor(deferral.margins, device=logits.device)
    return deferral_loss(logits, rewards, margins, weights=weights, reduction="none").mean()


def deferral_metrics(logits: Matrix, costs: Matrix, deferral: DeferralConfig) -> dict[str, float]:
    """Return the mean cost of a network's choices, the best single expert and the oracle.

    Returns:
        ``deferral_loss``, ``best_single`` and ``oracle``.
    """
    scores = torch.as_tensor(logits, dtype=torch.float64)
    cost_tensor = torch.as_tensor(costs, dtype=torch.float64)
    margins = torch.tensor(deferral.margins, dtype=torch.float64)
    choice = choose(scores / (deferral.temperature or 1.0), margins, decision=deferral.decision)  # type: ignore[arg-type]
    return {
        "deferral_loss": float(chosen_costs(cost_tensor, choice).mean()),
        "best_single": float(cost_tensor.mean(dim=0).min()),
        "oracle": float(cost_tensor.amin(dim=1).mean()),
    }


def _costs_of(dataset: Any) -> Matrix:
    """Return the costs of all training rows."""
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
