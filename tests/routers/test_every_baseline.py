"""What every baseline must survive, beside scikit-learn's own checks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from mildroute.exceptions import install_command
from tests.support.baselines import BASELINES, LEARNERS, Array, noisy, quick, separable, tuned

FOUR_CLASSES = "it asks predict_proba for four classes"
EVERY = pytest.mark.parametrize("kind", BASELINES, ids=lambda kind: kind.__name__)


@EVERY
def test_scikit_learn_accepts_it(kind: Any) -> None:
    expected = {
        "check_estimator_sparse_array": FOUR_CLASSES,
        "check_estimator_sparse_matrix": FOUR_CLASSES,
    }
    check_estimator(quick(kind), expected_failed_checks=expected, on_skip=None)


def degenerate() -> dict[str, tuple[Array, Array]]:
    X, costs = noisy(40)
    never = costs.copy()
    never[:, 1] = 5.0
    return {
        "one row": (X[:1], costs[:1]),
        "two rows": (X[:2], costs[:2]),
        "an expert that never wins": (X, never),
        "an expert that always wins": (X, np.where(np.arange(3) == 1, 0.0, 1.0) + 0 * costs),
        "twin experts": (X, costs[:, [0, 1, 1]]),
        "costs all equal": (X, np.full((40, 3), 0.5)),
        "costs all one": (X, np.ones((40, 3))),
        "costs all zero": (X, np.zeros((40, 3))),
        "constant columns": (np.hstack([X, np.full((40, 2), 1e6)]), costs),
        "no column varies": (np.zeros((40, 2)), costs),
        "rows all alike": (np.tile(X[:1], (40, 1)), costs),
        "negative costs": (X, costs - 3),
        "large costs": (X, 1e6 * costs),
        "tiny costs": (X, 1e-9 * costs),
        "large features": (1e8 * X + 1e9, costs),
        "more columns than rows": (np.random.default_rng(1).normal(size=(12, 40)), costs[:12]),
        "one expert": (X, costs[:, :1]),
    }


@pytest.mark.parametrize("case", degenerate())
@EVERY
def test_degenerate_data_gives_a_router_without_a_warning(kind: Any, case: str) -> None:
    X, costs = degenerate()[case]
    router = tuned(kind).fit(X, costs)
    probabilities = router.predict_proba(X)
    assert np.isfinite(router.decision_function(X)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.min() >= 0
    assert np.isin(router.predict(X), np.arange(costs.shape[1])).all()
    np.testing.assert_array_equal(router.rank(X)[:, 0], router.predict(X))


@EVERY
def test_one_expert_is_always_chosen(kind: Any) -> None:
    X, costs = noisy()
    router = quick(kind).fit(X, costs[:, :1])
    assert not router.predict(X).any()
    np.testing.assert_allclose(router.predict_proba(X), 1)


@EVERY
def test_fitting_twice_gives_the_same_router(kind: Any) -> None:
    X, costs = noisy()
    first, second = quick(kind).fit(X, costs), quick(kind).fit(X, costs)
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))
    np.testing.assert_array_equal(
        clone(first).fit(X, costs).decision_function(X), first.decision_function(X)
    )


@EVERY
def test_a_row_is_routed_alike_in_any_batch_and_order(kind: Any) -> None:
    X, costs = noisy()
    router = quick(kind).fit(X, costs)
    scores = router.decision_function(X)
    np.testing.assert_allclose(
        router.decision_function(X[::-1])[::-1], scores, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        np.vstack([router.decision_function(row[None]) for row in X]), scores, rtol=1e-9, atol=1e-12
    )


@EVERY
def test_rows_of_weight_zero_are_absent(kind: Any) -> None:
    X, costs = noisy()
    weights = (np.arange(len(X)) % 3 > 0).astype(float)
    weighted = quick(kind).fit(X, costs, sample_weight=weights)
    absent = quick(kind).fit(
        X[weights > 0], costs[weights > 0], sample_weight=np.ones(int(weights.sum()))
    )
    np.testing.assert_allclose(
        weighted.decision_function(X), absent.decision_function(X), rtol=1e-6, atol=1e-9
    )


@EVERY
def test_the_unit_of_the_weights_does_not_matter(kind: Any) -> None:
    X, costs = noisy()
    weights = np.random.default_rng(3).uniform(0.5, 2, len(X))
    one, other = (quick(kind).fit(X, costs, sample_weight=unit * weights) for unit in (1.0, 64.0))
    np.testing.assert_allclose(
        one.decision_function(X), other.decision_function(X), rtol=1e-5, atol=1e-6
    )


@EVERY
def test_single_precision_rows_are_welcome(kind: Any) -> None:
    X, costs = separable()
    rounded = X.astype(np.float32)
    router = quick(kind).fit(rounded, costs)
    exact = quick(kind).fit(rounded.astype(np.float64), costs)
    assert np.mean(router.predict(rounded) == exact.predict(rounded.astype(np.float64))) > 0.98


@EVERY
def test_sparse_rows_are_welcome(kind: Any) -> None:
    X, costs = separable()
    X = np.hstack([X, np.zeros((len(X), 3))])
    router = quick(kind).fit(sparse.csr_matrix(X), costs)
    np.testing.assert_allclose(
        router.decision_function(sparse.csr_array(X)),
        router.decision_function(X),
        rtol=1e-9,
        atol=1e-9,
    )
    if kind in LEARNERS:
        assert router.score(sparse.csr_matrix(X), costs) > -0.2


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_a_learner_finds_the_right_expert_where_it_is_plain(kind: Any) -> None:
    X, costs = separable(600)
    X_new, costs_new = separable(300, seed=1)
    assert quick(kind).fit(X, costs).score(X_new, costs_new) > -0.12


@EVERY
def test_fitted_attributes_are_plain(kind: Any) -> None:
    X, costs = noisy()
    router = quick(kind).fit(sparse.csr_matrix(X), costs)
    values = [value for name, value in vars(router).items() if name not in router.get_params()]
    entries = [
        entry for value in values for entry in (value if isinstance(value, list) else [value])
    ]
    assert {type(entry) for entry in entries} <= {int, float, str, type(None), np.ndarray}


def test_importing_the_baselines_does_not_load_torch() -> None:
    names = sorted({kind.__module__ for kind in BASELINES})
    code = f"import sys, {', '.join(names)}\nprint('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
"""


@pytest.mark.parametrize(
    "name",
    [
        "surrogate.LDAMRouter",
    ],
)
def test_fitting_without_torch_names_the_command_that_installs_it(name: str) -> None:
    module, kind = name.split(".")
    code = (
        f"from mildroute.routers.{module} import {kind}\n{kind}().fit([[0.0], [1.0]], [[0, 1], [1,"
        " 0]])"
    )
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], capture_output=True, text=True, check=False
    )
    assert run.stderr.splitlines()[-1].endswith(
        f"MissingExtraError: fitting this router needs torch; run: {install_command('torch')}"
    )
