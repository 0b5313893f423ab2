from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mildroute.errors import ArgumentError
from mildroute.serving.key_file import add_client
from mildroute.serving.keys import ANYONE, Client, KeyRing
from mildroute.serving.renewal import Renewal
from tests.serving.fakes import FakeBrain, FakeHolder

pytestmark = pytest.mark.anyio


class TryingHolder(FakeHolder):
    tries = 0

    async def try_reload(self) -> bool:
        self.tries += 1
        return True


@pytest.fixture
def holder() -> TryingHolder:
    return TryingHolder(FakeBrain("small"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    add_client(tmp_path / "keys.yaml", Client("team-a"))
    return tmp_path / "keys.yaml"


async def test_a_signal_reads_the_keys_and_the_router_anew_and_says_so(
    holder: TryingHolder, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ring = KeyRing.read(file)
    key = add_client(file, Client("team-b"))
    await Renewal(holder, ring, file).try_both()  # type: ignore[arg-type]
    assert ring.find(f"Bearer {key}") == Client("team-b")
    assert caplog.messages == ["the keys were read anew; clients: 2"]
    assert holder.tries == 1


@pytest.mark.parametrize("content", ["team-a: [", "team-a: {hash: x}\n", "- team-a\n", None], ids=["cut off", "no hash", "a list", "gone"])
async def test_a_broken_file_is_told_and_the_old_keys_stay(
    holder: TryingHolder, file: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    ring = KeyRing.read(file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    renewal = Renewal(holder, ring, file)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        await renewal.keys()
    await renewal.try_both()
    assert caplog.messages[0].startswith("the keys stay as they were: ")
    assert ring.clients == (Client("team-a"),)
    assert holder.tries == 1


async def test_a_gateway_without_keys_goes_on_without(holder: TryingHolder) -> None:
    ring = KeyRing()
    assert await Renewal(holder, ring, None).keys() is None  # type: ignore[arg-type]
    assert ring.find(None) is ANYONE
