"""It learns what no linear router can, and does what every router must do."""

from pathlib import Path

import numpy as np
from mildroute.persistence import load_router, save_router
from mildroute.routers import RegressionRouter
from mildroute_plugin_fourier_router import FourierRouter
from sklearn.utils.estimator_checks import check_estimator

X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
COSTS = np.stack([X[:, 0] * X[:, 1] > 0, X[:, 0] * X[:, 1] <= 0], axis=1).astype(
    float
)  # who is right depends on two signs together


def test_it_learns_what_no_linear_router_can() -> None:
    assert FourierRouter(width=0.5).fit(X[:300], COSTS[:300]).score(X[300:], COSTS[300:]) > -0.1
    assert RegressionRouter().fit(X[:300], COSTS[:300]).score(X[300:], COSTS[300:]) < -0.3


def test_a_stored_router_answers_bit_for_bit_as_before(tmp_path: Path) -> None:
    router = FourierRouter().fit(X, COSTS)
    np.testing.assert_array_equal(
        load_router(save_router(router, tmp_path / "router")).predict_proba(X),
        router.predict_proba(X),
    )


def test_scikit_learn_accepts_it() -> None:
    why = "asks predict_proba of what is no classifier for a column per class"
    expected = {"check_estimator_sparse_array": why, "check_estimator_sparse_matrix": why}
    check_estimator(FourierRouter(), expected_failed_checks=expected, on_skip=None)
