"""Held-out rows, units of costs and the temperature."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from deep.networks import COSTS, TEXTS, images, tiny_router, tiny_small_resnet
from mildroute.deep import fine_tune as fitting
from mildroute.deep.config import DeferralConfig
from mildroute.deep.fine_tune import comparable_costs, held_out_rows
from mildroute.deep.temperature import fit_temperature
from mildroute.deep.trainer import DeferralTrainer
from mildroute.losses.rewards import rewards_of


def test_held_out_rows_come_evenly_from_each_group() -> None:
    groups = np.repeat(["a", "b", "c"], [100, 60, 40])
    rows = held_out_rows(200, 0.1, groups, seed=4)
    assert len(set(rows.tolist())) == 20
    assert [int((groups[rows] == name).sum()) for name in "abc"] == [10, 6, 4]


@pytest.mark.parametrize("reward", ["gap", "sum"])
def test_costs_in_cents_teach_what_costs_in_dollars_teach(reward: str) -> None:
    dollars = comparable_costs(COSTS, reward)
    np.testing.assert_allclose(dollars, comparable_costs(100 * COSTS, reward))
    assert float(rewards_of(torch.from_numpy(dollars), reward).sum(dim=1).mean()) == pytest.approx(
        1
    )  # type: ignore[arg-type]


def test_a_temperature_undoes_a_factor_of_the_scores() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 3))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    winners = np.array([rng.choice(3, p=row) for row in probabilities])
    found = fit_temperature(5 * scores, np.eye(3)[winners], DeferralConfig((1.0, 1.0, 1.0)))
    assert found == pytest.approx(5, rel=0.1)
    assert fit_temperature(scores, np.zeros((4000, 3)), DeferralConfig((1.0, 1.0, 1.0))) == 1.0


@pytest.mark.parametrize(
    ("settings", "data", "kind", "decays"),
    [
        # AdamW spares biases and norms.
        ({}, (TEXTS[:40], COSTS[:40]), "AdamW", {0.0, 0.01}),
        ({"optimizer": "adam", "weight_decay": 2e-3}, (TEXTS[:40], COSTS[:40]), "Adam", {2e-3}),
        ({"model": tiny_small_resnet}, images(32), "Adam", {1e-3}),
        ({"model": tiny_small_resnet, "optimizer": "adamw"}, images(32), "AdamW", {0.0, 0.01}),
    ],
)
def test_a_router_is_trained_by_the_optimizer_that_was_asked_for_or_that_suits_it(
    settings: dict[str, Any],
    data: tuple[Any, Any],
    kind: str,
    decays: set[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[Any] = []

    class Watched(DeferralTrainer):
        def training_step(self, *args: Any, **rest: Any) -> Any:
            used.append(self.optimizer.optimizer)
            return super().training_step(*args, **rest)

    monkeypatch.setattr(fitting, "DeferralTrainer", Watched)
    # The folder is written when the test runs, not when it is collected.
    tiny_router(
        epochs=1,
        **{name: value() if callable(value) else value for name, value in settings.items()},
    ).fit(*data)
    assert {type(each).__name__ for each in used} == {kind}
    assert {group["weight_decay"] for group in used[0].param_groups} == decays


def test_training_goes_on_while_the_loss_falls_though_no_choice_changes_yet() -> None:
    stopping = fitting._early_stopping()
    control = SimpleNamespace(should_training_stop=False)
    evaluations = [
        (0.5, 1.0),
        (0.5, 0.9),
        (0.5, 0.8),
        (0.5, 0.7),
        (0.5, 0.75),
        (0.4, 0.75),
        (0.4, 0.7),
        (0.4, 0.7),
        (0.45, 0.8),
    ]
    stopped = []
    for cost, loss in evaluations:
        stopping.on_evaluate(None, None, control, {"eval_deferral_loss": cost, "eval_loss": loss})
        stopped.append(control.should_training_stop)
    assert stopped == [False] * 8 + [True]


def test_the_state_that_was_best_on_held_out_rows_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    class Watched(DeferralTrainer):
        def evaluate(self, *args: object, **settings: object) -> dict[str, float]:
            found: dict[str, float] = super().evaluate(*args, **settings)
            looks.append(found["eval_deferral_loss"])
            return found

    monkeypatch.setattr(fitting, "DeferralTrainer", Watched)
    router = tiny_router(validation=0.25, learning_rate=5e-4).fit(TEXTS, COSTS)
    assert len(looks) > 2
    assert router.epochs_ == pytest.approx(0.5 * (1 + int(np.argmin(looks))))
    unit = 1 / float((COSTS.max(axis=1, keepdims=True) - COSTS).sum(axis=1).mean())
    assert router.validation_ is not None
    assert router.validation_["mean cost"]["value"] * unit == pytest.approx(min(looks))
