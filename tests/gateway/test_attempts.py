"""Attempts: what is sent again, what counts as an answer, rounds of retries, load shedding.

The audit of November 2026 numbers its cases T1 to T17; its figures stand in the docstrings.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mildroute.gateway.config import CircuitBreakerConfig, FailoverConfig, GatewayConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.upstream.attempts import AttemptFailure
from mildroute.gateway.upstream.failures import error_from_failures
from mildroute.gateway.upstream.retry_budget import RetryBudget
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    disconnects,
    hangs,
    says,
    sends,
    status,
)
from tests.gateway.running import Running, running, until
from tests.gateway.streams import DONE, event, streams

ERROR = b'data: {"error":{"message":"overloaded","code":502}}\n\n'
RESPONSE_DONE = b'event: response.completed\ndata: {"type":"response.completed"}\n\n'
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def rules(breaker: CircuitBreakerConfig | None = None, **failover: Any) -> GatewayConfig:
    failover = {"timeout": 5.0, "drain_timeout": 1.0, "max_rounds": 1, **failover}
    return GatewayConfig(
        failover=FailoverConfig(**failover), breaker=breaker or CircuitBreakerConfig()
    )


def failures(metrics: GatewayMetrics, expert: str, reason: str) -> float:
    name = "mildroute_fallbacks_total"
    return metrics.registry.get_sample_value(name, {"expert": expert, "reason": reason}) or 0.0


def counted(gateway: Running, expert: str = "small") -> int:
    return gateway.app.pool.experts[expert].breaker._consecutive_failures


class TestResends:
    def test_an_expert_that_closes_after_it_has_read_is_called_once(self) -> None:
        """T1: 20 requests made 40 calls upstream, all logged `attempts: 1`; now 20 calls."""
        with (
            HostileServer(lambda call: disconnects() if call.number % 2 else says("4")) as first,
            HostileServer([says("5")]) as second,
            running(rules(), small=first.url, large=second.url) as gateway,
        ):
            for _ in range(20):
                assert gateway.chat(model="small").status_code == 200
                answer = gateway.chat()
                assert (answer.status_code, answer.headers["x-mildroute-expert"]) == (200, "large")
                gateway.app.pool.experts["small"].breaker.record_success()
            records = gateway.records(40)
        assert len(first.calls) == 40
        assert len(second.calls) == 20
        assert [len(record.attempts) for record in records] == [1, 2] * 20


class TestLongAnswers:
    def test_an_answer_that_takes_longer_than_the_first_byte_may_is_waited_for(self) -> None:
        """T12: 6 such requests were 6 x 504, 12 calls, 11 of them billed, both circuits open."""
        with (
            HostileServer([says("4", delay=0.3)]) as first,
            HostileServer([says("5", delay=0.3)]) as second,
            running(rules(first_byte_timeout=0.05), small=first.url, large=second.url) as gateway,
        ):
            answers = [gateway.chat() for _ in range(6)]
            assert gateway.app.pool.circuits() == {"small": "closed", "large": "closed"}
        assert [answer.headers["x-mildroute-expert"] for answer in answers] == ["small"] * 6
        assert len(first.calls) == 6
        assert second.calls == []

    def test_the_deadline_of_a_complete_answer_is_no_failure_of_its_expert(self) -> None:
        with (
            HostileServer([hangs()]) as first,
            running(rules(timeout=0.1), small=first.url) as gateway,
        ):
            assert [gateway.chat().status_code for _ in range(6)] == [504] * 6
            assert gateway.app.pool.circuits() == {"small": "closed"}

    def test_a_call_that_takes_too_long_counts_for_the_limits_of_its_key(self) -> None:
        """A key spent $0.30 of its $0.10 a day on answers that came too late, and no bill told."""
        price = {"input": 0, "output": 1_000_000}
        key = new_key()
        client = APIClient("team", dollars_per_day=10.0)
        limiter = LocalLimits()
        services = {"key_store": KeyStore([(hash_key(key), client)]), "limits": limiter}
        with (
            HostileServer([status(408), hangs()]) as first,
            running(
                rules(timeout=1.0), None, services, small={"base_url": first.url, "price": price}
            ) as gateway,
        ):
            headers = {"authorization": f"Bearer {key}"}
            gateway.chat(max_tokens=7, headers=headers)
            assert limiter.spent("team") == 0.0, "a server that gives up itself sent no answer"
            assert gateway.chat(max_tokens=7, headers=headers).status_code == 504
            # The answer is sent before the request is settled.
            until(lambda: limiter.spent("team") == 7.0)
            assert gateway.chat(max_tokens=7, headers=headers).status_code == 429
            assert [record.cost_usd for record in gateway.records(2)] == [0.0, 0.0]

    def test_an_expert_that_hangs_is_replaced_after_the_timeout_of_an_attempt(self) -> None:
        config = rules(attempt_timeout=0.1, first_byte_timeout=5.0)
        with (
            HostileServer([hangs(), hangs(), says("3", delay=0.3)]) as first,
            HostileServer([says("4")]) as second,
            running(config, small=first.url, large=second.url) as gateway,
        ):
            answers = [gateway.chat() for _ in range(2)]
            assert [answer.headers["x-mildroute-expert"] for answer in answers] == ["large"] * 2
            assert counted(gateway) == 2
            streamed = gateway.chat(stream=True)
            assert streamed.headers["x-mildroute-expert"] == "small"

    def test_a_stream_that_does_not_begin_is_one(self) -> None:
        with (
            HostileServer([hangs()]) as first,
            running(rules(first_byte_timeout=0.05), small=first.url) as gateway,
        ):
            assert gateway.chat(stream=True).status_code == 504
            assert counted(gateway) == 1


def _json(document: Any, content_type: str = "application/json") -> Behavior:
    return status(200, {"Content-Type": content_type}, json.dumps(document))


NO_ANSWERS: dict[str, tuple[Behavior, str]] = {
    "error body": (_json({"error": {"message": "no", "code": 502}}), "error_body"),
    "error text": (_json({"error": "no", "choices": []}), "error_body"),
    "html": (status(200, {"Content-Type": "text/html"}, "<html>"), "invalid_response"),
    "html json": (_json({"choices": [1]}, "text/html; charset=utf-8"), "invalid_response"),
    "999": (sends(b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\n{}"), "invalid_response"),
}


class TestAnswers:
    @pytest.mark.parametrize("name", NO_ANSWERS)
    @pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
    def test_what_is_no_answer_is_mended_by_the_next_expert(
        self, name: str, is_stream: bool
    ) -> None:
        """T6: a 200 with an error was passed on and charged; `text/html` passed as an answer."""
        behavior, reason = NO_ANSWERS[name]
        metrics = GatewayMetrics()
        good = streams(event("4"), DONE) if is_stream else says("4")
        with (
            HostileServer([behavior]) as first,
            HostileServer([good]) as second,
            running(
                rules(), services={"metrics": metrics}, small=first.url, large=second.url
            ) as gateway,
        ):
            answer = gateway.chat(stream=is_stream)
            record = gateway.records()[0]
            assert counted(gateway) == 1
        assert (answer.status_code, answer.headers["x-mildroute-expert"]) == (200, "large")
        assert failures(metrics, "small", reason) == 1.0
        assert (len(record.attempts), record.status) == (2, 200)

    @pytest.mark.parametrize("name", NO_ANSWERS)
    def test_without_another_expert_the_client_gets_a_502(self, name: str) -> None:
        """Status 999 cut the client's connection without a byte."""
        with (
            HostileServer([NO_ANSWERS[name][0]]) as first,
            running(rules(), small=first.url) as gateway,
        ):
            answer = gateway.chat()
            assert gateway.records()[0].cost_usd == 0.0
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "expert_failed")

    def test_an_answer_that_speaks_of_errors_is_one(self) -> None:
        text = json.dumps({"error": {"code": 1}})
        document = {"choices": [{"message": {"content": text}}], "error": None}
        with HostileServer([_json(document)]) as first, running(small=first.url) as gateway:
            assert gateway.chat().json() == document

    @pytest.mark.parametrize(
        "behavior",
        [
            streams(ERROR, DONE),
            streams(b": waiting\n\n", ERROR),
            streams(event("a") + ERROR),
            streams(event("a")),
            sends(CLOSING + event("a")[:40]),
            sends(CLOSING),
        ],
        ids=["error", "comment", "error behind", "no end", "cut json", "empty"],
    )
    def test_a_stream_that_is_seen_to_fail_before_a_byte_was_sent_is_mended(
        self, behavior: Behavior
    ) -> None:
        """T2: a first event with an error was a 200 with a clean end, and no fallback."""
        with (
            HostileServer([behavior]) as first,
            HostileServer([streams(event("4"), DONE)]) as second,
            running(rules(), small=first.url, large=second.url) as gateway,
        ):
            # A stream in two packets may be forwarded before its end has come.
            answer = gateway.chat(stream=True)
            record = gateway.records()[0]
            assert counted(gateway) == 1
        if answer.headers["x-mildroute-expert"] == "small":
            assert b'"error"' in answer.content
            assert record.status == 502
        else:
            assert answer.content == event("4") + DONE
            assert (record.status, len(record.attempts)) == (200, 2)

    @pytest.mark.parametrize(
        ("path", "pieces", "is_told_by_expert"),
        [
            ("chat/completions", (event("a"), event("b")), False),
            ("chat/completions", (event("a"), event("b")[:40]), False),
            ("chat/completions", (event("a"), ERROR), True),
            ("chat/completions", (event("a"), ERROR, DONE), True),
            ("responses", (event("a"), event("b")), False),
        ],
        ids=["no end", "cut json", "error", "error and end", "responses"],
    )
    def test_a_stream_that_ends_without_its_last_event_is_a_failure_and_told(
        self, path: str, pieces: tuple[bytes, ...], is_told_by_expert: bool
    ) -> None:
        """T2: the client saw a 200 and a clean end, the log 200, the circuit a success."""
        gates = [threading.Event() for _ in pieces]
        gates[0].set()
        with (
            HostileServer([streams(*pieces, gates=gates)]) as first,
            running(rules(), small=first.url) as gateway,
        ):
            body: dict[str, Any] = {"model": "mildroute", "stream": True}
            body |= (
                {"input": "x"}
                if path == "responses"
                else {"messages": [{"role": "user", "content": "x"}]}
            )
            got = b""
            with gateway.http.stream("POST", f"/v1/{path}", json=body) as answer:
                for piece in answer.iter_raw():
                    got += piece
                    for gate in gates:
                        gate.set()
            record = gateway.records()[0]
            assert counted(gateway) == 1
        # An event that was cut is held back: the error's event would be unreadable behind it.
        sent = b"".join(piece for piece in pieces if piece.endswith(b"\n\n"))
        assert got.startswith(sent)
        assert (got == sent) is is_told_by_expert
        if not is_told_by_expert:
            assert b"small closed the stream in the middle of its answer; retry." in got
        assert (answer.status_code, record.status, record.served_by) == (200, 502, "small")

    @pytest.mark.parametrize(
        ("path", "end"), [("chat/completions", DONE), ("responses", RESPONSE_DONE)]
    )
    def test_a_stream_with_its_last_event_ends_well(self, path: str, end: bytes) -> None:
        with (
            HostileServer([streams(event("a"), end)]) as first,
            running(rules(), small=first.url) as gateway,
        ):
            fields = {"input": "x", "messages": [{"role": "user", "content": "x"}]}
            answer = gateway.http.post(
                f"/v1/{path}", json={"model": "mildroute", "stream": True, **fields}
            )
            assert gateway.records()[0].status == 200
        assert answer.content == event("a") + end

    def test_comments_before_the_first_event_are_bounded_by_the_deadline(self) -> None:
        async def comments(_call: Call, writer: Writer) -> bool:
            writer.write(CLOSING)
            while not writer.is_closing():
                writer.write(b": waiting\n\n")
                await asyncio.sleep(0.01)
            return False

        with (
            HostileServer([comments]) as first,
            running(rules(timeout=0.2), small=first.url) as gateway,
        ):
            assert gateway.chat(stream=True).status_code == 504


