"""A stored router that answers while requests wait, and its replacement."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute import Target, TextRouter, fit
from mildroute.costs.table import CostTable
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.settings import EncoderConfig
from mildroute.decision.targets import parse_target
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence import load_router, save_router
from mildroute.routers.mild import MildRouter

pytestmark = pytest.mark.anyio

RULES = EncoderConfig(timeout=10.0)
TEXTS = [f"add {place} and {place + 1}" for place in range(60)] + [
    f"sing song number {place}" for place in range(60)
]


def table() -> CostTable:
    sums = np.arange(120) < 60
    return CostTable.from_data(
        {
            "query_id": [str(place) for place in range(120)],
            "input": TEXTS,
            "score:small": np.where(sums, 1.0, 0.1),
            "score:large": np.ones(120),
            "cost:small": np.full(120, 0.001),
            "cost:large": np.full(120, 0.01),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_router(
        fit(table(), thorough=False).router, tmp_path_factory.mktemp("artifact") / "router"
    )


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_router(
        TextRouter().fit(TEXTS, [[0, 1]] * 60 + [[1, 0]] * 60),
        tmp_path_factory.mktemp("artifact") / "router",
    )


async def test_an_opinion_is_that_of_the_stored_router(folder: Path) -> None:
    predictor, router = AsyncPredictor.load(folder, RULES), load_router(folder)
    for weight in (None, 0.0, 3.0, 1e9):
        point = await predictor.apoint(None if weight is None else Target("price weight", weight))
        prediction = await predictor.apredict("add 3 and 9", point, "id")
        assert prediction is not None
        assert point is not None
        assert weight in (None, prediction.price_weight)
        np.testing.assert_allclose(
            prediction.posterior,
            router.predict_proba(["add 3 and 9"], price_weight=weight)[0],
            rtol=1e-12,
        )  # type: ignore[call-arg]
    predictor.close()


async def test_an_opinion_tells_scores_dollars_and_digest(folder: Path) -> None:
    predictor = AsyncPredictor.load(folder, RULES)
    prediction = await predictor.apredict("add 3 and 9", await predictor.apoint(None), "id")
    assert prediction is not None
    assert prediction.scores is not None
    assert prediction.dollars is not None
    assert prediction.scores[0] > 0.8
    assert prediction.dollars == pytest.approx((0.001, 0.01))
    assert prediction.router == json.loads((folder / "router.json").read_text())["sha256"][:16]
    assert not prediction.is_out_of_distribution
    predictor.close()


async def test_many_at_once_and_one_by_one_are_the_same(folder: Path) -> None:
    predictor = AsyncPredictor.load(folder, RULES)
    point = await predictor.apoint(Target("price weight", 2.0))
    together = await predictor.apredict_batch(TEXTS[:5], point, TEXTS[:5])
    alone = [await predictor.apredict(text, point, text) for text in TEXTS[:5]]
    for one, other in zip(together, alone, strict=True):
        assert other is not None
        np.testing.assert_allclose(one.posterior, other.posterior, rtol=1e-5)
    predictor.close()


async def test_requests_of_one_turn_are_decided_together_as_each_alone(folder: Path) -> None:
    predictor = AsyncPredictor.load(folder, RULES)
    point = predictor.point(parse_target("quality", 0.9))
    asked = [(text, each) for text in TEXTS[::7] for each in (point, predictor.own)]
    together = await asyncio.gather(*[predictor.apredict(text, at, text) for text, at in asked])
    for (text, at), prediction in zip(asked, together, strict=True):
        alone = predictor.predict(text, at, text)
        assert prediction is not None
        assert (prediction.expert, prediction.orders) == (alone.expert, alone.orders)
        assert prediction.coin == alone.coin
        # Vectors are in single precision, and a product of matrices adds up in another order.
        assert prediction.posterior == pytest.approx(alone.posterior, rel=1e-5)
        assert prediction.scores == pytest.approx(alone.scores, rel=1e-5)
        assert prediction.dollars == pytest.approx(alone.dollars, rel=1e-5)
    predictor.close()


async def test_a_failing_router_fails_each_request_that_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = AsyncPredictor.load(folder, RULES)

    def fail(*_: object) -> None:
        raise ArithmeticError("no numbers today")

    monkeypatch.setattr(predictor, "predict_rows", fail)
    asked = [predictor.apredict(text, None, text) for text in TEXTS[:3]]
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in errors] == [ArithmeticError] * 3
    predictor.close()


async def test_a_router_without_prices_takes_no_price_weight(other: Path) -> None:
    predictor = AsyncPredictor.load(other, RULES)
    assert await predictor.apoint(None) is None
    for kind in ("price weight", "quality", "budget"):
        with pytest.raises(ArgumentError, match=f"knows no prices, so it takes no {kind}"):
            await predictor.apoint(Target(kind, 1.0))
    predictor.close()


@pytest.mark.parametrize("name", ["price_weight", "quality", "budget"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), True, None, "much", "9" * 400])
def test_targets_are_checked(name: str, value: Any) -> None:
    with pytest.raises(
        ArgumentError, match=f"{name} must be a finite number that is not negative, got"
    ):
        parse_target(name, value)


def test_a_router_over_vectors_is_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    save_router(
        MildRouter().fit(X, np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1)), tmp_path / "router"
    )
    with pytest.raises(ArtifactError, match="router over texts"):
        AsyncPredictor.load(tmp_path / "router", RULES)


def test_the_default_is_the_best_single_expert_at_the_operating_point(
    folder: Path, other: Path
) -> None:
    for place, expected in ((folder, "large"), (other, "expert_0")):
        predictor = AsyncPredictor.load(place, RULES)
        assert predictor.default == expected
        predictor.close()
