"""The rows that a trainer reads: inputs as tensors, with their costs and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need
from mildroute.encoders.image_models import prepare_image
from mildroute.routers.training_rows import Matrix

__all__ = ["COSTS", "WEIGHTS", "CostRows", "ImageReader", "Reader", "TextReader"]

# Columns of a dataset besides the model's inputs: each row's costs, p floats, and optionally its
# weight.
COSTS = "costs"
WEIGHTS = "weights"


@dataclass(frozen=True)
class TextReader:
    """A reader of texts as tokens."""

    tokenizer: Any
    max_tokens: int

    def rows(self, inputs: Sequence[str]) -> list[dict[str, Any]]:
        """Return each text's tokens, without padding."""
        encoded = self.tokenizer(list(inputs), truncation=True, max_length=self.max_tokens)
        return [
            {name: values[row] for name, values in encoded.items()} for row in range(len(inputs))
        ]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return rows as tensors, padded to the longest row, with any costs and weights."""
        tokens = [{name: row[name] for name in row if name not in (COSTS, WEIGHTS)} for row in rows]
        padded = self.tokenizer.pad(tokens, return_tensors="pt", padding_side="right")
        return {**padded, **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Return example inputs for tracing a model."""
        tokens = dict(self.tokenizer("one", "two", return_tensors="pt"))
        return {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}


@dataclass(frozen=True)
class ImageReader:
    """A reader of images as pixels.

    It prepares each batch's images on demand, because all of them may not fit in memory.
    """

    preparation: dict[str, Any]

    def rows(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the images unchanged."""
        return [{"image": image} for image in inputs]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return rows as tensors, with any costs and weights."""
        pixels = np.stack([prepare_image(row["image"], self.preparation) for row in rows])
        return {"pixel_values": need("torch").from_numpy(pixels), **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Return example inputs for tracing a model."""
        return {"pixel_values": need("torch").zeros(2, 3, *self.preparation["crop"])}


# Readers that turn inputs into batches.
Reader = TextReader | ImageReader


class CostRows:
    """A dataset for the trainer: rows with their costs and weights.

    Args:
        rows: n inputs in a reader's format.
        costs: Shape (n, p).
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

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a row's inputs and costs, and its weight if there are weights."""
        row = {**self.rows[index], COSTS: self.costs[index]}
        return row if self.weights is None else {**row, WEIGHTS: self.weights[index]}


def _targets(rows: list[dict[str, Any]]) -> dict[str, Any]:
    torch = need("torch")
    return {
        name: torch.from_numpy(np.stack([row[name] for row in rows]))
        for name in (COSTS, WEIGHTS)
        if name in rows[0]
    }
