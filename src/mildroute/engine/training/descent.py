"""L-BFGS whose state is plain arrays between its steps, so that it can be stored and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Objective", "Step", "descend_from"]

Objective = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
"""A point to the value and the gradient there."""
_MEMORY, _EVALUATIONS = 20, 10
_LISTS, _SINGLES = ("old_dirs", "old_stps", "ro"), ("d", "t", "H_diag", "prev_flat_grad", "prev_loss", "func_evals", "n_iter")


@dataclass(frozen=True)
class Step:
    """Where the search stands after a step.

    Args:
        point: The point.
        value: The objective there.
        gradient_norm: Largest entry of its gradient.
        state: What the search remembers, as arrays by name.

    Example:
        >>> Step(np.zeros(2), 0.5, 0.0, {}).value
        0.5
    """

    point: NDArray[np.float64]
    value: float
    gradient_norm: float
    state: dict[str, NDArray[np.float64]]


def descend_from(
    objective: Objective, start: NDArray[np.float64], state: Mapping[str, NDArray[np.float64]] | None = None
) -> Iterator[Step]:
    """Steps of L-BFGS with a line search of strong Wolfe conditions, without end: whoever asks for steps decides when to stop.

    Args:
        objective: What to minimise.
        start: Where to start.
        state: Of an earlier search that stopped at the start, or none.

    Yields:
        The state after each step.

    Example:
        >>> steps = descend_from(lambda x: (float(((x - 1) ** 2).sum()), 2 * (x - 1)), np.zeros(2))
        >>> [next(steps).value.__round__(6) for _ in range(3)][-1]
        0.0
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
        yield Step(point, value, float(np.abs(gradient).max(initial=0.0)), _stored(search.state[unknown]))


def _stored(state: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    lists = {name: np.stack([np.asarray(each) for each in state[name]]) for name in _LISTS if state.get(name)}
    return lists | {name: np.asarray(state[name], dtype=np.float64) for name in _SINGLES if state.get(name) is not None}


def _restored(state: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: [torch.tensor(each) for each in state.get(name, ())] for name in _LISTS}
    found |= {name: torch.tensor(state[name]) if state[name].ndim else float(state[name]) for name in _SINGLES if name in state}
    return found | {name: int(found[name]) for name in ("func_evals", "n_iter") if name in found}
