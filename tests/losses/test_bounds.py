from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem, problems, seeds
from losses.reference import each_row, ramp_row
from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses.bounds import (
    Constant,
    MarginBound,
    deferral_margin_bound,
    empirical_margin_loss,
    margin_bound,
    rademacher_bound,
)
from mildroute.losses.cost_sensitive import cost_sensitive_margin_loss, cost_sensitive_zero_one_loss


def complexity_by_signs(
    features: Tensor, labels: Tensor, margins: Tensor, weight_norm: float, draws: int, seed: int
) -> Tensor:
    """Draws of the supremum in the class-sensitive Rademacher complexity of linear functions of
    that Frobenius norm.

    The supremum of ``<W, G>`` over ``|W| <= F`` is ``F |G|``, where G sums the signed features over
    the margins.
    """
    generator = torch.Generator().manual_seed(seed)
    signs = 2.0 * torch.randint(2, (draws, len(labels), len(margins)), generator=generator) - 1
    signed = torch.einsum("smk,md->skd", signs.double(), features / margins[labels][:, None])
    return weight_norm / len(labels) * signed.flatten(1).norm(dim=1)


@settings(max_examples=500, deadline=None)
@given(
    seed=seeds, experts=st.integers(2, 4), rows=st.integers(2, 30), weight_norm=st.floats(0.1, 10)
)
def test_the_complexity_bound_is_above_its_simulation(
    seed: int, experts: int, rows: int, weight_norm: float
) -> None:
    problem = draw_problem(seed, rows=rows, experts=experts)
    features, labels = problem.scores, problem.labels
    counts = torch.bincount(labels, minlength=experts).double()
    norms = torch.stack(
        [
            features[labels == k].norm(dim=1).max() if counts[k] else torch.tensor(1.0)
            for k in range(experts)
        ]
    )
    draws = complexity_by_signs(
        features, labels, problem.margins, weight_norm, draws=100, seed=seed
    )
    noise = 4 * draws.std() / math.sqrt(len(draws))
    assert draws.mean() - noise <= rademacher_bound(
        counts, problem.margins, weight_norm=weight_norm, feature_norms=norms
    )


def test_the_complexity_bound_by_hand() -> None:
    """sqrt(2) * 3 / 40 * sqrt(30 * 4 / 1 + 10 * 9 / 25)."""
    counts, margins = torch.tensor([30.0, 10.0]), torch.tensor([1.0, 5.0])
    bound = rademacher_bound(
        counts, margins, weight_norm=3.0, feature_norms=torch.tensor([2.0, 3.0])
    )
    assert bound == pytest.approx(math.sqrt(2) * 3 / 40 * math.sqrt(120 + 3.6))


@settings(max_examples=500, deadline=None)
@given(
    problem=problems(max_rows=6),
    weight_norm=st.floats(0.1, 10),
    norm=st.floats(0.1, 5),
    delta=st.floats(0.001, 0.5),
)
def test_the_margin_bound_is_the_formula_of_the_paper(
    problem: Problem, weight_norm: float, norm: float, delta: float
) -> None:
    """Corollary.

    ``margin loss + 4 sqrt(2) p F / m sqrt(sum m_j X_j^2 / rho_j^2) + 3 sqrt(log(2 / delta) / 2m)``.
    """
    arguments = problem.scores, problem.labels, problem.costs, problem.margins
    bound = margin_bound(*arguments, weight_norm=weight_norm, feature_norms=norm, delta=delta)
    rows, experts = problem.scores.shape
    spread = sum(norm**2 / problem.margins[label].item() ** 2 for label in problem.labels.tolist())
    assert bound.empirical == pytest.approx(cost_sensitive_margin_loss(*arguments).item())
    assert bound.complexity == pytest.approx(
        4 * math.sqrt(2) * experts * weight_norm / rows * math.sqrt(spread)
    )
    assert bound.confidence == pytest.approx(3 * math.sqrt(math.log(2 / delta) / (2 * rows)))
    assert bound.total == pytest.approx(bound.empirical + bound.complexity + bound.confidence)


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_rows=6), norm=st.floats(0.1, 5))
def test_the_sharp_constant_is_smaller_by_the_root_of_twice_the_experts(
    problem: Problem, norm: float
) -> None:
    arguments = problem.scores, problem.labels, problem.costs, problem.margins
    paper, sharp = (
        margin_bound(*arguments, weight_norm=1.0, feature_norms=norm, constant=name)
        for name in ("paper", "sharp")
    )
    assert sharp.total <= paper.total
    assert sharp.complexity * math.sqrt(2 * problem.scores.shape[1]) == pytest.approx(
        paper.complexity
    )


