"""The comparison with other projects' own code: adapters, pairing and what is left out."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.peers import adapters

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"
# What the driver imports by plain names, which other benchmarks use as well.
PLAIN = ("adapters", "report", "run", "rows", "tasks", "judge", "methods", "pairs", "cells")
# As much of CARROT as its adapter calls.
CARROT = """
from sklearn.neighbors import KNeighborsRegressor

def train_knn(E, Y, ks, task):
    assert task == "regression"
    return KNeighborsRegressor(ks[0], metric="cosine").fit(E, Y)
"""


@pytest.fixture(scope="module")
def run() -> ModuleType:
    """The driver, whose modules are no package and must not stay behind."""
    paths, kept = list(sys.path), {name: sys.modules.pop(name, None) for name in PLAIN}
    sys.path.insert(0, str(PEERS))
    try:
        return importlib.import_module("run")
    finally:
        sys.path[:] = paths
        for name in [name for name in sys.modules if name.split(".")[0] == "quality"]:
            del sys.modules[name]
        for name, module in kept.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def toy_task(run: ModuleType, rows: int = 60) -> object:
    """Two groups of queries, each with an expert of its own, and a price."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, rows)
    vectors = (np.eye(2)[group] + 0.01 * rng.normal(size=(rows, 2))).astype(np.float32)
    prices = np.array([0.1, 0.2])
    return run.Task("1 toy", vectors, 1.0 - np.eye(2)[group] + prices, None, prices)


def test_the_best_pair_is_that_of_a_search_over_all_thresholds() -> None:
    rng = np.random.default_rng(1)
    costs = rng.random((40, 3))
    rates = {pair: rng.integers(0, 6, 40) / 5 for pair in itertools.permutations(range(3), 2)}
    strong, weak, threshold = adapters.best_pair(costs, lambda a, b: rates[a, b])

    def paid(a: int, b: int, limit: float) -> float:
        return float(np.where(rates[a, b] >= limit, costs[:, a], costs[:, b]).mean())

    lowest = min(paid(a, b, limit) for a, b in rates for limit in [*np.unique(rates[a, b]), np.inf])
    assert paid(strong, weak, threshold) == pytest.approx(lowest)


def test_battles_are_pairs_of_experts_with_different_scores() -> None:
    scores = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    split = adapters.Split(
        "2", 0, np.zeros((2, 2), np.float32), 1 - scores, scores, 0 * scores,
        np.arange(2), np.arange(0), Path(),
    )  # fmt: skip
    found = adapters.battles_of(split)
    won = [(each["model_a"], each["model_b"], each["winner"]) for each in found]
    assert won == [(1, 0, "model_b"), (2, 0, "model_b")]


def test_scores_and_prices_of_a_task_add_up_to_its_costs(run: ModuleType) -> None:
    task = toy_task(run)
    scores, prices = run.parts_of(task)
    assert set(np.unique(scores)) == {0.0, 1.0}
    np.testing.assert_allclose(1 - scores + prices, task.costs, atol=1e-12)


def test_a_method_runs_in_a_process_and_its_choices_are_judged_beside_ours(
    run: ModuleType, tmp_path: Path
) -> None:
    clone = tmp_path / "clones" / "CARROT" / "carrot"
    clone.mkdir(parents=True)
    (clone / "train_and_infer.py").write_text(CARROT)
    task = toy_task(run)
    run.write_inputs(tmp_path, "1", task, [7, 8])
    run.run_method("carrot", tmp_path, tmp_path / "clones", Path(sys.executable), ["1"], [7])
    theirs = {"carrot": run.stored_cells("carrot", tmp_path)}
    assert list(theirs["carrot"]) == [("1", 7)]
    own = {("1", seed): run.fitted_cell(task, seed) for seed in (7, 8)}
    found = run.judged({"1": task}, own, theirs)
    last = found[-1]
    assert (last.result.method, last.seeds, last.rows) == ("CARROT, kNN", 1, 12)
    chosen = own["1", 7]["test"]
    assert last.result.cost == pytest.approx(task.costs[chosen].min(axis=1).mean())
    assert [each.seeds for each in found[:-1]] == [2] * len(run.OURS)


def test_cells_of_another_split_are_refused(run: ModuleType, tmp_path: Path) -> None:
    task = toy_task(run)
    own = {("1", 7): run.fitted_cell(task, 7)}
    cell = {"test": own["1", 7]["test"][::-1], "choice": own["1", 7]["choice:kNN"]}
    with pytest.raises(ValueError, match=r"must be those of its split.*carrot on task 1 at seed 7"):
        run.judged({"1": task}, own, {"carrot": {("1", 7): cell}})


def test_methods_without_their_project_are_left_out(run: ModuleType, tmp_path: Path) -> None:
    method = adapters.METHODS["irt"]
    assert run.version_of(method, None, Path(sys.executable)) == ""
    assert run.version_of(method, tmp_path, Path(sys.executable)) == ""


def test_every_clone_has_an_address_and_a_commit() -> None:
    lines = [line.split() for line in (PEERS / "sources.txt").read_text().splitlines()]
    assert all(address.startswith("https://") and len(commit) == 40 for _, address, commit in lines)
    clones = {
        each.source for each in adapters.METHODS.values() if not each.source.startswith("pip:")
    }
    assert {name for name, _, _ in lines} == clones
