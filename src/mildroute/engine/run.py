"""Run cells: one plain function for one cell, and one that runs many in this process, in several or over Ray."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mildroute.engine.cells import Cell, Data
from mildroute.engine.folders import Folders
from mildroute.engine.inputs import IMAGE_SETS, labelled_of
from mildroute.engine.methods import router_of
from mildroute.engine.network_choice import choose_by_network
from mildroute.engine.problems import Problem, problem_of
from mildroute.engine.results import Result
from mildroute.engine.store import Store
from mildroute.errors import ArgumentError
from mildroute.routers.descent import load_torch

__all__ = ["Progress", "missing_cells", "run_cell", "run_cells"]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with what is done, how much there is, and a word on it."""

_BATCH, _PATIENCE = 16, 30.0
"""Results, or seconds, after which what was found is written; what a killed run loses."""
_TELLING = ("mildroute", "numpy", "scikit-learn", "scipy")
_TELLING_OF_NETWORKS = ("torch", "transformers")


def run_cell(cell: Cell, folders: Folders | None = None) -> Result:
    """Run one experiment: prepare, fit, choose, count.

    Uses one thread, so that the result is the same to the bit whatever else runs, here or on another core.

    Args:
        cell: The experiment.
        folders: Where data and cache lie; by default as the environment says.

    Returns:
        What was found.

    Example:
        >>> from mildroute.engine.cells import Data, Experts
        >>> found = run_cell(Cell(Data("toy", train=200), Experts("synthetic", (0.7, 0.3))), Folders("", ""))
        >>> found.oracle <= found.loss <= 1, len(found.paid)
        (True, 200)
    """
    known = folders or Folders.from_environment()
    with _one_thread(with_torch=cell.method.name == "ldam" or bool(cell.method.network)):
        problem = problem_of(cell, known)
        start = time.process_time()
        choice, note = choose_by_network(cell, problem, known) if cell.method.network else _choose(cell, problem)
        return _result(cell, problem, choice, note, time.process_time() - start)


def run_cells(cells: Sequence[Cell], store: Store, *, workers: int = 1, ray: bool = False, progress: Progress | None = None) -> int:
    """Run the cells that the store does not hold yet, and write what they find.

    Args:
        cells: The experiments; those with equal keys run once.
        store: Where results are looked up and written.
        workers: Processes, or the processors of a local Ray; 1 without Ray runs in this process.
        ray: Run over Ray: on the cluster that ``RAY_ADDRESS`` names or that is connected already, else on a local one.
        progress: Told after each cell, or none.

    Returns:
        How many were run.

    Example:
        >>> import tempfile
        >>> from mildroute.engine.cells import Data, Experts
        >>> cell, store = Cell(Data("toy", train=200), Experts("synthetic", (0.7, 0.3))), Store(tempfile.mkdtemp())
        >>> run_cells([cell, cell], store), run_cells([cell], store)
        (1, 0)
    """
    if workers < 1:
        raise ArgumentError(f"workers must be at least 1, got {workers}.")
    todo, tell = missing_cells(cells, store), progress or (lambda _done, _total, _word: None)
    if not todo:
        return 0
    folders = Folders.from_environment()
    _prepare(todo, folders, tell)
    tell(0, len(todo), "")
    found = _over_ray(todo, folders, workers) if ray else _here(todo, folders) if workers == 1 else _in_processes(todo, folders, workers)
    for done, result in enumerate(_kept(found, store), start=1):
        tell(done, len(todo), f"{result.cell.data.name} {result.cell.method.name}")
    return len(todo)


def missing_cells(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """The cells that have no result yet, each once, in their order.

    Args:
        cells: The experiments.
        store: Where results are looked up.

    Returns:
        Those to run.

    Example:
        >>> from mildroute.engine.cells import Data, Experts
        >>> cell = Cell(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> len(missing_cells([cell, cell], Store("no-such-folder")))
        1
    """
    known = store.keys()
    return [cell for key, cell in {cell.key: cell for cell in cells}.items() if key not in known]


@contextmanager
def _one_thread(*, with_torch: bool) -> Iterator[None]:
    """A region in which linear algebra uses one thread, torch's too if it is needed."""
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


def _choose(cell: Cell, problem: Problem) -> tuple[NDArray[np.intp], str]:
    router = router_of(cell.method.name, cell.seed).fit(problem.vectors, problem.costs)
    return np.asarray(router.predict(problem.test_vectors), dtype=np.intp), _note(router)


def _note(router: Any) -> str:
    """What cross-validation took."""
    taken = {"penalty": getattr(router, "penalty_", None), "offset": getattr(router, "offset_", None)}
    words = [f"{name} {value:g}" for name, value in taken.items() if value is not None]
    return "; ".join([*words, *filter(None, [getattr(router, "choice_", "")])])


def _result(cell: Cell, problem: Problem, choice: NDArray[np.intp], note: str, seconds: float) -> Result:
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
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=_versions(_TELLING + (_TELLING_OF_NETWORKS if cell.method.network else ())),
    )


def _versions(packages: Sequence[str]) -> str:
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return json.dumps(found, sort_keys=True)


def _kept(found: Iterator[Result], store: Store) -> Iterator[Result]:
    """Pass results on and write them in batches, the last one even if the run ends in an error."""
    batch: list[Result] = []
    last = time.monotonic()
    try:
        for result in found:
            batch.append(result)
            if len(batch) >= _BATCH or time.monotonic() - last > _PATIENCE:
                store.append(batch)
                batch, last = [], time.monotonic()
            yield result
    finally:
        store.append(batch)


def _prepare(cells: Sequence[Cell], folders: Folders, tell: Progress) -> None:
    """Compute the vectors of image sets once, before several workers would each do so."""
    wanted = [cell.data.name for cell in cells if cell.data.features == "frozen" or cell.experts.kind == "real"]
    for name in sorted(set(wanted) & set(IMAGE_SETS)):
        data = Data(name)
        with _one_thread(with_torch=True):
            labelled_of(data, folders, lambda done, total, name=name: tell(done, total, f"vectors of {name}"))  # type: ignore[misc]


def _here(cells: Sequence[Cell], folders: Folders) -> Iterator[Result]:
    for cell in cells:
        yield run_cell(cell, folders)


def _in_processes(cells: Sequence[Cell], folders: Folders, workers: int) -> Iterator[Result]:
    # Not forked: torch and OpenMP hold locks that a forked child would wait for.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_cell, cell, folders) for cell in cells]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _over_ray(cells: Sequence[Cell], folders: Folders, workers: int) -> Iterator[Result]:
    from mildroute.engine.cluster import on_cluster

    yield from on_cluster(run_cell, [(cell, folders) for cell in cells], processors=workers)
