"""Where benchmark data lies and where derived vectors are kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError

__all__ = ["Folders", "kept"]


@dataclass(frozen=True)
class Folders:
    """Folders as plain data, so that a worker on another machine can be told.

    Args:
        data: Folder of the benchmark data, or empty.
        cache: Folder for vectors and experts' answers, which are computed once.

    Example:
        >>> Folders("data", "cache").file("cifar10.parquet")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: cifar10.parquet must be in the folder of the benchmark data, which is 'data'; set MILDROUTE_DATA ...
    """

    data: str
    cache: str

    @classmethod
    def from_environment(cls) -> Folders:
        """The folders that ``MILDROUTE_DATA`` and ``MILDROUTE_CACHE`` name; by default none and one in the user's cache."""
        cache = os.environ.get("MILDROUTE_CACHE") or str(Path.home() / ".cache" / "mildroute")
        return cls(os.environ.get("MILDROUTE_DATA", ""), cache)

    def file(self, name: str, otherwise: str = "") -> Path:
        """Path of a file of the benchmark data; ``otherwise`` says how to come by one that nobody hands out."""
        path = Path(self.data) / name
        if not self.data or not path.is_file():
            way_out = otherwise or "set MILDROUTE_DATA to that folder"
            raise ArgumentError(f"{name} must be in the folder of the benchmark data, which is {self.data!r}; {way_out}.")
        return path


def kept(folders: Folders, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """An array from the cache, made and kept where it is not there yet.

    Args:
        folders: Whose cache.
        name: Name of the array; it must say all that the array depends on, so it is best a hash.
        make: Computes the array.

    Returns:
        The array; the same bytes whether it was made or read.

    Example:
        >>> folders = Folders("", tempfile.mkdtemp())
        >>> kept(folders, "ones", lambda: np.ones(2)), kept(folders, "ones", lambda: np.zeros(2))
        (array([1., 1.]), array([1., 1.]))
    """
    path = Path(folders.cache) / f"{name}.npy"
    if path.is_file():
        return np.asarray(np.load(path, allow_pickle=False))
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with os.fdopen(handle, "wb") as file:
        np.save(file, made, allow_pickle=False)
    Path(partial).replace(path)
    return made
