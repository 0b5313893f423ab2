"""Recipes are those of the paper, and its networks start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.deep import models
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
    )


def test_the_recipes_are_as_printed() -> None:
    assert settings(RECIPES["resnet18"]) == ("Adam", 1e-3, 1e-3, 1024, 200)
    assert settings(RECIPES["deberta"]) == ("AdamW", 5e-5, 0.01, 32, 5)
    assert RECIPES["resnet18"].offsets == RECIPES["deberta"].offsets == (0, 1, 2, 3, 4, 5)


def test_resnet_18_has_a_score_for_each_expert() -> None:
    classifier = classifier_of("resnet18", 3)
    assert sum(each.numel() for each in classifier.model.parameters()) == 11_170_371
    rows = classifier.reader.rows(as_images([encoded(np.zeros((32, 32, 3)))] * 2))
    assert classifier.model.eval()(**classifier.reader.batch(rows)).logits.shape == (2, 3)


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(ArgumentError, match="resnet18, deberta, got 'vgg'"):
        recipe_of("vgg")


def test_the_error_of_a_missing_network_says_how_to_fetch_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*_arguments: Any, **_named: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(models, "load_classifier", offline)
    with pytest.raises(
        ArgumentError, match=r"no route to host; fetch it: hf download microsoft/deberta-v3-xsmall"
    ):
        classifier_of("deberta", 3)
