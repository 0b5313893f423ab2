"""An expert without a price would make a limit of dollars void."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import ExplorationConfig, GatewayConfig, RoutingConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.reload import Reloader
from tests.gateway.fakes import FakeManager, FakePredictor, write_experts
from tests.gateway.running import running

EXPERT = "http://127.0.0.1:9/v1"
PRICED = {"base_url": EXPERT, "price": {"input": 0, "output": 0}}


def store(dollars: float | None) -> KeyStore:
    return KeyStore([(hash_key(new_key()), APIClient("a", dollars_per_day=dollars))])


def test_a_budget_needs_prices() -> None:
    services = {"key_store": store(1.0)}
    with (
        pytest.raises(ArgumentError, match=r"large must have a price .* write price: \{input: 0"),
        running(services=services, small=PRICED, large=EXPERT),
    ):
        pass
    with running(services=services, small=PRICED), running(small=EXPERT):
        pass
    with running(services={"key_store": store(None)}, small=EXPERT):
        pass


def test_so_does_a_limit_of_exploration() -> None:
    routing = RoutingConfig(exploration=ExplorationConfig(max_dollars_per_day=1.0))
    with (
        pytest.raises(ArgumentError, match=r"exploration.max_dollars_per_day"),
        running(GatewayConfig(routing=routing), small=EXPERT),
    ):
        pass


@pytest.mark.anyio
async def test_a_reload_that_would_void_a_budget_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    keys = tmp_path / "keys.yaml"
    config = GatewayConfig(keys=keys)
    with running(services={"key_store": store(1.0)}, small=PRICED) as gateway:
        pool = gateway.app.pool
        pool.path = path
        manager = FakeManager(FakePredictor("small"))
        reloader = Reloader(manager, gateway.services.key_store, config, pool)  # type: ignore[arg-type]
        write_experts(path, small=PRICED, large=EXPERT)
        with pytest.raises(ArgumentError, match="large must have a price"):
            await reloader.reload_experts()
        assert [*pool.experts] == ["small"]
