"""Run cells, in this process or in several."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from multiprocessing import get_context
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError
from paper.config import Data, ExperimentConfig, Method
from paper.data import IMAGE_SETS, labeled_of
from paper.folders import Folders
from paper.network_choice import choose_by_network
from paper.problems import Problem, problem_of
from paper.results import Result, Store
from paper.routers import router_of

__all__ = [
    "Progress",
    "expected_seconds",
    "missing_cells",
    "run_cell",
    "run_cells",
]


# Called with the number of cells done, their total, and the name of the last one.
Progress: TypeAlias = Callable[[int, int, str], None]

# Packages whose versions are stored with a result.
_PACKAGES = ("mildroute", "numpy", "scikit-learn", "scipy")
_PACKAGES_OF_NETWORKS = ("torch", "transformers")


def run_cell(cell: ExperimentConfig, folders: Folders | None = None) -> Result:
    """Run an experiment.

    It runs in one thread, so that the result is the same to the bit on any number of cores.

    Args:
        cell: The experiment.
        folders: Folders of data and cache; defaults to those of the environment.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy", train=200), Experts("synthetic", (0.7, 0.3)))
        >>> result = run_cell(cell, Folders("", ""))
        >>> result.oracle <= result.loss <= 1, len(result.paid)
        (True, 200)
    """
    folders = folders or Folders.from_environment()
    with _one_thread(with_torch=cell.method.name == "ldam" or bool(cell.method.network)):
        problem = problem_of(cell, folders)
        start = time.process_time()
        choice, note = (
            choose_by_network(cell, problem, folders)
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
    """Run the cells that the store lacks, and write each result immediately.

    Cells that need no vectors of images run first, then one image set after another, and networks
    that read pixels or text last.

    Args:
        cells: The experiments; those with equal keys run once.
        store: The store of the results.
        workers: Number of processes; 1 means this process.
        progress: Called after each cell; `None` for no calls.

    Returns:
        Number of cells that were run.

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
    progress = progress or (lambda _done, _total, _name: None)
    missing = missing_cells(cells, store)
    if not missing:
        return 0
    folders = Folders.from_environment()
    progress(0, len(missing), "")
    done = 0
    for image_set, group in groupby(sorted(missing, key=_stage), key=_image_set):
        cells = list(group)
        _prepare(image_set, folders, progress)
        results = _here(cells, folders) if workers == 1 else _in_processes(cells, folders, workers)
        for result in results:
            store.append([result])
            done += 1
            progress(done, len(missing), f"{result.cell.data.name} {result.cell.method.name}")
    return len(missing)


def missing_cells(cells: Sequence[ExperimentConfig], store: Store) -> list[ExperimentConfig]:
    """Return the cells that have no result yet, each once, in their order.

    Args:
        cells: The experiments.
        store: The store of the results.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> len(missing_cells([cell, cell], Store("no-such-folder")))
        1
    """
    stored = store.keys()
    return [cell for key, cell in {cell.key: cell for cell in cells}.items() if key not in stored]


def expected_seconds(
    cells: Sequence[ExperimentConfig], results: Iterable[Result]
) -> tuple[float, int]:
    """Estimate the processor time of cells from results of the same method.

    Args:
        cells: The experiments.
        results: Results to estimate from, preferably of the same data set.

    Returns:
        Seconds of the cells with a comparable result, and the number of the other cells.

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
        seconds = same_data.get((cell.data.name, cell.method)) or same_method.get(cell.method)
        if seconds:
            total += float(np.mean(seconds))
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
        versions=_versions(_PACKAGES + (_PACKAGES_OF_NETWORKS if cell.method.network else ())),
    )


def _versions(packages: Sequence[str]) -> str:
    versions = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return json.dumps(versions, sort_keys=True)


def _stage(cell: ExperimentConfig) -> tuple[bool, str]:
    return bool(cell.method.network), _image_set(cell)


def _image_set(cell: ExperimentConfig) -> str:
    """Return the image set whose frozen vectors a cell needs, or an empty string."""
    needs_vectors = cell.data.features == "frozen" or cell.experts.kind == "real"
    return cell.data.name if needs_vectors and cell.data.name in IMAGE_SETS else ""


def _prepare(image_set: str, folders: Folders, progress: Progress) -> None:
    """Compute the vectors of an image set once, before several workers would each compute them."""
    if image_set:
        with _one_thread(with_torch=True):
            labeled_of(Data(image_set), folders, partial(_report_vectors, progress, image_set))


def _report_vectors(progress: Progress, name: str, done: int, total: int) -> None:
    progress(done, total, f"vectors of {name}")


def _here(cells: Sequence[ExperimentConfig], folders: Folders) -> Iterator[Result]:
    for cell in cells:
        yield run_cell(cell, folders)


def _in_processes(
    cells: Sequence[ExperimentConfig], folders: Folders, workers: int
) -> Iterator[Result]:
    # Spawned, because a forked child could wait forever for locks of torch and OpenMP.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_cell, cell, folders) for cell in cells]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
