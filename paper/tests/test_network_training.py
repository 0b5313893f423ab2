"""A training is that of its recipe, the same to the bit from the same seed, and done once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mildroute.deep._randomness import own_randomness
from mildroute.losses.functional import deferral_loss
from mildroute.losses.rewards import rewards_of
from paper import train as network_training
from paper.folders import Folders
from paper.network_choice import material_of
from paper.networks import RECIPES, TrainingRecipe, classifier_of
from paper.objectives import TrainingObjective
from paper.problems import problem_of
from paper.tests.toys import network_cell, write_images
from paper.train import Training, TrainingData, network_scores, scores_of, train_network

GAP = Training("resnet-small", TrainingObjective("gap"))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(str(write_images(tmp_path)), str(tmp_path / "cache"))


@pytest.fixture
def material(folders: Folders) -> TrainingData:
    return material_of(network_cell(), problem_of(network_cell(), folders), folders)


def use(monkeypatch: pytest.MonkeyPatch, **changes: object) -> TrainingRecipe:
    recipe = replace(RECIPES["resnet-small"], **changes)  # type: ignore[arg-type]
    monkeypatch.setitem(RECIPES, "resnet-small", recipe)
    return recipe


def test_a_tenth_of_the_rows_is_held_out_the_same_for_all(
    material: TrainingData, folders: Folders
) -> None:
    again = material_of(network_cell("mildroute"), problem_of(network_cell(), folders), folders)
    assert (len(material.train), len(material.held_out), len(material.test_inputs)) == (90, 10, 30)
    assert np.array_equal(material.held_out, again.held_out)
    assert set(material.train) | set(material.held_out) == set(range(100))


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    material: TrainingData, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, epochs=1)
    other = Folders(folders.data, str(tmp_path / "other"))
    first, again, another = (
        network_scores(*each)
        for each in [
            (GAP, material, folders),
            (GAP, material, other),
            (replace(GAP, seed=1), material, other),
        ]
    )
    assert [scores.shape for scores in first] == [(10, 3), (30, 3)]
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[1], another[1])


def test_a_network_is_trained_once(
    material: TrainingData, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Training] = []

    def scores(training: Training, _material: TrainingData) -> np.ndarray:
        trained.append(training)
        return np.zeros((40, 3))

    monkeypatch.setattr(network_training, "_trained_and_scored", scores)
    for words in ("one", "two"):
        # Words change nothing that a network learns from.
        use(monkeypatch, unstated=words, offsets=(0.0,))
        network_scores(GAP, material, folders)
    assert trained == [GAP]
    use(monkeypatch, epochs=1)
    network_scores(GAP, material, folders)
    network_scores(GAP, replace(material, test_inputs=material.test_inputs[:-1]), folders)
    network_scores(GAP, replace(material, costs=1 - material.costs), folders)
    assert len(trained) == 4


@pytest.mark.parametrize("schedule", ["constant", "falling"])
def test_steps_are_those_of_adam_with_its_own_decay(
    material: TrainingData, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = use(
        monkeypatch,
        schedule=schedule,
        keep="last",
        batch_size=90,
        epochs=2,
        learning_rate=1e-2,
        weight_decay=0.5,
    )
    with own_randomness(0):
        ours = classifier_of("resnet-small", 3)
    with own_randomness(0):
        theirs = classifier_of("resnet-small", 3)
    train_network(ours, GAP, material)
    model = theirs.model.train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    inputs = [material.inputs[row] for row in material.train]
    batch = theirs.reader.batch(network_training._read(theirs, inputs, np.arange(len(inputs))))
    costs = torch.from_numpy(material.costs[material.train]).float()
    for share in (1.0, 1.0 if schedule == "constant" else 0.5):
        optimizer.param_groups[0]["lr"] = share * recipe.learning_rate
        optimizer.zero_grad()
        deferral_loss(model(**batch).logits, rewards_of(costs, "gap"), torch.ones(3)).backward()
        optimizer.step()
    pairs = zip(ours.model.parameters(), model.parameters(), strict=True)
    # The trainer takes the rows in another order, so sums differ by rounding, which Adam enlarges
    # where a gradient is next to nothing.
    apart = torch.cat([(one - two).abs().flatten() for one, two in pairs])
    assert float((apart < recipe.learning_rate / 20).float().mean()) > 0.99


def test_held_out_rows_teach_nothing(
    material: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, keep="last", epochs=1)
    changed = material.costs.copy()
    changed[material.held_out] = 1 - changed[material.held_out]
    found = []
    for each in (material, replace(material, costs=changed)):
        with own_randomness(0):
            classifier = classifier_of("resnet-small", 3)
        train_network(classifier, GAP, each)
        found.append(scores_of(classifier, material.test_inputs))
    assert np.array_equal(*found)


def test_training_ends_after_the_steps_that_were_asked_for(material: TrainingData) -> None:
    classifier = classifier_of("resnet-small", 3)
    # 90 rows in batches of 32 make three steps an epoch.
    assert train_network(
        classifier, replace(GAP, steps=1), replace(material, held_out=material.held_out[:0])
    ) == pytest.approx(1 / 4)


def test_a_network_learns_what_an_image_shows(
    material: TrainingData, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, epochs=12)
    bright = np.array(
        [
            network_training._read(classifier_of("resnet-small", 2), [each], np.arange(1))[0][
                "pixels"
            ].mean()
            > 0
            for each in material.inputs
        ]
    )
    costs = np.stack([bright, ~bright], axis=1).astype(float)
    held_out, _ = network_scores(GAP, replace(material, costs=costs), folders)
    assert (held_out.argmax(axis=1) == costs[material.held_out].argmin(axis=1)).mean() >= 0.9
