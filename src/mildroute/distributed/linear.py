"""Data-parallel training of a linear router: the convex problem over shards, and L-BFGS for it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mildroute.distributed.shards import Rows
from mildroute.distributed.statistics import LinearConfig, Statistics, rewards_of
from mildroute.distributed.worker import (
    TrainingProgress,
    Worker,
    check_rows,
    gathered_margins,
    gathered_statistics,
)
from mildroute.routers._linear_model import deferral_row_loss

__all__ = [
    "LBFGSStep",
    "LinearProblem",
    "Objective",
    "Sums",
    "lbfgs_steps",
    "linear_problem",
    "train_linear",
]


# L-BFGS whose state is plain arrays between its steps, so that it can be stored and taken up
# again.


# A point to the value and the gradient there.
Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
_MEMORY, _EVALUATIONS = 20, 10
_LISTS, _SINGLES = (
    ("old_dirs", "old_stps", "ro"),
    ("d", "t", "H_diag", "prev_flat_grad", "prev_loss", "func_evals", "n_iter"),
)


@dataclass(frozen=True)
class LBFGSStep:
    """Where the search stands after a step."""

    point: NDArray[np.float64]
    value: float
    gradient_norm: float
    state: dict[str, NDArray[np.float64]]


def lbfgs_steps(
    objective: Objective,
    start: NDArray[np.float64],
    state: Mapping[str, NDArray[np.float64]] | None = None,
) -> Iterator[LBFGSStep]:
    """Steps of L-BFGS with a line search of strong Wolfe conditions, without end.

    The caller decides when to stop.

    Args:
        objective: What to minimize.
        start: Where to start.
        state: Of an earlier search that stopped at the start, or none.
    """
    unknown = torch.nn.Parameter(torch.from_numpy(start.copy()))
    search = torch.optim.LBFGS(
        [unknown],
        max_iter=1,
        max_eval=_EVALUATIONS,
        history_size=_MEMORY,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    if state:
        search.state[unknown].update(_restored(state))
    known: dict[bytes, tuple[float, NDArray[np.float64]]] = {}

    def at(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Each point is evaluated once: a step begins where the last one ended."""
        key = point.tobytes()
        if key not in known:
            known[key] = objective(point.copy())
        return known[key]

    def closure() -> torch.Tensor:
        value, gradient = at(unknown.detach().numpy())
        unknown.grad = torch.from_numpy(gradient.copy())
        return torch.tensor(value, dtype=torch.float64)

    while True:
        search.step(closure)  # type: ignore[no-untyped-call]
        point = unknown.detach().numpy().copy()
        value, gradient = at(point)
        known = {point.tobytes(): (value, gradient)}
        yield LBFGSStep(
            point, value, float(np.abs(gradient).max(initial=0.0)), _stored(search.state[unknown])
        )


def _stored(state: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    lists = {
        name: np.stack([np.asarray(each) for each in state[name]])
        for name in _LISTS
        if state.get(name)
    }
    return lists | {
        name: np.asarray(state[name], dtype=np.float64)
        for name in _SINGLES
        if state.get(name) is not None
    }


def _restored(state: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: [torch.tensor(each) for each in state.get(name, ())] for name in _LISTS
    }
    found |= {
        name: torch.tensor(state[name]) if state[name].ndim else float(state[name])
        for name in _SINGLES
        if name in state
    }
    return found | {name: int(found[name]) for name in ("func_evals", "n_iter") if name in found}


# The convex problem of a linear router, as sums over rows that may lie anywhere.


# Rows whose scores are computed at once: what fits a processor's cache.
_BLOCK = 8192


@dataclass(frozen=True)
class Sums:
    """Sums over rows at one point.

    Of the losses, of the gradient by the weights (d, p) and by the intercept (p,).
    """

    rows: int
    loss: float
    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]


