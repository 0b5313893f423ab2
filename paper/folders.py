"""Folders of the benchmark data, and arrays that are computed once and cached."""

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
    """Folders as plain data, so that a worker on another machine can be told.

    Args:
        data: Folder of the benchmark data, or empty.
        cache: Folder for vectors and experts' answers, which are computed once.

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

        Without them there is no data folder, and the cache is the user's.
        """
        cache = os.environ.get("MILDROUTE_CACHE") or str(Path.home() / ".cache" / "mildroute")
        return cls(os.environ.get("MILDROUTE_DATA", ""), cache)

    def file(self, name: str, otherwise: str = "") -> Path:
        """Return the path of a file of the benchmark data.

        ``otherwise`` says how to get a file that is not published.
        """
        path = Path(self.data) / name
        if not self.data or not path.is_file():
            way_out = otherwise or "set MILDROUTE_DATA to that folder"
            raise ArgumentError(
                f"{name} must be in the folder of the benchmark data, which is {self.data!r};"
                f" {way_out}."
            )
        return path


def cached_array(folders: Folders, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Read an array from the cache, or make it and write it there.

    Args:
        folders: Folders whose cache is used.
        name: Name of the array; it must say all that the array depends on, so it is best a hash.
        make: Computes the array.

    Returns:
        The array; the same bytes whether it was made or read.

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
