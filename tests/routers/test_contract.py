"""What every router promises; a new one is found and tested before its author writes a test."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch  # before scikit-learn's checks measure anything
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mildroute.exceptions import (
    ArgumentError,
    ArtifactError,
    CostError,
    MildrouteError,
    ShapeError,
)
from mildroute.persistence import load_router, save_router
from mildroute.routers import KNNRouter, OnlineRouter
from tests.support.routers import SMALL_MILD, Array, every_router, module_names, problem, small

CLASS_COLUMNS = "asks predict_proba of what is no classifier for a column per class"

WEIGHT_CHECKS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_all_zero_sample_weights_error",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)

# Routers whose answer depends on the order of the experts by definition.
INDEX_MATTERS = {
    "RandomRouter": "an expert's draw is a hash of the row and the expert's index",
}

# Routers whose features or start differ for a sparse matrix: topics are sought in fewer columns,
# standard rows are not centered.
SPARSE_DIFFERS = {
    "CascadeRouter",
    "FrontierRouter",
    "MildRouter",
}

ROUTERS = every_router()
EVERY = pytest.mark.parametrize("kind", ROUTERS.values(), ids=ROUTERS)
EXPERTS = pytest.mark.parametrize("experts", [2, 3, 11])


@functools.cache
def fitted(kind: type[Any], experts: int) -> Any:
    """A router fitted on the usual problem; tests only ask it, so they share it."""
    return small(kind).fit(*problem(experts))


def assert_answers(router: Any, X: Any, experts: int) -> None:
    """Every answer has its shape, and the answers agree with each other."""
    rows = X.shape[0]
    posterior, scores, choice, order = (
        router.predict_proba(X),
        router.decision_function(X),
        router.predict(X),
        router.rank(X),
    )
    assert posterior.shape == scores.shape == order.shape == (rows, experts)
    assert choice.shape == (rows,)
    assert choice.dtype == order.dtype == np.intp
    assert np.isfinite(scores).all()
    assert posterior.min() >= 0
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(experts), (rows, 1)))
    np.testing.assert_array_equal(order[:, 0], choice)


def clear_rows(router: Any, X: Array) -> Any:
    """Rows on which the two most probable experts are not close."""
    top = np.sort(router.predict_proba(X), axis=1)[:, -2:]
    return top[:, 1] > 1.02 * top[:, 0]


def test_the_routers_are_found() -> None:
    assert {"FrontierRouter", "KNNRouter", "MildRouter", "RandomRouter", "TDEFRouter"} <= set(
        ROUTERS
    )
    assert not {"SurrogateRouter", "RouterMixin"} & set(ROUTERS)


@EVERY
def test_scikit_learn_accepts_it(kind: type[Any]) -> None:
    expected = {
        "check_estimator_sparse_array": CLASS_COLUMNS,
        "check_estimator_sparse_matrix": CLASS_COLUMNS,
    }
    if not kind.supports_sample_weight:  # a refusal of weights is an error to these checks
        expected |= dict.fromkeys(WEIGHT_CHECKS, "takes no sample_weight")
    check_estimator(kind(), expected_failed_checks=expected, on_skip=None)


@EXPERTS
@EVERY
def test_answers_have_their_shapes_and_agree(kind: type[Any], experts: int) -> None:
    X, _ = problem(experts, seed=1)
    assert_answers(fitted(kind, experts), X, experts)
    assert_answers(fitted(kind, experts), X[:1], experts)


@EXPERTS
@EVERY
def test_score_is_minus_the_mean_cost_that_was_paid(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts, seed=1)
    router, weights = fitted(kind, experts), np.arange(len(costs))
    paid = np.array([costs[row, expert] for row, expert in enumerate(router.predict(X))])
    assert router.score(X, costs) == pytest.approx(-paid.mean())
    assert router.score(X, costs, sample_weight=weights) == pytest.approx(
        -(paid * weights).sum() / weights.sum()
    )


@EVERY
def test_score_refuses_costs_of_other_experts(kind: type[Any]) -> None:
    X, costs = problem(3)
    with pytest.raises(ShapeError):
        fitted(kind, 2).score(X, costs)


@EXPERTS
@EVERY
def test_experts_of_equal_cost_are_answered_without_a_warning(
    kind: type[Any], experts: int
) -> None:
    X, _ = problem(experts)
    assert_answers(small(kind).fit(X, np.full((len(X), experts), 0.5)), X, experts)


@EXPERTS
@EVERY
def test_an_expert_that_never_wins_is_no_obstacle(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts)
    costs[:, 0] = 1
    assert_answers(small(kind).fit(X, costs), X, experts)


@EXPERTS
@EVERY
def test_twin_experts_are_treated_alike(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts)
    router = small(kind).fit(X, costs[:, [*range(experts), 0]])
    assert_answers(router, X, experts + 1)
    if kind.__name__ not in INDEX_MATTERS:
        posterior = router.predict_proba(X)
        np.testing.assert_allclose(posterior[:, 0], posterior[:, -1], atol=1e-4)


@EXPERTS
@EVERY
def test_constant_columns_are_no_obstacle(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts)
    beside = np.hstack([X, np.full((len(X), 1), 1e3), np.zeros((len(X), 1))])
    assert_answers(small(kind).fit(beside, costs), beside, experts)
    alike = np.full((len(X), 2), 123.456)
    assert_answers(small(kind).fit(alike, costs), alike, experts)


@EXPERTS
@EVERY
def test_one_row_is_enough_or_refused_in_words(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts, rows=1)
    try:
        router = small(kind).fit(X, costs)
    except MildrouteError as refusal:
        assert "row" in str(refusal)  # noqa: PT017  (a refusal is one of two right answers)
    else:
        assert_answers(router, X, experts)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@EVERY
def test_costs_that_are_not_finite_are_refused(kind: type[Any], value: float) -> None:
    X, costs = problem(3)
    costs[4, 1] = value
    if np.isnan(value) and kind is OnlineRouter:  # an expert that was not asked
        assert_answers(small(kind).fit(X, costs), X, 3)
        return
    with pytest.raises(CostError, match=r"finite.* 1 times"):
        small(kind).fit(X, costs)


@EVERY
def test_labels_are_refused(kind: type[Any]) -> None:
    X, costs = problem(3)
    with pytest.raises(ShapeError, match=r"\(80,\)"):
        small(kind).fit(X, costs.argmin(axis=1))


@EXPERTS
@EVERY
def test_the_order_of_the_experts_does_not_matter(kind: type[Any], experts: int) -> None:
    if kind.__name__ in INDEX_MATTERS:
        pytest.skip(INDEX_MATTERS[kind.__name__])
    X, costs = problem(experts)
    order = np.random.default_rng(0).permutation(experts)
    router, permuted = fitted(kind, experts), small(kind).fit(X, costs[:, order])
    np.testing.assert_allclose(
        permuted.predict_proba(X), router.predict_proba(X)[:, order], atol=1e-3
    )
    clear = clear_rows(router, X)
    np.testing.assert_array_equal(order[permuted.predict(X)][clear], router.predict(X)[clear])


@EXPERTS
@EVERY
def test_fitting_twice_gives_the_same_router_bit_for_bit(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts)
    router, again = fitted(kind, experts), clone(fitted(kind, experts)).fit(X, costs)
    for method in ("decision_function", "predict_proba", "rank"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(router, method)(X))


@EVERY
def test_a_clone_has_the_parameters_and_nothing_learned(kind: type[Any]) -> None:
    twin = clone(fitted(kind, 3))
    assert repr(twin.get_params()) == repr(small(kind).get_params())
    assert not hasattr(twin, "experts_")


@EXPERTS
@EVERY
def test_single_and_double_precision_agree(kind: type[Any], experts: int) -> None:
    X, costs = problem(experts, rows=120)
    single = X.astype(np.float32)
    routers = (small(kind).fit(single, costs), small(kind).fit(single.astype(np.float64), costs))
    assert (
        np.mean(routers[0].predict(single) == routers[1].predict(single.astype(np.float64))) >= 0.95
    )


@pytest.mark.parametrize(
    ("experts", "container"),
    [(2, sparse.csr_matrix), (3, sparse.csr_array), (11, sparse.csr_matrix)],
)
@EVERY
def test_sparse_rows_are_answered_as_dense_ones_are(
    kind: type[Any], experts: int, container: Any
) -> None:
    X, costs = problem(experts)
    X[np.abs(X) < 0.5] = 0
    router, dense = small(kind).fit(container(X), costs), small(kind).fit(X, costs)
    assert_answers(router, container(X), experts)
    for one in (router, dense):
        np.testing.assert_allclose(
            one.decision_function(container(X)), one.decision_function(X), rtol=1e-9, atol=1e-9
        )
    assert router.score(X, costs) == pytest.approx(dense.score(X, costs), abs=0.05)
    if kind.__name__ not in SPARSE_DIFFERS:
        assert np.mean(router.predict(X) == dense.predict(X)) >= 0.95


@EVERY
def test_arrays_that_may_not_be_written_to_are_welcome(
    kind: type[Any], torch_always_warns: None
) -> None:
    X, costs = problem(3)
    X.flags.writeable = costs.flags.writeable = False
    router = small(kind).fit(X, costs)
    np.testing.assert_array_equal(router.predict(X), fitted(kind, 3).predict(X))


@pytest.fixture
def torch_always_warns() -> Iterator[None]:
    """Torch tells of a read-only array once a process; here every time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@EVERY