@settings(max_examples=500, deadline=None)
@given(
    problem=problems(max_rows=6),
    norm=st.floats(0.1, 5),
    constant=st.sampled_from(["paper", "sharp"]),
)
def test_for_labels_and_unit_costs_both_bounds_agree(
    problem: Problem, norm: float, constant: Constant
) -> None:
    one_hot = torch.eye(problem.scores.shape[1], dtype=torch.float64)[problem.labels]
    ones = torch.ones_like(problem.costs)
    by_label = margin_bound(
        problem.scores,
        problem.labels,
        ones,
        problem.margins,
        weight_norm=2.0,
        feature_norms=norm,
        constant=constant,
    )
    row_norms = torch.full((len(ones),), norm, dtype=torch.float64)
    by_reward = deferral_margin_bound(
        problem.scores,
        one_hot,
        problem.margins,
        weight_norm=2.0,
        row_norms=row_norms,
        constant=constant,
    )
    for name in ("empirical", "complexity", "confidence"):
        assert getattr(by_reward, name) == pytest.approx(getattr(by_label, name)), name


@every_problem(max_rows=6)
def test_the_empirical_margin_loss_is_its_formula(problem: Problem) -> None:
    expected = (
        each_row(ramp_row, problem.scores, problem.rewards, margins=problem.margins).mean().item()
    )
    assert empirical_margin_loss(problem.scores, problem.rewards, problem.margins) == pytest.approx(
        expected, abs=1e-12
    )


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_rows=6), seed=seeds)
def test_the_deferral_bound_by_its_formula(problem: Problem, seed: int) -> None:
    rows, experts = problem.scores.shape
    row_norms = 1 + torch.rand(
        rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    bound = deferral_margin_bound(
        problem.scores,
        problem.rewards,
        problem.margins,
        weight_norm=2.0,
        row_norms=row_norms,
        delta=0.1,
    )
    slopes = [
        norm * sum(w / rho for w, rho in zip(row, problem.margins.tolist(), strict=True))
        for row, norm in zip(problem.rewards.tolist(), row_norms.tolist(), strict=True)
    ]
    expected = (
        4 * math.sqrt(2) * experts * 2.0 / rows * math.sqrt(sum(slope**2 for slope in slopes))
    )
    assert bound.complexity == pytest.approx(expected)
    largest = max(sum(row) for row in problem.rewards.tolist())
    assert bound.confidence == pytest.approx(largest * 3 * math.sqrt(math.log(20) / (2 * rows)))


@dataclass(frozen=True)
class World:
    """A known distribution.

    Equally likely inputs on the unit circle, the label of each drawn from its own probabilities.
    """

    features: Tensor
    probabilities: Tensor
    costs: Tensor

    def sample(self, rows: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randint(len(self.features), (rows,), generator=generator)
        return inputs, torch.multinomial(self.probabilities[inputs], 1, generator=generator)[:, 0]

    def expected_cost(self, weights: Tensor) -> float:
        """Exact cost-sensitive zero-one loss of the linear router with these weights."""
        scores, total = self.features @ weights, 0.0
        for label in range(self.probabilities.shape[1]):
            labels = torch.full((len(scores),), label)
            paid = cost_sensitive_zero_one_loss(
                scores, labels, self.costs[labels], reduction="none"
            )
            total += float((self.probabilities[:, label] * paid).mean())
        return total


def small_world() -> World:
    angles = 2 * math.pi * torch.arange(12, dtype=torch.float64) / 12
    features = torch.stack([angles.cos(), angles.sin()], dim=1)
    directions = 2 * math.pi * torch.arange(3, dtype=torch.float64) / 3
    probabilities = torch.softmax(6 * torch.cos(angles[:, None] - directions), dim=1)
    costs = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.8], [0.3, 1.0, 0.0]], dtype=torch.float64)
    return World(features, probabilities, costs)


def fitted(features: Tensor, labels: Tensor, experts: int, weight_norm: float) -> Tensor:
    """Weights along the mean features of each label, fitted to the sample, of the given norm."""
    weights = features.T @ (torch.eye(experts, dtype=torch.float64)[labels] - 1 / experts)
    return weight_norm * weights / weights.norm()


