"""Recipes are the paper's where they are called so, and networks read small images whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.deep import models
from mildroute.deep.models import load_classifier
from mildroute.encoders.image_inputs import as_images
from mildroute.exceptions import ArgumentError
from paper.networks import RECIPES, TrainingRecipe, classifier_of, recipe_of
from paper.tests.toys import encoded


def settings(recipe: TrainingRecipe) -> tuple[object, ...]:
    return (
        recipe.optimizer,
        recipe.learning_rate,
        recipe.weight_decay,
        recipe.batch_size,
        recipe.epochs,
        recipe.schedule,
        recipe.keep,
    )


def test_the_papers_recipes_are_as_printed() -> None:
    assert settings(RECIPES["resnet18"]) == ("Adam", 1e-3, 1e-3, 1024, 200, "constant", "last")
    assert settings(RECIPES["deberta"]) == ("AdamW", 5e-5, 0.01, 32, 5, "constant", "last")
    assert RECIPES["resnet18"].offsets == RECIPES["deberta"].offsets == (0, 1, 2, 3, 4, 5)


def test_the_small_recipe_does_not_change_under_its_name() -> None:
    """Results are stored under it."""
    assert settings(RECIPES["resnet-small"]) == ("Adam", 1e-3, 1e-3, 32, 5, "falling", "loss")
    assert RECIPES["resnet-small"].offsets == (0, 5)
    model = classifier_of("resnet-small", 3).model
    named = model.named_parameters()
    assert [tuple(weights.shape) for name, weights in named if "convolution.weight" in name] == [
        (8, 3, 3, 3),
        (16, 8, 1, 1), (16, 8, 3, 3), (16, 16, 3, 3),
        (32, 16, 1, 1), (32, 16, 3, 3), (32, 32, 3, 3),
        (64, 32, 1, 1), (64, 32, 3, 3), (64, 64, 3, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("network", "weights"), [("resnet18", 11_170_371), ("resnet-small", 76_363)]
)
def test_a_network_has_a_score_for_each_expert(network: str, weights: int) -> None:
    classifier = classifier_of(network, 3)
    assert sum(each.numel() for each in classifier.model.parameters()) == weights
    rows = classifier.reader.rows(as_images([encoded(np.zeros((32, 32, 3)))] * 2))
    assert classifier.model.eval()(**classifier.reader.batch(rows)).logits.shape == (2, 3)


def test_pixels_that_are_prepared_once_are_those_that_a_router_reads() -> None:
    images = as_images(
        [encoded(np.random.default_rng(seed).integers(256, size=(40, 24, 3))) for seed in range(3)]
    )
    ours, routers = (
        classifier.reader
        for classifier in (
            classifier_of("resnet-small", 2),
            load_classifier(None, ["a", "b"], kind="image"),
        )
    )
    found, expected = (reader.batch(reader.rows(images)) for reader in (ours, routers))
    assert found.keys() == expected.keys() == {"pixel_values"}
    assert found["pixel_values"].equal(expected["pixel_values"])


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(ArgumentError, match="resnet18, deberta, resnet-small, got 'vgg'"):
        recipe_of("vgg")


def test_a_network_that_cannot_be_downloaded_says_how_to_fetch_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*_given: Any, **_named: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(models, "load_classifier", offline)
    with pytest.raises(
        ArgumentError, match=r"no route to host; fetch it: hf download microsoft/deberta-v3-xsmall"
    ):
        classifier_of("deberta", 3)
