"""The router in use and its replacement, from a folder or a URL."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from mildroute import TextRouter
from mildroute.decision.reload import PredictorManager
from mildroute.decision.settings import EncoderConfig
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence import save_router

pytestmark = pytest.mark.anyio

RULES = EncoderConfig(timeout=10.0)
TEXTS = [f"add {place} and {place + 1}" for place in range(60)] + [
    f"sing song number {place}" for place in range(60)
]
COSTS = [[0.0, 1.0]] * 60 + [[1.0, 0.0]] * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = TextRouter().fit(TEXTS, COSTS, experts=("small", "large"))
    return save_router(router, tmp_path_factory.mktemp("artifact") / "router")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = TextRouter().fit(TEXTS, COSTS[::-1])
    return save_router(router, tmp_path_factory.mktemp("artifact") / "router")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(router: Path, store: Path, *names: str) -> None:
    """Upload files of a router, all by default."""
    store.mkdir(exist_ok=True)
    for name in names or ("weights.safetensors", "router.json"):
        shutil.copy(router / name, store / name)


async def test_a_good_artifact_replaces_the_old_one_and_requests_keep_theirs(
    folder: Path, other: Path
) -> None:
    heard: list[str] = []
    manager = PredictorManager(
        folder, RULES, on_change=lambda predictor: heard.append(predictor.digest)
    )
    first = manager.load()
    digest = await manager.reload(other)
    assert manager.predictor.digest == digest != first.digest
    assert heard == [first.digest, digest]
    assert (await first.apredict("add 1 and 1", first.own, "")) is not None
    manager.close()


async def test_a_bad_artifact_is_refused_and_the_old_one_stays(
    folder: Path, tmp_path: Path
) -> None:
    manager = PredictorManager(folder, RULES)
    first = manager.load()
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    weights = bytearray((broken / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (broken / "weights.safetensors").write_bytes(weights)
    with pytest.raises(ArtifactError, match="sha256"):
        await manager.reload(broken)
    assert manager.predictor is first
    assert manager.location == folder
    manager.close()


async def test_an_artifact_for_other_experts_is_refused(folder: Path, other: Path) -> None:
    manager = PredictorManager(folder, RULES, experts=frozenset({"small", "large"}))
    manager.load()
    with pytest.raises(ArtifactError, match=r"experts of experts\.yaml"):
        await manager.reload(other)
    manager.close()


async def test_a_watched_folder_is_reloaded_when_its_artifact_is_replaced(
    folder: Path, other: Path, tmp_path: Path
) -> None:
    place = tmp_path / "router"
    shutil.copytree(folder, place)
    changed = asyncio.Event()
    manager = PredictorManager(place, RULES, on_change=lambda _predictor: changed.set())
    first = manager.load()
    changed.clear()
    watching = asyncio.ensure_future(manager.watch(0.01))
    await asyncio.sleep(0.02)
    shutil.rmtree(place)
    shutil.copytree(other, place)
    await asyncio.wait_for(changed.wait(), 10)
    assert manager.predictor is not first
    watching.cancel()
    manager.close()


async def test_reloads_are_reported(folder: Path, other: Path, tmp_path: Path) -> None:
    reports: list[bool] = []
    manager = PredictorManager(folder, RULES, on_reload=reports.append)
    manager.load()
    await manager.reload(other)
    assert await manager.try_reload()
    with pytest.raises(ArtifactError):
        await manager.reload(tmp_path / "nothing")
    assert reports == [True, True, False]
    manager.close()


async def test_a_watched_url_is_reloaded_and_half_an_upload_is_tried_again(
    folder: Path, other: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    put(folder, store)
    changes: asyncio.Queue[str] = asyncio.Queue()
    manager = PredictorManager(
        f"file://{store}", RULES, on_change=lambda predictor: changes.put_nowait(predictor.digest)
    )
    first = manager.load()
    assert first is not None
    assert await changes.get() == first.digest
    watching = asyncio.ensure_future(manager.watch(0.01))
    put(other, store, "router.json")
    await asyncio.sleep(0.1)
    assert manager.predictor is first  # its weights are those of the other router
    put(other, store)
    digest = await asyncio.wait_for(changes.get(), 30)
    assert manager.predictor is not None
    assert manager.predictor.digest == digest != first.digest
    watching.cancel()
    manager.close()


async def test_experts_that_the_router_does_not_know_are_refused(folder: Path) -> None:
    installed: list[str] = []
    manager = PredictorManager(folder, RULES, experts=frozenset({"small", "large"}))
    manager.load()
    with pytest.raises(ArgumentError, match="must name an expert of the router in use"):
        await manager.change_experts(frozenset({"new"}), lambda: installed.append("new"))
    await manager.change_experts(frozenset({"new", "small"}), lambda: installed.append("both"))
    assert installed == ["both"]
    manager.close()
