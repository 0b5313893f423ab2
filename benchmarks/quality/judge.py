"""What the stored cells say.

Means, paired differences with Holm's correction, and the bounds they are held to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from methods import AUTHORS, DEFAULT
from numpy.typing import NDArray
from pairs import Difference, bootstrap_means, difference, holm, per_query
from tasks import Task

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_least, at_most, reported


@dataclass(frozen=True)
class Result:
    """One method on one task.

    Mean cost with its 95% interval, share of the gap closed, recalls and the default's difference
    to it.
    """

    task: str
    method: str
    cost: float
    low: float
    high: float
    closed: float
    worst_recall: float
    against: Difference | None = None
    significant: bool = False


@dataclass
class Verdict:
    """All results, and the sweep: ratio and method to mean regret and mean worst-expert recall."""

    results: list[Result] = field(default_factory=list)
    sweep: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def of(self, method: str) -> dict[str, Result]:
        return {result.task: result for result in self.results if result.method == method}

    def rows(self, *, minutes: float) -> Iterator[Row]:
        """The figures in the language of all benchmarks; a quick run only reports most."""
        rivals = [result for result in self.results if result.method not in (DEFAULT, "oracle")]
        worse = [
            f"{result.method} on {result.task}"
            for result in rivals
            if significantly(result, worse=True)
        ]
        yield at_most(
            "methods and tasks on which the default is significantly worse",
            len(worse),
            0,
            "; ".join(worse),
            full_only=True,
        )
        for name in AUTHORS:
            better = [
                task for task, result in self.of(name).items() if significantly(result, worse=False)
            ]
            yield at_least(
                f"tasks on which the default is significantly better than {name}",
                len(better),
                5,
                "; ".join(better),
                full_only=True,
            )
        better = [
            task for task, result in self.of("kNN").items() if significantly(result, worse=False)
        ]
        yield at_least(
            "tasks on which the default is significantly better than tuned kNN",
            len(better),
            3,
            "; ".join(better),
            full_only=True,
        )
        lost = [
            task
            for task, result in self.of("best single").items()
            if significantly(result, worse=True)
        ]
        yield at_most(
            "tasks on which the default is significantly worse than the best single",
            len(lost),
            0,
            "; ".join(lost),
            full_only=True,
        )
        for task, result in self.of(DEFAULT).items():
            note = f"cost {result.cost:.4f} [{result.low:.4f}, {result.high:.4f}]"
            bound = task.startswith(("1 ", "4 "))
            name = f"share of best single to oracle closed, {task}"
            yield (
                at_least(name, result.closed, 0.15, note, full_only=True)
                if bound
                else reported(name, result.closed, note)
            )
        yield from self._sweep_rows()
        note = "0 where cells were stored already"
        yield at_most("minutes on two cores", minutes, 60, note, full_only=True)

    def _sweep_rows(self) -> Iterator[Row]:
        for ratio in sorted({ratio for ratio, _ in self.sweep}):
            ours, theirs = self.sweep[ratio, DEFAULT], self.sweep[ratio, "TDEF"]
            yield at_most(
                f"exact regret of the default, ratio 1:{ratio}",
                ours[0],
                theirs[0],
                "the limit is TDEF's",
                full_only=True,
            )
            if ratio == 100:
                yield at_least(
                    "worst-expert recall / TDEF's, ratio 1:100",
                    ours[1] / theirs[1],
                    1.2,
                    f"{ours[1]:.3f} and {theirs[1]:.3f}",
                    full_only=True,
                )
        largest = max(regret for (_, name), (regret, _) in self.sweep.items() if name == DEFAULT)
        yield at_most("largest exact regret of the default", largest, 0.01, "at any ratio")


def significantly(result: Result, *, worse: bool) -> bool:
    return result.significant and result.against is not None and (result.against.mean > 0) == worse


def judge(
    tasks: Mapping[str, Task], ratios: Sequence[int], seeds: Sequence[int], folder: Path
) -> Verdict:
    verdict = Verdict()
    for key, task in tasks.items():
        cells = {seed: dict(np.load(folder / f"{key}_{seed}.npz")) for seed in seeds}
        verdict.remarks[task.name] = [str(cell["remark"]) for cell in cells.values()]
        verdict.results += task_results(task, cells)
    p_values = {
        f"{result.task}|{result.method}": result.against.p_value
        for result in verdict.results
        if result.against
    }
    rejected = holm(p_values)
    verdict.results = [
        Result(**{**vars(result), "significant": f"{result.task}|{result.method}" in rejected})
        for result in verdict.results
    ]
    for ratio in ratios:
        found = [dict(np.load(folder / f"10-{ratio}_{seed}.npz")) for seed in seeds]
        for name in found[0]:
            mean = np.mean([cell[name] for cell in found], axis=0)
            verdict.sweep[ratio, name.removeprefix("sweep:")] = (float(mean[0]), float(mean[1]))
    return verdict


def task_results(task: Task, cells: Mapping[int, Mapping[str, NDArray[np.intp]]]) -> list[Result]:
    names = [
        name.removeprefix("choice:")
        for name in next(iter(cells.values()))
        if name.startswith("choice:")
    ]
    paid = {name: query_costs(task, cells, name) for name in names}
    means = {name: float(np.nanmean(values)) for name, values in paid.items()}
    gap = means["best single"] - means["oracle"]
    results = []
    for name in names:
        low, high = np.quantile(bootstrap_means(paid[name][~np.isnan(paid[name])]), [0.025, 0.975])
        against = None if name in (DEFAULT, "oracle") else difference(paid[DEFAULT], paid[name])
        closed = (means["best single"] - means[name]) / gap
        results.append(
            Result(
                task.name,
                name,
                means[name],
                float(low),
                float(high),
                closed,
                lowest_recall(task, cells, name),
                against,
            )
        )
    return results


def query_costs(
    task: Task, cells: Mapping[int, Mapping[str, NDArray[np.intp]]], name: str
) -> NDArray[np.float64]:
    paid = {
        seed: (cell["test"], task.costs[cell["test"], cell[f"choice:{name}"]])
        for seed, cell in cells.items()
    }
    return per_query(paid, len(task.costs))


def lowest_recall(
    task: Task, cells: Mapping[int, Mapping[str, NDArray[np.intp]]], name: str
) -> float:
    """Lowest share, over experts that win alone, of their rows that are sent to them.

    All seeds together.
    """
    test = np.concatenate([cell["test"] for cell in cells.values()])
    choice = np.concatenate([cell[f"choice:{name}"] for cell in cells.values()])
    costs = task.costs[test]
    alone = (costs == costs.min(axis=1, keepdims=True)).sum(axis=1) == 1
    winners = costs.argmin(axis=1)
    shares = [
        (choice[alone & (winners == expert)] == expert).mean()
        for expert in np.unique(winners[alone])
    ]
    return float(min(shares))
