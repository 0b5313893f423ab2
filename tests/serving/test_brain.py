"""A stored router that answers while requests wait, and its replacement."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.costs.table import CostTable
from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, ArtifactError
from mildroute.evaluation.fitting import Target, fit_table
from mildroute.routers.artifact import load_router, save
from mildroute.routers.mild import MildRouter
from mildroute.serving.brain import Brain
from mildroute.serving.holder import Holder
from mildroute.serving.settings import EncoderRules
from mildroute.serving.targets import target_named

pytestmark = pytest.mark.anyio

RULES = EncoderRules(budget=10.0)
TEXTS = [f"add {place} and {place + 1}" for place in range(60)] + [f"sing song number {place}" for place in range(60)]


def table() -> CostTable:
    sums = np.arange(120) < 60
    return CostTable.of(
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
    return save(fit_table(table()).router, tmp_path_factory.mktemp("artifact") / "router")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(TextRouter().fit(TEXTS, [[0, 1]] * 60 + [[1, 0]] * 60), tmp_path_factory.mktemp("artifact") / "router")


async def test_an_opinion_is_that_of_the_stored_router(folder: Path) -> None:
    brain, router = Brain.load(folder, RULES), load_router(folder)
    for weight in (None, 0.0, 3.0, 1e9):
        point = await brain.point(None if weight is None else Target("price weight", weight))
        opinion = await brain.opinion("add 3 and 9", point, "id")
        assert opinion is not None
        assert point is not None
        assert weight in (None, opinion.price_weight)
        np.testing.assert_allclose(opinion.posterior, router.predict_proba(["add 3 and 9"], price_weight=weight)[0], rtol=1e-12)  # type: ignore[call-arg]
    brain.close()


async def test_an_opinion_tells_scores_dollars_and_digest(folder: Path) -> None:
    brain = Brain.load(folder, RULES)
    opinion = await brain.opinion("add 3 and 9", await brain.point(None), "id")
    assert opinion is not None
    assert opinion.scores is not None
    assert opinion.dollars is not None
    assert opinion.scores[0] > 0.8
    assert opinion.dollars == pytest.approx((0.001, 0.01))
    assert opinion.router == json.loads((folder / "router.json").read_text())["weights"]["sha256"][:16]
    assert not opinion.is_far
    brain.close()


async def test_many_at_once_and_one_by_one_are_the_same(folder: Path) -> None:
    brain = Brain.load(folder, RULES)
    point = await brain.point(Target("price weight", 2.0))
    together = await brain.opinions(TEXTS[:5], point, TEXTS[:5])
    alone = [await brain.opinion(text, point, text) for text in TEXTS[:5]]
    for one, other in zip(together, alone, strict=True):
        assert other is not None
        np.testing.assert_allclose(one.posterior, other.posterior, rtol=1e-5)
    brain.close()


async def test_a_router_without_prices_takes_no_price_weight(other: Path) -> None:
    brain = Brain.load(other, RULES)
    assert await brain.point(None) is None
    for kind in ("price weight", "quality", "budget"):
        with pytest.raises(ArgumentError, match=f"knows no prices, so it takes no {kind}"):
            await brain.point(Target(kind, 1.0))
    brain.close()


@pytest.mark.parametrize("name", ["price_weight", "quality", "budget"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), True, None, "much", "9" * 400])
def test_targets_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} must be a finite number that is not negative, got"):
        target_named(name, value)


def test_a_router_over_vectors_is_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    save(MildRouter().fit(X, np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1)), tmp_path / "router")
    with pytest.raises(ArtifactError, match="router over texts"):
        Brain.load(tmp_path / "router", RULES)


def test_the_default_is_the_best_single_expert_at_the_operating_point(folder: Path, other: Path) -> None:
    for place, expected in ((folder, "large"), (other, "expert_0")):
        brain = Brain.load(place, RULES)
        assert brain.default == expected
        brain.close()


async def test_a_good_artifact_replaces_the_old_one_and_requests_keep_theirs(folder: Path, other: Path) -> None:
    heard: list[str] = []
    holder = Holder(folder, RULES, changed=lambda brain: heard.append(brain.digest))
    first = holder.load()
    digest = await holder.reload(other)
    assert holder.brain.digest == digest != first.digest
    assert heard == [first.digest, digest]
    assert (await first.opinion("add 1 and 1", first.own, "")) is not None
    holder.close()


async def test_a_bad_artifact_is_refused_and_the_old_one_stays(folder: Path, tmp_path: Path) -> None:
    holder = Holder(folder, RULES)
    first = holder.load()
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    weights = bytearray((broken / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (broken / "weights.safetensors").write_bytes(weights)
    with pytest.raises(ArtifactError, match="sha256"):
        await holder.reload(broken)
    assert holder.brain is first
    assert holder.folder == folder
    holder.close()


async def test_an_artifact_for_other_experts_is_refused(folder: Path, other: Path) -> None:
    holder = Holder(folder, RULES, experts=frozenset({"small", "large"}))
    holder.load()
    with pytest.raises(ArtifactError, match=r"experts of experts\.yaml"):
        await holder.reload(other)
    holder.close()


async def test_a_watched_folder_is_reloaded_when_its_artifact_is_replaced(folder: Path, other: Path, tmp_path: Path) -> None:
    place = tmp_path / "router"
    shutil.copytree(folder, place)
    changed = asyncio.Event()
    holder = Holder(place, RULES, changed=lambda _brain: changed.set())
    first = holder.load()
    changed.clear()
    watching = asyncio.ensure_future(holder.watch(0.01))
    await asyncio.sleep(0.02)
    shutil.rmtree(place)
    shutil.copytree(other, place)
    await asyncio.wait_for(changed.wait(), 10)
    assert holder.brain is not first
    watching.cancel()
    holder.close()
