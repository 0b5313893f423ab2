"""Made-up results of linear routers and networks on lines of the paper."""

from __future__ import annotations

import numpy as np

from paper.config import ExperimentConfig, Method
from paper.network_results import NetworkResult
from paper.network_study import StudyCell
from paper.results import Result
from paper.tables import Line
from paper.tests.toys import made_up


def results_on(line: Line, rates: dict[str, float], seeds: int = 2) -> dict[str, Result]:
    cells = {
        (name, seed): ExperimentConfig(line.data, line.experts, line.costs, Method(name), seed)
        for name in rates
        for seed in range(seeds)
    }
    return {
        cell.key: made_up(cell, tuple(float(row < 40 * rates[name]) for row in range(40)))
        for (name, _), cell in cells.items()
    }


def network(
    row: str,
    method: str,
    seed: int,
    paid: list[float],
    *,
    trials: int = 49,
    edges: tuple[str, ...] = ("lowest decay",),
    published: float = 1.0,
) -> NetworkResult:
    return NetworkResult(
        StudyCell("1a", row, seed, method),
        scale=5.0,
        weight_decay=1e-3,
        trials=trials,
        edges=edges,
        loss=float(np.mean(paid)),
        shares=(0.5, 0.5),
        optimal=(0.5, 0.5),
        paid=np.array(paid),
        published_paid=np.full(len(paid), published),
    )