@pytest.mark.parametrize("constant", ["paper", "sharp"])
def test_the_bound_holds_on_fresh_samples(constant: Constant) -> None:
    """200 samples of 20,000 rows.

    The bounds are below 1, so they say something, and fail at most as often as stated.
    """
    world, margins, delta = small_world(), torch.tensor([1.0, 0.9, 1.1], dtype=torch.float64), 0.05
    failures, bounds = 0, []
    for seed in range(200):
        inputs, labels = world.sample(20_000, seed)
        weights = fitted(world.features[inputs], labels, experts=3, weight_norm=2.0)
        scores = world.features[inputs] @ weights
        bound = margin_bound(
            scores,
            labels,
            world.costs[labels],
            margins,
            weight_norm=2.0,
            delta=delta,
            constant=constant,
        )
        failures += world.expected_cost(weights) > bound.total
        bounds.append(bound.total)
    assert max(bounds) < 1
    assert failures <= delta * 200


def test_the_deferral_bound_holds_on_fresh_samples() -> None:
    """The same world with rewards: one minus the cost of each expert, halved.

    The target is ``sum_k w_k 1[choice != k]``.
    """
    world, margins, delta = small_world(), torch.tensor([1.0, 0.9, 1.1], dtype=torch.float64), 0.05
    rewards_of_label, failures = (1 - world.costs) / 2, 0
    for seed in range(200):
        inputs, labels = world.sample(20_000, seed)
        weights = fitted(world.features[inputs], labels, experts=3, weight_norm=2.0)
        bound = deferral_margin_bound(
            world.features[inputs] @ weights,
            rewards_of_label[labels],
            margins,
            weight_norm=2.0,
            row_norms=torch.ones(20_000, dtype=torch.float64),
            delta=delta,
            constant="sharp",
        )
        missed = 1 - torch.eye(3, dtype=torch.float64)[(world.features @ weights).argmax(dim=1)]
        expected = float((missed * (world.probabilities @ rewards_of_label)).sum(dim=1).mean())
        failures += expected > bound.total
    assert failures <= delta * 200


def test_wider_margins_lower_the_complexity_and_raise_the_empirical_loss() -> None:
    problem = draw_problem(1, rows=50, experts=3)
    near, far = (
        margin_bound(
            problem.scores, problem.labels, problem.costs, factor * problem.margins, weight_norm=1.0
        )
        for factor in (1, 4)
    )
    assert far.complexity == pytest.approx(near.complexity / 4)
    assert far.empirical >= near.empirical


def test_the_total_is_the_sum_of_the_terms() -> None:
    assert MarginBound(0.5, 0.25, 0.125).total == 0.875


SCORES, LABELS, COSTS, MARGINS = (
    torch.zeros(4, 2),
    torch.tensor([0, 1, 0, 1]),
    torch.ones(4, 2),
    torch.ones(2),
)


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (
            lambda: margin_bound(SCORES, LABELS, 2 * COSTS, MARGINS, weight_norm=1.0),
            CostError,
            "2.0 to 2.0",
        ),
        (
            lambda: margin_bound(SCORES, LABELS, -COSTS, MARGINS, weight_norm=1.0),
            CostError,
            "-1.0 to -1.0",
        ),
        (
            lambda: margin_bound(SCORES, LABELS, COSTS, -MARGINS, weight_norm=1.0),
            MarginError,
            "-1.0",
        ),
        (
            lambda: margin_bound(SCORES[0], LABELS, COSTS[0], MARGINS, weight_norm=1.0),
            ShapeError,
            r"\(2,\)",
        ),
        (
            lambda: margin_bound(SCORES, LABELS, COSTS, MARGINS, weight_norm=1.0, delta=1.0),
            ArgumentError,
            "1.0",
        ),
        (
            lambda: margin_bound(SCORES, LABELS, COSTS, MARGINS, weight_norm=1.0, constant="best"),
            ArgumentError,
            "'best'",
        ),  # type: ignore[arg-type]
        (lambda: rademacher_bound(torch.ones(3), MARGINS, weight_norm=1.0), ShapeError, r"\(2,\)"),
        (
            lambda: empirical_margin_loss(SCORES, COSTS[:2], MARGINS),
            ShapeError,
            r"\(4, 2\) and \(2, 2\)",
        ),
        (lambda: empirical_margin_loss(SCORES, COSTS, 0 * MARGINS), MarginError, "0.0"),
        (
            lambda: deferral_margin_bound(
                SCORES, COSTS, MARGINS, weight_norm=1.0, row_norms=torch.ones(3)
            ),
            ShapeError,
            r"\(3,\)",
        ),
        (
            lambda: deferral_margin_bound(
                SCORES, COSTS, MARGINS, weight_norm=1.0, row_norms=torch.ones(4), delta=0.0
            ),
            ArgumentError,
            "0.0",
        ),
    ],
)
def test_bad_arguments_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
