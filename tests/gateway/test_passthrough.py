"""A gateway without a router: requests are passed on, until there is one."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision import reload
from mildroute.decision.log import read_log
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import ArtifactError
from mildroute.gateway.config import EncoderConfig, GatewayConfig, RoutingConfig
from mildroute.gateway.factory import load_gateway
from tests.cli.test_serve import (
    ask,
    experts_file,
    fitted,
    router_in_use,
    running as process_running,
)
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.fakes import FakeManager, FakePredictor
from tests.gateway.running import Running, running, until

NONE = {"manager": FakeManager(None)}


def reason_of(gateway: Running, **fields: Any) -> tuple[str, str]:
    answer = gateway.chat(**fields)
    assert answer.status_code == 200
    return answer.headers["x-mildroute-expert"], answer.headers["x-mildroute-reason"]


def test_requests_go_to_the_first_expert_or_to_the_default_and_are_logged() -> None:
    with HostileServer([says("Hi")]) as expert:
        with running(services=NONE, small=expert.url, large=expert.url) as gateway:
            assert reason_of(gateway) == ("small", "passthrough")
            (record,) = gateway.records()
            assert (record.experts, record.propensities) == (("small", "large"), (1.0, 0.0))
            assert (record.selected, record.propensity, record.router) == ("small", 1.0, "")
            assert reason_of(gateway, model="large") == ("large", "pinned")
            # A target of a client is for the router that is to come.
            assert reason_of(gateway, headers={"x-mildroute-quality": "0.9"})[0] == "small"
            assert gateway.records(3)[2].target == "quality 0.9"
            route = gateway.http.post("/v1/route", json={"inputs": ["a", "b"]}).json()["data"]
            assert [(each["expert"], each["reason"]) for each in route] == [
                ("small", "passthrough")
            ] * 2
            assert 'reason="passthrough"' in gateway.http.get("/metrics").text
        config = GatewayConfig(routing=RoutingConfig(default="large"))
        with running(config, services=NONE, small=expert.url, large=expert.url) as gateway:
            assert reason_of(gateway) == ("large", "passthrough")


def test_the_others_follow_in_the_order_of_their_file() -> None:
    with HostileServer([status(500)]) as broken, HostileServer([says("Hi")]) as well:
        urls = {"first": broken.url, "second": broken.url, "third": well.url, "last": well.url}
        with running(services=NONE, **urls) as gateway:
            assert reason_of(gateway) == ("third", "fallback")
            (record,) = gateway.records()
            assert [call["expert"] for call in record.attempts] == ["first", "second", "third"]


def test_a_conversation_stays_with_its_expert_when_the_router_comes() -> None:
    manager = FakeManager(None)
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "And?"},
    ]
    config = GatewayConfig(routing=RoutingConfig(switch_threshold=0.5))
    with (
        HostileServer([says("Hi")]) as expert,
        running(
            config, services={"manager": manager}, small=expert.url, large=expert.url
        ) as gateway,
    ):
        assert reason_of(gateway) == ("small", "passthrough")
        manager.predictor = FakePredictor("large", "small")
        later = {"model": "mildroute", "messages": turns}
        answer = gateway.http.post("/v1/chat/completions", json=later)
        assert answer.headers["x-mildroute-reason"] == "sticky"
        assert answer.headers["x-mildroute-expert"] == "small"
        assert reason_of(gateway, text="new") == ("large", "router")


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    return experts_file(tmp_path, "http://127.0.0.1:9/v1")


def test_it_says_what_it_passes_to_and_what_it_waits_for(
    tmp_path: Path, experts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    services = load_gateway(None, experts, GatewayConfig())
    assert services.manager.predictor is None
    load_gateway(tmp_path / "later", experts, GatewayConfig())
    said = [record for record in caplog.records if "passed through" in record.message]
    assert [record.fields for record in said] == [  # type: ignore[attr-defined]
        {"expert": "small"},
        {"expert": "small", "waiting_for": str(tmp_path / "later")},
    ]


def test_what_is_there_and_no_router_is_refused(tmp_path: Path, experts: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("fit a router")
    for wrong in (tmp_path / "notes", experts):
        with pytest.raises(ArtifactError, match=r"router\.json"):
            load_gateway(wrong, experts, GatewayConfig())
    shadow = GatewayConfig(shadow_router=tmp_path / "nothing")
    with pytest.raises(ArtifactError, match="shadow_router"):
        load_gateway(None, experts, shadow)


@pytest.mark.anyio
@pytest.mark.parametrize("is_url", [False, True])
async def test_the_first_router_is_taken_when_it_appears_and_never_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_url: bool
) -> None:
    monkeypatch.setattr(reload, "_FIRST_INTERVAL", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fitted(tmp_path / "made")
    place = tmp_path / "router"
    manager = PredictorManager(f"file://{place}" if is_url else place, EncoderConfig())
    assert manager.load() is None
    watching = asyncio.create_task(manager.watch())
    assert await manager.reload() == ""
    await asyncio.sleep(0.1)
    assert manager.predictor is None
    shutil.copytree(tmp_path / "made", tmp_path / "arriving")
    (tmp_path / "arriving").rename(place)
    async with asyncio.timeout(30):
        await watching  # it ends with the first router
    found = manager.predictor
    assert found is not None
    shutil.rmtree(place)
    assert not await manager.try_reload()
    assert manager.predictor is found
    manager.close()


@pytest.mark.anyio
async def test_without_a_location_there_is_nothing_to_reload() -> None:
    manager = PredictorManager(None, EncoderConfig())
    assert manager.load() is None
    assert await manager.reload() == ""
    await manager.watch()
    await manager.watch(0.01)


def test_a_served_gateway_switches_when_the_router_is_there(tmp_path: Path) -> None:
    with HostileServer([says("Hi.")]) as expert:
        experts_file(tmp_path, expert.url)
        with process_running(tmp_path, "--log", "log") as (_, address):
            _, headers = ask(address, "sing song number 3")
            assert headers["x-mildroute-reason"] == "passthrough"
            assert headers["x-mildroute-expert"] == "small"
            fitted(tmp_path / "router")
            digest = json.loads((tmp_path / "router" / "router.json").read_text())["sha256"]
            until(lambda: router_in_use(address) == digest[:16], 30)
            _, headers = ask(address, "sing song number 3")
            assert (headers["x-mildroute-reason"], headers["x-mildroute-expert"]) == (
                "router",
                "large",
            )
            end = time.monotonic() + 10
            while len(records := list(read_log(tmp_path / "log"))) < 2:
                assert time.monotonic() < end
            assert [record.router for record in records] == ["", digest[:16]]
