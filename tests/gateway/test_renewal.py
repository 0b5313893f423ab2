from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.config import read_experts
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.key_changes import add_client
from mildroute.gateway.keys import ANYONE, APIClient, KeyStore
from mildroute.gateway.reload import Reloader
from mildroute.gateway.upstream.pool import ExpertPool
from tests.gateway.fakes import FakeManager, FakePredictor, write_experts

pytestmark = pytest.mark.anyio


class TryingHolder(FakeManager):
    tries = 0

    async def reload(self, folder: Any = None) -> str:
        self.tries += 1
        return await super().reload(folder)


@pytest.fixture
def manager() -> TryingHolder:
    return TryingHolder(FakePredictor("small"))


@pytest.fixture
def pool(tmp_path: Path) -> ExpertPool:
    write_experts(tmp_path / "experts.yaml", small="http://127.0.0.1:1/v1")
    return ExpertPool(read_experts(tmp_path / "experts.yaml"), GatewayConfig())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    add_client(tmp_path / "keys.yaml", "team-a")
    return tmp_path / "keys.yaml"


async def test_a_signal_reads_the_keys_and_the_router_again_and_says_so(
    manager: TryingHolder, file: Path, pool: ExpertPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ring = KeyStore.read(file)
    key = add_client(file, "team-b")
    await Reloader(manager, ring, GatewayConfig(keys=file), pool).try_reload()  # type: ignore[arg-type]
    assert ring.find(f"Bearer {key}") == APIClient("team-b")
    assert caplog.messages == [
        "keys reloaded; count: 2",
        "experts reloaded; count: 1",
    ]
    assert manager.tries == 1


@pytest.mark.parametrize(
    "content",
    ["team-a: [", "team-a: {hash: x}\n", "- team-a\n", None],
    ids=["cut off", "no hash", "a list", "gone"],
)
async def test_a_broken_file_is_told_and_the_old_keys_stay(
    manager: TryingHolder,
    file: Path,
    pool: ExpertPool,
    caplog: pytest.LogCaptureFixture,
    content: str | None,
) -> None:
    ring = KeyStore.read(file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    renewal = Reloader(manager, ring, GatewayConfig(keys=file), pool)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        await renewal.reload_keys()
    await renewal.try_reload()
    assert caplog.messages[0].startswith("the keys stay as they were: ")
    assert ring.clients == (APIClient("team-a"),)
    assert manager.tries == 1


async def test_a_gateway_without_keys_goes_on_without(
    manager: TryingHolder, pool: ExpertPool
) -> None:
    ring = KeyStore()
    assert await Reloader(manager, ring, GatewayConfig(), pool).reload_keys() is None  # type: ignore[arg-type]
    assert ring.find(None) is ANYONE
