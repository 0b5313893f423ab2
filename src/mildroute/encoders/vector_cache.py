"""Vectors on disk under the hash of what they are vectors of. No pickle; many processes may share a folder."""

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
    """A folder of segments, each a safetensors file with keys and vectors that is written once and never changed.

    A segment appears by renaming, as a whole or not at all, so readers and writers need no lock; two writers of the same vectors only
    waste space. A segment that cannot be read counts as absent.

    Args:
        folder: Where the segments lie; made where it is missing.
        model: What makes the vectors, in words or a digest; other models do not see them.

    Example:
        >>> cache = VectorCache(tempfile.mkdtemp(), "model")
        >>> cache.write(["a"], np.ones((1, 2), np.float32))
        >>> found, vectors = cache.read(["a", "b"])
        >>> found.tolist(), vectors.tolist()
        ([0], [[1.0, 1.0]])
    """

    def __init__(self, folder: str | os.PathLike[str], model: str) -> None:
        self._model = model.encode()
        self._folder = Path(folder) / hashlib.sha256(self._model).hexdigest()[:24]
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._seen: set[Path] = set()

    def read(self, texts: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The rows that are known, shape (m,), and their vectors, shape (m, d); with none known, shape (0, 0)."""
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
        return np.array(rows, dtype=np.intp), np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep the vectors of some texts, shape (n, d), as one segment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        keys = np.frombuffer(b"".join(map(self._key, texts)), dtype=np.uint8).reshape(len(texts), -1)
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
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="numpy") as segment:
        return segment.get_tensor(name)
    return None
