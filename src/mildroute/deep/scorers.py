"""Scorers of texts and images by an exported network, which need no torch or transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_models import prepare_image
from mildroute.encoders.onnx_runtime import TextModel, open_session

__all__ = ["ImageScorer", "TextScorer"]

# Fields of a tokenizer's encoding, by the network input that takes them.
_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


class TextScorer(TextModel):
    """A scorer of texts by an exported network.

    Args:
        onnx: The network, uint8.
        tokenizer: The bytes of a ``tokenizer.json``.
        max_tokens: Maximum number of tokens to read per text.
        pad: Token that pads short texts.
        threads: Number of threads per prediction; `None` lets onnxruntime choose.
    """

    def __init__(
        self,
        onnx: NDArray[np.uint8],
        tokenizer: NDArray[np.uint8],
        *,
        max_tokens: int,
        pad: int = 0,
        threads: int | None = None,
    ) -> None:
        super().__init__(onnx, tokenizer, max_tokens=max_tokens, threads=threads)
        self._pad = pad

    def scores(self, texts: Sequence[str], size: int) -> NDArray[np.float64]:
        """Return the scores of n texts, shape (n, p), computed in batches of ``size``."""
        parts = list(self.batches(list(texts), size))
        order = np.concatenate([rows for rows, _ in parts])
        sorted_scores = np.concatenate([scores for _, scores in parts]).astype(np.float64)
        return sorted_scores[np.argsort(order)]

    def _run(self, tokens: list[Any]) -> NDArray[np.float32]:
        max_length = max(1, *(len(encoding.ids) for encoding in tokens))
        padded = {name: self._pad_field(name, tokens, max_length) for name in self._inputs}
        return np.asarray(self._session.run(None, padded)[0])

    def _pad_field(self, name: str, tokens: list[Any], max_length: int) -> NDArray[np.int64]:
        padded = np.full(
            (len(tokens), max_length), self._pad if name == "input_ids" else 0, dtype=np.int64
        )
        for index, encoding in enumerate(tokens):
            row = getattr(encoding, _FIELDS[name])
            padded[index, : len(row)] = row
        return padded


class ImageScorer:
    """A scorer of images by an exported network.

    Args:
        onnx: The network, uint8.
        preparation: Image preparation.
        threads: Number of threads per prediction; `None` lets onnxruntime choose.
    """

    def __init__(
        self, onnx: NDArray[np.uint8], preparation: dict[str, Any], *, threads: int | None = None
    ) -> None:
        self._session = open_session(onnx, threads)
        self._preparation = preparation

    def scores(self, images: Sequence[Any], size: int) -> NDArray[np.float64]:
        """Return the scores of n Pillow images, shape (n, p), computed in batches of ``size``."""
        parts = []
        for start in range(0, len(images), size):
            pixels = np.stack(
                [prepare_image(image, self._preparation) for image in images[start : start + size]]
            )
            parts.append(self._session.run(None, {"pixel_values": pixels})[0])
        return np.concatenate(parts).astype(np.float64)
