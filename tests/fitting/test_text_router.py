"""Encoder and router in one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from mildroute import TextRouter
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.exceptions import ArgumentError, MildrouteError, ShapeError
from mildroute.fitting.text_router import DEFAULT_ENCODER
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest
from mildroute.routers.base import RouterMixin
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from tests.support.routers import SMALL_MILD

SUMS = ["what is 2 + 2", "add 3 and 4", "what is 7 + 1", "add 5 and 9"] * 10
POEMS = ["write a poem", "tell a story", "write a song", "tell a joke"] * 10
TEXTS = SUMS + POEMS
# The second expert is always right, the first only at sums.
ERRORS = np.array([[0.0, 0.0]] * len(SUMS) + [[1.0, 0.0]] * len(POEMS))
COSTS = np.array([[0.0, 1.0]] * len(SUMS) + [[1.0, 0.0]] * len(POEMS))
PRICES = np.array([0.001, 0.01])
FRONTIER = FrontierRouter(router=SMALL_MILD, price_weights=(0, 10, 1000))


class Remembering(RouterMixin, BaseEstimator):
    """Takes no groups and no prices."""

    def _fit(self, X: Any, costs: Any, sample_weight: Any) -> None:  # noqa: ARG002
        self.seen_ = X.shape, sample_weight

    def _scores(self, X: Any) -> Any:
        return np.zeros((X.shape[0], 2))


def test_without_prices_the_default_is_the_mild_router_on_the_default_encoder() -> None:
    router = TextRouter().fit(TEXTS, ERRORS[:, ::-1])
    assert type(router.router_) is MildRouter
    assert type(router.encoder_) is type(DEFAULT_ENCODER())


def test_prices_bring_the_frontier_and_a_price_weight() -> None:
    router = TextRouter(router=FRONTIER).fit(TEXTS, ERRORS, prices=PRICES)
    shares = [router.predict(TEXTS, price_weight=weight).mean() for weight in (0, 10, 1000)]
    assert shares == [1.0, 0.5, 0.0]
    per_row = router.predict(["add 2 and 3", "write a poem"], price_weight=[0, 1000])
    assert per_row.tolist() == [1, 0]
    assert type(TextRouter().fit(TEXTS, ERRORS, prices=PRICES).router_) is FrontierRouter


def test_answers_are_those_of_the_router_on_the_vectors() -> None:
    router = TextRouter(encoder=TfidfEncoder(), router=SMALL_MILD).fit(TEXTS, ERRORS)
    vectors = TfidfEncoder().fit_transform(TEXTS)
    alone = clone(SMALL_MILD).fit(vectors, ERRORS)
    for method in ("predict", "predict_proba", "decision_function", "rank"):
        np.testing.assert_array_equal(
            getattr(router, method)(TEXTS), getattr(alone, method)(vectors)
        )
    assert router.score(TEXTS, ERRORS) == alone.score(vectors, ERRORS)


def test_a_router_is_given_what_it_can_take() -> None:
    router = TextRouter(router=Remembering()).fit(
        TEXTS, ERRORS, groups=["a", "b"] * 40, sample_weight=np.ones(80)
    )
    assert router.router_.seen_[1].shape == (80,)
    with pytest.raises(ArgumentError, match="Remembering cannot take prices"):
        TextRouter(router=Remembering()).fit(TEXTS, ERRORS, prices=PRICES)
    with pytest.raises(ArgumentError, match="Remembering does not support price_weight"):
        router.predict(TEXTS, price_weight=1.0)


def test_an_estimator_that_is_no_router_is_refused() -> None:
    with pytest.raises(ArgumentError, match="derive from RouterMixin, got Ridge"):
        TextRouter(router=Ridge()).fit(TEXTS, ERRORS)


def test_groups_reach_a_router_that_knows_them() -> None:
    router = TextRouter(router=clone(SMALL_MILD).set_params(features="groups")).fit(
        TEXTS, COSTS, groups=["sum"] * 40 + ["poem"] * 40
    )
    assert router.router_.topics_.blocks_[-1] == 2


def test_names_of_experts_come_from_a_data_frame() -> None:
    frame = pd.DataFrame(ERRORS, columns=["small", "large"])
    assert TextRouter(router=RegressionRouter()).fit(TEXTS, frame).experts_.tolist() == [
        "small",
        "large",
    ]


def test_names_of_experts_are_those_that_fit_is_given() -> None:
    router = TextRouter(router=RegressionRouter()).fit(TEXTS, ERRORS, experts=["small", "large"])
    assert router.experts_.tolist() == ["small", "large"]
    with pytest.raises(ShapeError, match="experts must be 2 names, one for each column"):
        TextRouter(router=RegressionRouter()).fit(TEXTS, ERRORS, experts=["small"])


def test_a_router_that_is_not_fitted_says_so_and_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        TextRouter().predict(TEXTS)
    with pytest.raises(MildrouteError, match="call fit first"):
        save_router(TextRouter(), tmp_path / "router")


def test_a_failed_fit_leaves_the_fitted_router_as_it_was() -> None:
    router = TextRouter(router=RegressionRouter()).fit(TEXTS, ERRORS)
    before = router.predict_proba(TEXTS)
    with pytest.raises(ValueError, match="inconsistent"):
        router.fit(TEXTS[:10], ERRORS)
    np.testing.assert_array_equal(router.predict_proba(TEXTS), before)


def test_parameters_of_both_parts_can_be_searched() -> None:
    search = GridSearchCV(
        TextRouter(encoder=TfidfEncoder(), router=RegressionRouter()),
        {"encoder__ngrams": [(1, 1), (1, 2)]},
        cv=2,
    )
    order = np.random.default_rng(0).permutation(80)
    assert search.fit([TEXTS[row] for row in order], ERRORS[order]).best_score_ > -0.1


@pytest.mark.parametrize(
    ("router", "prices"),
    [(SMALL_MILD, None), (FRONTIER, PRICES), (RegressionRouter(), None)],
    ids=["mild", "frontier", "regression"],
)
@pytest.mark.parametrize("encoder", [None, HashingEncoder(columns=128)], ids=["default", "hashing"])
def test_it_is_stored_and_comes_back_bit_for_bit(
    router: Any, prices: Any, encoder: Any, tmp_path: Path
) -> None:
    fitted = TextRouter(encoder=encoder, router=router).fit(TEXTS, ERRORS, prices=prices)
    loaded: Any = load_router(save_router(fitted, tmp_path / "router"))
    texts = ["what is 9 + 9", "a poem", "", "日本"]
    for method in ("predict", "predict_proba", "rank", "decision_function"):
        assert getattr(loaded, method)(texts).tobytes() == getattr(fitted, method)(texts).tobytes()
    if prices is not None:
        np.testing.assert_array_equal(
            loaded.predict_proba(texts, price_weight=7), fitted.predict_proba(texts, price_weight=7)
        )


def test_the_card_and_the_manifest_speak_of_the_encoder_and_of_the_router_inside(
    tmp_path: Path,
) -> None:
    folder = save_router(
        TextRouter(encoder=TfidfEncoder(), router=SMALL_MILD).fit(TEXTS, ERRORS),
        tmp_path / "router",
    )
    manifest = read_manifest(folder)
    assert (manifest["encoder"], manifest["n_features_in"]) == ("TfidfEncoder", None)
    assert manifest["decision"] == "consistent"
    card = (folder / "CARD.md").read_text()
    assert "| Encoder | TfidfEncoder |" in card
    assert "X is a list of n inputs" in card
    assert "Numbers per input" not in card


def test_importing_the_room_loads_no_optional_dependency() -> None:
    heavy = [
        "torch",
        "transformers",
        "onnxruntime",
        "onnx",
        "tokenizers",
        "polars",
        "PIL",
        "matplotlib",
    ]
    code = (
        "import importlib, pkgutil, sys, mildroute.encoders as room\nassert 'sklearn' not in"
        " sys.modules\nfor found in pkgutil.walk_packages(room.__path__, 'mildroute.encoders.'):"
        " importlib.import_module(found.name)\nprint(sorted(set(sys.argv[1:]) & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
    assert run.stderr == ""
