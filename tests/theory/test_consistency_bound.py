"""The paper's consistency bound where it is true: equal margins, and rewards of at most 1 in all.

``E(f) - E* + M <= sqrt(2 (E'(f) - E'* + M'))`` with the deferral loss E on the left, the surrogate
E' on the right, and the minimizability gaps M and M'. The expected values are worked out here in
NumPy: with equal margins the lowest surrogate of an input is C times the entropy of its posterior.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from mildroute.losses import choose, deferral_loss, minimizability_gap
from theory.minimizer import Conditional

Matrix = NDArray[np.float64]


def draw(seed: int, inputs: int, experts: int, near: float) -> tuple[Matrix, Matrix]:
    """Expected rewards of some inputs, at most 1 in all, and scores, more or less the best ones."""
    random = np.random.default_rng(seed)
    rewards = random.dirichlet(np.full(experts, 0.5), size=inputs) + 1e-6
    rewards *= random.uniform(0.05, 1, size=(inputs, 1)) / rewards.sum(axis=1, keepdims=True)
    scores = np.log(rewards) + near * random.normal(size=rewards.shape)
    return rewards, scores


def entropy(rewards: Matrix) -> float:
    """Lowest surrogate of one input: ``C * H(w / C)``."""
    share = rewards / rewards.sum()
    return float(-(rewards * np.log(share)).sum())


def surrogate(scores: Matrix, rewards: Matrix, margin: float) -> float:
    """Surrogate of one input, in plain NumPy."""
    scaled = scores / margin
    return float((rewards * (np.log(np.exp(scaled).sum()) - scaled)).sum())


def last_argmax(values: Matrix) -> int:
    return int(np.flatnonzero(values == values.max())[-1])


every_draw = given(
    seed=st.integers(0, 2**32 - 1),
    experts=st.integers(2, 7),
    margin=st.floats(0.1, 10),
    near=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    tied=st.booleans(),
)


@settings(max_examples=500, deadline=None)
@every_draw
def test_the_bound_holds_on_every_input(
    seed: int, experts: int, margin: float, near: float, tied: bool
) -> None:
    rewards, scores = draw(seed, 1, experts, near)
    scores = margin * (scores.round(1) if tied else scores)
    margins = torch.full((experts,), margin, dtype=torch.float64)
    tensors = torch.from_numpy(scores), torch.from_numpy(rewards)
    found = float(deferral_loss(*tensors, margins))
    assert found == pytest.approx(surrogate(scores[0], rewards[0], margin))
    chosen = int(choose(tensors[0], margins, decision="argmax"))
    assert chosen == last_argmax(scores[0])
    regret = rewards.max() - rewards[0, chosen]
    assert regret <= math.sqrt(2 * max(found - entropy(rewards[0]), 0)) + 1e-9


def test_the_lowest_surrogate_is_the_entropy() -> None:
    """Against the minimizer, for a few posteriors and margins."""
    for seed in range(10):
        rewards = draw(seed, 1, 4, 0.0)[0][0]
        for margin in (0.3, 2.0):
            problem = Conditional(rewards / rewards.sum(), np.full(4, margin))
            lowest = problem.value(problem.minimiser()[1:])
            assert rewards.sum() * lowest == pytest.approx(entropy(rewards), rel=1e-9)


@settings(max_examples=300, deadline=None)
@every_draw
def test_the_bound_holds_with_the_gaps_of_routers_that_ignore_the_input(
    seed: int, experts: int, margin: float, near: float, tied: bool
) -> None:
    """Any scores, the same for all inputs, are a complete class: its gaps are not zero."""
    rewards, scores = draw(seed, 5, experts, near)
    scores = margin * (scores[0].round(1) if tied else scores[0])
    costs = rewards.max(axis=1, keepdims=True) - rewards
    chosen = last_argmax(scores)
    best_single = costs.mean(axis=0).min()
    gap = minimizability_gap(float(best_single), torch.from_numpy(costs))
    target = costs[:, chosen].mean() - best_single + gap
    # The best scores for all inputs are those of the mean rewards.
    best_in_class = entropy(rewards.mean(axis=0))
    surrogate_gap = best_in_class - np.mean([entropy(row) for row in rewards])
    assert surrogate_gap >= -1e-12
    paid = np.mean([surrogate(scores, row, margin) for row in rewards])
    excess = paid - best_in_class + surrogate_gap
    assert target <= math.sqrt(2 * max(excess, 0)) + 1e-9


def test_rewards_above_one_in_all_break_it() -> None:
    """Costs (0.6, 0.9) have the sum rewards (0.9, 0.6), so C = 1.5; the regret of a tie is 0.3."""
    rewards = np.array([0.9, 0.6])
    excess = surrogate(np.zeros(2), rewards, 1.0) - entropy(rewards)
    assert excess == pytest.approx(0.0302, abs=5e-5)
    regret = rewards.max() - rewards[last_argmax(np.zeros(2))]
    assert regret == pytest.approx(0.3)
    assert regret > math.sqrt(2 * excess)
    assert regret <= math.sqrt(2 * rewards.sum() * excess)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), experts=st.integers(2, 6), total=st.floats(0.1, 20))
def test_with_the_factor_it_holds_for_rewards_of_any_sum(
    seed: int, experts: int, total: float
) -> None:
    """Regret at most ``sqrt(2 C * surrogate regret)``."""
    rewards, scores = draw(seed, 1, experts, 0.5)
    rewards = rewards[0] * total / rewards.sum()
    excess = surrogate(scores[0], rewards, 1.0) - entropy(rewards)
    regret = rewards.max() - rewards[last_argmax(scores[0])]
    assert regret <= math.sqrt(2 * total * max(excess, 0)) + 1e-9


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    experts=st.integers(2, 5),
    total=st.floats(0.1, 5),
    near=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_the_bound_of_the_consistent_decision(
    seed: int, experts: int, total: float, near: float
) -> None:
    """Differing margins, the posterior decides: regret at most ``p a sqrt(2 C * excess)``."""
    random = np.random.default_rng(seed)
    rewards = total * np.maximum(random.dirichlet(np.ones(experts)), 1e-3)
    margins = 10 ** random.random(experts)
    problem = Conditional(rewards / rewards.sum(), margins)
    best = problem.minimiser()
    scores = best + near * margins * random.normal(size=experts)
    chosen = int(choose(torch.from_numpy(scores)[None], torch.from_numpy(margins)))
    excess = rewards.sum() * (
        problem.value((scores - scores[0])[1:]) - problem.value((best - best[0])[1:])
    )
    ratio = margins.max() / margins.min()
    limit = experts * ratio * math.sqrt(2 * rewards.sum() * max(excess, 0))
    assert rewards.max() - rewards[chosen] <= limit + 1e-5
