"""Optimizer, learning rate and decay by whether a network knows something already.

What is given is taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deep.networks import COSTS, TEXTS, images, tiny_classifier, tiny_router, tiny_small_resnet
from mildroute.deep import fine_tune as fitting
from mildroute.deep.fine_tune import FineTuneConfig
from mildroute.deep.models import load_classifier
from mildroute.deep.optimizers import is_untrained, optimizer_for
from mildroute.deep.router import DeepRouter
from mildroute.persistence import load_router, save_router


def resnet() -> Any:
    return load_classifier(tiny_small_resnet(), ["a", "b"], kind="image").model


def used(router: DeepRouter) -> tuple[Any, ...]:
    return router.optimizer_, router.learning_rate_, router.weight_decay_


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What networks are trained with, without training them."""
    asked: list[tuple[Any, ...]] = []

    def fine_tune(
        _classifier: Any, _train: Any, _held_out: Any, _deferral: Any, plan: FineTuneConfig
    ) -> float:
        asked.append((plan.optimizer, plan.learning_rate, plan.weight_decay))
        return 1.0

    monkeypatch.setattr(fitting, "fine_tune", fine_tune)
    return asked


def test_a_network_is_untrained_until_its_batch_norms_see_a_batch() -> None:
    model = resnet()
    assert is_untrained(model)
    model.eval()(torch.rand(2, 3, 32, 32))
    assert is_untrained(model)
    model.train()(torch.rand(2, 3, 32, 32))
    assert not is_untrained(model)


def test_a_trained_network_is_known_after_it_was_stored(tmp_path: Path) -> None:
    pixels, costs = images(32)
    tiny_router(model=tiny_small_resnet(), epochs=1).fit(pixels, costs).save_pretrained(tmp_path)
    assert not is_untrained(load_classifier(str(tmp_path), None, kind="image").model)
    router = DeepRouter(str(tmp_path), epochs=1, reward="gap", margins="uniform").fit(pixels, costs)
    assert used(router) == ("adamw", 5e-5, 0.01)


def test_a_network_without_batch_norms_counts_as_trained() -> None:
    assert not is_untrained(tiny_classifier())


@pytest.mark.parametrize(
    ("given", "untrained", "trained"),
    [
        (("auto", None, None), ("adam", 1e-3, 1e-3), ("adamw", 5e-5, 0.01)),
        (("auto", 0.5, 0.0), ("adam", 0.5, 0.0), ("adamw", 0.5, 0.0)),
        (("adam", None, None), ("adam", 1e-3, 1e-3), ("adam", 5e-5, 1e-3)),
        (("adamw", None, None), ("adamw", 1e-3, 0.01), ("adamw", 5e-5, 0.01)),
        (("adamw", None, 0.2), ("adamw", 1e-3, 0.2), ("adamw", 5e-5, 0.2)),
    ],
)
def test_what_is_given_is_taken_and_the_rest_follows_the_network(
    given: Any, untrained: Any, trained: Any
) -> None:
    assert optimizer_for(resnet(), *given) == untrained
    assert optimizer_for(tiny_classifier(), *given) == trained


def test_the_plain_router_trains_its_own_network_for_images_with_adam(
    plans: list[tuple[Any, ...]],
) -> None:
    router = DeepRouter().fit(*images(8))
    assert plans == [("adam", 1e-3, 1e-3)]
    assert used(router) == plans[0]


def test_every_objective_is_trained_alike(plans: list[tuple[Any, ...]]) -> None:
    costs = np.array([[0.0, 1.0, 0.8], [0.2, 0.2, 0.3]] * 32)
    router = DeepRouter(tiny_small_resnet(), validation=0.25).fit(images()[0], costs)
    assert plans == [("adam", 1e-3, 1e-3)] * 3
    assert used(router) == plans[0]


def test_the_plain_router_fine_tunes_texts_with_adamw(plans: list[tuple[Any, ...]]) -> None:
    router = tiny_router(learning_rate=None).fit(TEXTS[:20], COSTS[:20])
    assert plans == [("adamw", 5e-5, 0.01)]
    assert used(router) == plans[0]


def test_an_artifact_tells_what_trained_the_network_and_a_loaded_model_does_not(
    tmp_path: Path, plans: list[tuple[Any, ...]]
) -> None:
    router = tiny_router(optimizer="adam").fit(TEXTS[:20], COSTS[:20])
    assert plans == [("adam", 2e-3, 1e-3)]
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert used(loaded) == plans[0]
    folder = router.save_pretrained(tmp_path / "model")
    assert used(DeepRouter.from_pretrained(str(folder), max_tokens=24)) == (None, None, None)
