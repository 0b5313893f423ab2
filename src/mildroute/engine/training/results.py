"""What training leaves: a router as any other, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.engine.training.checkpoints import Progress
from mildroute.engine.training.plans import LinearPlan, NetworkPlan
from mildroute.engine.training.shards import Shards
from mildroute.routers.mild import MildRouter

__all__ = ["Trained", "trained"]


@dataclass(frozen=True)
class Trained:
    """The outcome of a run.

    Args:
        router: A fitted :class:`~mildroute.routers.mild.MildRouter`, ready to predict and to be saved.
        objective: Penalised mean loss at the end (linear), or mean held-out cost of the epoch that was kept (network).
        steps: Steps of the search, or epochs.
        passes: Passes over all rows.
        rows: Rows of a pass.
        seconds: Of all passes but the first, which only counts and measures; without starting processes.

    Example:
        >>> Trained.__name__
        'Trained'
    """

    router: MildRouter
    objective: float
    steps: int
    passes: int
    rows: int
    seconds: float


def trained(plan: LinearPlan | NetworkPlan, shards: Shards, progress: Progress) -> Trained:
    """A router from where a run ended.

    Args:
        plan: What was trained.
        shards: On what.
        progress: Where it ended.

    Returns:
        The outcome.

    Example:
        >>> trained.__name__
        'trained'
    """
    linear = isinstance(plan, LinearPlan)
    router = MildRouter(
        reward=plan.reward,
        margins=plan.margins if isinstance(plan.margins, str) else list(plan.margins),
        decision=plan.decision,  # type: ignore[arg-type]
        penalty=plan.penalty if isinstance(plan, LinearPlan) else "cv",
        features="raw",
        hidden=None if isinstance(plan, LinearPlan) else plan.hidden,
    )
    facts = _of_linear(progress) if linear else _of_network(progress)
    for name, value in {**_of_any(plan, shards, progress), **facts}.items():
        setattr(router, name, value)
    figure = float(progress.arrays["value" if linear else "paid"])
    return Trained(router, figure, progress.done, progress.passes, progress.rows, float(progress.arrays["seconds"]))


def _of_any(plan: LinearPlan | NetworkPlan, shards: Shards, progress: Progress) -> dict[str, Any]:
    margins: NDArray[np.float64] = progress.arrays["margins"]
    return {
        "experts_": np.array(shards.experts, dtype=object),
        "n_features_in_": shards.width,
        "n_rows_": progress.rows,
        "data_hash_": "",
        "margins_": margins,
        "reward_": plan.reward,
        "penalty_": float(plan.penalty) if isinstance(plan, LinearPlan) else 0.0,
        "topics_": None,
        "topic_weights_": None,
        "cv_results_": {},
        "validation_": None,
        "_held_out": None,
    }


def _of_linear(progress: Progress) -> dict[str, Any]:
    steps = f"trained on {progress.rows} rows in {progress.done} steps and {progress.passes} passes: as asked"
    return {
        "weights_": progress.arrays["weights"],
        "intercept_": progress.arrays["intercept"],
        "layers_": None,
        "features_": "raw",
        "gradient_norm_": float(progress.arrays["gradient"]),
        "choice_": steps,
    }


def _of_network(progress: Progress) -> dict[str, Any]:
    best = progress.part("best")
    return {
        "weights_": None,
        "intercept_": np.zeros(len(progress.arrays["margins"])),
        "layers_": [best[str(place)] for place in range(len(best))],
        "features_": "network",
        "gradient_norm_": float("nan"),
        "choice_": f"a network trained on {progress.rows} rows for {progress.done} epochs, the best of them kept: as asked",
    }
