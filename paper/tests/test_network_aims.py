"""Networks and linear routers of one name minimize the same loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mildroute.deep.trainer import batch_loss
from mildroute.exceptions import ArgumentError
from mildroute.losses.functional import cross_entropy, ldam_loss, tdef_loss, weighted_cross_entropy
from mildroute.losses.rewards import complement_rewards
from mildroute.routers.surrogate import PaperMILDRouter
from paper.objectives import NETWORK_METHODS, TrainingObjective, method_of_network, target_for
from paper.routers import METHODS

RANDOM = np.random.default_rng(0)
COSTS = RANDOM.choice([0.0, 0.3, 1.0, 1.5], size=(40, 3))
BEST = COSTS.min(axis=1, keepdims=True) == COSTS
WINS = BEST / BEST.sum(axis=1, keepdims=True)
SCORES = torch.from_numpy(RANDOM.normal(size=(40, 3)))


def loss_for(objective: TrainingObjective) -> float:
    target = target_for(objective, COSTS)
    return float(batch_loss(SCORES, torch.from_numpy(target.costs), target.deferral))


def test_every_method_but_two_linear_ones_has_a_form_for_networks() -> None:
    assert set(NETWORK_METHODS) == set(METHODS) - {"mildroute", "mild-mass-tuned-each"}
    with pytest.raises(ArgumentError, match="got 'mildroute'"):
        method_of_network("mildroute")


def test_methods_that_differ_in_the_decision_or_offset_share_a_network() -> None:
    assert NETWORK_METHODS["mild"].objective == NETWORK_METHODS["mild-decoded"].objective
    for name in ("mild", "mild-mass"):
        tuned = NETWORK_METHODS[f"{name}-tuned"].objectives((0.0, 5.0))
        assert [each.offset for each in tuned] == [0.0, 5.0]
        assert tuned[0] == NETWORK_METHODS[name].objective


def test_tdef_is_the_complement_of_costs_over_the_largest() -> None:
    rewards = complement_rewards(torch.from_numpy(COSTS), 1.5)
    assert loss_for(NETWORK_METHODS["tdef"].objective) == pytest.approx(
        float(tdef_loss(SCORES, rewards)), rel=1e-5
    )


def test_cross_entropy_is_the_deferral_loss_of_winners() -> None:
    expected = float(cross_entropy(SCORES, torch.from_numpy(-COSTS)))
    assert loss_for(NETWORK_METHODS["ce"].objective) == pytest.approx(expected, rel=1e-5)


def test_weighted_cross_entropy_is_that_of_the_core_up_to_a_factor() -> None:
    wins = WINS.sum(axis=0)
    expected = float(
        weighted_cross_entropy(SCORES, torch.from_numpy(-COSTS), torch.from_numpy(wins))
    )
    # The core weighs the rarest winner by sum / (p * its wins), here it weighs 1.
    assert loss_for(NETWORK_METHODS["weighted-ce"].objective) == pytest.approx(
        expected * 3 * wins.min() / wins.sum(), rel=1e-5
    )


def test_ldam_has_a_trainer_of_its_own() -> None:
    trainer: Any = target_for(TrainingObjective("ldam"), COSTS).trainer
    assert trainer is not None
    found = trainer.compute_loss(
        SimpleNamespace(),
        lambda **_inputs: {"logits": SCORES},
        {"x": 0, "costs": torch.from_numpy(COSTS)},
    )
    wins = torch.from_numpy(WINS.sum(axis=0))
    assert float(found) == pytest.approx(
        float(ldam_loss(SCORES, torch.from_numpy(-COSTS), wins, s=1.0, max_margin=5.0))
    )


@pytest.mark.parametrize("offset", [0.0, 5.0])
@pytest.mark.parametrize("margins", ["theory", "winner_counts"])
def test_margins_are_those_of_untuned_mild(margins: Any, offset: float) -> None:
    router = PaperMILDRouter(alpha=1.0, margins=margins).fit(RANDOM.normal(size=(40, 2)), COSTS)
    assert target_for(
        TrainingObjective("sum", margins, offset), COSTS
    ).deferral.margins == pytest.approx(router.margins_ + offset)


@pytest.mark.parametrize("reward", ["complement", "sum"])
def test_equal_margins_are_1(reward: str) -> None:
    assert target_for(TrainingObjective(reward), COSTS).deferral.margins == (1.0, 1.0, 1.0)
