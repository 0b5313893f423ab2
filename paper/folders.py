"""The folders of data and cache, and arrays that are computed once and cached."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError

__all__ = ["Folders", "cached_array"]


@dataclass(frozen=True)
class Folders:
    """The folders of an experiment, as plain data that a worker process can receive.

    Args:
        data: Folder of the benchmark data; empty if there is none.
        cache: Folder for vectors, predictions of experts and scores, which are computed once.

    Example:
        >>> Folders("data", "cache").file("cifar10.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: cifar10.parquet must be in the folder of ...
    """

    data: str
    cache: str

    @classmethod
    def from_environment(cls) -> Folders:
        """Return the folders that ``MILDROUTE_DATA`` and ``MILDROUTE_CACHE`` name.

        If they are not set, there is no data folder, and the cache is ``~/.cache/mildroute``.
        """
        cache = os.environ.get("MILDROUTE_CACHE") or str(Path.home() / ".cache" / "mildroute")
        return cls(os.environ.get("MILDROUTE_DATA", ""), cache)

    def file(self, name: str, advice: str = "set MILDROUTE_DATA to that folder") -> Path:
        """Return the path of a file of the benchmark data.

        Args:
            name: Name of the file.
            advice: What the error message recommends if the file is missing.
        """
        path = Path(self.data) / name
        if not self.data or not path.is_file():
            raise ArgumentError(
                f"{name} must be in the folder of the benchmark data, which is {self.data!r};"
                f" {advice}."
            )
        return path


def cached_array(folders: Folders, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Read an array from the cache, or compute it and write it there.

    Args:
        folders: Folders whose cache to use.
        name: Name of the array, best a hash of everything that the array depends on.
        make: Function that computes the array.

    Example:
        >>> folders = Folders("", tempfile.mkdtemp())
        >>> cached_array(folders, "ones", lambda: np.ones(2))
        array([1., 1.])
        >>> cached_array(folders, "ones", lambda: np.zeros(2))
        array([1., 1.])
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
