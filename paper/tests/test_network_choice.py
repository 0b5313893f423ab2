"""Choices of networks: tuning, decoding, and the inputs of the paper's networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mildroute.deep import models
from mildroute.exceptions import ArgumentError
from paper import data as inputs, network_choice, networks
from paper.config import Data, Experts
from paper.data import raw_inputs
from paper.folders import Folders
from paper.networks import RECIPES
from paper.objectives import NETWORK_METHODS, target_for
from paper.problems import problem_of
from paper.run import run_cell
from paper.tests.toys import network_cell, small_resnet, write_answers, write_images
from paper.train import Training, TrainingData


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setattr(
        inputs, "frozen_vectors", lambda *_arguments: pytest.fail("a network needs no vectors")
    )
    return Folders(str(write_images(tmp_path)), str(tmp_path / "cache"))


@pytest.fixture
def made_up_scores(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """Scores by which an offset of 5 chooses the best expert of each held-out row."""
    trainings: list[Training] = []

    def scores(
        training: Training, data: TrainingData, _folders: Folders
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        trainings.append(training)
        drawn = np.random.default_rng(1).normal(size=(len(data.test_inputs), 3))
        best = -10 * data.costs[data.held_out]
        return (best if training.objective.offset == 5 else -best), drawn

    monkeypatch.setattr(network_choice, "network_scores", scores)
    return trainings


def chosen(method: str, folders: Folders) -> tuple[Any, str]:
    cell = network_cell(method)
    return network_choice.choose_by_network(cell, problem_of(cell, folders), folders)


def test_mild_takes_the_largest_score_and_decoded_mild_the_largest_posterior(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    printed, decoded = (chosen(name, folders)[0] for name in ("mild", "mild-decoded"))
    scores = np.random.default_rng(1).normal(size=(30, 3))
    margins = np.array(
        target_for(
            NETWORK_METHODS["mild"].objective, problem_of(network_cell(), folders).costs
        ).deferral.margins
    )
    assert made_up_scores[0] == made_up_scores[1]
    assert np.array_equal(printed, scores.argmax(axis=1))
    for row, choice in zip(scores, decoded, strict=True):
        # The stationary distribution of the matrix of softmaxes, by its powers; times the margins
        # it is the posterior.
        moves = np.exp((row[None, :] - row.max()) / margins[:, None])
        moves /= moves.sum(axis=1, keepdims=True)
        assert choice == (np.linalg.matrix_power(moves, 10_000)[0] * margins).argmax()
    assert (printed != decoded).any()


def test_tuning_takes_the_offset_that_pays_least_on_held_out_rows(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    assert chosen("mild-mass-tuned", folders)[1] == "resnet18, 200 epochs; offset 5"
    assert [training.objective.offset for training in made_up_scores] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "method", ["tdef", "mild-mass-tuned", "mild-decoded", "weighted-ce", "ldam"]
)
def test_a_method_runs_on_raw_images_and_pays_between_oracle_and_the_worst(
    method: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "resnet18_32", small_resnet)
    recipe = replace(RECIPES["resnet18"], epochs=1, batch_size=32, offsets=(0.0, 5.0))
    monkeypatch.setitem(RECIPES, "resnet18", recipe)
    threads = torch.get_num_threads()
    found = run_cell(network_cell(method), folders)
    assert found.oracle <= found.loss <= 1
    assert found.loss == pytest.approx(np.mean(found.paid))
    assert '"transformers"' in found.versions
    assert torch.get_num_threads() == threads


def test_the_papers_text_network_reads_a_collected_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deep.networks import tiny_deberta

    monkeypatch.setattr(networks, "_DEBERTA", tiny_deberta())
    monkeypatch.setattr(networks, "_TOKENS", 24)
    monkeypatch.setitem(
        RECIPES, "deberta", replace(RECIPES["deberta"], learning_rate=3e-3, batch_size=8, epochs=6)
    )
    folders = Folders(str(write_answers(tmp_path)), str(tmp_path / "cache"))
    found = run_cell(network_cell(name="mmlu_qwen", network="deberta"), folders)
    assert found.best_single == pytest.approx(0.5, abs=0.2)
    assert found.loss < 0.2


def test_answers_that_nobody_has_published_come_with_the_command_that_collects_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(ArgumentError, match=r"Qwen2.5-0.5B-Instruct on MMLU.*`mildroute collect`"):
        run_cell(
            network_cell(name="mmlu_qwen", network="deberta"), Folders(str(tmp_path), str(tmp_path))
        )


def test_raw_and_frozen_cells_meet_the_same_rows_experts_and_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        inputs, "frozen_vectors", lambda *_arguments: np.random.default_rng(0).normal(size=(130, 8))
    )
    folders = Folders(str(write_images(tmp_path)), str(tmp_path / "cache"))
    raw = replace(network_cell(seed=3), experts=Experts("real", (0.7, 0.3)))
    network, linear = (
        problem_of(each, folders) for each in (raw, replace(raw, data=Data("cifar10")))
    )
    assert network.vectors.shape == (50, 0)
    for name in ("costs", "test_costs", "rows", "test_rows"):
        assert np.array_equal(getattr(network, name), getattr(linear, name))
    assert raw_inputs("cifar10", network.rows[:1], folders)[0].startswith(b"\x89PNG")


def test_networks_and_methods_that_do_not_exist_are_refused(folders: Folders) -> None:
    with pytest.raises(ArgumentError, match="resnet18, deberta, got 'vgg'"):
        run_cell(network_cell(network="vgg"), folders)
    with pytest.raises(ArgumentError, match="got 'mildroute'"):
        run_cell(network_cell("mildroute"), folders)
    with pytest.raises(ArgumentError, match="toy data has vectors alone"):
        run_cell(replace(network_cell(), data=Data("toy", features="raw")), folders)
