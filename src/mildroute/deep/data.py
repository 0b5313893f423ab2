"""What a network reads.

Texts as tokens or images as pixels, the same in training as in the exported model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.deep._transformers import need
from mildroute.deep.trainer import COSTS, WEIGHTS
from mildroute.encoders.onnx_export import export_module, prepared
from mildroute.exceptions import ArgumentError
from mildroute.routers.base import Matrix

__all__ = ["CostRows", "ImageReader", "Reader", "TextReader", "export_scores"]


@dataclass(frozen=True)
class TextReader:
    """Texts as tokens."""

    tokenizer: Any
    max_tokens: int

    def rows(self, inputs: Sequence[str]) -> list[dict[str, Any]]:
        """Tokens of each text, not padded."""
        found = self.tokenizer(list(inputs), truncation=True, max_length=self.max_tokens)
        return [
            {name: values[place] for name, values in found.items()} for place in range(len(inputs))
        ]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return rows as padded tensors, with their costs and weights where they have some.

        Rows are padded to the longest.
        """
        tokens = [{name: row[name] for name in row if name not in (COSTS, WEIGHTS)} for row in rows]
        padded = self.tokenizer.pad(tokens, return_tensors="pt", padding_side="right")
        return {**padded, **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Inputs to trace a model with."""
        tokens = dict(self.tokenizer("one", "two", return_tensors="pt"))
        return {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}


@dataclass(frozen=True)
class ImageReader:
    """Images as pixels, prepared when they are asked for.

    All of them at once may not fit in memory.
    """

    preparation: dict[str, Any]

    def rows(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """The images as they are."""
        return [{"image": image} for image in inputs]

    def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Rows as tensors, with their costs and weights where they have some."""
        pixels = np.stack([prepared(row["image"], self.preparation) for row in rows])
        return {"pixel_values": need("torch").from_numpy(pixels), **_targets(rows)}

    def example(self) -> dict[str, Any]:
        """Inputs to trace a model with."""
        return {"pixel_values": need("torch").zeros(2, 3, *self.preparation["crop"])}


# What turns inputs into batches.
Reader = TextReader | ImageReader


class CostRows:
    """Rows with their costs as a data set for the trainer.

    Args:
        weights: Weight of each row, shape (n,), or none.
    """

    def __init__(
        self, rows: list[dict[str, Any]], costs: Matrix, weights: NDArray[np.float64] | None = None
    ) -> None:
        self.rows = rows
        self.costs = costs.astype(np.float32)
        self.weights = None if weights is None else weights.astype(np.float32)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        """Inputs, costs and, where there are weights, the weight of a row."""
        row = {**self.rows[place], COSTS: self.costs[place]}
        return row if self.weights is None else {**row, WEIGHTS: self.weights[place]}


def export_scores(model: Any, reader: Reader) -> NDArray[np.uint8]:
    """A classifier as ONNX bytes whose one output is its scores.

    Args:
        model: A sequence or image classifier of transformers.
        reader: What it reads.

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
