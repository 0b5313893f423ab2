from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from torch import Tensor

from losses.cases import Problem, draw_problem, every_problem, problems, seeds
from losses.reference import each_row, ramp_row
from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses.bounds import (
    ComplexityEstimate,
    Constant,
    MarginBound,
    deferral_margin_bound,
    empirical_margin_loss,
    expected_margin_bound,
    margin_bound,
    rademacher_bound,
    rademacher_complexity,
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


def largest_linear_sum(features: Tensor, coefficients: Tensor, weight_norm: float) -> float:
    """``sup sum_ik a_ik w_k . x_i`` over weights of that norm, by SciPy and from its definition."""
    rows, inputs = features.shape
    start = np.random.default_rng(0).normal(size=inputs * coefficients.shape[1])

    def minus_sum(flat: np.ndarray) -> float:
        weights = weight_norm * flat.reshape(inputs, -1) / np.linalg.norm(flat)
        return -float((features.numpy() @ weights * coefficients.numpy()).sum())

    assert rows == len(coefficients)
    return -float(minimize(minus_sum, start, method="BFGS", options={"gtol": 1e-9}).fun)


def test_the_complexity_is_its_definition_over_all_signs() -> None:
    """Two rows and two experts have 16 matrices of signs."""
    features = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    labels, margins = torch.tensor([1, 0]), torch.tensor([0.5, 2.0], dtype=torch.float64)
    suprema = [
        largest_linear_sum(
            features,
            torch.tensor(signs, dtype=torch.float64).reshape(2, 2) / margins[labels][:, None],
            weight_norm=3.0,
        )
        for signs in itertools.product((-1, 1), repeat=4)
    ]
    estimate = rademacher_complexity(
        features,
        labels,
        margins,
        weight_norm=3.0,
        draws=4000,
        generator=torch.Generator().manual_seed(0),
    )
    assert estimate.standard_error < 0.02 * estimate.value
    exact = sum(suprema) / len(suprema) / 2
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds, experts=st.integers(2, 4), rows=st.integers(1, 30), weight_norm=st.floats(0.1, 9)
)
def test_the_estimated_complexity_is_below_its_bound(
    seed: int, experts: int, rows: int, weight_norm: float
) -> None:
    problem = draw_problem(seed, rows=rows, experts=experts)
    counts = torch.bincount(problem.labels, minlength=experts).double()
    norms = [
        max((row.norm().item() for row in problem.scores[problem.labels == k]), default=1.0)
        for k in range(experts)
    ]
    estimate = rademacher_complexity(
        problem.scores,
        problem.labels,
        problem.margins,
        weight_norm=weight_norm,
        draws=100,
        generator=torch.Generator().manual_seed(seed),
    )
    assert isinstance(estimate, ComplexityEstimate)
    assert estimate.value - 4 * estimate.standard_error <= rademacher_bound(
        counts,
        problem.margins,
        weight_norm=weight_norm,
        feature_norms=torch.tensor(norms, dtype=torch.float64),
    ) * (1 + 1e-9)


def log_log_price(margins: Tensor) -> float:
    """``sum_j log(pi^2 / 6) + 2 log log2(2 / rho_j)``, in plain Python."""
    return sum(
        math.log(math.pi**2 / 6) + 2 * math.log(math.log2(2 / rho)) for rho in margins.tolist()
    )


@settings(max_examples=300, deadline=None)
@given(
    problem=problems(max_rows=6),
    delta=st.floats(0.001, 0.5),
    constant=st.sampled_from(["paper", "sharp"]),
    uniform=st.booleans(),
)
def test_the_bounds_in_expectation_and_for_all_margins_by_their_formulas(
    problem: Problem, delta: float, constant: Constant, uniform: bool
) -> None:
    rows, experts = problem.scores.shape
    margins = problem.margins / problem.margins.max()
    shares = problem.counts + 1
    shares = shares / shares.sum()
    arguments = problem.scores, problem.labels, problem.costs, margins
    settings: dict[str, Any] = {
        "weight_norm": 2.0,
        "feature_norms": 1.5,
        "delta": delta,
        "constant": constant,
        "uniform": uniform,
    }
    lipschitz = 2 * math.sqrt(experts) if constant == "paper" else math.sqrt(2)
    factor = (2 if uniform else 1) * 2 * math.sqrt(2) * lipschitz
    price = log_log_price(margins) if uniform else 0.0
    spread = sum(
        rows * share * 1.5**2 / rho**2
        for share, rho in zip(shares.tolist(), margins.tolist(), strict=True)
    )
    found = expected_margin_bound(*arguments, label_shares=shares, **settings)
    assert found.empirical == pytest.approx(cost_sensitive_margin_loss(*arguments).item())
    assert found.complexity == pytest.approx(
        factor * math.sqrt(experts) * 2.0 / rows * math.sqrt(spread)
    )
    assert found.confidence == pytest.approx(math.sqrt((math.log(1 / delta) + price) / (2 * rows)))
    sample = sum(1.5**2 / margins[label].item() ** 2 for label in problem.labels.tolist())
    found = margin_bound(*arguments, **settings)
    assert found.complexity == pytest.approx(
        factor * math.sqrt(experts) * 2.0 / rows * math.sqrt(sample)
    )
    assert found.confidence == pytest.approx(
        3 * math.sqrt((math.log(2 / delta) + price) / (2 * rows))
    )


