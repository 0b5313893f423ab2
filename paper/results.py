"""Results of experiments, and a folder of Parquet files to store them in."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.commit import commit
from paper.config import ExperimentConfig

__all__ = ["Result", "Store"]


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a cell.

    Two results are equal if their figures are, to the bit; time and versions do not count.

    Args:
        cell: The experiment.
        loss: Mean cost of the chosen expert on test rows.
        best_single: Mean cost of the expert that is cheapest on the training rows.
        oracle: Mean cost of the best expert of each row.
        shares: Share of the rows on which each expert is chosen, shape (p,).
        optimal: Share of the rows on which each expert is the best one, the first in a tie, shape
            (p,).
        paid: Cost of the chosen expert on each test row, shape (n,).
        note: What cross-validation chose, in words.
        seconds: Processor time of fit and prediction.
        finished: When the cell was finished, in ISO format.
        versions: Versions of the packages that computed it.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> figures = (cell, 0.5, 0.6, 0.1, (0.5, 0.5), (0.7, 0.3), np.array([1.0, 0.0]))
        >>> slow, fast = Result(*figures, seconds=9), Result(*figures, seconds=1)
        >>> slow == fast
        True
    """

    cell: ExperimentConfig
    loss: float
    best_single: float
    oracle: float
    shares: tuple[float, ...]
    optimal: tuple[float, ...]
    paid: NDArray[np.float64] = field(repr=False)
    note: str = ""
    seconds: float = 0.0
    finished: str = ""
    versions: str = ""

    def __eq__(self, other: object) -> bool:
        """Return whether cell, figures and note are the same."""
        return isinstance(other, Result) and self._outcome() == other._outcome()

    def __hash__(self) -> int:
        """Return the hash of the cell."""
        return hash(self.cell)

    def _outcome(self) -> tuple[Any, ...]:
        figures = np.array(
            [self.loss, self.best_single, self.oracle, *self.shares, *self.optimal, *self.paid]
        )
        return self.cell, len(self.shares), figures.tobytes(), self.note


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


_COMMAND = "python -m paper --all"


class Store:
    """A folder of results.

    Each batch of results is one file, which is written atomically and never changed, so several
    writers need no lock. If two files have a result of the same cell, the first by name counts.

    Args:
        folder: The folder, created at the first write.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> store = Store(tempfile.mkdtemp())
        >>> paid = np.array([1.0, 0.0])
        >>> store.append([Result(cell, 0.5, 0.6, 0.1, (0.5, 0.5), (0.7, 0.3), paid)])
        >>> cell.key in store.keys(), store.read()[cell.key].loss
        (True, 0.5)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def append(self, results: Sequence[Result]) -> None:
        """Write results as one file; an empty sequence writes nothing."""
        if not results:
            return
        table = pa.Table.from_pylist([_row_of(result) for result in results], schema=_COLUMNS)
        self._write(table.replace_schema_metadata(_origin()))

    def merge(self) -> None:
        """Merge all files into one. Nothing else may use the store at the same time."""
        files = self._files()
        tables = [pq.read_table(path) for path in files]
        origins = [table.schema.metadata or {} for table in tables]
        if len(files) > 1:
            latest = max(origins, key=lambda origin: origin.get(b"date", b""))
            merged = self._write(pa.concat_tables(tables).replace_schema_metadata(latest))
            for path in set(files) - {merged}:
                path.unlink()

    def _write(self, table: pa.Table) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=self.folder, suffix=".partial")
        os.close(handle)
        # The costs of a cell have only a few distinct values, so a dictionary saves most space.
        pq.write_table(table, partial, compression="zstd", use_dictionary=True)
        Path(partial).chmod(0o644)
        name = hashlib.sha256(Path(partial).read_bytes()).hexdigest()[:32]
        return Path(partial).replace(self.folder / f"{name}.parquet")

    def keys(self) -> set[str]:
        """Return the keys of all cells that have a result."""
        return {
            key
            for path in self._files()
            for key in pq.read_table(path, columns=["key"])["key"].to_pylist()
        }

    def read(self, keys: Iterable[str] | None = None) -> dict[str, Result]:
        """Return results by key, sorted: those with the given keys, or all if `None`."""
        wanted = None if keys is None else set(keys)
        results: dict[str, Result] = {}
        for path in self._files():
            table = pq.read_table(path)
            # Rows hold thousands of numbers, so read them as arrays and not as objects.
            paid = table["paid"].combine_chunks()
            for index, row in enumerate(table.drop_columns("paid").to_pylist()):
                key = row.pop("key")
                if key not in results and (wanted is None or key in wanted):
                    results[key] = _result_of(
                        row, np.array(paid[index].values.to_numpy(), dtype=np.float64)
                    )
        return {key: results[key] for key in sorted(results)}

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


@cache
def _origin() -> dict[str, str]:
    """Return command, date and commit of this process."""
    return {
        "command": _COMMAND,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
    }


def _row_of(result: Result) -> dict[str, Any]:
    return {
        **vars(result),
        "key": result.cell.key,
        "cell": result.cell.to_json(),
        **{name: list(getattr(result, name)) for name in _LISTS},
    }


def _result_of(row: dict[str, Any], paid: NDArray[np.float64]) -> Result:
    return Result(
        **{
            **row,
            "cell": ExperimentConfig.from_json(row["cell"]),
            "paid": paid,
            **{name: tuple(row[name]) for name in _LISTS},
        }
    )
