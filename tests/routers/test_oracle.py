from __future__ import annotations

import numpy as np

from mildroute.routers.oracle import OracleRouter
from tests.support.baselines import noisy

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
COSTS = np.array([[0.1, 0.9, 0.5], [0.8, 0.2, 0.4], [0.6, 0.5, 0.3]])


def test_the_score_is_the_mean_of_the_lowest_costs() -> None:
    rows, costs = noisy(200)
    assert np.isclose(OracleRouter().fit(rows, costs).score(rows, costs), -costs.min(axis=1).mean())


def test_known_rows_get_their_cheapest_expert_in_any_order() -> None:
    oracle = OracleRouter().fit(X, COSTS)
    np.testing.assert_array_equal(oracle.predict(X[[2, 0, 1]]), [2, 0, 1])
    np.testing.assert_array_equal(oracle.rank(X[:1]), [[0, 2, 1]])


def test_unknown_rows_get_the_best_single_expert() -> None:
    oracle = OracleRouter().fit(X, COSTS)
    np.testing.assert_array_equal(oracle.predict([[9.0, 9.0], [-9.0, 0.0]]), [2, 2])
    np.testing.assert_allclose(oracle.decision_function([[9.0, 9.0]])[0], -COSTS.mean(axis=0))


def test_rows_of_equal_content_share_the_mean_of_their_costs() -> None:
    twins = np.array([[1.0], [1.0], [5.0]])
    costs = np.array([[0.0, 0.6], [1.0, 0.6], [0.0, 1.0]])
    assert OracleRouter().fit(twins, costs).predict([[1.0]])[0] == 0
    assert OracleRouter().fit(twins, costs, sample_weight=[1, 2, 1]).predict([[1.0]])[0] == 1


def test_rows_of_weight_zero_stay_unknown() -> None:
    oracle = OracleRouter().fit(X, COSTS, sample_weight=[0, 1, 1])
    assert oracle.predict(X[:1])[0] == 1 or oracle.predict(X[:1])[0] == 2
    assert len(oracle.hashes_) == 2