def test_columns_of_a_frame_name_the_experts(kind: type[Any], frame: Any) -> None:
    X, costs = problem(3)
    router = small(kind).fit(
        X, frame({name: costs[:, place] for place, name in enumerate(["small", "large", "human"])})
    )
    assert router.experts_.tolist() == ["small", "large", "human"]
    assert fitted(kind, 3).experts_.tolist() == ["expert_0", "expert_1", "expert_2"]
    np.testing.assert_array_equal(router.predict(X), fitted(kind, 3).predict(X))
    assert router.score(X, frame(costs)) == fitted(kind, 3).score(X, costs)


@EVERY
def test_experts_are_named_by_an_argument_of_fit(kind: type[Any]) -> None:
    X, costs = problem(3)
    router = small(kind).fit(X, costs, experts=["small", "large", "human"])
    assert router.experts_.tolist() == ["small", "large", "human"]
    np.testing.assert_array_equal(router.predict(X), fitted(kind, 3).predict(X))
    with pytest.raises(ShapeError, match="experts must be 3 names, one for each column"):
        small(kind).fit(X, costs, experts=["small", "large"])


@EVERY
def test_fit_has_the_one_signature_and_refuses_what_the_router_cannot_take(
    kind: type[Any],
) -> None:
    X, costs = problem(3)
    router = small(kind)
    router.fit(X, costs, groups=np.arange(len(X)) % 2, progress=lambda _done, _total, _word: None)
    for name, value in (("prices", np.ones(3)), ("sample_weight", np.ones(len(X)))):
        if getattr(kind, f"supports_{name}"):
            router.fit(X, costs, **{name: value})
        else:
            with pytest.raises(ArgumentError, match=f"{kind.__name__} cannot take {name}"):
                router.fit(X, costs, **{name: value})


