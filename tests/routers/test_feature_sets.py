"""What a router may see of its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError
from mildroute.routers.feature_sets import FeatureSets, build_feature_sets
from mildroute.routers.features import TopicFeatures

X = np.random.default_rng(0).normal(size=(60, 4))
GROUPS = np.where(X[:, 0] > 0, "law", "code")
TOPICS = TopicFeatures(clusters=(5,), random_state=0)


def views(wanted: set[Any], groups: Any = GROUPS, features: Any = X) -> FeatureSets:
    return build_feature_sets(features, groups, wanted, TOPICS)


def spread(columns: Any) -> float:
    return float(np.var(columns, axis=0).sum())


@pytest.mark.parametrize(
    "wanted",
    [
        {"raw"},
        {"topics"},
        {"groups"},
        {"both"},
        {"raw", "both"},
        {"groups", "topics", "raw", "both"},
    ],
)
def test_the_wanted_views_are_given_and_no_other(wanted: set[Any]) -> None:
    assert set(views(wanted).features) == wanted


def test_each_view_has_its_columns() -> None:
    columns = {
        view: features.shape
        for view, features in views({"groups", "topics", "raw", "both"}).features.items()
    }
    assert columns == {"groups": (60, 2), "topics": (60, 7), "raw": (60, 4), "both": (60, 9)}


def test_the_raw_view_is_the_vector() -> None:
    assert views({"raw"}).features["raw"] is X


@pytest.mark.parametrize("groups", [None, np.zeros(60)])
def test_without_two_groups_their_view_is_left_out(groups: Any) -> None:
    found = views({"groups", "topics", "raw"}, groups)
    assert set(found.features) == {"topics", "raw"}
    assert found.features["topics"].shape == (60, 5)


@pytest.mark.parametrize("groups", [None, np.zeros(60)])
def test_groups_alone_need_groups(groups: Any) -> None:
    with pytest.raises(ArgumentError, match=r"two values.*topics"):
        views({"groups"}, groups)


def test_beside_the_vector_there_are_no_groups() -> None:
    with_groups, without = views({"both"}), views({"both"}, None)
    np.testing.assert_array_equal(with_groups.features["both"], without.features["both"])
    assert with_groups.topics["both"].blocks_ == [5]


def test_beside_topics_the_vector_varies_as_much_as_they_do() -> None:
    found = views({"both"})
    vector, clusters = found.features["both"][:, :4], found.features["both"][:, 4:]
    assert spread(vector) == pytest.approx(spread(clusters))
    np.testing.assert_allclose(vector, found.vector_scale * X)


@pytest.mark.parametrize("shift", [0.1, 1e3, 1e8])
def test_the_place_of_the_origin_does_not_move_the_scale_of_the_vector(shift: float) -> None:
    found = views({"both"}, features=X + shift)
    assert found.vector_scale == pytest.approx(
        np.sqrt(spread(found.features["both"][:, 4:]) / spread(X)), rel=1e-6
    )


@pytest.mark.parametrize("value", [0.0, 0.1, 123.456, 1e9])
def test_a_vector_that_never_varies_is_left_as_it_is(value: float) -> None:
    assert views({"both"}, None, np.full((60, 3), value)).vector_scale == 1


def test_without_clusters_the_vector_is_left_as_it_is() -> None:
    found = build_feature_sets(X, GROUPS, {"both"}, TopicFeatures(clusters=()))
    np.testing.assert_array_equal(found.features["both"], X)


def test_topics_of_new_rows_have_the_columns_of_the_training_rows() -> None:
    found = views({"groups", "topics", "both"})
    assert {view: topics.transform(X[:3]).shape for view, topics in found.topics.items()} == {
        "groups": (3, 2),
        "topics": (3, 7),
        "both": (3, 5),
    }


def test_groups_of_training_rows_are_out_of_fold() -> None:
    noise = np.random.default_rng(1).integers(2, size=60)
    found = views({"groups", "topics"}, noise)
    for view in ("groups", "topics"):
        assert np.abs(found.features[view] - found.topics[view].transform(X)).max() > 0.01  # type: ignore[index]


def test_the_template_stays_as_it_is() -> None:
    views({"groups", "topics", "both"})
    assert TOPICS.clusters == (5,)
    assert not hasattr(TOPICS, "weights_")


def test_sparse_vectors_stay_sparse() -> None:
    thin, dense = views({"raw", "both"}, features=sparse.csr_array(X)), views({"raw", "both"})
    assert sparse.issparse(thin.features["raw"])
    assert thin.features["both"].format == "csr"
    np.testing.assert_allclose(thin.features["both"].toarray(), dense.features["both"], atol=1e-12)
    assert thin.vector_scale == pytest.approx(dense.vector_scale)
