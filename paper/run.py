"""Run cells.

One plain function for one cell, and one that runs many in this process, in several or over Ray.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.commit import commit
from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError
from paper.config import Data, ExperimentConfig, Method
from paper.data import IMAGE_SETS, Folders, labeled_of
from paper.problems import Problem, problem_of, router_of
from paper.train import choose_by_network

__all__ = [
    "Progress",
    "Result",
    "Store",
    "expected_seconds",
    "missing_cells",
    "run_cell",
    "run_cells",
]


# What an experiment found, and which part of it must not depend on where it ran.


@dataclass(frozen=True, eq=False)
class Result:
    """Outcome of one cell.

    Equality looks at the outcome alone, to the bit, and not at time, place and versions.

    Args:
        cell: The experiment.
        loss: Mean cost of the chosen expert on test rows.
        best_single: Mean cost of the expert that is cheapest on the training rows.
        oracle: Mean cost of the best expert of each row.
        shares: How often each expert is chosen, shape (p,).
        optimal: How often each expert is the best one, the first of equals, shape (p,).
        paid: Cost of the chosen expert on each test row, shape (n,).
        note: What the router chose by cross-validation, in words.
        seconds: Processor time of fit and prediction.
        finished: When, in ISO format.
        versions: Versions of what computed it.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> found = (cell, 0.5, 0.6, 0.1, (0.5, 0.5), (0.7, 0.3), np.array([1.0, 0.0]))
        >>> slow, fast = Result(*found, seconds=9), Result(*found, seconds=1)
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
        """Whether the same cell has come out the same, to the bit."""
        return isinstance(other, Result) and self._outcome() == other._outcome()

    def __hash__(self) -> int:
        """Equal results have equal cells."""
        return hash(self.cell)

    def _outcome(self) -> tuple[Any, ...]:
        figures = np.array(
            [self.loss, self.best_single, self.oracle, *self.shares, *self.optimal, *self.paid]
        )
        return self.cell, len(self.shares), figures.tobytes(), self.note


# Results in a folder of Parquet files that only grows: reruns resume, and several writers need no
# lock.


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

    Each batch is one file that appears by renaming, as a whole or not at all, and is never changed;
    what the store holds is the union of its files. Where two writers computed the same cell, the
    one in the file that comes first by name counts.

    Args:
        folder: Where the files lie; made at the first write.

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
        """Write results as one file, with its origin; an empty sequence writes nothing."""
        if not results:
            return
        table = pa.Table.from_pylist([_row_of(result) for result in results], schema=_COLUMNS)
        self._write(table.replace_schema_metadata(_origin()))

    def merge(self) -> None:
        """Merge all files into one; nothing else may use the store meanwhile."""
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
        # The costs of a cell take a handful of values, so a dictionary makes a row of thousands as
        # small as its choices.
        pq.write_table(table, partial, compression="zstd", use_dictionary=True)
        Path(partial).chmod(0o644)
        name = hashlib.sha256(Path(partial).read_bytes()).hexdigest()[:32]
        return Path(partial).replace(self.folder / f"{name}.parquet")

    def keys(self) -> set[str]:
        """Keys of all cells that have a result."""
        return {
            key
            for path in self._files()
            for key in pq.read_table(path, columns=["key"])["key"].to_pylist()
        }

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
                    found[key] = _result_of(
                        row, np.array(paid[place].values.to_numpy(), dtype=np.float64)
                    )
        return {key: found[key] for key in sorted(found)}

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


@cache
def _origin() -> dict[str, str]:
    """Return command, date and commit of what this process finds."""
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


# Run cells: one plain function for one cell, and one that runs many in this process, in several
# or over Ray.


# Called with what is done, how much there is, and a word on it.
Progress: TypeAlias = Callable[[int, int, str], None]

_TELLING = ("mildroute", "numpy", "scikit-learn", "scipy")
_TELLING_OF_NETWORKS = ("torch", "transformers")


def run_cell(cell: ExperimentConfig, folders: Folders | None = None) -> Result:
    """Run one experiment: prepare, fit, choose, count.

    Uses one thread, so that the result is the same to the bit whatever else runs, here or on
    another core.

    Args:
        cell: The experiment.
        folders: Where data and cache lie; by default as the environment says.

    Returns:
        What was found.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy", train=200), Experts("synthetic", (0.7, 0.3)))
        >>> found = run_cell(cell, Folders("", ""))
        >>> found.oracle <= found.loss <= 1, len(found.paid)
        (True, 200)
    """
    known = folders or Folders.from_environment()
    with _one_thread(with_torch=cell.method.name == "ldam" or bool(cell.method.network)):
        problem = problem_of(cell, known)
        start = time.process_time()
        choice, note = (
            choose_by_network(cell, problem, known)
            if cell.method.network
            else _choose(cell, problem)
        )
        return _result(cell, problem, choice, note, time.process_time() - start)


