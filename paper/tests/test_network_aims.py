"""What networks are trained for is what linear routers are fitted for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mildroute.deep.selection import objectives_of
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


def loss_for(aim: TrainingObjective) -> float:
    lesson = target_for(aim, COSTS)
    return float(batch_loss(SCORES, torch.from_numpy(lesson.costs), lesson.deferral))


def test_every_method_has_a_form_for_networks_but_the_one_on_raw_vectors() -> None:
    assert set(NETWORK_METHODS) == set(METHODS) - {"mildroute-raw", "mild-mass-tuned-each"}
    with pytest.raises(ArgumentError, match="got 'mildroute-raw'"):
        method_of_network("mildroute-raw")


def test_printed_decoded_and_consistent_mild_share_one_training() -> None:
    assert (
        len({NETWORK_METHODS[name].aim for name in ("mild", "mild-decoded", "mild-consistent")})
        == 1
    )
    assert NETWORK_METHODS["mild-tuned"].aims((0.0, 5.0))[0] == NETWORK_METHODS["mild"].aim


def test_tdef_is_the_complement_of_costs_over_the_largest() -> None:
    rewards = complement_rewards(torch.from_numpy(COSTS), 1.5)
    assert loss_for(NETWORK_METHODS["tdef"].aim) == pytest.approx(
        float(tdef_loss(SCORES, rewards)), rel=1e-5
    )


def test_cross_entropy_is_the_deferral_loss_of_winners() -> None:
    expected = float(cross_entropy(SCORES, torch.from_numpy(-COSTS)))
    assert loss_for(NETWORK_METHODS["ce"].aim) == pytest.approx(expected, rel=1e-5)


def test_weighted_cross_entropy_is_that_of_the_core_up_to_a_factor() -> None:
    wins = WINS.sum(axis=0)
    expected = float(
        weighted_cross_entropy(SCORES, torch.from_numpy(-COSTS), torch.from_numpy(wins))
    )
    # The core weighs the rarest winner by sum / (p * its wins), here it weighs 1.
    assert loss_for(NETWORK_METHODS["weighted-ce"].aim) == pytest.approx(
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


@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
def test_equal_margins_have_the_size_that_was_asked_for(reward: str) -> None:
    assert target_for(TrainingObjective(reward, scale=5.0), COSTS).deferral.margins == (
        5.0,
        5.0,
        5.0,
    )
    assert target_for(TrainingObjective(reward), COSTS).deferral.margins == (1.0, 1.0, 1.0)


def test_our_default_is_that_of_the_deep_router() -> None:
    from mildroute.deep.router import DeepRouter

    ours, router = NETWORK_METHODS["mildroute"], DeepRouter()
    assert ours.selected
    assert (router.reward, router.margins) == ("cv", "cv")
    assert ours.decision == router.decision
    assert (ours.aim.reward, ours.aim.scale) == objectives_of(COSTS)[0]
    assert [name for name, method in NETWORK_METHODS.items() if method.selected] == ["mildroute"]