@EXPERTS
@EVERY
def test_a_stored_router_answers_bit_for_bit_as_before(
    kind: type[Any], experts: int, tmp_path: Path
) -> None:
    X, _ = problem(experts, seed=1)
    router = fitted(kind, experts)
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert type(loaded) is kind
    for method in ("decision_function", "predict", "predict_proba", "rank"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(router, method)(X))


@EVERY
def test_it_works_behind_a_scaler(kind: type[Any]) -> None:
    X, costs = problem(3)
    pipeline = make_pipeline(StandardScaler(), small(kind)).fit(X, costs)
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(
        pipeline.predict(X), small(kind).fit(scaled, costs).predict(scaled)
    )
    assert pipeline.score(X, costs) == pipeline[-1].score(scaled, costs)


def test_a_grid_search_finds_a_parameter_of_the_default_router() -> None:
    X, costs = problem(3)
    pipeline = make_pipeline(
        StandardScaler(),
        clone(SMALL_MILD).set_params(features="raw", margins="uniform", reward="gap"),
    )
    search = GridSearchCV(
        pipeline, {"mildrouter__alpha": [1e3, 0.01]}, cv=2, error_score="raise"
    ).fit(X, costs)
    assert search.best_params_ == {"mildrouter__alpha": 0.01}
    assert search.best_estimator_.predict(X).shape == (len(X),)
    assert search.best_score_ < 0


def test_groups_reach_the_default_router_by_keyword() -> None:
    X, costs, groups = grouped()
    router = clone(SMALL_MILD).set_params(features="groups").fit(X, costs, groups=groups)
    assert router.topics_.blocks_ == [2]
    assert router.score(X, costs) > -0.2


def test_groups_reach_the_default_router_through_a_pipeline() -> None:
    X, costs, groups = grouped()
    direct = (
        clone(SMALL_MILD)
        .set_params(features="groups")
        .fit(StandardScaler().fit_transform(X), costs, groups=groups)
    )
    with sklearn.config_context(enable_metadata_routing=True):
        router = clone(SMALL_MILD).set_params(features="groups").set_fit_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), router).fit(X, costs, groups=groups)
        np.testing.assert_array_equal(
            pipeline.predict_proba(X), direct.predict_proba(StandardScaler().fit_transform(X))
        )


def test_cross_val_predict_never_learns_from_labels_in_place_of_costs() -> None:
    X, costs = problem(3)
    routers = (clone(SMALL_MILD), make_pipeline(StandardScaler(), KNNRouter()))
    for router in routers:
        assert cross_val_predict(router, X, costs, cv=2).shape == (len(X),)
        assert not hasattr(router, "classes_")
        for method in ("predict_proba", "decision_function"):
            with pytest.raises(AttributeError, match="replaces costs with labels"):
                cross_val_predict(router, X, costs, cv=2, method=method)


def test_a_pipeline_of_scikit_learn_is_not_stored_and_told_why(tmp_path: Path) -> None:
    X, costs = problem(3)
    pipeline = make_pipeline(StandardScaler(), KNNRouter()).fit(X, costs)
    with pytest.raises(ArtifactError, match="store its last step"):
        save_router(pipeline, tmp_path / "router")
    save_router(pipeline[-1], tmp_path / "router")


def grouped() -> tuple[Array, Array, Any]:
    """Two groups far apart, each with an expert of its own."""
    X, _ = problem(2)
    groups = np.where(np.arange(len(X)) % 2, "law", "code")
    X[:, 0] += np.where(groups == "law", 3, -3)
    return X, np.stack([groups == "law", groups == "code"], axis=1).astype(float), groups


def test_importing_any_module_of_the_routers_loads_no_torch() -> None:
    code = f"import sys, {', '.join(module_names())}\nprint('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
