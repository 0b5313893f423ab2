"""A cell gives the same bits wherever it runs, and nothing is computed twice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mildroute.exceptions import ArgumentError
from paper import run
from paper.config import Data, ExperimentConfig, Experts, Method
from paper.folders import Folders
from paper.problems import problem_of
from paper.results import Result, Store
from paper.routers import METHODS, router_of
from paper.run import expected_seconds, missing_cells, run_cell, run_cells
from paper.tests.toys import made_up, toy_cell, toy_cells


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILDROUTE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_runs_and_pays_between_oracle_and_the_worst(method: str) -> None:
    found = run_cell(toy_cell(method))
    assert found.oracle <= found.loss <= 1
    assert found.loss == pytest.approx(np.mean(found.paid))
    assert sum(found.shares) == pytest.approx(1)
    assert sum(found.optimal) == pytest.approx(1)
    assert found.note


@pytest.mark.parametrize("cell", toy_cells(4), ids=lambda cell: cell.key[:6])
def test_a_cell_gives_the_same_bits_again_whatever_the_threads(cell: ExperimentConfig) -> None:
    with threadpool_limits(limits=2):
        first = run_cell(cell)
    assert first == run_cell(cell)


def test_the_best_single_expert_is_chosen_on_training_rows() -> None:
    found = run_cell(ExperimentConfig(Data("toy"), Experts("synthetic", (0.9, 0.1))))
    assert found.best_single == pytest.approx(0.09, abs=0.06)


def test_one_process_and_a_pool_give_the_same_bits(tmp_path: Path) -> None:
    cells = toy_cells(6)
    stores = [Store(tmp_path / name) for name in ("one", "pool")]
    assert [
        run_cells(cells, store, workers=workers)
        for store, workers in zip(stores, (1, 2), strict=True)
    ] == [6, 6]
    assert stores[0].read() == stores[1].read()


def test_a_rerun_computes_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cells = Store(tmp_path), toy_cells(4)
    run_cells(cells[:3], store)
    ran: list[ExperimentConfig] = []
    monkeypatch.setattr(
        run, "run_cell", lambda cell, folders: ran.append(cell) or run_cell(cell, folders)
    )  # type: ignore[func-returns-value]
    assert run_cells([*cells, cells[3]], store) == 1
    assert ran == [cells[3]]
    assert missing_cells(cells, store) == []


def test_what_was_found_before_an_error_is_kept(tmp_path: Path) -> None:
    store, bad = Store(tmp_path), toy_cell("no such method")
    with pytest.raises(ArgumentError, match="no such method"):
        run_cells([toy_cell(), bad, toy_cell(seed=1)], store)
    assert store.keys() == {toy_cell().key}


def test_an_error_in_a_worker_is_the_error_itself(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no such method"):
        run_cells([toy_cell("no such method"), toy_cell()], Store(tmp_path), workers=2)


def test_progress_counts_up_to_the_number_of_missing_cells(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run_cells(
        toy_cells(3),
        Store(tmp_path),
        progress=lambda done, total, _word: told.append((done, total)),
    )
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_result_is_written_at_once(tmp_path: Path, workers: int) -> None:
    store, seen = Store(tmp_path), []
    run_cells(
        toy_cells(3),
        store,
        workers=workers,
        progress=lambda _done, _total, _word: seen.append(len(store.keys())),
    )
    assert seen == [0, 1, 2, 3]


def test_tables_of_answers_come_before_the_images_whose_vectors_take_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = Experts("synthetic", (0.7, 0.3))
    images = [ExperimentConfig(Data(name), experts) for name in ("svhn", "cifar10", "svhn")]
    pixels = ExperimentConfig(
        Data("cifar10", features="raw"), experts, method=Method("tdef", "resnet18")
    )
    events: list[str] = []

    def labeled(data: Data, *_: object) -> None:
        events.append(f"vectors of {data.name}")

    def pretend(cell: ExperimentConfig, _: Folders) -> Result:
        events.append(f"{cell.data.name} {cell.method.network}".strip())
        return made_up(cell)

    monkeypatch.setattr(run, "labeled_of", labeled)
    monkeypatch.setattr(run, "run_cell", pretend)
    run_cells([pixels, *images, toy_cell()], Store(tmp_path))
    assert events == [
        *("toy", "vectors of cifar10", "cifar10"),
        *("vectors of svhn", "svhn", "cifar10 resnet18"),
    ]


def test_the_time_of_a_cell_is_that_of_its_method_on_its_data_or_elsewhere() -> None:
    done = [
        replace(made_up(toy_cell(seed=seed)), seconds=seconds) for seed, seconds in ((0, 2), (1, 4))
    ]
    other = replace(toy_cell(), data=Data("cifar10"))
    assert expected_seconds([toy_cell(seed=2)], done) == (3, 0)
    assert expected_seconds([other, toy_cell("mild")], done) == (3, 1)


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_must_be_positive(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        run_cells([], Store(tmp_path), workers=workers)


def test_folders_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILDROUTE_DATA", "data")
    assert Folders.from_environment() == Folders("data", os.environ["MILDROUTE_CACHE"])


def test_margins_and_decisions_are_those_of_their_names() -> None:
    def settings(name: str) -> dict[str, Any]:
        return dict(router_of(name, 7).get_params())

    assert settings("mildroute")["features"] == "cv"
    for name, margins in (("mild", "winner_counts"), ("mild-mass", "theory")):
        assert settings(name)["margins"] == settings(f"{name}-tuned")["margins"] == margins
        assert settings(name)["offsets"] is None
        assert settings(f"{name}-tuned")["offsets"] == "search"
    assert settings("mild-mass-tuned-each")["offsets"] == "per_expert"
    plain = set(METHODS) - {"mild-decoded"}
    assert {settings(name)["random_state"] for name in plain} == {7}


def test_decoded_mild_has_the_scores_of_mild_and_the_posterior_decides() -> None:
    problem = problem_of(toy_cell(), Folders.from_environment())
    mild, decoded = (
        router_of(name, 0).fit(problem.vectors, problem.costs) for name in ("mild", "mild-decoded")
    )
    assert np.array_equal(mild.weights_, decoded.router.weights_)
    margins, scores = mild.margins_, mild.decision_function(problem.test_vectors)
    for row, choice in zip(scores[:20], decoded.predict(problem.test_vectors[:20]), strict=True):
        # The stationary distribution of the matrix of softmaxes, by its powers; times the margins
        # it is the posterior.
        moves = np.exp((row[None, :] - row.max()) / margins[:, None])
        moves /= moves.sum(axis=1, keepdims=True)
        assert choice == (np.linalg.matrix_power(moves, 10_000)[0] * margins).argmax()
    assert (decoded.predict(problem.test_vectors) != mild.predict(problem.test_vectors)).any()
