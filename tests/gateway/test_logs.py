"""Every line on stderr has one format; floods are bounded; no line holds a prompt or a key."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import (
    CircuitBreakerConfig,
    FailoverConfig,
    GatewayConfig,
    LoggingConfig,
    read_config,
)
from mildroute.gateway.observability.logs import LogThrottle, log_event, log_to_stderr
from mildroute.gateway.upstream.pool import UpstreamExpert
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.running import Running, running, until
from tests.gateway.test_candidate import SPEC
from tests.gateway.ticking import Clock

TRACE = "0af7651916cd43dd8448eb211c80319c"
LOG = logging.getLogger("mildroute.test")


def settings(**logs: Any) -> GatewayConfig:
    return GatewayConfig(
        failover=FailoverConfig(drain_timeout=1.0, max_rounds=1), logging=LoggingConfig(**logs)
    )


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_of_text_has_date_zone_level_logger_event_and_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with log_to_stderr(LoggingConfig()):
        log_event(LOG, logging.WARNING, "expert failed", expert="a b", error__type="5xx", none=None)
        logging.getLogger("some.library").warning("Something odd.")
        logging.getLogger("mildroute.test").info("a\nb %d", 3)
        logging.getLogger("httpx").info("POST https://example.com")
    first, second, third = capsys.readouterr().err.splitlines()
    date = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(
        date + r' WARNING mildroute\.test expert failed expert="a b" error\.type=5xx', first
    )
    assert re.fullmatch(date + r" WARNING some\.library Something odd\.", second)
    assert third.endswith("INFO mildroute.test a\\nb 3")


def test_a_line_of_json_has_the_usual_members(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr(LoggingConfig(format="json", level="warning")):
        LOG.info("not written")
        log_event(LOG, logging.WARNING, "expert failed", expert="größe", suppressed=3)
        LOG.error("broken", exc_info=ValueError("word"))
    told, broken = lines(capsys)
    assert datetime.fromisoformat(told.pop("timestamp")).tzinfo is not None
    assert told == {
        "level": "WARNING",
        "logger": "mildroute.test",
        "message": "expert failed",
        "expert": "größe",
        "suppressed": 3,
    }
    assert broken["exception.stacktrace"] == "ValueError: word"


def test_afterwards_loggers_are_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    root, gateway = logging.getLogger(), logging.getLogger("mildroute")
    before = (root.level, gateway.level, list(root.handlers))
    with log_to_stderr(LoggingConfig(level="debug")):
        assert gateway.level == logging.DEBUG
    assert (root.level, gateway.level, list(root.handlers)) == before
    LOG.warning("unseen")
    assert "unseen" not in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["{format: xml}", "{level: loud}", "{access: 1}"])
def test_a_setting_that_there_is_not_is_refused(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"logging: {wrong}\n")
    with pytest.raises(ArgumentError, match=r"gateway.yaml:1"):
        read_config(file)
    file.write_text("logging: {format: json, level: warning, access: true}\n")
    assert read_config(file).logging == LoggingConfig("json", "warning", access=True)


def test_a_throttle_lets_one_of_each_kind_through_and_counts_the_rest() -> None:
    clock = Clock()
    throttle = LogThrottle(60.0, clock)
    assert [throttle.admit("a") for _ in range(5)] == [0, None, None, None, None]
    assert throttle.admit("b") == 0
    clock.now += 60.0
    assert [throttle.admit("a"), throttle.admit("b"), throttle.admit("a")] == [4, 0, None]


def test_each_change_of_a_circuit_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    caplog.set_level(logging.INFO, "mildroute")
    rules = GatewayConfig(breaker=CircuitBreakerConfig(consecutive_failures=2))
    expert = UpstreamExpert(SPEC, rules, clock)
    for _ in range(5):
        expert.record_failure(clock())
    assert caplog.messages == ["circuit opened"]
    clock.now += 100.0
    for _ in range(3):
        expert.breaker.try_acquire()
    expert.record_failure(clock())
    clock.now += 100.0
    expert.breaker.try_acquire()
    expert.record_success(clock())
    expert.record_success(clock())
    assert caplog.messages[1:] == [
        "circuit half-open",
        "circuit opened",
        "circuit half-open",
        "circuit closed",
    ]
    assert {record.fields["expert"] for record in caplog.records} == {SPEC.name}  # type: ignore[attr-defined]
    assert 0 < caplog.records[0].fields["retry_after"] <= 1.0  # type: ignore[attr-defined]


def test_a_failure_is_one_line_however_often_it_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        HostileServer([status(500)]) as bad,
        HostileServer([says("4")]) as good,
        running(settings(), bad=bad.url, good=good.url) as gateway,
    ):
        for _ in range(4):
            gateway.chat("a secret word", headers={"x-request-id": "req-7"})
        gateway.records(4)
    (failed,) = [record for record in caplog.records if record.message == "expert failed"]
    assert failed.levelno == logging.WARNING
    told = dict(failed.fields)  # type: ignore[attr-defined]
    assert told.pop("decision_id") == gateway.records()[0].decision_id
    assert told == {
        "expert": "bad",
        "error.type": "5xx",
        "http.response.status_code": 500,
        "request_id": "req-7",
    }
    assert "secret" not in caplog.text


def access(gateway: Running, caplog: pytest.LogCaptureFixture, wanted: int) -> list[dict[str, Any]]:
    """Fields of the access log; a response is with its client before its line is written."""

    def found() -> list[dict[str, Any]]:
        return [
            dict(record.fields)  # type: ignore[attr-defined]
            for record in caplog.records
            if record.name == "mildroute.access"
        ]

    until(lambda: len(found()) >= wanted)
    assert len(found()) == wanted
    return found()


def test_the_access_log_has_one_line_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mildroute")
    headers = {
        "x-request-id": "req-7",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
        "authorization": "Bearer mr-secret",
    }
    with (
        HostileServer([says("4")]) as expert,
        running(settings(access=True), small=expert.url) as gateway,
    ):
        gateway.chat("a secret word", headers=headers)
        gateway.http.get("/v1/no%0Awhere?key=secret")
        served, missing = access(gateway, caplog, 2)
        (record,) = gateway.records()
    assert 0 < served.pop("seconds") < 10
    assert served == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "request_id": "req-7",
        "decision_id": record.decision_id,
        "expert": "small",
        "trace_id": TRACE,
    }
    del missing["seconds"]
    assert missing == {
        "http.request.method": "GET",
        "url.path": "/v1/no\nwhere",
        "http.response.status_code": 404,
    }
    assert "secret" not in caplog.text
    assert (record.request_id, record.trace_id) == ("req-7", TRACE)


def test_the_access_log_names_the_client_and_is_off_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key

    caplog.set_level(logging.INFO, "mildroute")
    key = new_key()
    store = KeyStore([(hash_key(key), APIClient("team-a"))])
    with HostileServer([says("4")]) as expert:
        for is_on in (False, True):
            with running(
                settings(access=is_on), services={"key_store": store}, small=expert.url
            ) as gateway:
                gateway.chat(headers={"authorization": f"Bearer {key}"})
                gateway.chat()
                lines = access(gateway, caplog, 2 * is_on)
    assert [(line.get("key"), line["http.response.status_code"]) for line in lines] == [
        ("team-a", 200),
        (None, 401),
    ]
    assert key not in caplog.text


@pytest.mark.parametrize(
    "wrong", ["", "00-xyz", f"00-{TRACE}", f"00-{TRACE.upper()}-b7ad6b7169203331-01"]
)
def test_a_malformed_traceparent_is_not_logged(wrong: str) -> None:
    with HostileServer([says("4")]) as expert, running(small=expert.url) as gateway:
        gateway.chat(headers={"traceparent": wrong})
        assert gateway.records()[0].trace_id == ""
