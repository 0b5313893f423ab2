"""The loss in NumPy is the loss of the core, value and gradient."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mildroute.losses.functional import deferral_loss
from mildroute.losses.margins import reward_mass as core_reward_mass, theory_margins, winner_counts
from mildroute.losses.rewards import Reward, complement_scale, rewards_of
from mildroute.routers._deferral_loss import deferral_row_loss
from mildroute.routers._rewards import (
    THEORY,
    MarginRule,
    margins_by,
    scaled_rewards,
    smoothed_win_counts,
    winner_targets,
)
from mildroute.routers.surrogate import with_autograd

seeds, experts = st.integers(0, 2**32 - 1), st.integers(2, 12)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, p=experts, equal=st.booleans(), spread=st.sampled_from([0.0, 1.0, 100.0]))
def test_values_and_gradients_are_those_of_the_core(
    seed: int, p: int, equal: bool, spread: float
) -> None:
    random = np.random.default_rng(seed)
    scores, rewards = spread * random.normal(size=(7, p)), random.uniform(size=(7, p))
    margins = np.full(p, 0.7) if equal else random.choice([0.2, 0.5, 1.0, 3.0], size=p)
    pieces = torch.from_numpy(rewards), torch.from_numpy(margins)
    expected = with_autograd(lambda f: deferral_loss(f, *pieces, reduction="none"))(scores)
    for ours, core in zip(
        deferral_row_loss(rewards, margins)(np.asfortranarray(scores)), expected, strict=True
    ):
        np.testing.assert_allclose(ours, core, rtol=1e-9, atol=1e-9)


def test_single_precision_scores_stay_single() -> None:
    losses, gradient = deferral_row_loss(np.eye(2), np.array([1.0, 2.0]))(
        np.zeros((2, 2), dtype=np.float32)
    )
    assert losses.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(losses, np.log(2), rtol=1e-6)


def test_rows_beyond_one_block_are_not_mixed_up() -> None:
    random = np.random.default_rng(0)
    scores, rewards, margins = (
        random.normal(size=(90_000, 2)),
        random.uniform(size=(90_000, 2)),
        np.array([0.5, 2.0]),
    )
    losses, gradient = deferral_row_loss(rewards, margins)(scores)
    for row in (0, 65_535, 65_536, 89_999):
        alone = deferral_row_loss(rewards[[row]], margins)(scores[[row]])
        np.testing.assert_allclose(losses[row], alone[0][0], rtol=1e-12)
        np.testing.assert_allclose(gradient[row], alone[1][0], rtol=1e-9)


@pytest.mark.parametrize("name", ["gap", "complement", "sum"])
def test_rewards_are_those_of_the_core_up_to_their_scale(name: Reward) -> None:
    costs = np.random.default_rng(0).uniform(0, 3, size=(20, 4))
    core = rewards_of(
        torch.from_numpy(costs), name, scale=complement_scale(torch.from_numpy(costs))
    ).numpy()
    np.testing.assert_allclose(
        scaled_rewards(costs, name, None), core / core.sum(axis=1).mean(), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_margins_are_those_of_the_core(offset: float) -> None:
    costs = np.random.default_rng(1).integers(0, 3, size=(50, 4)).astype(float)
    costs[:, 3] = 9  # never wins
    wins = winner_targets(-costs).sum(axis=0)
    np.testing.assert_allclose(wins, winner_counts(torch.from_numpy(costs)).numpy())
    core = theory_margins(torch.from_numpy(wins), exponent=1 / 3, offset=offset).numpy()
    rule = MarginRule("winner_counts", 1 / 3, offset)
    np.testing.assert_allclose(margins_by(rule, -costs), core)


@pytest.mark.parametrize("name", ["gap", "complement", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_theory_margins_are_those_of_the_core(name: Reward, weighted: bool) -> None:
    random = np.random.default_rng(2)
    costs = random.integers(0, 3, size=(50, 4)).astype(float)
    costs[0] = 0  # no reward of any kind but the complement
    weights = random.uniform(0.1, 2, size=50) if weighted else None
    rewards = scaled_rewards(costs, name, None)
    core = theory_margins(
        core_reward_mass(
            torch.from_numpy(rewards), None if weights is None else torch.from_numpy(weights)
        )
    )
    np.testing.assert_allclose(margins_by(THEORY, rewards, weights), core.numpy())


def test_margins_of_decided_wins_skip_rows_on_which_all_are_equal() -> None:
    costs = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.5]])
    wins = {"decided_wins": (2, 1), "winner_counts": (3, 2)}
    for name, (first, second) in wins.items():
        found = margins_by(MarginRule(name, 1.0), -costs)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, np.array([first, second]) / (first + second))


def test_if_nobody_ever_wins_all_count_one() -> None:
    np.testing.assert_array_equal(smoothed_win_counts(np.zeros(3)), np.ones(3))


def test_the_default_router_is_fitted_without_torch() -> None:
    code = (
        "import importlib.abc, sys\nclass NoTorch(importlib.abc.MetaPathFinder):\n    def"
        " find_spec(self, name, path=None, target=None):\n        if name == 'torch': raise"
        " ModuleNotFoundError(name)\nsys.meta_path.insert(0, NoTorch())\nimport numpy as np\nfrom"
        " mildroute.routers import FrontierRouter, MildRouter, TDEFRouter\nX = np.linspace(-1, 1,"
        " 60)[:, None]; costs = np.hstack([X > 0, X <= 0]).astype(float)\nfor kind in (MildRouter,"
        " TDEFRouter):\n    print(kind().fit(X, costs).score(X, costs) >"
        " -0.1)\nprint(FrontierRouter(price_weights=(0, 1)).fit(X, costs, prices=[0.1,"
        " 0.2]).predict(X).shape)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True", "(60,)"]
