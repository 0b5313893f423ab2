"""Answers of a decision model as features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from encoders.decision_model import DecisionModel
from mildroute import TextRouter, load_router, save_router
from mildroute.decision import DecisionService
from mildroute.encoders import SystemOneFeatures, TfidfEncoder, UnionEncoder
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.integrations.decision_server import create_decision_app
from mildroute.routers.regression import RegressionRouter
from tests.gateway.running import Served

QUESTIONS = {
    "kind": {"type": "choice", "criteria": {"sum": None, "song": None}},
    "hard": {"type": "score", "criteria": ["no", "yes"]},
    "long": {"type": "noul", "instructions": "Is it long?"},
}


@pytest.fixture
def model() -> Iterator[DecisionModel]:
    with DecisionModel() as server:
        yield server
        server.shutdown()


def test_each_label_level_and_statement_is_a_feature(model: DecisionModel) -> None:
    encoder = SystemOneFeatures(model.url, questions=QUESTIONS).fit(["abc"])
    assert encoder.names_ == ["kind:sum", "kind:song", "hard:0", "hard:1", "long:true"]
    # Of three characters: weights 1 + 3 and 1 + 4, and 1 / (1 + 3).
    expected = [4 / 9, 5 / 9, 4 / 9, 5 / 9, 1 / 4]
    np.testing.assert_allclose(encoder.transform(["abc"]), [expected], rtol=1e-6)


def test_equal_texts_are_asked_about_once_and_the_cache_outlives_the_encoder(
    model: DecisionModel, tmp_path: Path
) -> None:
    encoder = SystemOneFeatures(model.url, questions=QUESTIONS, cache=str(tmp_path)).fit(["a"])
    model.texts.clear()
    first = encoder.transform(["a", "bb", "a", "ccc"])
    assert sorted(model.texts) == ["a", "bb", "ccc"]
    again = SystemOneFeatures(model.url, questions=QUESTIONS, cache=str(tmp_path)).fit(["a"])
    model.texts.clear()
    np.testing.assert_array_equal(again.transform(["ccc", "a", "bb"]), first[[3, 0, 1]])
    assert model.texts == []


def test_a_slow_or_strange_model_is_an_error_that_says_so(model: DecisionModel) -> None:
    encoder = SystemOneFeatures(model.url, questions=QUESTIONS, timeout=0.2).fit(["a"])
    model.delay = 5.0
    with pytest.raises(MildrouteError, match=r"within 0\.2 seconds, got ReadTimeout"):
        encoder.transform(["b"])
    model.delay = 0.0
    for body in (b"no", b"[]", b"{}", b'{"answers": {"kind": 7}}', b'{"answers": null}'):
        model.body = body
        with pytest.raises(MildrouteError, match="must answer every question"):
            encoder.transform(["c"])
    model.body = None
    assert np.isfinite(encoder.transform(["d"])).all()


def test_an_artifact_holds_no_address(
    model: DecisionModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["add 1", "sing songs"] * 20
    encoder = UnionEncoder([TfidfEncoder(), SystemOneFeatures(model.url, questions=QUESTIONS)])
    router = TextRouter(encoder=encoder, router=RegressionRouter())
    router.fit(texts, [[0.0, 1.0], [1.0, 0.0]] * 20)
    folder = save_router(router, tmp_path / "router")
    assert model.url not in (folder / "router.json").read_text()
    loaded = load_router(folder)
    monkeypatch.delenv("MILDROUTE_DECISION_MODEL", raising=False)
    with pytest.raises(ArgumentError, match="MILDROUTE_DECISION_MODEL"):
        loaded.predict(["add 1"])
    monkeypatch.setenv("MILDROUTE_DECISION_MODEL", model.url)
    monkeypatch.setenv("MILDROUTE_DECISION_MODEL_KEY", "secret")
    expected = list(router.predict(texts[:2]))
    assert list(load_router(folder).predict(texts[:2])) == expected
    assert model.authorizations[-1] == "Bearer secret"


@pytest.mark.parametrize(
    "questions",
    [
        {},
        {"q": 7},
        {"q": {"type": "box"}},
        {"q": {"type": "choice"}},
        {"q": {"type": "choice", "criteria": {}}},
        {"q": {"type": "score", "criteria": {"a": 1}}},
    ],
)
def test_questions_without_features_are_refused(questions: object, model: DecisionModel) -> None:
    with pytest.raises(ArgumentError, match="question"):
        SystemOneFeatures(model.url, questions=questions).fit(["a"])  # type: ignore[arg-type]


def test_the_server_of_this_package_speaks_the_same_format(tmp_path: Path) -> None:
    texts = ["add 1", "sing songs"] * 20
    router = TextRouter().fit(texts, [[0.0, 1.0], [1.0, 0.0]] * 20, experts=("small", "large"))
    service = DecisionService.load(save_router(router, tmp_path / "router"))
    questions = {"who": {"type": "choice", "criteria": {"small": None, "large": None}}}
    with Served(create_decision_app(service)) as server:
        url = f"http://127.0.0.1:{server.port}"
        vectors = SystemOneFeatures(url, questions=questions).fit_transform(texts[:2])
    np.testing.assert_allclose(vectors, router.predict_proba(texts[:2]), atol=1e-6)