def run_cells(
    cells: Sequence[ExperimentConfig],
    store: Store,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> int:
    """Run the cells that the store does not hold yet, and write each result at once.

    Cells that need no vectors of images come first, then one image set after another, and the
    networks that read pixels or text last.

    Args:
        cells: The experiments; those with equal keys run once.
        store: Where results are looked up and written.
        workers: Processes; 1 runs in this process.
        progress: Told after each cell, or none.

    Returns:
        How many were run.

    Example:
        >>> import tempfile
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy", train=200), Experts("synthetic", (0.7, 0.3)))
        >>> store = Store(tempfile.mkdtemp())
        >>> run_cells([cell, cell], store), run_cells([cell], store)
        (1, 0)
    """
    if workers < 1:
        raise ArgumentError(f"workers must be at least 1, got {workers}.")
    todo, tell = missing_cells(cells, store), progress or (lambda _done, _total, _word: None)
    if not todo:
        return 0
    folders = Folders.from_environment()
    tell(0, len(todo), "")
    done = 0
    for image_set, group in groupby(sorted(todo, key=_stage), key=_image_set):
        cells = list(group)
        _prepare(image_set, folders, tell)
        results = _here(cells, folders) if workers == 1 else _in_processes(cells, folders, workers)
        for result in results:
            store.append([result])
            done += 1
            tell(done, len(todo), f"{result.cell.data.name} {result.cell.method.name}")
    return len(todo)


def missing_cells(cells: Sequence[ExperimentConfig], store: Store) -> list[ExperimentConfig]:
    """Return the cells that have no result yet, each once, in their order.

    Args:
        cells: The experiments.
        store: Where results are looked up.

    Returns:
        Those to run.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> len(missing_cells([cell, cell], Store("no-such-folder")))
        1
    """
    known = store.keys()
    return [cell for key, cell in {cell.key: cell for cell in cells}.items() if key not in known]


def expected_seconds(
    cells: Sequence[ExperimentConfig], results: Iterable[Result]
) -> tuple[float, int]:
    """Estimate the processor time of cells from results of the same method.

    Args:
        cells: The experiments.
        results: Results, of the same data set if possible.

    Returns:
        Seconds of the cells with a comparable result, and the number of cells without any.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> expected_seconds([cell], [])
        (0.0, 1)
    """
    same_data: dict[tuple[str, Method], list[float]] = {}
    same_method: dict[Method, list[float]] = {}
    for result in results:
        method = result.cell.method
        same_data.setdefault((result.cell.data.name, method), []).append(result.seconds)
        same_method.setdefault(method, []).append(result.seconds)
    total, unknown = 0.0, 0
    for cell in cells:
        known = same_data.get((cell.data.name, cell.method)) or same_method.get(cell.method)
        if known:
            total += float(np.mean(known))
        else:
            unknown += 1
    return total, unknown


@contextmanager
def _one_thread(*, with_torch: bool) -> Iterator[None]:
    """Use one thread for linear algebra, and for torch if it is needed."""
    torch = load_torch() if with_torch else None
    before = torch.get_num_threads() if torch is not None else 1
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


def _choose(cell: ExperimentConfig, problem: Problem) -> tuple[NDArray[np.intp], str]:
    router = router_of(cell.method.name, cell.seed).fit(problem.vectors, problem.costs)
    return np.asarray(router.predict(problem.test_vectors), dtype=np.intp), _note(router)


def _note(router: Any) -> str:
    """Describe what cross-validation chose."""
    alpha = getattr(router, "alpha_", None)
    words = ["" if alpha is None else f"alpha {alpha:g}", getattr(router, "selection_", "")]
    return "; ".join(filter(None, words))


def _result(
    cell: ExperimentConfig, problem: Problem, choice: NDArray[np.intp], note: str, seconds: float
) -> Result:
    costs = problem.test_costs
    paid = costs[np.arange(len(costs)), choice]
    shares = np.bincount(choice, minlength=costs.shape[1]) / len(costs)
    optimal = np.bincount(costs.argmin(axis=1), minlength=costs.shape[1]) / len(costs)
    return Result(
        cell=cell,
        loss=float(paid.mean()),
        best_single=float(costs[:, problem.costs.mean(axis=0).argmin()].mean()),
        oracle=float(costs.min(axis=1).mean()),
        shares=tuple(shares.tolist()),
        optimal=tuple(optimal.tolist()),
        paid=np.asarray(paid, dtype=np.float64),
        note=note,
        seconds=seconds,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=_versions(_TELLING + (_TELLING_OF_NETWORKS if cell.method.network else ())),
    )


def _versions(packages: Sequence[str]) -> str:
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return json.dumps(found, sort_keys=True)


def _stage(cell: ExperimentConfig) -> tuple[bool, str]:
    return bool(cell.method.network), _image_set(cell)


def _image_set(cell: ExperimentConfig) -> str:
    """Return the image set whose frozen vectors a cell needs, or an empty string."""
    needs_vectors = cell.data.features == "frozen" or cell.experts.kind == "real"
    return cell.data.name if needs_vectors and cell.data.name in IMAGE_SETS else ""


def _prepare(image_set: str, folders: Folders, tell: Progress) -> None:
    """Compute the vectors of an image set once, before several workers would each do so."""
    if image_set:
        with _one_thread(with_torch=True):
            labeled_of(Data(image_set), folders, partial(_tell_vectors, tell, image_set))


def _tell_vectors(tell: Progress, name: str, done: int, total: int) -> None:
    tell(done, total, f"vectors of {name}")


def _here(cells: Sequence[ExperimentConfig], folders: Folders) -> Iterator[Result]:
    for cell in cells:
        yield run_cell(cell, folders)


def _in_processes(
    cells: Sequence[ExperimentConfig], folders: Folders, workers: int
) -> Iterator[Result]:
    # Not forked: torch and OpenMP hold locks that a forked child would wait for.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_cell, cell, folders) for cell in cells]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
