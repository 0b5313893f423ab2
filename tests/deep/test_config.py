"""Margins, reward and decision in a model's config."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from encoders.models import load_transformers

from deep.networks import tiny_classifier
from mildroute.deep.config import DeferralConfig, config_for, config_of, write_config
from mildroute.exceptions import ArgumentError, ArtifactError, MarginError, ShapeError


def test_a_saved_model_comes_back_with_its_experts_margins_reward_and_decision(
    tmp_path: Path,
) -> None:
    model = tiny_classifier()
    deferral = DeferralConfig(
        (1.5, 1.0, 0.5), "complement", "argmax", reward_scale=1.6, temperature=2.0
    )
    write_config(model.config, deferral, ["small", "medium", "large"])
    model.save_pretrained(tmp_path)
    loaded = load_transformers().AutoModelForSequenceClassification.from_pretrained(
        tmp_path, local_files_only=True
    )
    assert config_of(loaded.config) == deferral
    assert loaded.config.id2label == {0: "small", 1: "medium", 2: "large"}
    assert loaded.config.label2id == {"small": 0, "medium": 1, "large": 2}


def test_theory_margins_are_cube_roots_of_the_reward_mass_and_sum_to_one() -> None:
    """With the sum reward, a row of costs (0, 1, 1) has the labels (2, 1, 1) / 4."""
    costs = 1 - np.repeat(np.eye(3), [27, 8, 1], axis=0)
    for reward, mass in (("gap", [27, 8, 1]), ("sum", [15.75, 11, 9.25])):
        roots = np.cbrt(mass)
        np.testing.assert_allclose(
            config_for(costs, margins="theory", reward=reward).margins, roots / roots.sum()
        )
        np.testing.assert_allclose(
            config_for(costs, margins="winner_counts", reward=reward).margins,
            np.array([3, 2, 1]) / 6,
        )


def test_the_scale_of_the_complement_is_the_largest_training_cost() -> None:
    assert config_for(np.array([[0.0, 1.6]]), reward="complement").reward_scale == 1.6
    assert config_for(np.array([[0.0, 0.4]]), reward="complement").reward_scale == 1.0


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"margins": "large"}, ArgumentError),
        ({"margins": [1.0]}, ShapeError),
        ({"margins": [1.0, 0.0]}, MarginError),
        ({"margins": [1.0, math.inf]}, MarginError),
        ({"reward": "profit"}, ArgumentError),
        ({"decision": "coin"}, ArgumentError),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        config_for(np.eye(2), **settings)


@pytest.mark.parametrize(
    "forged",
    [
        {"schema": 2},
        {"margins": "1, 2"},
        {"margins": [1.0, 2.0, 3.0]},
        {"margins": [1.0, "2"]},
        {"temperature": -1.0},
        {"reward_scale": None},
        {"decision": "coin"},
        {"more": 1},
    ],
)
def test_a_config_from_the_hub_is_checked(forged: dict[str, Any]) -> None:
    config = SimpleNamespace(id2label={0: "small", 1: "large"})
    write_config(config, DeferralConfig((1.0, 2.0)))
    config.mildroute |= forged
    with pytest.raises((ArtifactError, ArgumentError)):
        config_of(config)


def test_a_model_with_another_number_of_labels_is_refused() -> None:
    with pytest.raises(ShapeError, match="3 labels and 2 margins"):
        write_config(tiny_classifier().config, DeferralConfig((1.0, 2.0)))
