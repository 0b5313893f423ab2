"""Running exported models: onnxruntime and tokenizers alone, neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.onnx_export import need
from mildroute.exceptions import ArtifactError

__all__ = ["TextModel", "open_session", "unit_rows"]


# A text is cut at this many characters a token before it is split, so that a huge one takes no
# longer than a long one.
_CHARACTERS_PER_TOKEN = 64


def open_session(onnx: NDArray[np.uint8], threads: int | None = None) -> Any:
    r"""Open an onnxruntime session on the CPU for a model in memory.

    Args:
        onnx: The model's bytes, shape (bytes,).
        threads: Threads of one run; ``None`` lets onnxruntime choose.
    """
    runtime = need("onnxruntime")
    data = onnx.tobytes()
    # Weights outside the model are found under the key "location" (field 1 of an entry, 8 bytes
    # long), which may name any file, or even an address in memory.
    if b"\x0a\x08location" in data:
        raise ArtifactError(
            "an ONNX model must hold its own weights, got one that refers to other files; export it"
            " again."
        )
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as broken:  # the package raises nothing more precise
        raise ArtifactError(
            f"an ONNX model must be one that onnxruntime can read, got: {broken}; export it again."
        ) from broken


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


class TextModel:
    """Texts to unit vectors by an exported model.

    Args:
        tokenizer: The bytes of its ``tokenizer.json``.
        pooling: ``"mean"`` or ``"cls"``.
        threads: Threads of one run, or ``None``.
    """

    def __init__(
        self,
        onnx: NDArray[np.uint8],
        tokenizer: NDArray[np.uint8],
        pooling: str = "mean",
        max_tokens: int = 128,
        threads: int | None = None,
    ) -> None:
        tokenizers = need("tokenizers")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.tobytes().decode())
        except Exception as broken:  # the package raises nothing more precise
            raise ArtifactError(
                f"a tokenizer must be that of the tokenizers package, got: {broken}; export the"
                " model again."
            ) from broken
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._characters = _CHARACTERS_PER_TOKEN * max_tokens
        self._session = open_session(onnx, threads)
        self._inputs = [wanted.name for wanted in self._session.get_inputs()]
        self._pooling = pooling

    def batches(
        self, texts: list[str], size: int
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Rows and their vectors, batch by batch, texts of like length together.

        Yields:
            Row numbers, shape (size,), and unit vectors, shape (size, d).
        """
        tokens = [self._tokenizer.encode(text[: self._characters]) for text in texts]
        order = np.argsort([len(found.ids) for found in tokens], kind="stable")
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            yield rows, self._run([tokens[row] for row in rows])

    def _run(self, tokens: list[Any]) -> NDArray[np.float32]:
        longest = max(1, *(len(found.ids) for found in tokens))
        parts = {
            "input_ids": "ids",
            "attention_mask": "attention_mask",
            "token_type_ids": "type_ids",
        }
        padded = {
            name: _padded([getattr(found, part) for found in tokens], longest)
            for name, part in parts.items()
        }
        output = self._session.run(None, {name: padded[name] for name in self._inputs})[0]
        return unit_rows(
            output if output.ndim == 2 else _pooled(output, padded["attention_mask"], self._pooling)
        )


def _padded(rows: list[list[int]], longest: int) -> NDArray[np.int64]:
    # The value of the padding does not matter: the attention mask hides it.
    padded = np.zeros((len(rows), longest), dtype=np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


def _pooled(
    hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: str
) -> NDArray[np.float32]:
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.astype(np.float32) / np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(
        np.float32
    )
    return np.asarray(np.einsum("ntd,nt->nd", hidden, weights), dtype=np.float32)
