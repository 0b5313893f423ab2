"""Routers and experts that change while a gateway serves."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute import TextRouter
from mildroute.decision.reload import PredictorManager
from mildroute.gateway.config import EncoderConfig, FailoverConfig, GatewayConfig, RoutingConfig
from mildroute.gateway.key_changes import add_client
from mildroute.gateway.keys import KeyStore
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.persistence import save_router
from tests.experts.hostile_server import Behavior, Call, HostileServer, says
from tests.gateway.fakes import FakePredictor, write_experts
from tests.gateway.running import TRUST, Running, running, until
from tests.support.processes import BackgroundLoad

OPERATOR = {"authorization": "Bearer a-long-key-of-the-operator"}
SETTINGS = GatewayConfig(
    admin_key_env="ADMIN_KEY",
    encoder=EncoderConfig(timeout=10.0),
    failover=FailoverConfig(drain_timeout=1.0),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the gateway's files lie."""
    monkeypatch.setenv("ADMIN_KEY", "a-long-key-of-the-operator")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def expert() -> Iterator[HostileServer]:
    def script(call: Call) -> Behavior:
        prompt = str(call.json.get("input") or call.prompt)
        return says("done", delay=0.3 if "slow" in prompt else 0.0)

    with HostileServer(script) as server:
        yield server


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first sends everything to the small expert, the second to the large one."""
    folder = tmp_path_factory.mktemp("routers")
    texts = [f"add {place}" for place in range(20)]
    return [
        save_router(
            TextRouter().fit(texts, [costs] * 20, experts=("small", "large")),  # type: ignore[arg-type]
            folder / str(place),
        )
        for place, costs in enumerate(([0.0, 1.0], [1.0, 0.0]))
    ]


def digest_of(router: Path) -> str:
    return str(json.loads((router / "router.json").read_bytes())["sha256"])[:16]


class Load(BackgroundLoad):
    """Clients that ask one request after the other."""

    def __init__(self, gateways: list[Running], clients: int = 4, **fields: Any) -> None:
        super().__init__()
        self._fields = {"model": "mildroute", **fields}
        urls = [gateways[place % len(gateways)].url for place in range(clients)]
        self._threads = [threading.Thread(target=self._run, args=pair) for pair in enumerate(urls)]
        self.answers: list[tuple[int, str]] = []

    def _run(self, client: int, url: str) -> None:
        with httpx.Client(base_url=url, trust_env=False, verify=TRUST, timeout=20) as http:
            number = 0
            while not self._is_over.is_set():
                text = f"add {client} and {number}"
                number += 1
                body = {"messages": [{"role": "user", "content": text}], **self._fields}
                answer = http.post("/v1/chat/completions", json=body)
                expert = answer.headers.get("x-mildroute-expert", "")
                self.answers.append((answer.status_code, expert))

    def more(self, count: int = 30) -> None:
        """Wait for further answers."""
        wanted = len(self.answers) + count
        until(lambda: len(self.answers) >= wanted, 30)


def reload(gateway: Running) -> httpx.Response:
    return gateway.http.post("/admin/reload", headers=OPERATOR)


def value(gateway: Running, name: str, **labels: str) -> float | None:
    return gateway.services.metrics.registry.get_sample_value(f"mildroute_{name}", labels)


@contextmanager
def fleet(url: str, expert: HostileServer, count: int = 2) -> Iterator[list[Running]]:
    """Gateways that follow the router at a URL."""
    urls = {"small": expert.url, "large": expert.url}
    write_experts(Path("experts.yaml"), **urls)
    with ExitStack() as stack:
        gateways = []
        for _ in range(count):
            manager = PredictorManager(url, SETTINGS.encoder, frozenset(urls))
            manager.load()
            stack.callback(manager.close)
            services = {"manager": manager, "metrics": GatewayMetrics()}
            gateways.append(stack.enter_context(running(SETTINGS, services=services, **urls)))
        yield gateways


def put(router: Path, store: Path) -> str:
    """Replace the router of a store, and return its URL."""
    store.mkdir(parents=True, exist_ok=True)
    for name in ("weights.safetensors", "router.json"):
        shutil.copy(router / name, store / name)
    return f"file://{store}"


def test_no_request_fails_while_the_router_at_a_url_is_replaced_and_put_back(
    home: Path, expert: HostileServer, routers: list[Path]
) -> None:
    url = put(routers[0], home / "store")
    with fleet(url, expert) as gateways, Load(gateways) as load:
        load.more()
        for router in (routers[1], routers[0]):
            put(router, home / "store")
            for gateway in gateways:
                assert reload(gateway).json()["router"] == digest_of(router)
            load.more()
    assert {status for status, _ in load.answers} == {200}
    assert {name for _, name in load.answers} == {"small", "large"}
    assert load.answers[-1][1] == "small"


@contextmanager
def serving(settings: GatewayConfig = SETTINGS, **experts: Any) -> Iterator[Running]:
    """A gateway whose router knows small, large and new, before these experts."""
    write_experts(Path("experts.yaml"), **experts)
    given: dict[str, Any] = {"metrics": GatewayMetrics()}
    predictor = FakePredictor("small", "large", "new")
    with running(settings, predictor, given, **experts) as gateway:
        yield gateway


def priced(expert: HostileServer, dollars: float, **further: Any) -> dict[str, Any]:
    return {"base_url": expert.url, "price": {"input": 0, "output": 1e6 * dollars}, **further}


def test_a_price_is_the_new_one_in_the_bill_and_in_the_reservation(
    home: Path, expert: HostileServer
) -> None:
    """An answer has two tokens."""
    key = add_client(home / "keys.yaml", "team-a", dollars_per_day=100.0)
    given = {"key_store": KeyStore.read(home / "keys.yaml"), "limits": LocalLimits()}
    write_experts(Path("experts.yaml"), small=priced(expert, 1.0), large=priced(expert, 0.0))
    metrics = GatewayMetrics()
    with running(
        SETTINGS,
        services={**given, "metrics": metrics},
        small=priced(expert, 1.0),
        large=priced(expert, 0.0),
    ) as gateway:
        mine = {"authorization": f"Bearer {key}"}
        assert gateway.chat(headers=mine, max_tokens=10).status_code == 200
        write_experts(Path("experts.yaml"), small=priced(expert, 4.0), large=priced(expert, 9.0))
        assert reload(gateway).json()["experts"] == 2
        assert gateway.chat(headers=mine, max_tokens=10).status_code == 200
        records = gateway.records(2)
        assert [record.cost_usd for record in records] == [2.0, 8.0]
        # The most expensive one is the large one now.
        assert [record.baseline_cost_usd for record in records] == [2.0, 18.0]
        assert value(gateway, "router_info", digest="", baseline="large") == 1
        # 90 dollars are left, and ten tokens of the large one cost as much.
        until(lambda: gateway.services.limits.spent("team-a") == 10.0)
        assert gateway.chat(headers=mine, max_tokens=10).status_code == 200
        answer = gateway.chat(headers=mine, max_tokens=10)
        assert answer.json()["error"]["code"] == "insufficient_quota"


def test_experts_come_and_go_under_load_and_no_request_fails(expert: HostileServer) -> None:
    first = {"small": expert.url, "large": expert.url}
    changes = [
        {"large": expert.url, "new": expert.url},
        {"new": expert.url, "large": priced(expert, 1.0)},
        {"new": expert.url},
        {**first, "new": expert.url},
    ]
    with serving(**first) as gateway:
        with Load([gateway]) as load:
            load.more()
            for experts in changes:
                write_experts(Path("experts.yaml"), **experts)
                assert reload(gateway).status_code == 200
                load.more()
                models = gateway.http.get("/v1/models").json()["data"]
                assert [each["id"] for each in models] == ["mildroute", *experts]
                assert set(gateway.app.pool.circuits()) == set(experts)
        assert {status for status, _ in load.answers} == {200}
        assert {name for _, name in load.answers} == {"small", "large", "new"}
        assert load.answers[-1][1] == "small"
        assert value(gateway, "spend_dollars_total", expert="new") is not None
        for name in ("large", "gone"):
            assert gateway.chat(model=name).status_code == (200 if name == "large" else 404)


def test_a_request_in_flight_ends_with_the_expert_that_is_removed(expert: HostileServer) -> None:
    answers: list[httpx.Response] = []
    with serving(small=priced(expert, 1.0), large=priced(expert, 7.0)) as gateway:
        before = len(expert.calls)
        asking = threading.Thread(target=lambda: answers.append(gateway.chat("slow")))
        asking.start()
        until(lambda: len(expert.calls) > before)
        removed = gateway.app.pool.experts["small"]
        write_experts(Path("experts.yaml"), large=priced(expert, 7.0))
        assert reload(gateway).status_code == 200
        assert removed.upstream is not None
        assert removed.upstream.slots.calls == 1
        asking.join()
        assert answers[0].headers["x-mildroute-expert"] == "small"
        # Its price is that of its time, and its connection is closed.
        assert gateway.records()[0].cost_usd == 2.0
        until(lambda: removed.upstream is not None and removed.upstream.slots.calls == 0)
        assert gateway.chat(model="small").status_code == 404
        assert gateway.http.get("/v1/models/small").status_code == 404


def test_an_expert_that_did_not_change_keeps_connections_and_circuit(
    expert: HostileServer,
) -> None:
    with serving(small=expert.url, large=expert.url) as gateway:
        gateway.chat()
        pool = gateway.app.pool
        small, large = pool.experts["small"], pool.experts["large"]
        path = Path("experts.yaml")
        write_experts(path, new=expert.url, large=priced(expert, 1.0), small=expert.url)
        assert reload(gateway).status_code == 200
        assert pool.experts["small"] is small
        assert pool.experts["large"] is not large
        assert gateway.chat(model="small").status_code == 200


SMALL = "experts: {small: {kind: openai, base_url: 'http://x/v1', model: m"
INVALID = {
    "no YAML": "experts: [",
    "an unknown key": f"{SMALL}, pric: 1}}}}",
    "no key in the environment": f"{SMALL}, api_key_env: NO_SUCH_KEY}}}}",
    "without the default": f"{SMALL}}}}}".replace("small", "large"),
    "the name of a route": f"{SMALL}}}, mildroute: {{kind: people, field: x}}}}",
}


@pytest.mark.parametrize("content", INVALID.values(), ids=INVALID)
def test_an_invalid_file_is_refused_and_the_old_experts_stay(
    expert: HostileServer, content: str
) -> None:
    settings = GatewayConfig(admin_key_env="ADMIN_KEY", routing=RoutingConfig(default="small"))
    with serving(settings, small=expert.url, large=expert.url) as gateway:
        before = dict(gateway.app.pool.experts)
        Path("experts.yaml").write_text(content)
        answer = reload(gateway)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_experts")
        assert "but the experts stay as they were: " in answer.json()["error"]["message"]
        assert gateway.app.pool.experts == before
        assert gateway.chat().status_code == 200
        assert value(gateway, "reloads_total", kind="experts", result="rejected") == 1


def test_the_router_must_know_one_of_the_experts(
    home: Path, expert: HostileServer, routers: list[Path]
) -> None:
    url = put(routers[0], home / "store")
    with fleet(url, expert, count=1) as (gateway,):
        write_experts(Path("experts.yaml"), new=expert.url)
        message = reload(gateway).json()["error"]["message"]
        assert "must name an expert of the router in use, got new for a router between" in message
        assert gateway.chat().status_code == 200
        write_experts(Path("experts.yaml"), new=expert.url, large=expert.url)
        assert reload(gateway).status_code == 200
        assert gateway.chat().headers["x-mildroute-expert"] == "large"


def test_a_chain_of_responses_goes_on_until_its_expert_is_removed(expert: HostileServer) -> None:
    with serving(small=expert.url, large=expert.url) as gateway:
        first = gateway.http.post("/v1/responses", json={"model": "mildroute", "input": "Hi"})
        chained = {"model": "mildroute", "input": "On", "previous_response_id": first.json()["id"]}
        write_experts(Path("experts.yaml"), small=priced(expert, 3.0), new=expert.url)
        assert reload(gateway).status_code == 200
        assert gateway.http.post("/v1/responses", json=chained).status_code == 200
        write_experts(Path("experts.yaml"), new=expert.url)
        assert reload(gateway).status_code == 200
        answer = gateway.http.post("/v1/responses", json=chained)
        assert answer.json()["error"]["code"] == "previous_response_not_found"
