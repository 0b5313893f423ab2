from __future__ import annotations

import numpy as np
from scipy import sparse

from mildroute.routers.training_rows import drop_zero_weight


def test_rows_of_weight_zero_go_and_the_others_stay() -> None:
    X, costs = np.arange(6.0).reshape(3, 2), np.arange(3.0)[:, None]
    kept, kept_costs, kept_weights = drop_zero_weight(
        sparse.csr_array(X), costs, np.array([0.5, 0.0, 2.0])
    )
    np.testing.assert_array_equal(kept.toarray(), X[[0, 2]])
    np.testing.assert_array_equal(kept_costs, costs[[0, 2]])
    np.testing.assert_array_equal(kept_weights, [0.5, 2.0])


def test_nothing_is_copied_where_every_row_counts() -> None:
    X, costs, weights = np.eye(2), np.eye(2), np.ones(2)
    assert drop_zero_weight(X, costs, weights)[0] is X
    assert drop_zero_weight(X, costs, None) == (X, costs, None)
