"""The page in the browser, as a client without one sees it: who may see it, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.gateway.config import (
    FailoverConfig,
    GatewayConfig,
    read_config,
)
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.fakes import FakeManager
from tests.gateway.running import Running, running

PLAIN = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src"
    " data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGES = ["/", "/ui/page.js", "/ui/page.css", "/status"]
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
        for path in ("/status", "/status?key=operator"):
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
    assert not settings.page
    with running(settings, small="http://127.0.0.1:9") as gateway:
        for path in PAGES:
            assert gateway.http.get(path).status_code == 404
        assert "/status" not in gateway.http.get("/openapi.json").json()["paths"]


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
    assert headers["content-security-policy"] == POLICY


def test_the_page_has_no_script_or_style_inside_and_asks_no_other_host(
    open_gateway: Running,
) -> None:
    page = open_gateway.http.get("/").text
    script = open_gateway.http.get("/ui/page.js").text
    assert page.count("<script") == 1
    assert "<style" not in page
    assert " style=" not in page
    for text in (page, script, open_gateway.http.get("/ui/page.css").text):
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
        "/ui/page.js%00.html",
        "/ui/",
        "/ui/../../../etc/passwd",
    ],
)
def test_no_other_file_can_be_named(open_gateway: Running, path: str) -> None:
    answer = open_gateway.http.get(httpx.URL(open_gateway.url, raw_path=path.encode()))
    assert answer.status_code == 404


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


def test_figures_are_savings_shares_and_circuits(
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
    assert (small["answered"], small["share"]) == (0, 0.0)
    assert (large["share"], large["circuit"]) == (1.0, "closed")
    assert large["dollars"] == pytest.approx(0.008)
    assert found["router"] == "fake"


def test_a_cheaper_expert_saves_against_the_baseline(gateway: Running) -> None:
    gateway.chat()
    gateway.records()
    assert figures(gateway)["savings"]["saved_share"] == pytest.approx(0.75)


def test_figures_of_nothing_are_told_as_such(gateway: Running) -> None:
    found = figures(gateway)
    assert found["savings"]["saved_share"] is None
    assert [expert["share"] for expert in found["experts"]] == [None, None]


def test_a_gateway_without_a_router_says_so() -> None:
    with running(PLAIN, services={"manager": FakeManager(None)}, small="http://127.0.0.1:9") as one:
        assert figures(one)["router"] is None


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