@dataclass(frozen=True)
class LinearProblem:
    """Mean deferral loss + penalty * scale * |weights|^2, in coordinates of even curvature.

    Curvature is about the same in every direction. The coordinates are those of
    :mod:`mildroute.routers._linear_model`, with an eigenbasis from a sample of rows: they change
    the way to the optimum, not the optimum.

    Args:
        basis: Directions, shape (d, d).
        stretch: Length of each, shape (d,).
    """

    plan: LinearConfig
    known: Statistics
    margins: NDArray[np.float64]
    basis: NDArray[np.float64]
    stretch: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a point: one row for each direction, and one for the intercept."""
        return len(self.stretch) + 1, len(self.margins)

    @property
    def ridge(self) -> float:
        """Factor of the squared norm."""
        return self.plan.alpha * self.known.scale

    def weights_at(
        self, point: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (d, p) and intercept (p,) of a point, for vectors as they come."""
        weights = self.basis @ (point[:-1] * self.stretch[:, None])
        return weights, point[-1] - self.known.mean @ weights

    def sums_at(self, point: NDArray[np.float64], parts: Iterable[Rows]) -> Sums:
        """What some rows contribute at a point; computed in float32, added up in float64."""
        weights, intercept = self.weights_at(point)
        # Experts before rows: what is done expert by expert then runs along memory.
        factors, shift = (
            torch.from_numpy(weights.T.copy()).float(),
            torch.from_numpy(intercept[:, None]).float(),
        )
        rows, loss, by_weights, by_intercept = (
            0,
            0.0,
            np.zeros(weights.shape),
            np.zeros(len(intercept)),
        )
        for part in parts:
            rewards = rewards_of(part.costs, self.plan.reward, self.known)
            for start in range(0, len(part.vectors), _BLOCK):
                block = slice(start, start + _BLOCK)
                vectors = _as_tensor(part.vectors[block])
                losses, steps = deferral_row_loss(rewards[block], self.margins)(
                    torch.addmm(shift, factors, vectors.T).numpy().T
                )
                by_weights += (torch.from_numpy(np.ascontiguousarray(steps.T)) @ vectors).numpy().T
                by_intercept += steps.sum(axis=0, dtype=np.float64)
                loss += float(losses.sum(dtype=np.float64))
            rows += len(part.vectors)
        return Sums(rows, loss, by_weights, by_intercept)

    def value_and_gradient(
        self, point: NDArray[np.float64], parts: Sequence[Sums]
    ) -> tuple[float, NDArray[np.float64]]:
        """Objective and gradient from the sums of all rows."""
        rows = sum(part.rows for part in parts)
        by_intercept = np.sum([part.intercept for part in parts], axis=0) / rows
        by_weights = np.sum([part.weights for part in parts], axis=0) / rows - np.outer(
            self.known.mean, by_intercept
        )
        ridge = self.ridge * self.stretch[:, None] ** 2
        value = sum(part.loss for part in parts) / rows + float((ridge * point[:-1] ** 2).sum())
        gradient = np.vstack(
            [
                self.basis.T @ by_weights * self.stretch[:, None] + 2 * ridge * point[:-1],
                by_intercept,
            ]
        )
        return value, gradient


def linear_problem(
    plan: LinearConfig, known: Statistics, margins: NDArray[np.float64]
) -> LinearProblem:
    """Return the problem of a plan, in units of the mean of margins that it gives by name.

    Args:
        plan: What to train.
        known: Statistics of all rows.
        margins: The margins of the plan, shape (p,).
    """
    if isinstance(plan.margins, str):
        margins = margins / margins.mean()
    centered = known.sample.vectors.astype(np.float64) - known.mean
    variances, basis = np.linalg.eigh(centered.T @ centered / len(centered))
    curvature = np.maximum(variances, 0.0) / (4 * len(margins)) + 2 * plan.alpha * known.scale
    return LinearProblem(plan, known, margins, basis, 1 / np.sqrt(curvature))


def _as_tensor(vectors: NDArray[np.floating]) -> torch.Tensor:
    with warnings.catch_warnings():
        # Shared memory must not be written to, of which torch warns; a wider copy is all that is
        # made of it.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(vectors).float()


# Train a linear router: the leader searches, all workers add up what their rows say at the points
# it is called for.


