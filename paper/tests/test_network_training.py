"""Training follows the recipe, gives the same bits for the same seed, and is done once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mildroute.deep import models
from mildroute.deep._randomness import own_randomness
from mildroute.losses.functional import deferral_loss
from mildroute.losses.rewards import rewards_of
from paper import train as network_training
from paper.folders import Folders
from paper.network_choice import training_data_of
from paper.networks import RECIPES, TrainingRecipe, classifier_of
from paper.objectives import TrainingObjective
from paper.problems import problem_of
from paper.tests.toys import network_cell, small_resnet, write_images
from paper.train import Training, TrainingData, network_scores, scores_of, train_network

SUM = Training("resnet18", TrainingObjective("sum"))


@pytest.fixture(autouse=True)
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "resnet18_32", small_resnet)
    use(monkeypatch, epochs=1, batch_size=32)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(str(write_images(tmp_path)), str(tmp_path / "cache"))


@pytest.fixture
def data(folders: Folders) -> TrainingData:
    return training_data_of(network_cell(), problem_of(network_cell(), folders), folders)


def use(monkeypatch: pytest.MonkeyPatch, **changes: object) -> TrainingRecipe:
    recipe = replace(RECIPES["resnet18"], **changes)  # type: ignore[arg-type]
    monkeypatch.setitem(RECIPES, "resnet18", recipe)
    return recipe


def test_a_tenth_of_the_rows_is_held_out_the_same_for_all(
    data: TrainingData, folders: Folders
) -> None:
    again = training_data_of(network_cell("mild"), problem_of(network_cell(), folders), folders)
    assert (len(data.train), len(data.held_out), len(data.test_inputs)) == (90, 10, 30)
    assert np.array_equal(data.held_out, again.held_out)
    assert set(data.train) | set(data.held_out) == set(range(100))


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    data: TrainingData, folders: Folders, tmp_path: Path
) -> None:
    other = Folders(folders.data, str(tmp_path / "other"))
    first, again, another = (
        network_scores(*each)
        for each in [
            (SUM, data, folders),
            (SUM, data, other),
            (replace(SUM, seed=1), data, other),
        ]
    )
    assert [scores.shape for scores in first] == [(10, 3), (30, 3)]
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[1], another[1])


def test_a_network_is_trained_once(
    data: TrainingData, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Training] = []

    def scores(training: Training, _data: TrainingData) -> np.ndarray:
        trained.append(training)
        return np.zeros((40, 3))

    monkeypatch.setattr(network_training, "_trained_and_scored", scores)
    for remark in ("one", "two"):
        # Remarks do not change the training.
        use(monkeypatch, unstated=remark, offsets=(0.0,))
        network_scores(SUM, data, folders)
    assert trained == [SUM]
    use(monkeypatch, epochs=2)
    network_scores(SUM, data, folders)
    network_scores(SUM, replace(data, test_inputs=data.test_inputs[:-1]), folders)
    network_scores(SUM, replace(data, costs=1 - data.costs), folders)
    assert len(trained) == 4


def test_steps_are_those_of_adam_with_its_own_decay(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = use(monkeypatch, batch_size=90, epochs=2, learning_rate=1e-2, weight_decay=0.5)
    with own_randomness(0):
        ours = classifier_of("resnet18", 3)
    with own_randomness(0):
        theirs = classifier_of("resnet18", 3)
    train_network(ours, SUM, data)
    model = theirs.model.train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    inputs = [data.inputs[row] for row in data.train]
    batch = theirs.reader.batch(network_training._read(theirs, inputs))
    costs = torch.from_numpy(data.costs[data.train]).float()
    for _ in range(2):
        optimizer.zero_grad()
        deferral_loss(model(**batch).logits, rewards_of(costs, "sum"), torch.ones(3)).backward()
        optimizer.step()
    pairs = zip(ours.model.parameters(), model.parameters(), strict=True)
    # The trainer takes the rows in another order, so sums differ by rounding, which Adam enlarges
    # where a gradient is next to nothing.
    apart = torch.cat([(one - two).abs().flatten() for one, two in pairs])
    assert float((apart < recipe.learning_rate / 20).float().mean()) > 0.99


def test_held_out_rows_are_not_trained_on(data: TrainingData) -> None:
    changed = data.costs.copy()
    changed[data.held_out] = 1 - changed[data.held_out]
    scores = []
    for each in (data, replace(data, costs=changed)):
        with own_randomness(0):
            classifier = classifier_of("resnet18", 3)
        train_network(classifier, SUM, each)
        scores.append(scores_of(classifier, data.test_inputs))
    assert np.array_equal(*scores)


def test_a_network_learns_what_an_image_shows(
    data: TrainingData, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, epochs=12)
    reader = classifier_of("resnet18", 2).reader
    pixels = reader.batch(network_training._read(classifier_of("resnet18", 2), data.inputs))
    bright = pixels["pixel_values"].mean(dim=(1, 2, 3)).numpy() > 0
    costs = np.stack([bright, ~bright], axis=1).astype(float)
    held_out, _ = network_scores(SUM, replace(data, costs=costs), folders)
    assert (held_out.argmax(axis=1) == costs[data.held_out].argmin(axis=1)).mean() >= 0.9
