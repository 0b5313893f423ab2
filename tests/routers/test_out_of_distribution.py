"""What to expect of experts, and which inputs are unlike the training data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute import TextRouter
from mildroute.exceptions import ArgumentError
from mildroute.persistence import load_router, save_router
from mildroute.routers.out_of_distribution import OutcomeModel


def linear_world(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    truth = np.stack([0.5 + 0.1 * X[:, 0], np.full(rows, 0.3)], axis=1)
    return X, truth, truth + rng.normal(scale=0.05, size=truth.shape)


def test_expected_scores_and_dollars_are_those_of_the_world() -> None:
    X, _, errors = linear_world(3000)
    dollars = np.stack([0.001 * (2 + X[:, 1]), np.full(len(X), 0.01)], axis=1)
    outlook = OutcomeModel().fit(X, errors, prices=dollars)
    fresh, truth, _ = linear_world(500, seed=1)
    scores, paid = outlook.expected(fresh)
    assert paid is not None
    np.testing.assert_allclose(scores, 1 - truth, atol=0.02)
    np.testing.assert_allclose(
        paid,
        np.maximum(np.stack([0.001 * (2 + fresh[:, 1]), np.full(500, 0.01)], axis=1), 0),
        atol=1e-4,
    )


def test_scores_stay_between_0_and_1_and_dollars_above_0() -> None:
    X, _, errors = linear_world(300)
    scores, paid = OutcomeModel().fit(X, errors, prices=[0.1, 0.2]).expected(100 * X)
    assert paid is not None
    assert scores.min() >= 0
    assert scores.max() <= 1
    assert paid.min() >= 0


@pytest.mark.parametrize("ood_rate", [0.02, 0.1])
def test_of_usual_inputs_at_most_the_stated_share_is_far(ood_rate: float) -> None:
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_t(3, size=(500, 3))  # heavy tails: the bound holds for any distribution
        outlook = OutcomeModel(ood_rate=ood_rate).fit(X, np.zeros((500, 2)))
        shares.append(outlook.is_out_of_distribution(rng.standard_t(3, size=(2000, 3))).mean())
    # On average over training sets, at most the share; and not much less, or the bound would be
    # worth little.
    assert np.mean(shares) <= ood_rate + 3 * np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) >= ood_rate / 2


def test_an_input_unlike_all_others_is_far() -> None:
    X, _, errors = linear_world(1000)
    model = OutcomeModel().fit(X, errors)
    assert model.is_out_of_distribution(np.full((1, 4), 30.0)).tolist() == [True]


def test_the_best_single_expert_depends_on_the_price_of_quality() -> None:
    outlook = OutcomeModel().fit(np.zeros((4, 1)), [[0.2, 0.1]] * 4, prices=[0.001, 0.01])
    assert (outlook.best_single(0), outlook.best_single(100)) == (1, 0)


def test_rows_without_weight_teach_nothing() -> None:
    X, _, errors = linear_world(200)
    weights = np.r_[np.ones(100), np.zeros(100)]
    spoiled = np.r_[errors[:100], np.full((100, 2), 50.0)]
    all_rows, half = (
        OutcomeModel().fit(X, spoiled, weights),
        OutcomeModel().fit(X[:100], errors[:100]),
    )
    np.testing.assert_allclose(all_rows.expected(X)[0], half.expected(X)[0])
    np.testing.assert_allclose(all_rows.landmarks_, half.landmarks_)


def test_two_rows_are_enough_and_surprise_is_checked() -> None:
    assert OutcomeModel().fit([[0.0], [1.0]], [[0, 1], [1, 0]]).is_out_of_distribution(
        np.array([[0.0]])
    ).tolist() == [False]
    with pytest.raises(ArgumentError, match="between 0 and 1, got 2"):
        OutcomeModel(ood_rate=2).fit([[0.0], [1.0]], [[0, 1], [1, 0]])


def test_an_artifact_carries_the_outlook(tmp_path: Path) -> None:
    texts = ["what is 2 + 2", "write a poem"] * 30
    router = TextRouter().fit(texts, [[0, 1], [1, 0]] * 30)
    loaded = load_router(save_router(router, tmp_path / "router"))
    vectors = router.encoder_.transform(texts)
    assert router.outcome_model_ is not None
    router.outcome_model_.is_out_of_distribution(vectors)  # leaves transient arrays behind
    save_router(router, tmp_path / "again")
    np.testing.assert_array_equal(
        loaded.outcome_model_.expected(vectors)[0], router.outcome_model_.expected(vectors)[0]
    )  # type: ignore[attr-defined]
    np.testing.assert_array_equal(
        loaded.outcome_model_.is_out_of_distribution(vectors),
        router.outcome_model_.is_out_of_distribution(vectors),
    )  # type: ignore[attr-defined]