# Steps in a row that must gain next to nothing before the search ends.
_QUIET_STEPS = 2
_SAMPLE_STEPS = 200
_KEPT = ("rows", "total", "squares", "paid", "worst", "lowest", "highest", "wins")


def train_linear(plan: LinearConfig, worker: Worker) -> TrainingProgress | None:
    """Search for the optimum over the rows of all workers.

    Returns:
        Weights, intercept and the like for the leader, none for the others.
    """
    problem, progress = _prepared(plan, worker)
    if worker.team.rank:
        _serve(problem, worker)
        return None
    return _lead(problem, worker, progress)


def _prepared(plan: LinearConfig, worker: Worker) -> tuple[LinearProblem, TrainingProgress]:
    """The same problem for all workers, from a pass over the rows or from an earlier run.

    An earlier run continues from where it stopped.
    """
    if worker.team.rank == 0 and worker.resumed is not None:
        problem, progress = _restored_state(plan, worker.resumed), worker.resumed
        return worker.team.share((problem, progress))  # type: ignore[no-any-return]
    resumed = worker.team.share(None)
    if resumed is not None:
        return resumed  # type: ignore[no-any-return]
    known = gathered_statistics(worker, plan.sample)
    margins = gathered_margins(worker, plan, known)
    found = None
    if worker.team.rank == 0:
        problem = linear_problem(plan, known, margins)
        start = _optimum_of_sample(problem)
        passes = 2 if plan.margins == "theory" else 1
        # The sample has served; workers need no copy of it.
        found = (
            _slim(problem),
            TrainingProgress(passes=passes, rows=known.rows, arrays={"point": start}),
        )
    return worker.team.share(found)  # type: ignore[no-any-return]


def _lead(problem: LinearProblem, worker: Worker, progress: TrainingProgress) -> TrainingProgress:
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

    steps = lbfgs_steps(objective, progress.arrays["point"].ravel(), progress.part("search"))
    quiet = _until_quiet(
        steps, progress, tolerance=problem.plan.tolerance, most=problem.plan.max_steps
    )
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


def _tell_all(worker: Worker, progress: TrainingProgress) -> None:
    worker.team.share(_Order("tell"))
    figures = {
        "objective": float(progress.arrays["value"]),
        "gradient": float(progress.arrays["gradient"]),
    }
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


def _until_quiet(
    steps: Iterator[LBFGSStep], progress: TrainingProgress, *, tolerance: float, most: int
) -> Iterator[LBFGSStep]:
    last, quiet = float(progress.arrays.get("value", np.inf)), int(progress.arrays.get("quiet", 0))
    for _ in range(progress.done, most):
        if quiet >= _QUIET_STEPS:
            return
        step = next(steps)
        quiet = quiet + 1 if last - step.value <= tolerance * abs(step.value) else 0
        last = step.value
        yield LBFGSStep(
            step.point,
            step.value,
            step.gradient_norm,
            {**step.state, "quiet": np.asarray(float(quiet))},
        )


def _progress(
    problem: LinearProblem, step: LBFGSStep, done: int, passes: int, seconds: float
) -> TrainingProgress:
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
    return TrainingProgress(done, passes, problem.known.rows, {**arrays, **known, **search})


def _restored_state(plan: LinearConfig, progress: TrainingProgress) -> LinearProblem:
    found: dict[str, Any] = {
        name: array if array.ndim else float(array)
        for name, array in progress.part("known").items()
    }
    known = Statistics(**{**found, "rows": progress.rows}, sample=_no_rows())
    return LinearProblem(
        plan, known, *(progress.arrays[name] for name in ("margins", "basis", "stretch"))
    )


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

    steps = lbfgs_steps(objective, np.zeros(problem.shape[0] * problem.shape[1]))
    last = LBFGSStep(np.zeros(problem.shape).ravel(), np.inf, np.inf, {})
    for step in _until_quiet(
        steps, TrainingProgress(), tolerance=problem.plan.tolerance, most=_SAMPLE_STEPS
    ):
        last = step
    return last.point.reshape(problem.shape)
