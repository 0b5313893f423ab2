"""Exported models, run by onnxruntime and tokenizers without torch or transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need
from mildroute.exceptions import ArtifactError

__all__ = ["TextModel", "open_session", "unit_rows"]

# Maximum characters per token that reach the tokenizer, so that a huge text takes no longer than a
# long one.
_MAX_CHARACTERS_PER_TOKEN = 64


def open_session(onnx: NDArray[np.uint8], threads: int | None = None) -> Any:
    r"""Open an onnxruntime session on the CPU for a model in memory.

    Args:
        onnx: The model's bytes, shape (bytes,).
        threads: Number of threads per run; None lets onnxruntime choose.
    """
    runtime = need("onnxruntime", extra="text", user="this encoder")
    data = onnx.tobytes()
    # The key "location" (field 1 of an entry, 8 bytes long) refers to weights outside the model: in
    # any file, or even at a memory address.
    if b"\x0a\x08location" in data:
        raise ArtifactError(
            "an ONNX model must hold its own weights, got a model that refers to other files;"
            " export it again."
        )
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # The package raises no specific error.
        raise ArtifactError(
            f"an ONNX model must be readable by onnxruntime, got: {error}; export it again."
        ) from error


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows scaled to unit length; a row of zeros is unchanged."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


class TextModel:
    """An exported model that turns texts into unit vectors.

    Args:
        onnx: The model's bytes, shape (bytes,).
        tokenizer: The bytes of its ``tokenizer.json``, shape (bytes,).
        pooling: ``"mean"`` or ``"cls"``.
        max_tokens: Maximum number of tokens to read per text.
        threads: Number of threads per run; None lets onnxruntime choose.
    """

    def __init__(
        self,
        onnx: NDArray[np.uint8],
        tokenizer: NDArray[np.uint8],
        pooling: str = "mean",
        max_tokens: int = 128,
        threads: int | None = None,
    ) -> None:
        tokenizers = need("tokenizers", extra="text", user="this encoder")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.tobytes().decode())
        except Exception as error:  # The package raises no specific error.
            raise ArtifactError(
                f"a tokenizer must be readable by the tokenizers package, got: {error}; export the"
                " model again."
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._max_characters = _MAX_CHARACTERS_PER_TOKEN * max_tokens
        self._session = open_session(onnx, threads)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._pooling = pooling

    def batches(
        self, texts: list[str], size: int
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Yield row indices and vectors in batches of texts of similar length.

        Yields:
            Row indices, shape (m,), and unit vectors, shape (m, d); m is at most ``size``.
        """
        encodings = [self._tokenizer.encode(text[: self._max_characters]) for text in texts]
        order = np.argsort([len(encoding.ids) for encoding in encodings], kind="stable")
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            yield rows, self._run([encodings[row] for row in rows])

    def _run(self, encodings: list[Any]) -> NDArray[np.float32]:
        max_length = max(1, *(len(encoding.ids) for encoding in encodings))
        parts = {
            "input_ids": "ids",
            "attention_mask": "attention_mask",
            "token_type_ids": "type_ids",
        }
        padded = {
            name: _pad([getattr(encoding, part) for encoding in encodings], max_length)
            for name, part in parts.items()
        }
        output = self._session.run(None, {name: padded[name] for name in self._inputs})[0]
        return unit_rows(
            output if output.ndim == 2 else _pool(output, padded["attention_mask"], self._pooling)
        )


def _pad(rows: list[list[int]], max_length: int) -> NDArray[np.int64]:
    # The padding value does not matter, because the attention mask hides it.
    padded = np.zeros((len(rows), max_length), dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _pool(
    hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: str
) -> NDArray[np.float32]:
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.astype(np.float32) / np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(
        np.float32
    )
    return np.asarray(np.einsum("ntd,nt->nd", hidden, weights), dtype=np.float32)