class TestRounds:
    @pytest.mark.parametrize("model", ["mildroute", "small"])
    @pytest.mark.parametrize(
        "sick",
        [status(500), status(429, {"Retry-After": "0"}, "{}"), _json({"error": "no"})],
        ids=["500", "429", "error body"],
    )
    def test_a_single_expert_is_called_again_after_a_pause(
        self, model: str, sick: Behavior
    ) -> None:
        """A1: 224 of 229 errors came while an expert restarted; no call was retried."""
        with (
            HostileServer([sick, sick, says("4")]) as first,
            running(rules(max_rounds=3), small=first.url) as gateway,
        ):
            started = time.monotonic()
            answer = gateway.chat(model=model)
            assert 0.2 <= time.monotonic() - started < 3.0
            assert len(gateway.records()[0].attempts) == 3
        assert answer.status_code == 200

    def test_a_refused_connection_is_tried_again(self) -> None:
        with HostileServer([says("4")]) as first:
            url = first.url
        with running(rules(max_rounds=2), small=url) as gateway:
            assert gateway.chat().status_code == 502
            assert len(gateway.records()[0].attempts) == 2

    @pytest.mark.parametrize(
        "sick",
        [disconnects(), status(401, {}, "{}"), status(429, {"Retry-After": "60"}, "{}")],
        ids=["may have been read", "our key", "asks for a minute"],
    )
    def test_what_will_not_pass_or_may_have_been_read_is_not(self, sick: Behavior) -> None:
        with (
            HostileServer([sick]) as first,
            running(rules(max_rounds=3), small=first.url) as gateway,
        ):
            assert gateway.chat().status_code in (429, 502)
            assert len(gateway.records()[0].attempts) == 1
        assert len(first.calls) == 1

    def test_all_experts_of_the_order_are_called_in_each_round(self) -> None:
        with (
            HostileServer([status(500)]) as first,
            HostileServer([status(503), says("4")]) as second,
            running(rules(max_rounds=2), small=first.url, large=second.url) as gateway,
        ):
            assert gateway.chat().status_code == 200
            assert len(gateway.records()[0].attempts) == 4
        assert (len(first.calls), len(second.calls)) == (2, 2)

    def test_the_deadline_ends_them(self) -> None:
        with (
            HostileServer([status(500)]) as first,
            running(rules(max_rounds=100, timeout=0.3), small=first.url) as gateway,
        ):
            assert gateway.chat().status_code in (500, 503)
        assert len(first.calls) <= 3

    def test_retries_are_a_fifth_of_the_requests_and_a_few_in_any_case(self) -> None:
        now = 0.0
        budget = RetryBudget(lambda: now)
        assert [budget.try_spend() for _ in range(11)] == [True] * 10 + [False]
        for _ in range(100):
            budget.count_request()
        assert [budget.try_spend() for _ in range(11)] == [True] * 10 + [False]
        now = 100.0
        budget.count_request()
        assert budget.try_spend()


