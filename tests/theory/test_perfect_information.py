"""What MILD pays in the paper's synthetic setups if the input says everything.

An input says its class, so a router may take any scores for each class, and the conditional
surrogate of each class is minimized on its own: by SciPy on NumPy formulas, see
:mod:`theory.minimizer`. Rewards, counts and margins are worked out here from their definitions too.
Only the functions that are tested come from the package.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from mildroute.losses import (
    choose,
    complement_rewards,
    reward_mass,
    sum_rewards,
    theory_margins,
    winner_counts,
)
from mildroute.routers.surrogate import PaperMILDRouter
from theory.minimizer import Conditional

Matrix = NDArray[np.float64]

# Classes of ten of which each expert is always right; elsewhere it guesses one class of ten.
SETUPS = {"I": (7, 2, 1), "II": (5, 2, 2, 1), "III": (4, 2, 2, 1, 1)}
CLASSES, GUESS = 10, 0.1


@dataclass(frozen=True)
class Outcomes:
    """Every combination of right and wrong experts for each class, with its probability."""

    costs: Matrix
    classes: NDArray[np.intp]
    probabilities: Matrix

    @property
    def expected(self) -> Matrix:
        """Expected cost of each expert for each class, shape (10, p)."""
        return self.by_class(self.costs)

    def by_class(self, values: Matrix) -> Matrix:
        """Expected values for each class, shape (10, p)."""
        return np.stack(
            [
                self.probabilities[self.classes == label] @ values[self.classes == label]
                for label in range(CLASSES)
            ]
        )

    def paid(self, choice: NDArray[np.intp]) -> float:
        """Mean cost of one expert for each class; classes are equally likely."""
        return float(self.expected[np.arange(CLASSES), choice].mean())


def outcomes(setup: str, with_fees: bool) -> Outcomes:
    coverage = SETUPS[setup]
    owner = np.repeat(np.arange(len(coverage)), coverage)
    fees = np.array(coverage) / CLASSES if with_fees else np.zeros(len(coverage))
    costs, classes, probabilities = [], [], []
    for label in range(CLASSES):
        for code in range(2 ** len(coverage)):
            right = np.array([code >> expert & 1 for expert in range(len(coverage))])
            chance = np.where(right, GUESS, 1 - GUESS)
            chance[owner[label]] = right[owner[label]]
            if chance.prod() > 0:
                costs.append(1 - right + fees)
                classes.append(label)
                probabilities.append(chance.prod())
    return Outcomes(np.array(costs), np.array(classes), np.array(probabilities))


def rewards_by_definition(costs: Matrix, reward: str) -> Matrix:
    if reward == "sum":
        return np.array([[sum(row) - cost for cost in row] for row in costs.tolist()])
    largest = max(1.0, costs.max())
    return np.asarray(1 - costs / largest)


def counts_by_definition(world: Outcomes, rewards: Matrix, counts: str) -> Matrix:
    """m_k per row of a large sample: labels drawn from P, or wins."""
    if counts == "equal":
        return np.ones(rewards.shape[1])
    if counts == "wins by class":
        # A guess that happens to be right is no win: each class belongs to its best expert.
        owner = world.expected.argmin(axis=1)
        return np.bincount(owner, minlength=rewards.shape[1]).astype(float)
    if counts == "reward mass":
        # p(k | x) = E[w_k | x] / E[sum_j w_j | x], and every class is one x.
        expected = world.by_class(rewards)
        return np.asarray((expected / expected.sum(axis=1, keepdims=True)).mean(axis=0))
    best = world.costs == world.costs.min(axis=1, keepdims=True)
    return np.asarray(
        (world.probabilities[:, None] * best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    )


def minimizing_scores(expected_rewards: Matrix, margins: Matrix) -> Matrix:
    """Scores for each class that minimize its conditional surrogate."""
    return np.stack(
        [Conditional(rewards / rewards.sum(), margins).minimiser() for rewards in expected_rewards]
    )


def largest_of(scores: Matrix) -> NDArray[np.intp]:
    """The largest score, ties up to the accuracy of the minimizer to the highest index."""
    return np.asarray(scores.shape[1] - 1 - scores.round(6)[:, ::-1].argmax(axis=1))


def paid_by_mild(setup: str, with_fees: bool, reward: str, counts: str) -> float:
    world = outcomes(setup, with_fees)
    rewards = rewards_by_definition(world.costs, reward)
    roots = np.cbrt(counts_by_definition(world, rewards, counts))
    scores = minimizing_scores(world.by_class(rewards), roots / roots.sum())
    return world.paid(largest_of(scores))


# Setup, with fees or not, and what is paid: by Bayes; by the sum reward with margins from wins by
# class, from winner counts; by the complement with margins from winner counts. With the reward mass
# and with equal margins all pay the Bayes loss.
TABLE = [
    ("I", False, 0.0, 0.0, 0.0, 0.0),
    ("II", False, 0.0, 0.450, 0.450, 0.0),
    ("III", False, 0.0, 0.360, 0.360, 0.0),
    ("I", True, 0.540, 0.750, 0.750, 0.750),
    ("II", True, 0.340, 0.590, 0.590, 0.340),
    # Cheap experts win by lucky guesses, so counts of wins are closer than those by class.
    ("III", True, 0.260, 0.820, 0.260, 0.260),
]
every_line = pytest.mark.parametrize(
    ("setup", "with_fees", "bayes", "sum_by_class", "sum_wins", "complement_wins"), TABLE
)


@every_line
def test_only_winner_counts_make_the_largest_score_miss_the_bayes_loss(
    setup: str,
    with_fees: bool,
    bayes: float,
    sum_by_class: float,
    sum_wins: float,
    complement_wins: float,
) -> None:
    world = outcomes(setup, with_fees)
    assert world.expected.min(axis=1).mean() == pytest.approx(bayes)
    for reward, counts, paid in (
        ("sum", "wins by class", sum_by_class),
        ("sum", "winner counts", sum_wins),
        ("complement", "wins by class", complement_wins),
        ("complement", "winner counts", complement_wins),
        *itertools.product(("sum", "complement"), ("reward mass", "equal"), (bayes,)),
    ):
        assert paid_by_mild(setup, with_fees, reward, counts) == pytest.approx(paid), (
            reward,
            counts,
        )


def table_of(world: Outcomes, rows: int) -> tuple[Matrix, NDArray[np.intp]]:
    """Rows in which every outcome is as frequent as it is likely, and their classes.

    Frequencies are multiples of 1e-4 at most, so 100,000 rows hold them exactly.
    """
    times = np.rint(world.probabilities / CLASSES * rows).astype(int)
    return np.repeat(world.costs, times, axis=0), np.repeat(world.classes, times)


@every_line
def test_the_functions_of_the_package_reach_the_same_losses(
    setup: str,
    with_fees: bool,
    bayes: float,
    sum_by_class: float,
    sum_wins: float,
    complement_wins: float,
) -> None:
    world = outcomes(setup, with_fees)
    costs = torch.from_numpy(table_of(world, 100_000)[0])
    expected = {"reward mass": bayes, "winner counts": sum_wins}
    by_reward = {
        "sum": sum_rewards(costs),
        "complement": complement_rewards(costs, max(1.0, float(costs.max()))),
    }
    for reward, rewards in by_reward.items():
        if reward == "complement":
            expected = {"reward mass": bayes, "winner counts": complement_wins}
        for counts, paid in expected.items():
            mass = reward_mass(rewards) if counts == "reward mass" else winner_counts(costs)
            margins = theory_margins(mass)
            target = world.by_class(rewards_by_definition(world.costs, reward))
            scores = torch.from_numpy(minimizing_scores(target, margins.numpy()).round(6))
            argmax = choose(scores, margins, decision="argmax").numpy()
            assert world.paid(argmax) == pytest.approx(paid), (reward, counts)
            decoded = choose(scores, margins).numpy()
            assert world.paid(decoded) == pytest.approx(bayes), (reward, counts)


@pytest.mark.parametrize(("setup", "by_wins"), [("I", 0.0), ("II", 0.450), ("III", 0.360)])
def test_the_router_of_the_paper_reaches_the_bayes_loss(setup: str, by_wins: float) -> None:
    """One-hot classes as features and hardly any penalty: a linear router can say everything."""
    world = outcomes(setup, with_fees=False)
    costs, classes = table_of(world, 10_000)
    features = np.eye(CLASSES)
    for margins, paid in (("theory", 0.0), ("winner_counts", by_wins)):
        router = PaperMILDRouter(margins=margins, alpha=1e-7)  # type: ignore[arg-type]
        router.fit(features[classes], costs)
        assert world.paid(router.predict(features)) == pytest.approx(paid), margins


# One right expert of p: the sum reward is p - 1 for it and p - 2 for the others.


@settings(max_examples=60, deadline=None)
@given(
    experts=st.integers(3, 6),
    ratio=st.floats(1.05, 60),
    others=st.floats(1.0, 3.0),
)
def test_the_rows_of_a_common_expert_go_to_a_rare_one_beyond_a_ratio_in_closed_form(
    experts: int, ratio: float, others: float
) -> None:
    """On the rows of expert 1, the largest score is the rarest expert's if and only if ``m_1 / m_j
    > ((p - 1) / (p - 2))^3``, whatever the others are between them.
    """
    limit = ((experts - 1) / (experts - 2)) ** 3
    if abs(ratio / limit - 1) < 0.02:
        ratio = 1.05 * limit
    counts = np.full(experts, min(others, ratio))
    counts[0], counts[-1] = ratio, 1.0
    roots = np.cbrt(counts)
    rewards = np.full(experts, experts - 2.0)
    rewards[0] = experts - 1
    scores = minimizing_scores(rewards[None], roots / roots.sum())
    assert (largest_of(scores)[0] == experts - 1) == (ratio > limit)
    if ratio <= limit:
        assert largest_of(scores)[0] == 0


def test_the_limits_of_the_ratio() -> None:
    limits = [((p - 1) / (p - 2)) ** 3 for p in (3, 4, 5)]
    assert limits == pytest.approx([8, 3.375, 2.370], abs=5e-4)


@pytest.mark.parametrize("setup", SETUPS)
def test_the_reward_mass_of_every_setup_is_below_that_ratio(setup: str) -> None:
    """With one right expert and no guesses; winner counts exceed it in setups II and III."""
    coverage = SETUPS[setup]
    costs = torch.from_numpy(1 - np.repeat(np.eye(len(coverage)), coverage, axis=0))
    limit = ((len(coverage) - 1) / (len(coverage) - 2)) ** 3
    mass, wins = reward_mass(sum_rewards(costs)), winner_counts(costs)
    assert float(mass.max() / mass.min()) < limit
    assert (float(wins.max() / wins.min()) > limit) == (setup != "I")
