"""What a prompt looks like, whatever its words.

Length, digits, code, questions, letters of other scripts.
"""

import math
from typing import Any

import numpy as np
from mildroute.encoders import Encoder


def shape_of(text: str) -> list[float]:
    """Six numbers of a text of any length."""
    length = max(len(text), 1)
    return [
        math.log1p(len(text)),
        math.log1p(text.count("\n")),
        sum(letter.isdigit() for letter in text) / length,
        sum(letter in "{}[]();=<>_/" for letter in text) / length,
        sum(not letter.isascii() for letter in text) / length,
        float("?" in text),
    ]


class PromptShape(Encoder):
    """Vectors of six columns, each with mean 0 and deviation 1 over the fitted texts."""

    def _fit(self, rows: list[Any]) -> None:
        shapes = np.array([shape_of(row) for row in rows])
        self.mean_, self.scale_ = shapes.mean(axis=0), np.maximum(shapes.std(axis=0), 1e-9)

    def _encode(self, rows: list[Any]) -> Any:
        shapes = np.array([shape_of(row) for row in rows])
        return ((shapes - self.mean_) / self.scale_).astype(np.float32)
