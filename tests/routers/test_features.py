"""Topic features: memberships that add up, and a group that no row gives away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from mildroute.exceptions import ArgumentError
from mildroute.routers.features import TopicFeatures, memberships, softmax_in_place

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 6))
GROUPS = np.array(["law", "code", "art"])[(X[:, 0] > 0.4).astype(int) + (X[:, 0] > -0.4)]


def topics(**settings: Any) -> TopicFeatures:
    return TopicFeatures(**{"clusters": (4,), "random_state": 0, **settings})


def test_memberships_sum_to_one_within_each_block() -> None:
    features = topics(clusters=(4, 7)).fit(X, groups=GROUPS)
    found = features.transform(X)
    assert features.blocks_ == [4, 7, 3]
    assert found.shape == (120, 14)
    assert found.min() >= 0
    for block in (found[:, :4], found[:, 4:11], found[:, 11:]):
        np.testing.assert_allclose(block.sum(axis=1), 1)


def test_a_membership_is_a_softmax_of_the_distances_to_the_centres() -> None:
    features = topics(temperature=0.5).fit(X)
    found = features.transform(X)
    logits = X @ features.weights_ + features.offsets_
    nearest = logits.argmax(axis=1)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected)
    centers = np.array([X[nearest == k].mean(axis=0) for k in range(4)])
    squares = ((X[:, None] - centers) ** 2).sum(axis=2)
    assert np.mean(squares.argmin(axis=1) == nearest) > 0.8


def test_a_higher_temperature_makes_softer_memberships() -> None:
    hard, soft = (
        topics(temperature=temperature).fit(X).transform(X).max(axis=1).mean()
        for temperature in (0.01, 1.0)
    )
    assert hard > 0.95 > 0.7 > soft


def test_groups_that_show_in_the_vector_are_recognised_without_being_told() -> None:
    found = topics(clusters=()).fit(X, groups=GROUPS).transform(X)
    assert np.mean(np.unique(GROUPS)[found.argmax(axis=1)] == GROUPS) > 0.85


@pytest.mark.parametrize("count", [2, 3])
def test_training_rows_do_not_reveal_a_group_that_is_noise(count: int) -> None:
    random = np.random.default_rng(1)
    noise, labels = random.normal(size=(900, 100)), random.integers(count, size=900)
    features = topics()
    own = features.fit_transform(noise, groups=labels)[np.arange(900), 4 + labels]
    in_sample = features.transform(noise)[np.arange(900), 4 + labels]
    error = own.std() / 30
    assert abs(own.mean() - 1 / count) < 3 * error
    assert in_sample.mean() - 1 / count > 5 * error


def test_training_rows_still_know_a_group_that_shows() -> None:
    found = topics(clusters=()).fit_transform(X, groups=GROUPS)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.mean(np.unique(GROUPS)[found.argmax(axis=1)] == GROUPS) > 0.8


def test_a_row_has_no_say_in_its_own_posterior() -> None:
    changed = GROUPS.copy()
    changed[7] = "law" if GROUPS[7] != "law" else "art"
    before, after = (
        topics(clusters=()).fit_transform(X, groups=groups) for groups in (GROUPS, changed)
    )
    np.testing.assert_array_equal(before[7], after[7])
    assert (before != after).any()


def test_clusters_of_training_rows_are_those_of_new_rows() -> None:
    features = topics()
    np.testing.assert_array_equal(
        features.fit_transform(X, groups=GROUPS)[:, :4], features.transform(X)[:, :4]
    )
    np.testing.assert_array_equal(topics().fit_transform(X), topics().fit(X).transform(X))


@pytest.mark.parametrize("groups", [None, np.zeros(120), ["one"] * 120])
def test_without_two_groups_there_is_no_group_block(groups: Any) -> None:
    features = topics()
    assert features.fit_transform(X, groups=groups).shape == (120, 4)
    assert features.blocks_ == [4]


@pytest.mark.filterwarnings("ignore:Only one sample")  # the next test is about that
def test_a_group_that_a_fold_has_not_seen_gets_no_membership_there() -> None:
    labels = GROUPS.astype("U5").copy()
    labels[5] = "alone"
    found = topics(clusters=()).fit_transform(X, groups=labels)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found[5, 0] == 0
    assert (found[:, 0] > 0).sum() >= 90


def test_a_group_of_one_row_is_no_reason_to_warn() -> None:
    labels = GROUPS.astype("U5").copy()
    labels[5] = "alone"
    assert topics(clusters=()).fit(X, groups=labels).blocks_ == [4]


@pytest.mark.filterwarnings("ignore:Only one sample")
def test_a_fold_that_has_seen_one_group_is_sure_of_it() -> None:
    labels = np.array(["common", "common", "common", "rare"])
    found = topics(clusters=(), cv=4).fit_transform(X[:4], groups=labels)
    np.testing.assert_array_equal(found[3], [1, 0])


def test_there_are_no_more_clusters_than_rows() -> None:
    assert topics(clusters=(20, 60)).fit(X[:12]).blocks_ == [12, 12]


def test_rows_all_alike_have_topics_too() -> None:
    found = topics().fit_transform(np.full((20, 3), 0.7), groups=np.arange(20) % 2)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, :4].sum(axis=1), 1)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_have_the_topics_of_dense_ones(container: Any) -> None:
    thin, dense = topics(), topics()
    np.testing.assert_allclose(
        thin.fit_transform(container(X), groups=GROUPS),
        dense.fit_transform(X, groups=GROUPS),
        atol=1e-12,
    )
    np.testing.assert_allclose(thin.transform(container(X)), dense.transform(X), atol=1e-12)


def test_wide_sparse_rows_are_brought_to_few_columns_first() -> None:
    random = np.random.default_rng(0)
    words = random.normal(size=(90, 700)) * (random.uniform(size=(90, 700)) < 0.02)
    words[:45, 3] = 2
    wide = sparse.csr_array(words)
    features = topics()
    trained = features.fit_transform(wide, groups=np.arange(90) < 45)
    assert features.weights_.shape == (700, 6)
    np.testing.assert_allclose(features.transform(wide), features.transform(words), atol=1e-9)
    np.testing.assert_allclose(trained[:, 4:].sum(axis=1), 1)
    assert np.mean((trained[:, 5] > 0.5) == (np.arange(90) < 45)) > 0.9


def test_single_precision_rows_have_nearly_the_same_topics() -> None:
    features = topics().fit(X, groups=GROUPS)
    np.testing.assert_allclose(
        features.transform(X.astype(np.float32)), features.transform(X), atol=1e-4
    )


def test_the_same_seed_gives_the_same_topics() -> None:
    np.testing.assert_array_equal(
        topics().fit_transform(X, groups=GROUPS), topics().fit_transform(X, groups=GROUPS)
    )
    assert (topics().fit(X).weights_ != topics(random_state=1).fit(X).weights_).any()


def test_clusters_can_be_had_without_the_groups() -> None:
    features = topics(clusters=(4, 7)).fit(X, groups=GROUPS)
    alone = features.without_groups()
    assert alone.blocks_ == [4, 7]
    np.testing.assert_array_equal(alone.transform(X), features.transform(X)[:, :11])
    assert features.blocks_ == [4, 7, 3]


def test_neither_clusters_nor_groups_are_refused() -> None:
    with pytest.raises(ArgumentError, match="clusters or groups"):
        topics(clusters=()).fit(X)


def test_groups_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="inconsistent"):
        topics().fit(X, groups=GROUPS[:-1])


def test_topics_that_were_not_learned_are_refused() -> None:
    for ask in (lambda: topics().transform(X), topics().without_groups):
        with pytest.raises(NotFittedError):
            ask()


def test_scikit_learn_accepts_the_transformer() -> None:
    check_estimator(topics(clusters=(3,)), on_skip=None)


def test_large_logits_overflow_nowhere() -> None:
    logits = np.array([[1e5, 0.0, 1e5]])
    softmax_in_place(logits)
    np.testing.assert_array_equal(logits, [[0.5, 0.0, 0.5]])
    np.testing.assert_array_equal(
        memberships(np.array([[1e4]]), np.array([[1e4, 0.0]]), np.zeros(2)), [[1.0, 0.0]]
    )