class TestLoadShedding:
    def test_while_all_circuits_are_open_only_probes_are_sent(self) -> None:
        """T11: 12 waves of 40 requests made 80 calls a wave, 960 in all; now below 200."""
        breaker = CircuitBreakerConfig(cooldown=30.0)
        with (
            HostileServer([status(500, {}, "{}")]) as first,
            HostileServer([status(500, {}, "{}")]) as second,
            running(rules(breaker, max_rounds=3), small=first.url, large=second.url) as gateway,
            ThreadPoolExecutor(40) as pool,
        ):
            waves = []
            for wave in range(12):
                before = len(first.calls) + len(second.calls)
                answers = list(pool.map(lambda _: gateway.chat(), range(40)))
                waves.append(len(first.calls) + len(second.calls) - before)
                assert all(answer.status_code >= 500 for answer in answers)
                if wave:
                    assert {answer.status_code for answer in answers} == {503}
                    assert all(1 <= int(answer.headers["retry-after"]) <= 30 for answer in answers)
        assert waves[0] < 120
        assert sum(waves[1:]) == 0

    def test_the_probe_passes_and_the_others_are_told_when_to_come_again(self) -> None:
        breaker = CircuitBreakerConfig(consecutive_failures=1, cooldown=0.05)
        with (
            HostileServer([status(500, {}, "{}"), status(500, {}, "{}"), says("4")]) as first,
            running(rules(breaker), small=first.url) as gateway,
        ):
            assert [gateway.chat(model="small").status_code for _ in range(2)] == [500] * 2
            circuit = gateway.app.pool.experts["small"].breaker
            until(lambda: circuit.state == "half-open")
            assert gateway.chat(model="small").status_code == 200
            assert gateway.app.pool.circuits() == {"small": "closed"}

    def test_a_request_waits_for_a_probe_that_is_near(self) -> None:
        """An expert that restarts: 0.6% of chaos requests failed within its second."""
        breaker = CircuitBreakerConfig(consecutive_failures=1, cooldown=0.5)
        with (
            HostileServer([status(500, {}, "{}"), says("4")]) as first,
            running(rules(breaker, max_rounds=2), small=first.url) as gateway,
        ):
            assert gateway.chat(model="small").status_code == 200
            assert [each["reason"] for each in gateway.records()[0].attempts] == ["5xx", ""]

    def test_no_more_requests_wait_than_may_be_retried(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("_MIN_RETRIES", "_RETRY_RATE"):
            monkeypatch.setattr(f"mildroute.gateway.upstream.retry_budget.{name}", 0)
        breaker = CircuitBreakerConfig(consecutive_failures=1, cooldown=1.5)
        with (
            HostileServer([status(500, {}, "{}")]) as first,
            running(rules(breaker, max_rounds=2), small=first.url) as gateway,
        ):
            started = time.monotonic()
            answers = [gateway.chat(model="small").status_code for _ in range(5)]
            assert time.monotonic() - started < 1.0
        assert answers == [500, 500, 503, 503, 503]

    def test_an_expert_with_an_open_circuit_is_called_if_another_has_just_failed(self) -> None:
        breaker = CircuitBreakerConfig(consecutive_failures=1, cooldown=60.0)
        with (
            HostileServer([status(500, {}, "{}"), says("4")]) as recovered,
            HostileServer([status(500, {}, "{}")]) as broken,
            running(rules(breaker), small=recovered.url, large=broken.url) as gateway,
        ):
            assert gateway.chat().status_code == 500
            gateway.app.pool.experts["large"].breaker.record_success()
            answer = gateway.chat()
        assert (answer.status_code, answer.headers["x-mildroute-expert"]) == (200, "small")

    def test_a_circuit_that_opened_meanwhile_does_not_hide_the_failure_before(self) -> None:
        error = error_from_failures(
            [
                AttemptFailure("small", "5xx", 500),
                AttemptFailure("small", "circuit_open", None, 2.0),
            ]
        )
        assert (error.status, error.retry_after) == (500, 2.0)
        assert error.message == "no expert answered: small had an error."


TOO_LONG = {
    "code": {"error": {"message": "no", "code": "context_length_exceeded"}},
    "message": {"error": {"message": "This model's maximum context length is 8 tokens."}},
    "llama.cpp": {"error": {"message": "request (9 tokens) exceeds the available context size"}},
}


class TestContextLength:
    @pytest.mark.parametrize("name", TOO_LONG)
    def test_a_request_that_is_too_long_goes_to_an_expert_that_takes_more(self, name: str) -> None:
        refusal = status(400, {"Content-Type": "application/json"}, json.dumps(TOO_LONG[name]))
        with (
            HostileServer([refusal]) as first,
            HostileServer([says("no")]) as second,
            HostileServer([says("4")]) as third,
            running(
                rules(),
                small={"base_url": first.url, "context": 1000},
                same={"base_url": second.url, "context": 1000},
                large={"base_url": third.url, "context": 2000},
            ) as gateway,
        ):
            answer = gateway.chat()
            assert counted(gateway) == 0
        assert answer.headers["x-mildroute-expert"] == "large"
        assert second.calls == []

    @pytest.mark.parametrize("context", [500, 1000, None])
    def test_without_one_the_client_gets_the_refusal(self, context: int | None) -> None:
        refusal = status(400, {"Content-Type": "application/json"}, json.dumps(TOO_LONG["code"]))
        other: dict[str, Any] = {} if context is None else {"context": context}
        with (
            HostileServer([refusal]) as first,
            HostileServer([says("4")]) as second,
            running(
                rules(),
                small={"base_url": first.url, "context": 1000},
                large={"base_url": second.url, **other},
            ) as gateway,
        ):
            answer = gateway.chat()
        assert (answer.status_code, answer.json()) == (400, TOO_LONG["code"])
        assert second.calls == []

    def test_any_other_refusal_is_the_client_s_own(self) -> None:
        refusal = status(400, {"Content-Type": "application/json"}, '{"error": {"code": "bad"}}')
        with (
            HostileServer([refusal]) as first,
            running(
                rules(),
                small={"base_url": first.url, "context": 1000},
                large={"base_url": first.url, "context": 2000},
            ) as gateway,
        ):
            assert gateway.chat().status_code == 400
        assert len(first.calls) == 1


def test_a_refusal_with_retry_after_tells_the_client_of_it() -> None:
    config = dataclasses.replace(rules())
    with (
        HostileServer([status(503, {"Retry-After": "9"}, "{}")]) as first,
        running(config, small=first.url) as gateway,
    ):
        answer = gateway.chat()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "9")
