"""Experts fail in every way, and clients get their answers, or hear why not."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from mildroute.gateway.config import CircuitBreakerConfig, FailoverConfig, GatewayConfig
from mildroute.gateway.observability.metrics import GatewayMetrics
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    chunked,
    cut_off,
    disconnects,
    drips,
    half_json,
    hangs,
    huge,
    redirects,
    resets,
    says,
    sends,
    status,
)
from tests.gateway.running import running
from tests.gateway.streams import DONE, HEAD, event, framed, streams

NOBODY = "http://127.0.0.1:1/v1"


def rules(**failover: object) -> GatewayConfig:
    return GatewayConfig(
        failover=FailoverConfig(
            **{
                "first_byte_timeout": 0.15,
                "timeout": 5.0,
                "drain_timeout": 1.0,
                "max_rounds": 1,
                **failover,
            }
        )
    )  # type: ignore[arg-type]


FAILURES: dict[str, tuple[Behavior | None, str]] = {
    "nobody there": (None, "connect"),
    "silence": (hangs(), "timeout"),
    "closed": (disconnects(), "connection_lost"),
    "reset": (resets(), "connection_lost"),
    "408": (status(408, {}, "{}"), "timeout"),
    "429": (status(429, {"Retry-After": "7"}, "{}"), "rate_limited"),
    "500": (status(500, {}, "{}"), "5xx"),
    "503": (status(503, {}, "{}"), "5xx"),
    "our key": (status(401, {}, "{}"), "misconfigured"),
    "our money": (status(402, {}, "{}"), "misconfigured"),
    "our model": (status(404, {}, "{}"), "misconfigured"),
    "redirect": (redirects("http://127.0.0.1:1/"), "redirect"),
    "no http": (sends(b"hello\r\n\r\n"), "invalid_response"),
    "odd status": (sends(b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"), "invalid_response"),
    "empty": (status(200, {}, ""), "invalid_response"),
}


@pytest.mark.parametrize(
    ("name", "is_stream"),
    [
        (name, is_stream)
        for name in FAILURES
        for is_stream in (False, True)
        if is_stream or name != "silence"  # a complete answer has until the deadline
    ],
)
def test_a_failure_before_the_first_byte_is_mended_by_the_next_expert(
    name: str, is_stream: bool
) -> None:
    behavior, why = FAILURES[name]
    metrics = GatewayMetrics()
    good = streams(event("4"), DONE) if is_stream else says("4")
    with (
        HostileServer([behavior or hangs()]) as first,
        HostileServer([good]) as second,
        running(
            rules(),
            services={"metrics": metrics},
            small=NOBODY if behavior is None else first.url,
            large=second.url,
        ) as gateway,
    ):
        answer = gateway.chat(stream=is_stream)
        record = gateway.records()[0]
    assert answer.status_code == 200
    assert answer.headers["x-mildroute-expert"] == "large"
    assert "4" in answer.text
    assert (record.selected, record.served_by, len(record.attempts), record.status) == (
        "small",
        "large",
        2,
        200,
    )
    assert (
        metrics.registry.get_sample_value(
            "mildroute_fallbacks_total", {"expert": "small", "reason": why}
        )
        == 1.0
    )
    assert len(second.calls) == 1


@pytest.mark.parametrize(
    "behavior", [cut_off(), chunked("4", whole=False), half_json(), huge(200_000), drips(0.05)]
)
def test_an_answer_that_breaks_in_the_middle_is_mended_while_nothing_was_sent(
    behavior: Behavior,
) -> None:
    settings = rules(idle_timeout=0.03)
    settings = GatewayConfig(
        failover=settings.failover, limits=type(settings.limits)(max_response_bytes=100_000)
    )
    with (
        HostileServer([behavior]) as first,
        HostileServer([says("4")]) as second,
        running(settings, small=first.url, large=second.url) as gateway,
    ):
        answer = gateway.chat()
    assert answer.headers["x-mildroute-expert"] == "large"
    assert answer.json()["choices"][0]["text"] == "4"


def _opened() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def _garbage(begin: bytes = event("a")) -> Behavior:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(HEAD + framed(begin))
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(b"this is no chunk\r\n")
        return False

    return behave


@pytest.mark.parametrize(
    ("path", "fields", "start"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}, b"data: "),
        ("responses", {"input": "x"}, b"event: error\ndata: "),
    ],
)
@pytest.mark.parametrize("how", ["cut", "silence", "garbage"])
def test_a_stream_that_breaks_ends_with_the_error_event_of_its_api(
    path: str, fields: dict[str, object], start: bytes, how: str
) -> None:
    broken = {"cut": streams(event("a"), ends=False), "silence": _silent(), "garbage": _garbage()}[
        how
    ]
    with (
        HostileServer([broken]) as first,
        HostileServer([says("4")]) as second,
        running(rules(idle_timeout=0.5), small=first.url, large=second.url) as gateway,
    ):
        answer = gateway.http.post(
            f"/v1/{path}", json={"model": "mildroute", "stream": True, **fields}
        )
        record = gateway.records()[0]
        failures = gateway.app.pool.experts["small"].breaker._consecutive_failures
    assert answer.status_code == 200
    assert answer.content.startswith(event("a") + start)
    last = json.loads(answer.content[len(event("a") + start) :])
    message = last["message"] if path == "responses" else last["error"]["message"]
    assert message.startswith("small ")
    assert message.endswith(" in the middle of its answer; retry.")
    assert b"[DONE]" not in answer.content
    assert second.calls == []
    # aiohttp notices garbage when nothing follows it.
    statuses = {"cut": (502,), "silence": (504,), "garbage": (502, 504)}[how]
    assert record.status in statuses
    assert record.served_by == "small"
    assert failures == 1


@pytest.mark.parametrize(
    "behavior",
    [
        streams(event("a") + DONE, ends=False),
        streams(event("a"), DONE, ends=False),
        _garbage(event("a") + DONE),
        streams(event("a"), DONE, b"", gates=[_opened(), _opened(), threading.Event()]),
    ],
    ids=["one piece", "two pieces", "garbage", "silence"],
)
def test_a_stream_that_is_cut_off_after_its_last_event_is_an_answer(behavior: Behavior) -> None:
    with (
        HostileServer([behavior]) as server,
        running(rules(idle_timeout=0.5), small=server.url) as gateway,
    ):
        answer = gateway.chat(stream=True)
        record = gateway.records()[0]
        failures = gateway.app.pool.experts["small"].breaker._consecutive_failures
    assert answer.content == event("a") + DONE
    assert (record.status, record.served_by, failures) == (200, "small", 0)


def _silent() -> Behavior:
    return streams(event("a"), event("b"), gates=[_opened(), threading.Event()])


def test_a_broken_answer_that_is_no_stream_of_events_is_a_failure() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with (
        HostileServer([streams(b'{"half', head=head, ends=False)]) as first,
        running(rules(), small=first.url) as gateway,
    ):
        assert gateway.chat(stream=True).status_code == 502
        assert gateway.records()[0].status == 502


def test_if_all_fail_the_client_hears_who_was_asked_and_why_with_the_last_status() -> None:
    with (
        HostileServer([status(500, {}, "a secret of ours")]) as first,
        HostileServer([status(503, {}, "another")]) as second,
        running(rules(), small=first.url, large=second.url) as gateway,
    ):
        answer = gateway.chat()
        record = gateway.records()[0]
    assert answer.status_code == 503
    assert answer.json()["error"] == {
        "message": "no expert answered: small had an error; large had an error.",
        "type": "server_error",
        "param": None,
        "code": "unavailable",
    }
    assert answer.headers["x-mildroute-decision-id"] == record.decision_id
    assert (record.served_by, len(record.attempts), record.status, record.cost_usd) == (
        "",
        2,
        503,
        0.0,
    )


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        (None, 502),
        (hangs(), 504),
        (status(401, {}, "{}"), 502),
        (status(429, {"Retry-After": "7"}, "{}"), 429),
        (status(500), 500),
    ],
    ids=["nobody", "silence", "key", "rate", "error"],
)
def test_the_status_of_a_last_failure_tells_its_kind(
    behavior: Behavior | None, expected: int
) -> None:
    with (
        HostileServer([behavior or hangs()]) as first,
        running(rules(), small=NOBODY if behavior is None else first.url) as gateway,
    ):
        answer = gateway.chat()
    assert answer.status_code == expected
    assert answer.headers.get("retry-after") == ("7" if expected == 429 else None)


def test_an_expert_that_the_client_names_is_not_replaced_by_another() -> None:
    with (
        HostileServer([status(500)]) as first,
        HostileServer([says("4")]) as second,
        running(rules(), small=first.url, large=second.url) as gateway,
    ):
        assert gateway.chat(model="small").status_code == 500
        assert gateway.records()[0].reason == "pinned"
    assert second.calls == []


def test_an_expert_over_its_rate_is_left_alone_as_long_as_it_asks_and_not_cut_off() -> None:
    with (
        HostileServer([status(429, {"Retry-After": "60"}, "{}")]) as first,
        HostileServer([says("4")]) as second,
        running(rules(), small=first.url, large=second.url) as gateway,
    ):
        for _ in range(10):
            assert gateway.chat().headers["x-mildroute-expert"] == "large"
        assert gateway.app.pool.experts["small"].breaker.state == "closed"
        assert gateway.records(10)[-1].reason == "next_best"
    assert len(first.calls) == 1


def test_a_circuit_opens_after_failures_and_closes_again_after_a_good_probe() -> None:
    settings = GatewayConfig(
        breaker=CircuitBreakerConfig(consecutive_failures=2, cooldown=0.1),
        failover=FailoverConfig(drain_timeout=1.0),
    )
    with (
        HostileServer([status(500), status(500), says("back")]) as first,
        HostileServer([says("4")]) as second,
        running(settings, small=first.url, large=second.url) as gateway,
    ):
        seen = [gateway.chat().headers["x-mildroute-expert"] for _ in range(4)]
        calls = len(first.calls)
        time.sleep(0.11)
        back = gateway.chat().headers["x-mildroute-expert"]
    assert seen == ["large"] * 4
    assert calls == 2
    assert back == "small"


def test_the_deadline_bounds_all_attempts_together() -> None:
    with (
        HostileServer([hangs()]) as server,
        running(
            rules(timeout=0.2, first_byte_timeout=0.15), a=server.url, b=server.url, c=server.url
        ) as gateway,
    ):
        started = time.monotonic()
        answer = gateway.chat(stream=True)
        assert time.monotonic() - started < 1.0
        assert len(gateway.records()[0].attempts) == 2
    assert answer.status_code == 504


def test_no_more_experts_are_asked_than_allowed() -> None:
    with (
        HostileServer([status(500)]) as server,
        running(rules(max_attempts=2), a=server.url, b=server.url, c=server.url) as gateway,
    ):
        assert gateway.chat().status_code == 500
    assert len(server.calls) == 2


@pytest.mark.parametrize("code", [403, 404, 405])
def test_what_a_client_can_bring_about_falls_over_but_does_not_close_the_expert_to_others(
    code: int,
) -> None:
    with (
        HostileServer([status(code, {}, "{}")]) as first,
        HostileServer([says("4")]) as second,
        running(rules(), small=first.url, large=second.url) as gateway,
    ):
        assert [gateway.chat().headers["x-mildroute-expert"] for _ in range(8)] == ["large"] * 8
        assert gateway.app.pool.experts["small"].breaker.state == "closed"


def test_a_bad_key_of_ours_opens_the_circuit() -> None:
    with (
        HostileServer([status(401, {}, "{}")]) as first,
        HostileServer([says("4")]) as second,
        running(rules(), small=first.url, large=second.url) as gateway,
    ):
        assert [gateway.chat().status_code for _ in range(8)] == [200] * 8
        assert gateway.app.pool.experts["small"].breaker.state == "open"
    assert len(first.calls) == 5
