"""Paired differences per query, bootstrap intervals and Holm's correction."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_most
from tasks import Task

RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """Mean over queries of (default - other), its 95% interval and p-value.

    Below 0 the default is better.
    """

    mean: float
    low: float
    high: float
    p_value: float


def per_query(
    paid: Mapping[int, tuple[NDArray[np.intp], NDArray[np.float64]]], rows: int
) -> NDArray[np.float64]:
    """Mean over the seeds that tested a query, NaN where none did.

    ``paid`` maps a seed to test rows and their costs.
    """
    total, count = np.zeros(rows), np.zeros(rows)
    for test, costs in paid.values():
        total[test] += costs
        count[test] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def query_costs(
    task: Task, choices: list[tuple[NDArray[Any], NDArray[Any]]]
) -> NDArray[np.float64]:
    """Mean cost of each query; ``choices`` are test rows and experts, a pair a seed."""
    return per_query(
        {seed: (test, task.costs[test, choice]) for seed, (test, choice) in enumerate(choices)},
        len(task.costs),
    )


def oracle_row(excess: float) -> Row:
    """Nothing costs less than the oracle, if rows and costs belong together."""
    return at_most("deferral loss of the oracle minus the lowest other", excess, 1e-9)


def gap_columns(gap: Difference | None, other: str) -> dict[str, float | None]:
    """A difference as columns of a stored table."""
    return {
        f"minus_{other}": gap.mean if gap else None,
        "difference_low": gap.low if gap else None,
        "difference_high": gap.high if gap else None,
        "p_value": gap.p_value if gap else None,
    }


def bootstrap_means(values: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    rows = len(values)
    return np.concatenate(
        [
            values[rng.integers(0, rows, size=(100, rows))].mean(axis=1)
            for _ in range(RESAMPLES // 100)
        ]
    )


def difference(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Difference:
    gaps = (ours - theirs)[~np.isnan(ours)]
    if not gaps.any():
        return Difference(0.0, 0.0, 0.0, 1.0)
    means = bootstrap_means(gaps)
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(
        float(gaps.mean()),
        float(low),
        float(high),
        float(2 * norm.sf(abs(gaps.mean()) / means.std())),
    )


def holm(p_values: Mapping[str, float], level: float = 0.05) -> set[str]:
    """Names of the hypotheses that Holm's step-down procedure rejects."""
    rejected: set[str] = set()
    for step, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > level / (len(p_values) - step):
            break
        rejected.add(name)
    return rejected