@settings(max_examples=300, deadline=None)
@given(problem=problems(max_rows=6))
def test_the_deferral_bound_for_all_margins_pays_the_same_price(problem: Problem) -> None:
    margins = problem.margins / problem.margins.max()
    fixed, uniform = (
        deferral_margin_bound(
            problem.scores,
            problem.rewards,
            margins,
            weight_norm=2.0,
            row_norms=torch.ones(len(problem.scores)),
            uniform=name,
        )
        for name in (False, True)
    )
    assert uniform.empirical == fixed.empirical
    assert uniform.complexity == pytest.approx(2 * fixed.complexity)
    price = log_log_price(margins) / math.log(2 / 0.05)
    assert uniform.confidence == pytest.approx(fixed.confidence * math.sqrt(1 + price))


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_rows=4), rho=st.floats(1e-6, 1))
def test_the_grid_behind_the_uniform_bound(problem: Problem, rho: float) -> None:
    """The steps of its proof: a power of 1/2 from half of the margin up to it has no larger margin
    loss, at most twice the complexity, and a number i of at most ``log2(2 / rho)``.
    """
    i = math.floor(math.log2(1 / rho)) + 1
    assert rho / 2 <= 2.0**-i < rho or 2.0**-i == pytest.approx(rho / 2)
    assert i <= math.log2(2 / rho) * (1 + 1e-12)
    arguments = problem.scores, problem.labels, problem.costs
    own, below = (
        torch.full_like(problem.margins, margin).requires_grad_(False) for margin in (rho, 2.0**-i)
    )
    assert cost_sensitive_margin_loss(*arguments, below) <= cost_sensitive_margin_loss(
        *arguments, own
    )
    counts = problem.counts + 1
    assert rademacher_bound(counts, below, weight_norm=1.0) <= 2 * rademacher_bound(
        counts, own, weight_norm=1.0
    ) * (1 + 1e-12)


def test_the_shares_of_the_grid_sum_to_one() -> None:
    """``6 / pi^2 * sum_i 1 / i^2``, so the probabilities of being wrong add up to delta."""
    total = sum(6 / math.pi**2 / i**2 for i in range(1, 200_000))
    assert total == pytest.approx(1, abs=1e-5)


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


@pytest.mark.parametrize("uniform", [False, True])
def test_the_bound_in_expectation_holds_on_fresh_samples(uniform: bool) -> None:
    """With ``uniform`` the margins are those of the lowest bound on each sample."""
    world, delta, failures = small_world(), 0.05, 0
    shares = world.probabilities.mean(dim=0)
    sizes = (0.25, 0.5, 1.0) if uniform else (1.0,)
    choices = [
        torch.tensor(margins, dtype=torch.float64) for margins in itertools.product(sizes, repeat=3)
    ]
    for seed in range(100):
        inputs, labels = world.sample(20_000, seed)
        weights = fitted(world.features[inputs], labels, experts=3, weight_norm=2.0)
        scores = world.features[inputs] @ weights
        bounds = [
            expected_margin_bound(
                scores,
                labels,
                world.costs[labels],
                margins,
                label_shares=shares,
                weight_norm=2.0,
                delta=delta,
                constant="sharp",
                uniform=uniform,
            ).total
            for margins in choices
        ]
        assert min(bounds) < 1
        failures += world.expected_cost(weights) > min(bounds)
    assert failures <= delta * 100


def test_the_uniform_bound_holds_for_margins_chosen_on_the_sample() -> None:
    world, delta, failures = small_world(), 0.05, 0
    choices = [
        torch.tensor(margins, dtype=torch.float64)
        for margins in itertools.product((0.25, 0.5, 1.0), repeat=3)
    ]
    for seed in range(100):
        inputs, labels = world.sample(20_000, seed)
        weights = fitted(world.features[inputs], labels, experts=3, weight_norm=2.0)
        arguments = world.features[inputs] @ weights, labels, world.costs[labels]
        lowest = min(
            margin_bound(
                *arguments, margins, weight_norm=2.0, delta=delta, constant="sharp", uniform=True
            ).total
            for margins in choices
        )
        assert lowest < 1
        failures += world.expected_cost(weights) > lowest
    assert failures <= delta * 100


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
            lambda: margin_bound(SCORES, LABELS, COSTS, 2 * MARGINS, weight_norm=1.0, uniform=True),
            MarginError,
            "at most 1, got 2.0",
        ),
        (
            lambda: expected_margin_bound(
                SCORES, LABELS, COSTS, MARGINS, label_shares=MARGINS, weight_norm=1.0
            ),
            ArgumentError,
            "sum to 1",
        ),
        (
            lambda: rademacher_complexity(SCORES, LABELS[:2], MARGINS, weight_norm=1.0),
            ShapeError,
            r"\(4, 2\) and \(2,\)",
        ),
        (
            lambda: rademacher_complexity(SCORES, LABELS, MARGINS, weight_norm=1.0, draws=1),
            ArgumentError,
            "got 1",
        ),
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
