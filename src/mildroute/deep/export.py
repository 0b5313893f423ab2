"""Export a classifier to ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need
from mildroute.deep.training_data import Reader, TextReader
from mildroute.encoders.onnx_export import export_module
from mildroute.exceptions import ArgumentError

__all__ = ["export_scores"]


def export_scores(model: Any, reader: Reader) -> NDArray[np.uint8]:
    """Return a classifier as ONNX bytes whose only output is its scores.

    Args:
        model: A transformers sequence or image classifier.
        reader: The reader for the classifier's inputs.

    Returns:
        The bytes as uint8, shape (bytes,).
    """
    torch, inputs = need("torch"), reader.example()
    if not inputs:
        raise ArgumentError(
            "the tokenizer must have model_input_names, got none; use another tokenizer."
        )

    class Scores(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(inputs, values, strict=True))).logits

    axes = {0: "n", 1: "t"} if isinstance(reader, TextReader) else {0: "n"}
    return np.frombuffer(export_module(Scores(), inputs, axes), np.uint8)
