"""The page in the browser, as a client without one sees it: who may see it, and what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from mildroute.gateway.api.dashboard import Dashboard
from mildroute.gateway.config import (
    ExplorationConfig,
    FailoverConfig,
    GatewayConfig,
    PageConfig,
    RoutingConfig,
    read_config,
)
from mildroute.gateway.http.request import InFlightLimiter
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.observability.metrics import GatewayMetrics, merge_snapshots
from mildroute.learning.trail import State, Store, Trail
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.fakes import FakeManager, FakePredictor
from tests.gateway.running import Running, running
from tests.support.records import record

PLAIN = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    " data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGES = ["/", "/ui/dashboard.js", "/ui/dashboard.css", "/status"]
KEY = new_key()
CLIENTS = {"key_store": KeyStore([(hash_key(KEY), APIClient("team-a", dollars_per_day=5.0))])}
OPERATOR = {"authorization": "Bearer operator"}
FREE = {"base_url": "http://127.0.0.1:9", "price": 0}


@pytest.fixture
def admin_key(monkeypatch: pytest.MonkeyPatch) -> GatewayConfig:
    monkeypatch.setenv("OPERATOR", "operator")
    return replace(PLAIN, admin_key_env="OPERATOR")


@pytest.fixture(scope="module")
def open_gateway() -> Iterator[Running]:
    """Of which nothing is counted."""
    with HostileServer([says("4", (700, 300))]) as expert, priced(expert.url) as made:
        yield made


@pytest.fixture
def gateway() -> Iterator[Running]:
    with HostileServer([says("4", (700, 300))]) as expert, priced(expert.url) as made:
        yield made


def priced(url: str, settings: GatewayConfig = PLAIN, **services: Any) -> Any:
    return running(
        settings,
        services=services,
        small={"base_url": url, "price": {"input": 1, "output": 1}},
        large={"base_url": url, "price": {"input": 4, "output": 4}},
    )


def figures(gateway: Running, **headers: str) -> dict[str, Any]:
    answer = gateway.http.get("/status", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# Who may see it.


@pytest.mark.parametrize("path", PAGES)
def test_without_keys_this_machine_sees_the_page(open_gateway: Running, path: str) -> None:
    assert open_gateway.http.get(path).status_code == 200


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#@127.0.0.1",
        "127.0.0.1:8000:evil.example",
        "0x7f.1",
        "[::ffff:8.8.8.8]",
        "192.168.1.7:8000",
        "",
    ],
)
def test_a_name_that_was_bound_to_this_machine_sees_nothing(
    open_gateway: Running, path: str, host: str
) -> None:
    answer = open_gateway.http.get(path, headers={"host": host})
    # The server itself refuses what is no host.
    assert answer.status_code in {400, 403}
    assert "mildroute_" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "app.localhost:80", "127.8.9.1", "[::1]:8000"])
def test_loopback_names_see_the_page(open_gateway: Running, host: str) -> None:
    assert open_gateway.http.get("/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {KEY}"},
        {"authorization": "operator"},
        {"cookie": "key=operator"},
        {"x-forwarded-for": "127.0.0.1"},
    ],
)
def test_figures_need_the_admin_key_if_there_is_one(
    admin_key: GatewayConfig, headers: dict[str, str]
) -> None:
    with running(admin_key, services=CLIENTS, small=FREE) as gateway:
        for path in ("/status", "/status/report", "/status?key=operator"):
            assert gateway.http.get(path, headers=headers).status_code == 401
        assert "team-a" not in gateway.http.get("/", headers=headers).text
        assert gateway.http.get("/status", headers=OPERATOR).status_code == 200


def test_with_an_admin_key_the_page_loads_under_any_name(admin_key: GatewayConfig) -> None:
    with running(admin_key, services={"is_public": True}, small="http://127.0.0.1:9") as gateway:
        headers = {"host": "gateway.example"}
        assert gateway.http.get("/", headers=headers).status_code == 200
        assert gateway.http.get("/status", headers=headers | OPERATOR).status_code == 200


def test_with_client_keys_alone_nobody_sees_the_page() -> None:
    with running(PLAIN, services=CLIENTS, small=FREE) as gateway:
        for path in PAGES:
            answer = gateway.http.get(path, headers={"authorization": f"Bearer {KEY}"})
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "no_admin_key"


def test_the_key_of_metrics_opens_the_figures_if_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METRICS", "scraper")
    settings = replace(PLAIN, metrics_key_env="METRICS")
    with running(settings, small="http://127.0.0.1:9") as gateway:
        assert gateway.http.get("/status").status_code == 401
        assert figures(gateway, authorization="Bearer scraper")["object"] == "mildroute.status"


def test_the_page_can_be_turned_off(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("page: false\n")
    settings = replace(read_config(tmp_path / "gateway.yaml"), failover=PLAIN.failover)
    assert settings.page == PageConfig(enabled=False)
    with running(settings, small="http://127.0.0.1:9") as gateway:
        for path in PAGES:
            assert gateway.http.get(path).status_code == 404
        assert "/status" not in gateway.http.get("/openapi.json").json()["paths"]


# What a browser is told.


@pytest.mark.parametrize("path", PAGES)
def test_answers_cannot_be_framed_sniffed_or_read_by_others(
    open_gateway: Running, path: str
) -> None:
    headers = open_gateway.http.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not any(name.startswith("access-control") for name in headers)
    assert "set-cookie" not in headers
    if path != "/status":
        assert headers["content-security-policy"] == POLICY


def test_the_page_has_no_script_or_style_inside_and_asks_no_other_host(
    open_gateway: Running,
) -> None:
    page = open_gateway.http.get("/").text
    script = open_gateway.http.get("/ui/dashboard.js").text
    assert page.count("<script") == 1
    assert "<style" not in page
    assert " style=" not in page
    for text in (page, script, open_gateway.http.get("/ui/dashboard.css").text):
        assert "http://" not in text
        assert "https://" not in text
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in script


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../dashboard.py",
        "/ui/..%2f..%2fopenapi.yaml",
        "/ui/%2e%2e%2fapp.py",
        "/ui//etc/passwd",
        "/ui/dashboard.js%00.html",
        "/ui/",
        "/status/report/../../etc/passwd",
        "/status/..%2freport",
    ],
)
def test_no_other_file_can_be_named(open_gateway: Running, path: str) -> None:
    answer = open_gateway.http.get(httpx.URL(open_gateway.url, raw_path=path.encode()))
    assert answer.status_code == 404


def test_a_file_that_the_browser_has_is_not_sent_again(open_gateway: Running) -> None:
    etag = open_gateway.http.get("/ui/dashboard.js").headers["etag"]
    answer = open_gateway.http.get("/ui/dashboard.js", headers={"if-none-match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


# Requests of other websites to a gateway without keys.


CROSS_SITE = [
    {"sec-fetch-site": "cross-site", "content-type": "text/plain"},
    {"sec-fetch-site": "cross-site", "origin": "null"},
    {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
    {"host": "evil.example:8000"},
    {"origin": "https://evil.example", "content-type": "text/plain"},
    *(
        {"host": "evil.example:8000", "origin": "http://evil.example:8000", name: "1.2.3.4"}
        for name in ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via")
    ),
]


@pytest.mark.parametrize("headers", CROSS_SITE)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/route"])
def test_another_website_cannot_ask_through_the_browser(
    open_gateway: Running, path: str, headers: dict[str, str]
) -> None:
    body = {"model": "mildroute", "messages": [{"role": "user", "content": "Hi"}]}
    answer = open_gateway.http.post(path, json=body, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "cross_site"


def test_another_website_can_link_to_the_page_but_not_ask_for_figures(
    open_gateway: Running,
) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert open_gateway.http.get("/", headers=link).status_code == 200
    answer = open_gateway.http.get("/status", headers=link)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")


@pytest.mark.parametrize("headers", CROSS_SITE[2:])
@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/models", "/healthz", "/openapi.json"])
def test_another_website_can_read_no_path(
    open_gateway: Running, path: str, headers: dict[str, str]
) -> None:
    answer = open_gateway.http.get(path, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")


def test_the_page_itself_and_programs_can(open_gateway: Running) -> None:
    own = {"sec-fetch-site": "same-origin", "origin": open_gateway.url}
    for headers in (own, {}, {"x-forwarded-for": "8.8.8.8"}):
        assert open_gateway.chat(headers=headers).status_code == 200


def test_a_public_gateway_has_any_name() -> None:
    with (
        HostileServer([says("4")]) as expert,
        running(PLAIN, services={"is_public": True}, small=expert.url) as gateway,
    ):
        assert gateway.chat(headers={"host": "gateway.internal"}).status_code == 200


def test_a_request_with_a_key_may_come_from_anywhere() -> None:
    with HostileServer([says("4")]) as expert, priced(expert.url, PLAIN, **CLIENTS) as gateway:
        headers = {"authorization": f"Bearer {KEY}", **CROSS_SITE[0]}
        assert gateway.chat(headers=headers).status_code == 200


# What it says.


def test_figures_are_savings_shares_failures_circuits_and_spend(
    admin_key: GatewayConfig,
) -> None:
    client = {"authorization": f"Bearer {KEY}"}
    with (
        HostileServer([status(500)]) as broken,
        HostileServer([says("4", (700, 300))]) as good,
        running(
            admin_key,
            services=CLIENTS,
            small={"base_url": broken.url, "price": {"input": 1, "output": 1}},
            large={"base_url": good.url, "price": {"input": 4, "output": 4}},
        ) as gateway,
    ):
        gateway.chat(headers=client)
        gateway.chat(headers=client, model="large")
        gateway.records(2)
        found = figures(gateway, **OPERATOR)
    assert found["needs_client_key"]
    assert found["requests"]["total"] == 2
    assert found["requests"]["failed"] == 0
    assert found["savings"] == {
        "baseline": "large",
        "dollars": pytest.approx(0.008),
        "baseline_dollars": pytest.approx(0.008),
        "saved": pytest.approx(0.0),
        "saved_share": pytest.approx(0.0),
    }
    small, large = found["experts"]
    assert (small["answered"], small["failures"]) == (0, {"5xx": 1})
    assert (large["share"], large["circuit"]) == (1.0, "closed")
    assert found["reasons"] == {"router": 1, "pinned": 1}
    (key,) = found["keys"]
    assert (key["name"], key["dollars"]) == ("team-a", pytest.approx(0.008))
    assert key["left_today"] == pytest.approx(5 - 0.008)
    assert found["router"]["digest"] == "fake"


def test_a_cheaper_expert_saves_against_the_baseline(gateway: Running) -> None:
    gateway.chat()
    gateway.records()
    assert figures(gateway)["savings"]["saved_share"] == pytest.approx(0.75)


def test_figures_of_nothing_are_told_as_such(gateway: Running) -> None:
    found = figures(gateway)
    assert found["savings"]["saved_share"] is None
    assert [expert["share"] for expert in found["experts"]] == [None, None]
    assert found["covers"]["workers"] == 1
    assert found["covers"]["text"].startswith("Counted by this process since ")


def test_a_gateway_without_a_router_says_so() -> None:
    with running(PLAIN, services={"manager": FakeManager(None)}, small="http://127.0.0.1:9") as one:
        assert figures(one)["router"] is None


def test_figures_are_computed_once_a_second_however_often_they_are_asked(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    snapshot = GatewayMetrics.snapshot
    monkeypatch.setattr(GatewayMetrics, "snapshot", lambda self: taken.append(1) or snapshot(self))
    begun = time.monotonic()
    for _ in range(20):
        figures(gateway)
    assert len(taken) <= 1 + (time.monotonic() - begun)


@pytest.mark.anyio
async def test_figures_of_all_workers_are_those_of_the_page() -> None:
    one, other = GatewayMetrics(), GatewayMetrics()
    for metrics in (one, other):
        metrics.record_request(record())

    async def gather() -> Any:
        return merge_snapshots([one.snapshot(), other.snapshot()])

    one.gather = gather
    no_router: Any = FakeManager(None)
    no_experts: Any = SimpleNamespace(experts={})
    limiter = InFlightLimiter(1, 1)
    dashboard = Dashboard(None, KeyStore(), no_router, no_experts, limiter, one, PLAIN)
    found = await dashboard._build_status()
    assert found["covers"]["workers"] == 2
    assert "by all workers of this gateway, 2 now, since" in found["covers"]["text"]
    assert found["requests"]["total"] == 2
    assert found["keys"] == [
        {"name": "team-a", "dollars": pytest.approx(0.002), "left_today": None}
    ]
    json.dumps(found, allow_nan=False)


# The learning loop, and reports.


def test_exploration_and_the_last_step_of_a_learner_are_told(tmp_path: Path) -> None:
    trail = Trail(Store(str(tmp_path / "learning")))
    state = State(phase="candidate", candidate="ab" * 32, stages=((0.0, 1.0), (0.1, 2.0)))
    trail.add("fitted", State(), 1.0, why="500 rows")
    trail.add("canary", state, 2.0, why="it saves more", candidate="ab" * 32)
    routing = RoutingConfig(exploration=ExplorationConfig(rate=0.05))
    settings = replace(PLAIN, routing=routing, page=PageConfig(learning=tmp_path / "learning"))
    with running(settings, small="http://127.0.0.1:9") as gateway:
        found = figures(gateway)["learning"]
    assert found["exploration"]["rate"] == 0.05
    assert found["sampling"] is None
    assert found["learner"] == {
        "time": 2.0,
        "event": "canary",
        "why": "it saves more",
        "candidate": "ab" * 32,
        "phase": "candidate",
        "share": 0.1,
    }


@pytest.mark.parametrize("content", [None, "", "[]", '{"state": {"stages": 3}}', "\x00"])
def test_a_trail_that_cannot_be_read_is_told_as_such(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "trail").mkdir()
        (tmp_path / "trail" / "000000001.jsonl").write_text(content)
    settings = replace(PLAIN, page=PageConfig(learning=tmp_path))
    with running(settings, small="http://127.0.0.1:9") as gateway:
        learner = figures(gateway)["learning"]["learner"]
    assert learner["event"] is None
    assert "page.learning" in learner["why"]


def with_report(folder: Path, **settings: Any) -> Any:
    predictor = FakePredictor("small")
    predictor.folder = folder
    return running(replace(PLAIN, **settings), predictor, small="http://127.0.0.1:9")


def test_the_report_beside_the_router_can_be_saved(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<script>steal()</script>")
    with with_report(tmp_path) as gateway:
        assert figures(gateway)["router"]["has_report"]
        answer = gateway.http.get("/status/report")
    assert answer.text == "<script>steal()</script>"
    assert answer.headers["content-disposition"] == 'attachment; filename="report-fake.html"'
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts; default")


def test_the_report_of_a_learner_is_found_by_the_digest(tmp_path: Path) -> None:
    folder = tmp_path / "candidates" / "fake"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("learned")
    with with_report(tmp_path / "none", page=PageConfig(learning=tmp_path)) as gateway:
        assert gateway.http.get("/status/report").text == "learned"


def test_a_link_out_of_the_folder_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "router").mkdir()
    (tmp_path / "router" / "report.html").symlink_to(tmp_path / "secret")
    with with_report(tmp_path / "router") as gateway:
        assert not figures(gateway)["router"]["has_report"]
        assert gateway.http.get("/status/report").status_code == 404


# The admin port.


@pytest.mark.anyio
async def test_the_page_and_its_playground_are_on_the_admin_port(
    admin_key: GatewayConfig,
) -> None:
    settings = replace(admin_key, admin_port=9001)
    body = {"input": "Hi"}
    with running(settings, small="http://127.0.0.1:9") as gateway:
        assert gateway.http.get("/").status_code == 404
        assert gateway.http.get("/status", headers=OPERATOR).status_code == 404
        transport = httpx.ASGITransport(gateway.app.admin)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as admin:
            assert (await admin.get("/")).status_code == 200
            assert (await admin.get("/status", headers=OPERATOR)).status_code == 200
            # Without client keys, what serves clients elsewhere needs the admin key here.
            assert (await admin.post("/v1/route", json=body)).status_code == 401
            assert (await admin.post("/v1/route", json=body, headers=OPERATOR)).status_code == 200
            gateway.app.begin_drain()
            late = await admin.post("/v1/route", json=body, headers=OPERATOR)
            assert late.status_code == 503
