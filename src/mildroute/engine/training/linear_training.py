"""Train a linear router: the leader searches, all workers add up what their rows say at the points it asks about."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.engine.training.checkpoints import Progress
from mildroute.engine.training.descent import Step, descend_from
from mildroute.engine.training.linear_problem import LinearProblem, linear_problem
from mildroute.engine.training.plans import LinearPlan
from mildroute.engine.training.shards import Rows
from mildroute.engine.training.statistics import Statistics
from mildroute.engine.training.worker import Worker, check_rows, gathered_statistics

__all__ = ["train_linear"]

_QUIET_STEPS = 2
"""Steps in a row that must gain next to nothing before the search ends."""
_SAMPLE_STEPS = 200
_KEPT = ("rows", "total", "squares", "paid", "worst", "lowest", "highest", "wins")


def train_linear(plan: LinearPlan, worker: Worker) -> Progress | None:
    """Search for the optimum over the rows of all workers.

    Args:
        plan: What to train.
        worker: This process.

    Returns:
        Weights, intercept and the like for the leader, none for the others.

    Example:
        >>> train_linear.__name__
        'train_linear'
    """
    problem, progress = _prepared(plan, worker)
    if worker.team.rank:
        _serve(problem, worker)
        return None
    return _lead(problem, worker, progress)


def _prepared(plan: LinearPlan, worker: Worker) -> tuple[LinearProblem, Progress]:
    """The same problem for all workers, from a pass over the rows or from where an earlier run stopped."""
    if worker.team.rank == 0 and worker.resumed is not None:
        problem, progress = _restored(plan, worker.resumed), worker.resumed
        return worker.team.share((problem, progress))  # type: ignore[no-any-return]
    resumed = worker.team.share(None)
    if resumed is not None:
        return resumed  # type: ignore[no-any-return]
    known = gathered_statistics(worker, plan.sample)
    found = None
    if worker.team.rank == 0:
        problem = linear_problem(plan, known)
        start = _optimum_of_sample(problem)
        # The sample has served; workers need no copy of it.
        found = _slim(problem), Progress(passes=1, rows=known.rows, arrays={"point": start})
    return worker.team.share(found)  # type: ignore[no-any-return]


def _lead(problem: LinearProblem, worker: Worker, progress: Progress) -> Progress:
    passes, seconds = progress.passes, float(progress.arrays.get("seconds", 0.0))

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal passes, seconds
        point, start = flat.reshape(problem.shape), time.monotonic()
        worker.team.share(_Order("evaluate", point))
        parts = worker.team.gather(problem.sums_at(point, worker.passing()))
        passes, seconds = passes + 1, seconds + time.monotonic() - start
        check_rows(sum(part.rows for part in parts), worker.shards)
        value, gradient = problem.value_and_gradient(point, parts)
        return value, gradient.ravel()

    steps = descend_from(objective, progress.arrays["point"].ravel(), progress.part("search"))
    quiet = _until_quiet(steps, progress, tolerance=problem.plan.tolerance, most=problem.plan.max_steps)
    told, last = progress.done, time.monotonic()
    for done, step in enumerate(quiet, start=progress.done + 1):
        progress = _progress(problem, step, done, passes, seconds)
        if time.monotonic() - last >= worker.patience:
            _tell_all(worker, progress)
            told, last = done, time.monotonic()
    if told < progress.done:
        _tell_all(worker, progress)
    worker.team.share(_Order("end"))
    return progress


def _tell_all(worker: Worker, progress: Progress) -> None:
    worker.team.share(_Order("tell"))
    figures = {"objective": float(progress.arrays["value"]), "gradient": float(progress.arrays["gradient"])}
    worker.tell({**figures, "step": progress.done, "passes": progress.passes}, progress)


def _serve(problem: LinearProblem, worker: Worker) -> None:
    while (order := worker.team.share(None)).what != "end":
        if order.what == "evaluate":
            worker.team.gather(problem.sums_at(order.point, worker.passing()))
        else:
            worker.tell({}, None)


@dataclass(frozen=True)
class _Order:
    what: str
    point: Any = None


def _until_quiet(steps: Iterator[Step], progress: Progress, *, tolerance: float, most: int) -> Iterator[Step]:
    last, quiet = float(progress.arrays.get("value", np.inf)), int(progress.arrays.get("quiet", 0))
    for _ in range(progress.done, most):
        if quiet >= _QUIET_STEPS:
            return
        step = next(steps)
        quiet = quiet + 1 if last - step.value <= tolerance * abs(step.value) else 0
        last = step.value
        yield Step(step.point, step.value, step.gradient_norm, {**step.state, "quiet": np.asarray(float(quiet))})


def _progress(problem: LinearProblem, step: Step, done: int, passes: int, seconds: float) -> Progress:
    point = step.point.reshape(problem.shape)
    weights, intercept = problem.weights_at(point)
    known = {f"known.{name}": np.asarray(getattr(problem.known, name)) for name in _KEPT}
    search = {f"search.{name}": array for name, array in step.state.items() if name != "quiet"}
    arrays = {
        "point": point,
        "value": np.asarray(step.value),
        "gradient": np.asarray(step.gradient_norm),
        "quiet": step.state["quiet"],
        "seconds": np.asarray(seconds),
        "weights": weights,
        "intercept": intercept,
        "margins": problem.margins,
        "basis": problem.basis,
        "stretch": problem.stretch,
    }
    return Progress(done, passes, problem.known.rows, {**arrays, **known, **search})


def _restored(plan: LinearPlan, progress: Progress) -> LinearProblem:
    found: dict[str, Any] = {name: array if array.ndim else float(array) for name, array in progress.part("known").items()}
    known = Statistics(**{**found, "rows": progress.rows}, sample=_no_rows())
    return LinearProblem(plan, known, *(progress.arrays[name] for name in ("margins", "basis", "stretch")))


def _slim(problem: LinearProblem) -> LinearProblem:
    known = Statistics(**{name: getattr(problem.known, name) for name in _KEPT}, sample=_no_rows())
    return LinearProblem(problem.plan, known, problem.margins, problem.basis, problem.stretch)


def _no_rows() -> Rows:
    return Rows(np.empty((0, 0), np.float16), np.empty((0, 0)))


def _optimum_of_sample(problem: LinearProblem) -> NDArray[np.float64]:
    """The optimum over the sample, in memory."""
    sample = problem.known.sample

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = flat.reshape(problem.shape)
        value, gradient = problem.value_and_gradient(point, [problem.sums_at(point, [sample])])
        return value, gradient.ravel()

    steps = descend_from(objective, np.zeros(problem.shape[0] * problem.shape[1]))
    last = Step(np.zeros(problem.shape).ravel(), np.inf, np.inf, {})
    for step in _until_quiet(steps, Progress(), tolerance=problem.plan.tolerance, most=_SAMPLE_STEPS):
        last = step
    return last.point.reshape(problem.shape)
