"""Rows, experts and costs of a cell are what the paper says, and do not depend on the method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.exceptions import ArgumentError
from paper.config import Costs, Data, ExperimentConfig, Experts, Method
from paper.data import labeled_of
from paper.experts import Pool, owner_of_class, real_predictions, synthetic_predictions
from paper.folders import Folders, cached_array
from paper.problems import FOLDS, noisy, problem_of
from paper.tests.toys import toy_cell

NOWHERE = Folders("", "")


@pytest.mark.parametrize(
    ("classes", "coverage", "counts"),
    [
        (10, (0.7, 0.2, 0.1), [7, 2, 1]),
        (100, (0.5, 0.2, 0.2, 0.1), [50, 20, 20, 10]),
        (200, (0.4, 0.2, 0.2, 0.1, 0.1), [80, 40, 40, 20, 20]),
        (10, (0.9, 0.1), [9, 1]),
    ],
)
def test_classes_are_divided_in_order_by_coverage(
    classes: int, coverage: tuple[float, ...], counts: list[int]
) -> None:
    owner = owner_of_class(classes, coverage)
    assert np.bincount(owner).tolist() == counts
    assert (np.diff(owner) >= 0).all()


def test_synthetic_experts_know_their_classes_and_guess_uniformly_elsewhere() -> None:
    labels = np.repeat(np.arange(10), 2000)
    predictions = synthetic_predictions(labels, (0.7, 0.3), seed=0)
    own = labels < 7
    assert (predictions[own, 0] == labels[own]).all()
    guesses = np.bincount(predictions[~own, 0], minlength=10) / (~own).sum()
    # 6,000 guesses: a share has a standard error of .004.
    assert np.abs(guesses - 0.1).max() < 0.02


def test_real_experts_are_better_on_their_own_classes_and_the_same_from_the_cache(
    tmp_path: Path,
) -> None:
    toy, folders = labeled_of(Data("toy"), NOWHERE), Folders("", str(tmp_path))
    pool = Pool(np.flatnonzero(toy.is_train), (0.7, 0.3), seed=0)
    first, second = (real_predictions(toy, pool, folders) for _ in range(2))
    assert (first == second).all()
    own = (toy.labels < 7)[~toy.is_train]
    right = (first == toy.labels[:, None])[~toy.is_train]
    assert right[own, 0].mean() > 0.8 > 0.3 > right[~own, 0].mean()
    assert right[~own, 1].mean() > 0.8 > 0.3 > right[own, 1].mean()


def test_real_experts_and_the_router_learn_from_different_rows(tmp_path: Path) -> None:
    cell = ExperimentConfig(Data("toy"), Experts("real", (0.7, 0.3)))
    assert len(problem_of(cell, Folders("", str(tmp_path))).rows) == 200
    assert (
        len(problem_of(replace(cell, experts=Experts("synthetic", (0.7, 0.3))), NOWHERE).rows)
        == 400
    )


def test_all_methods_of_a_seed_meet_the_same_problem() -> None:
    one, two = (problem_of(toy_cell(method, 3), NOWHERE) for method in ("tdef", "mildroute"))
    for name in ("vectors", "costs", "test_vectors", "test_costs", "rows", "test_rows"):
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_seeds_differ_in_training_rows_and_guesses_but_not_in_test_rows() -> None:
    one, two = (problem_of(toy_cell(seed=seed), NOWHERE) for seed in (0, 1))
    assert not np.array_equal(one.rows, two.rows)
    assert not np.array_equal(one.test_costs, two.test_costs)
    assert np.array_equal(one.test_rows, two.test_rows)


def test_noise_touches_the_training_costs_alone_and_none_falls_below_zero() -> None:
    clean, loud = (
        problem_of(toy_cell(costs=Costs((0.7, 0.2, 0.1), noise)), NOWHERE) for noise in (0.0, 0.2)
    )
    assert np.array_equal(clean.test_costs, loud.test_costs)
    assert (loud.costs >= 0).all()
    added = (loud.costs - clean.costs)[clean.costs > 1]  # far enough from 0 that hardly any is cut
    assert added.std() == pytest.approx(0.2 * 1.7, rel=0.15)


def test_noise_of_nothing_changes_nothing() -> None:
    costs = np.array([[0.5, 1.0]])
    assert noisy(costs, 0.0, seed=0) is costs


@pytest.fixture
def answers(tmp_path: Path) -> Folders:
    """A table of 103 answered questions in two groups, with vectors."""
    random = np.random.default_rng(0)
    columns = {f"score:{name}": random.integers(2, size=103).astype(float) for name in ("a", "b")}
    pq.write_table(
        pa.table({"group": ["x"] * 60 + ["y"] * 43, **columns}), tmp_path / "mmlu57.parquet"
    )
    np.save(tmp_path / "mmlu57.minilm.npy", random.normal(size=(103, 4)).astype(np.float16))
    return Folders(str(tmp_path), str(tmp_path / "cache"))


def test_five_seeds_test_on_every_row_of_a_table_once(answers: Folders) -> None:
    cell = ExperimentConfig(Data("mmlu57"), Experts("table", names=("a", "b")), Costs((1.0, 0.1)))
    problems = [problem_of(replace(cell, seed=seed), answers) for seed in range(FOLDS)]
    assert sorted(row for each in problems for row in each.test_rows) == list(range(103))
    for each in problems:
        assert not set(each.rows) & set(each.test_rows)
    assert not np.array_equal(
        problem_of(replace(cell, seed=FOLDS), answers).test_rows, problems[0].test_rows
    )


def test_costs_of_a_table_are_errors_plus_fees_of_the_named_experts_and_groups(
    answers: Folders,
) -> None:
    cell = ExperimentConfig(
        Data("mmlu57", ("y",)), Experts("table", names=("b", "a")), Costs((1.0, 0.25))
    )
    problem = problem_of(cell, answers)
    table = pq.read_table(answers.file("mmlu57.parquet"))
    expected = (
        1
        - np.stack([table["score:b"].to_numpy(), table["score:a"].to_numpy()], axis=1)
        + [1.0, 0.25]
    )
    assert problem.test_rows.min() >= 60
    assert np.array_equal(problem.test_costs, expected[problem.test_rows])


def test_missing_data_is_named_with_the_way_out() -> None:
    with pytest.raises(ArgumentError, match="set MILDROUTE_DATA"):
        problem_of(
            ExperimentConfig(
                Data("cifar10"), Experts("synthetic", (0.7, 0.3)), Costs(), Method("tdef")
            ),
            NOWHERE,
        )


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ArgumentError, match="got 'imagenet'"):
        problem_of(ExperimentConfig(Data("imagenet"), Experts("synthetic", (0.7, 0.3))), NOWHERE)


def test_the_cache_makes_once_and_leaves_no_half_files(tmp_path: Path) -> None:
    calls = []
    folders = Folders("", str(tmp_path))
    for _ in range(2):
        cached_array(folders, "name", lambda: calls.append(1) or np.arange(3))  # type: ignore[func-returns-value]
    assert len(calls) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["name.npy"]
