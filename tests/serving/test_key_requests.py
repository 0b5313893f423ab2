"""Keys are made, listed and revoked by HTTP, for gateways whose keys are in a database."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.serving.api import management
from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.auth.keys import add_client, create_clients, put_team
from mildroute.serving.config import FailoverConfig, GatewayConfig
from tests.experts.hostile_server import HostileServer, says
from tests.serving.running import Running, running, until

OPERATOR = {"authorization": "Bearer mr-operator"}


@pytest.fixture
def gateway(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    put_team(database_url, "research", dollars_per_day=50)
    store = DatabaseKeyStore(database_url, interval=0.05, cache=tmp_path / "cache")
    config = GatewayConfig(
        keys=database_url, admin_key_env="OPERATOR", failover=FailoverConfig(drain_timeout=1.0)
    )
    with (
        HostileServer([says("4")]) as expert,
        running(config, services={"key_store": store}, small=expert.url) as made,
    ):
        yield made


def create(gateway: Running, body: Any, headers: dict[str, str] = OPERATOR) -> httpx.Response:
    return gateway.http.post("/admin/keys", json=body, headers=headers)


def listed(gateway: Running, **query: Any) -> Any:
    return gateway.http.get("/admin/keys", params=query, headers=OPERATOR).json()


def status_with(gateway: Running, key: str) -> int:
    return gateway.chat(headers={"authorization": f"Bearer {key}"}).status_code


def test_a_key_is_made_used_listed_and_revoked(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mildroute.serving.api.management")
    answer = create(gateway, {"name": "alice", "team": "research", "dollars_per_day": 5})
    ((made),) = answer.json()["data"]
    assert (answer.status_code, made["name"]) == (200, "alice")
    assert re.fullmatch(r"mr-[A-Za-z0-9_-]{43}", made["key"])
    until(lambda: status_with(gateway, made["key"]) == 200)
    assert listed(gateway) == {
        "object": "list",
        "data": [{"name": "alice", "status": "valid", "team": "research", "dollars_per_day": 5}],
        "has_more": False,
    }
    revoked = gateway.http.delete("/admin/keys/alice", headers=OPERATOR)
    assert revoked.json() == {"object": "mildroute.key", "name": "alice", "status": "expired"}
    until(lambda: status_with(gateway, made["key"]) == 401)
    assert listed(gateway)["data"][0]["status"] == "expired"
    fields = [(record.message, record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    assert fields == [
        (
            "keys created",
            {"client.address": "127.0.0.1", "clients": 1, "first": "alice", "last": "alice"},
        ),
        ("keys revoked", {"client.address": "127.0.0.1", "name": "alice"}),
    ]
    assert made["key"] not in caplog.text


def test_many_keys_are_made_at_once_and_listed_by_pages(gateway: Running) -> None:
    clients = [{"name": f"c{number:03d}", "max_in_flight": 2} for number in range(250)]
    made = create(gateway, clients).json()["data"]
    assert [each["name"] for each in made] == [each["name"] for each in clients]
    assert len({each["key"] for each in made}) == 250
    names: list[str] = []
    for size in (100, 100, 50):
        page = listed(gateway, after=names[-1] if names else "")
        assert len(page["data"]) == size
        assert page["has_more"] == (size == 100)
        names += [each["name"] for each in page["data"]]
    assert names == [each["name"] for each in clients]
    assert len(listed(gateway, limit=1000)["data"]) == 250
    until(lambda: status_with(gateway, made[-1]["key"]) == 200)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ([{"name": "new"}, {"name": "taken"}], 409, "got 'taken', which the database"),
        ([{"name": "new"}, {"name": "new"}], 400, "got 'new' twice"),
        ([{"name": "new"}, {"name": "b", "dollars_per_day": 0}], 400, "b: .*positive number"),
        ([{"name": "new"}, {"name": "b", "dollar_per_day": 1}], 400, "did you mean"),
        ([{"name": "new"}, {"name": "b", "team": "none"}], 400, "unknown team 'none'"),
        ({"name": "new", "hash": "sha256:" + "0" * 64}, 400, "leave it out"),
        ({"name": "a b"}, 400, "a client's name must be"),
        ({"name": "mr-" + "x" * 43}, 400, "what looks like a key"),
        ({}, 400, "a client's name must be"),
        ([1], 400, "must be a JSON object"),
        ([], 400, "1 to 10,000 clients"),
        ([{"name": f"c{number}"} for number in range(10_001)], 400, "got 10,001"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_wrong_is_refused_and_none_is_made(
    gateway: Running, database_url: str, body: Any, status: int, words: str
) -> None:
    add_client(database_url, "taken")
    answer = create(gateway, body)
    assert answer.status_code == status
    assert re.search(words, answer.json()["error"]["message"])
    assert "x" * 43 not in answer.text
    assert [each["name"] for each in listed(gateway)["data"]] == ["taken"]


def test_a_body_that_is_no_json_is_refused(gateway: Running) -> None:
    for body in (b"{", b"\xff", b"[" * 100_000):
        answer = gateway.http.post("/admin/keys", content=body, headers=OPERATOR)
        assert (answer.status_code, "must be JSON" in answer.text) == (400, True)


def test_only_an_operator_may_see_or_change_keys(gateway: Running, database_url: str) -> None:
    key = add_client(database_url, "alice")
    until(lambda: status_with(gateway, key) == 200)
    for headers in ({}, {"authorization": f"Bearer {key}"}):
        answers = (
            create(gateway, {"name": "b"}, headers),
            gateway.http.get("/admin/keys", headers=headers),
            gateway.http.delete("/admin/keys/alice", headers=headers),
        )
        assert [answer.status_code for answer in answers] == [401] * 3
    assert [each["status"] for each in listed(gateway)["data"]] == ["valid"]


def test_clients_and_pages_that_there_are_not(gateway: Running) -> None:
    answer = gateway.http.delete("/admin/keys/nobody", headers=OPERATOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    for limit in ("0", "1001", "x", "-1", "1e3", "\u0663"):
        answer = gateway.http.get("/admin/keys", params={"limit": limit}, headers=OPERATOR)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")
    assert listed(gateway, after="zzz") == {"object": "list", "data": [], "has_more": False}


def test_a_process_that_fails_is_told_without_its_output(
    gateway: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(management.sys, "executable", "/bin/false")
    answer = create(gateway, {"name": "alice"})
    assert answer.status_code == 503
    assert "CalledProcessError" in caplog.text


def test_a_database_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    config = GatewayConfig(keys=f"sqlite:///{tmp_path}/no/keys.db", admin_key_env="OPERATOR")
    with HostileServer([says("4")]) as expert, running(config, small=expert.url) as gateway:
        answers = (
            create(gateway, {"name": "alice"}),
            gateway.http.get("/admin/keys", headers=OPERATOR),
            gateway.http.delete("/admin/keys/alice", headers=OPERATOR),
        )
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all("retry-after" in answer.headers for answer in answers)


@pytest.mark.parametrize("keys", [None, "keys.yaml"])
def test_without_a_database_the_way_out_is_told(
    keys: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    config = GatewayConfig(keys=keys, admin_key_env="OPERATOR")
    with HostileServer([says("4")]) as expert, running(config, small=expert.url) as gateway:
        answers = (
            create(gateway, {"name": "alice"}),
            gateway.http.get("/admin/keys", headers=OPERATOR),
            gateway.http.delete("/admin/keys/alice", headers=OPERATOR),
        )
        assert [answer.status_code for answer in answers] == [501] * 3
        assert all("mildroute keys import" in answer.text for answer in answers)


def test_ten_thousand_clients_are_made_in_one_transaction(database_url: str) -> None:
    body = json.dumps([{"name": f"c{number}"} for number in range(10_000)]).encode()
    assert len(set(create_clients(database_url, body).values())) == 10_000
