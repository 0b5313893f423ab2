"""Results in a folder of Parquet files that only grows: reruns resume, and several writers need no lock."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mildroute.engine.cells import Cell
from mildroute.engine.results import Result

__all__ = ["Store"]

_COLUMNS = pa.schema(
    [
        ("key", pa.string()),
        ("cell", pa.string()),
        ("loss", pa.float64()),
        ("best_single", pa.float64()),
        ("oracle", pa.float64()),
        ("shares", pa.list_(pa.float64())),
        ("optimal", pa.list_(pa.float64())),
        ("paid", pa.list_(pa.float64())),
        ("note", pa.string()),
        ("seconds", pa.float64()),
        ("finished", pa.string()),
        ("versions", pa.string()),
    ]
)
_LISTS = ("shares", "optimal")


class Store:
    """A folder of results.

    Each batch is one file that appears by renaming, as a whole or not at all, and is never changed; what the store holds is the union of
    its files. Where two writers computed the same cell, the one in the file that comes first by name counts.

    Args:
        folder: Where the files lie; made at the first write.

    Example:
        >>> from mildroute.engine.cells import Data, Experts
        >>> cell = Cell(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> store = Store(tempfile.mkdtemp())
        >>> store.append([Result(cell, 0.5, 0.6, 0.1, (0.5, 0.5), (0.7, 0.3), np.array([1.0, 0.0]))])
        >>> cell.key in store.keys(), store.read()[cell.key].loss
        (True, 0.5)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def append(self, results: Sequence[Result]) -> None:
        """Write results as one file; none writes nothing."""
        if not results:
            return
        table = pa.Table.from_pylist([_row_of(result) for result in results], schema=_COLUMNS)
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=self.folder, suffix=".partial")
        os.close(handle)
        # The costs of a cell take a handful of values, so a dictionary makes a row of thousands as small as its choices.
        pq.write_table(table, partial, compression="zstd", use_dictionary=True)
        Path(partial).chmod(0o644)
        name = hashlib.sha256(Path(partial).read_bytes()).hexdigest()[:32]
        Path(partial).replace(self.folder / f"{name}.parquet")

    def keys(self) -> set[str]:
        """Keys of all cells that have a result."""
        return {key for path in self._files() for key in pq.read_table(path, columns=["key"])["key"].to_pylist()}

    def read(self, keys: Iterable[str] | None = None) -> dict[str, Result]:
        """Results by key, all or those asked for that are known, in order of the keys."""
        wanted = None if keys is None else set(keys)
        found: dict[str, Result] = {}
        for path in self._files():
            table = pq.read_table(path)
            # Thousands of numbers a row: as arrays, not as objects.
            paid = table["paid"].combine_chunks()
            for place, row in enumerate(table.drop_columns("paid").to_pylist()):
                key = row.pop("key")
                if key not in found and (wanted is None or key in wanted):
                    found[key] = _result_of(row, np.array(paid[place].values.to_numpy(), dtype=np.float64))
        return {key: found[key] for key in sorted(found)}

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


def _row_of(result: Result) -> dict[str, Any]:
    return {**vars(result), "key": result.cell.key, "cell": result.cell.to_json(), **{name: list(getattr(result, name)) for name in _LISTS}}


def _result_of(row: dict[str, Any], paid: NDArray[np.float64]) -> Result:
    return Result(**{**row, "cell": Cell.from_json(row["cell"]), "paid": paid, **{name: tuple(row[name]) for name in _LISTS}})
