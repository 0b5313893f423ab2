"""Where a training run stands, as one file of arrays; reading it can run no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArtifactError

__all__ = ["Progress", "read_progress", "write_progress"]

_FILE = "progress.npz"
_COUNTS = ("done", "passes", "rows")


@dataclass(frozen=True)
class Progress:
    """What is needed to go on.

    Args:
        done: Steps or epochs that are done.
        passes: Passes over all rows so far.
        rows: Rows of a pass.
        arrays: Everything else by name.

    Example:
        >>> Progress(done=3, passes=5, rows=100).arrays
        {}
    """

    done: int = 0
    passes: int = 0
    rows: int = 0
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays whose names begin with a word and a dot, without it."""
        return {name.removeprefix(f"{prefix}."): array for name, array in self.arrays.items() if name.startswith(f"{prefix}.")}


def write_progress(folder: str | Path, progress: Progress) -> None:
    """Write it into a folder.

    Args:
        folder: An existing folder.
        progress: Where the run stands.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write_progress(folder, Progress(done=2, arrays={"point": np.ones(3)}))
        >>> read_progress(folder).done
        2
    """
    found: dict[str, Any] = {name: np.asarray(getattr(progress, name)) for name in _COUNTS}
    found |= {f"array.{name}": np.asarray(array) for name, array in progress.arrays.items()}
    np.savez(Path(folder) / _FILE, **found)


def read_progress(folder: str | Path) -> Progress:
    """What :func:`write_progress` has written.

    Args:
        folder: Where.

    Returns:
        Where the run stands.

    Example:
        >>> read_progress("no-such-folder")
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: a checkpoint must have the file progress.npz, got none in 'no-such-folder'.
    """
    path = Path(folder) / _FILE
    if not path.exists():
        raise ArtifactError(f"a checkpoint must have the file {_FILE}, got none in {str(folder)!r}.")
    with np.load(path, allow_pickle=False) as found:
        arrays = {name.removeprefix("array."): found[name] for name in found.files if name.startswith("array.")}
        return Progress(**{name: int(found[name]) for name in _COUNTS}, arrays=arrays)
