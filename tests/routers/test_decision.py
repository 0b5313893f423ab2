"""The decision in NumPy against the one in torch, and against what defines it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mildroute.losses.decision import log_posterior as core_log_posterior, rank as core_rank
from mildroute.routers._decision import break_ties, log_posterior, log_softmax
from mildroute.routers._order import argsort_desc

Array = NDArray[np.float64]


def draw(experts: int, spread: float, ratio: float, rows: int = 40) -> tuple[Array, Array]:
    random = np.random.default_rng([experts, int(spread), int(ratio)])
    margins = np.exp(random.uniform(0, np.log(ratio), experts))
    margins[:2] = 1, ratio
    return spread * random.uniform(-1, 1, (rows, experts)), margins


@pytest.mark.parametrize("ratio", [1, 3, 1000])
@pytest.mark.parametrize("spread", [1, 30, 1e4])
@pytest.mark.parametrize("experts", range(2, 31))
def test_it_equals_the_posterior_of_the_core(experts: int, spread: float, ratio: float) -> None:
    scores, margins = draw(experts, spread, ratio)
    expected = core_log_posterior(torch.from_numpy(scores), torch.from_numpy(margins)).numpy()
    with np.errstate(over="ignore"):  # the next test is about that
        found = log_posterior(scores, margins)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_scores_far_apart_overflow_nowhere() -> None:
    scores, margins = np.array([[1e4, 0.0, 3.0]]), np.array([1.0, 2.0, 3.0])
    expected = core_log_posterior(torch.from_numpy(scores), torch.from_numpy(margins)).numpy()
    np.testing.assert_allclose(log_posterior(scores, margins), expected, rtol=1e-10)


@pytest.mark.parametrize("experts", [2, 5, 11])
def test_the_posterior_balances_the_gradient(experts: int) -> None:
    """With q = posterior / margins and S[k, j] = softmax_j(scores / margin_k), q S = q."""
    scores, margins = draw(experts, 3, 10)
    posterior = np.exp(log_posterior(scores, margins))
    for row, shares in zip(scores, posterior / margins, strict=True):
        chain = np.array([np.exp(row / margin) / np.exp(row / margin).sum() for margin in margins])
        np.testing.assert_allclose(shares @ chain, shares, atol=1e-13)


def test_equal_margins_give_the_softmax() -> None:
    scores = np.array([[0.0, 2 * np.log(3)]])
    np.testing.assert_allclose(np.exp(log_posterior(scores, np.array([2.0, 2.0]))), [[0.25, 0.75]])


def test_a_constant_added_to_a_row_changes_nothing() -> None:
    scores, margins = draw(4, 3, 10)
    np.testing.assert_allclose(
        log_posterior(scores + 1e3, margins), log_posterior(scores, margins), atol=1e-10
    )


def test_rows_in_several_blocks_are_decoded_as_one_by_one() -> None:
    scores, margins = draw(30, 3, 10, rows=1500)
    found = log_posterior(scores, margins)
    np.testing.assert_allclose(
        found[[0, 1164, 1165, 1499]],
        np.vstack([log_posterior(scores[[k]], margins) for k in (0, 1164, 1165, 1499)]),
    )


@pytest.mark.parametrize("margins", [[1.0, 1.0], [1.0, 2.0]])
def test_no_rows_give_no_rows(margins: list[float]) -> None:
    assert log_posterior(np.empty((0, 2)), np.array(margins)).shape == (0, 2)


def test_one_expert_is_certain() -> None:
    np.testing.assert_array_equal(
        log_posterior(np.array([[3.0], [-7.0]]), np.array([2.0])), [[0.0], [0.0]]
    )


def test_the_softmax_of_large_values_is_finite() -> None:
    np.testing.assert_allclose(
        log_softmax(np.array([[1e6, 0.0, 1e6]])), [[-np.log(2), -1e6 - np.log(2), -np.log(2)]]
    )


def test_experts_equal_but_for_rounding_tie() -> None:
    found = break_ties(np.array([[-1.0, -1.0 - 1e-13, -2.0]]), np.zeros((1, 3)))
    assert found[0, 0] == found[0, 1] > found[0, 2]


def test_experts_without_hope_come_last_by_their_scores() -> None:
    found = break_ties(np.array([[0.0, -np.inf, -np.inf, -5e8]]), np.array([[9.0, 1.0, 2.0, 0.0]]))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(argsort_desc(found), [[0, 3, 2, 1]])


@pytest.mark.parametrize("experts", [2, 3, 11])
def test_the_ranking_is_that_of_the_core(experts: int) -> None:
    scores, margins = draw(experts, 30, 10, rows=200)
    expected = core_rank(torch.from_numpy(scores), torch.from_numpy(margins)).numpy()
    np.testing.assert_array_equal(
        argsort_desc(break_ties(log_posterior(scores, margins), scores)), expected
    )
