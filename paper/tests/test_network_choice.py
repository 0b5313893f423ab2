"""From scores of a network to choices.

Who shares a network, who takes the best of several, and who decodes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from paper import data as inputs, network_choice, networks
from paper.config import Costs, Data, Experts
from paper.data import raw_inputs
from paper.folders import Folders
from paper.networks import RECIPES
from paper.objectives import NETWORK_METHODS, target_for
from paper.problems import problem_of
from paper.results import Store
from paper.run import run_cell, run_cells
from paper.tests.toys import network_cell, write_answers, write_images
from paper.train import Training, TrainingData

FEES = (0.3, 0.2, 0.1)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setattr(
        inputs, "frozen_vectors", lambda *_given: pytest.fail("a network needs no vectors")
    )
    return Folders(str(write_images(tmp_path)), str(tmp_path / "cache"))


@pytest.fixture
def made_up_scores(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """Scores that depend on the aim alone.

    With an offset, or with margins of 5, the held-out rows get their best experts.
    """
    asked: list[Training] = []

    def scores(
        training: Training, material: TrainingData, _folders: Folders
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked.append(training)
        drawn = np.random.default_rng(1).normal(size=(len(material.test_inputs), 3))
        best = -10 * material.costs[material.held_out]
        return (best if 5 in (training.aim.offset, training.aim.scale) else -best), drawn

    monkeypatch.setattr(network_choice, "network_scores", scores)
    return asked


def chosen(method: str, folders: Folders, fees: tuple[float, ...] = ()) -> tuple[Any, str]:
    cell = replace(network_cell(method), costs=Costs(fees))
    return network_choice.choose_by_network(cell, problem_of(cell, folders), folders)


def test_printed_mild_takes_the_largest_score_and_decoded_mild_the_largest_posterior(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    printed, decoded = (chosen(name, folders)[0] for name in ("mild", "mild-decoded"))
    scores = np.random.default_rng(1).normal(size=(30, 3))
    margins = np.array(
        target_for(
            NETWORK_METHODS["mild"].aim, problem_of(network_cell(), folders).costs
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
    assert chosen("mild-tuned", folders)[1] == "resnet-small, 5 epochs; offset 5"
    assert [training.aim.offset for training in made_up_scores] == [0, 5]


def test_the_consistent_method_fits_a_temperature(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    assert "temperature" in chosen("mild-consistent", folders)[1]
    assert [training.aim.reward for training in made_up_scores] == ["sum"]


def test_our_default_takes_the_reward_and_margins_that_pay_least_on_held_out_rows(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    # With fees no two rewards say the same.
    choice, note = chosen("mildroute", folders, FEES)
    assert note.startswith(
        "resnet-small, 5 epochs; sum reward, margins of 5: of 3 objectives the lowest cost on 10"
        " held-out rows, "
    )
    assert [(training.aim.reward, training.aim.scale) for training in made_up_scores] == [
        ("gap", 1),
        ("complement", 1),
        ("sum", 5),
    ]
    assert np.array_equal(choice, np.random.default_rng(1).normal(size=(30, 3)).argmax(axis=1))


def test_our_default_has_tdef_and_its_network_among_its_objectives(
    folders: Folders, made_up_scores: list[Training]
) -> None:
    chosen("mildroute", folders, FEES)
    chosen("tdef", folders, FEES)
    assert made_up_scores[-1] in made_up_scores[:-1]


@pytest.mark.parametrize(
    "method", ["tdef", "mild-tuned", "mild-consistent", "mildroute", "weighted-ce", "ldam"]
)
def test_a_method_runs_on_raw_images_and_pays_between_oracle_and_the_worst(
    method: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "resnet-small", replace(RECIPES["resnet-small"], epochs=1))
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
        inputs, "frozen_vectors", lambda *_given: np.random.default_rng(0).normal(size=(130, 8))
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
    with pytest.raises(ArgumentError, match="resnet18, deberta, resnet-small, got 'vgg'"):
        run_cell(network_cell(network="vgg"), folders)
    with pytest.raises(ArgumentError, match="got 'mildroute-raw'"):
        run_cell(network_cell("mildroute-raw"), folders)
    with pytest.raises(ArgumentError, match="toy data has vectors alone"):
        run_cell(replace(network_cell(), data=Data("toy", features="raw")), folders)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::FutureWarning",
)
def test_one_process_and_two_train_the_same_network_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILDROUTE_DATA", str(write_images(tmp_path)))
    cells, stores = (
        [network_cell("mild"), network_cell("mildroute", seed=1)],
        [Store(tmp_path / name) for name in ("one", "two")],
    )
    for store, workers in zip(stores, (1, 2), strict=True):
        # A cache of its own, or the second run would read what the first has trained.
        monkeypatch.setenv("MILDROUTE_CACHE", str(tmp_path / f"cache-{workers}"))
        run_cells(cells, store, workers=workers)
    # MILD trains one network. The default tries two rewards: for costs of 0 and 1 the gap is the
    # complement.
    assert len(list((tmp_path / "cache-2").glob("network-*.npy"))) == 3
    assert stores[0].read() == stores[1].read()
