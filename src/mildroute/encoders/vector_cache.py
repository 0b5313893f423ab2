"""A cache of vectors on disk, keyed by text hash and shared by processes, without pickle."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

__all__ = ["VectorCache"]


class VectorCache:
    """A folder of segments, each a safetensors file with keys and vectors.

    A segment is written once and never changed. It appears by an atomic rename, so readers and
    writers need no lock; two writers of the same vectors only waste space. An unreadable segment is
    ignored.

    Args:
        folder: Folder of the segments, created if it does not exist.
        model: Name or digest of the model that computes the vectors; each model has its own
            segments.
    """

    def __init__(self, folder: str | os.PathLike[str], model: str) -> None:
        self._model = model.encode()
        self._folder = Path(folder) / hashlib.sha256(self._model).hexdigest()[:24]
        # Segment and row of each key.
        self._locations: dict[bytes, tuple[Path, int]] = {}
        self._segments: set[Path] = set()

    def read(self, texts: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the indices of cached texts, shape (m,), and their vectors, shape (m, d).

        If no row is cached, the vectors have shape (0, 0).
        """
        self._read_new_segments()
        rows_by_segment: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for row, text in enumerate(texts):
            location = self._locations.get(self._key(text))
            if location is not None:
                path, row_in_segment = location
                rows_by_segment[path].append((row, row_in_segment))
        rows: list[int] = []
        vectors: list[NDArray[np.float32]] = []
        for path, pairs in rows_by_segment.items():
            segment = _read_tensor(path, "vectors")
            if segment is not None:
                rows += [row for row, _ in pairs]
                vectors.append(segment[[row_in_segment for _, row_in_segment in pairs]])
        if not vectors:
            return np.zeros(0, dtype=np.intp), np.zeros((0, 0), np.float32)
        return np.array(rows, dtype=np.intp), np.concatenate(vectors)

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Store the vectors of n texts, shape (n, d), as one segment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        key_bytes = b"".join(map(self._key, texts))
        keys = np.frombuffer(key_bytes, dtype=np.uint8).reshape(len(texts), -1)
        data = save({"keys": keys, "vectors": np.ascontiguousarray(vectors)})
        handle, partial = tempfile.mkstemp(dir=self._folder, suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(partial).replace(self._folder / f"{hashlib.sha256(data).hexdigest()[:32]}.safetensors")

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._model + b"\0" + text.encode()).digest()

    def _read_new_segments(self) -> None:
        for path in sorted(set(self._folder.glob("*.safetensors")) - self._segments):
            self._segments.add(path)
            keys = _read_tensor(path, "keys")
            if keys is not None:
                self._locations |= {key.tobytes(): (path, row) for row, key in enumerate(keys)}


def _read_tensor(path: Path, name: str) -> Any:
    with (
        contextlib.suppress(OSError, SafetensorError),
        safe_open(path, framework="numpy") as segment,
    ):
        return segment.get_tensor(name)
    return None
