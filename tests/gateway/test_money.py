"""What a key spends: nothing beyond its limit, whatever its requests do.

Each test names what an audit measured before reservations, drains and injected usage.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mildroute.gateway.config import FailoverConfig, GatewayConfig, RequestLimits
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.limits.local import LocalLimits
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    hangs,
    says,
    status,
)
from tests.gateway.running import Running, running, until
from tests.gateway.streams import DONE, HEAD, endless, event, framed, streams, usage

REQUESTS = 200
# Dollars of 5,000 tokens, which every answer here has: $0.05.
PRICE = {"input": 0.0, "output": 10.0}
TOKENS = 5000
COST = 0.05
CLIENT = "team-a"


@contextmanager
def keyed(
    expert: HostileServer,
    dollars_per_day: float | None,
    settings: GatewayConfig | None = None,
    **expert_settings: Any,
) -> Iterator[tuple[Running, dict[str, str], Callable[[], float]]]:
    """A gateway, the headers of its one client, and what that has spent."""
    key = new_key()
    client = APIClient(CLIENT, dollars_per_day=dollars_per_day)
    limiter = LocalLimits()
    services = {"key_store": KeyStore([(hash_key(key), client)]), "limits": limiter}
    small = {"base_url": expert.url, "price": PRICE, **expert_settings}
    with running(settings, services=services, small=small) as gateway:
        yield gateway, {"authorization": f"Bearer {key}"}, lambda: limiter.spent(CLIENT)


def chat_body(**fields: Any) -> bytes:
    body = {"model": "mildroute", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return json.dumps(body).encode()


async def post(
    port: int, headers: dict[str, str], body: bytes, hang_up: float | None = None
) -> tuple[int, bytes]:
    """Status and body; a client that hangs up after so many seconds sees neither."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{lines}"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    try:
        if hang_up is not None:
            await asyncio.sleep(hang_up)
            return 0, b""
        answer = await reader.read()
        start, _, rest = answer.partition(b"\r\n\r\n")
        return int(start.split()[1]), rest
    finally:
        writer.close()


def post_all(
    port: int,
    headers: dict[str, str],
    body: bytes,
    count: int = REQUESTS,
    hang_up: float | None = None,
) -> list[int]:
    """Statuses of so many requests at once."""

    async def run() -> list[int]:
        found = await asyncio.gather(*(post(port, headers, body, hang_up) for _ in range(count)))
        return [status for status, _ in found]

    return asyncio.run(run())


def slow(delay: float = 0.3) -> Behavior:
    """An answer of $0.05, after a while, generated to its end even if nobody waits for it."""
    return says("x", (0, TOKENS), delay=delay)


class TestReservations:
    @pytest.mark.parametrize("is_warm", [False, True], ids=["fresh", "warm"])
    def test_a_key_with_max_tokens_never_spends_above_its_limit(self, is_warm: bool) -> None:
        """Limit $0.10, 200 requests at once of $0.05.

        Before: $2.50 in a fresh process (T5), $10.00 after 20 cheap requests (T5c). Now: $0.10.
        """

        def script(call: Call) -> Behavior:
            is_cheap = json.loads(call.body)["max_tokens"] == 1
            return says("x", (0, 0)) if is_cheap else slow()

        with (
            HostileServer(script) as expert,
            keyed(expert, 0.10) as (gateway, headers, spent),
        ):
            if is_warm:
                for _ in range(20):
                    assert gateway.chat(headers=headers, max_tokens=1).status_code == 200
            statuses = post_all(gateway.port, headers, chat_body(max_tokens=TOKENS))
            until(lambda: gateway.app.limiter.in_flight == 0)
            assert sorted(set(statuses)) == [200, 429]
            assert statuses.count(200) == 2
            assert spent() == pytest.approx(0.10)
            assert gateway.chat(headers=headers).status_code == 429

    def test_a_key_without_max_tokens_passes_its_limit_by_one_reservation_at_most(self) -> None:
        """Before: $2.50 of $0.10 (T5). Now: at most $0.10 and one reservation of $0.04096."""
        with (
            HostileServer([says("x", (0, 4096), delay=0.3)]) as expert,
            keyed(expert, 0.10) as (gateway, headers, spent),
        ):
            statuses = post_all(gateway.port, headers, chat_body())
            until(lambda: gateway.app.limiter.in_flight == 0)
            assert statuses.count(200) == 3
            assert spent() == pytest.approx(3 * 0.04096)

    @pytest.mark.parametrize("max_tokens", [None, TOKENS])
    def test_a_large_key_is_never_refused_for_want_of_money(self, max_tokens: int | None) -> None:
        """Limit $100,000, 200 requests at once. Before: 150 refused (T5b). Now: none."""
        fields = {} if max_tokens is None else {"max_tokens": max_tokens}
        with (
            HostileServer([slow()]) as expert,
            keyed(expert, 100_000.0) as (gateway, headers, spent),
        ):
            statuses = post_all(gateway.port, headers, chat_body(**fields))
            assert statuses == [200] * REQUESTS
            until(lambda: gateway.app.limiter.in_flight == 0)
            assert spent() == pytest.approx(REQUESTS * COST)

    @pytest.mark.parametrize(
        ("fields", "is_served"),
        [
            ({"max_tokens": TOKENS}, True),
            ({"max_completion_tokens": TOKENS}, True),
            ({"max_tokens": TOKENS, "n": 2}, False),
            ({"max_completion_tokens": 1, "max_tokens": 2 * TOKENS}, False),
            # It means nothing here, so that the setting counts, and it is let through as unbounded.
            ({"max_output_tokens": 10**18}, True),
            ({"max_tokens": 10**18, "n": 10**18}, False),
        ],
    )
    def test_what_is_reserved_is_the_most_that_the_request_allows(
        self, fields: dict[str, Any], is_served: bool
    ) -> None:
        with (
            HostileServer([slow(0.0)]) as expert,
            keyed(expert, COST) as (gateway, headers, _),
        ):
            answer = gateway.chat(headers=headers, **fields)
            assert answer.status_code == (200 if is_served else 429)
            if not is_served:
                assert answer.json()["error"]["code"] == "insufficient_quota"
                assert not expert.calls

    def test_the_context_of_an_expert_bounds_a_reservation(self) -> None:
        with (
            HostileServer([slow(0.0)]) as expert,
            keyed(expert, COST, context=TOKENS) as (gateway, headers, _),
        ):
            # Half of the context: more would not fit with the prompt.
            body = chat_body(max_tokens=TOKENS // 2)
            assert post_all(gateway.port, headers, body, 1) == [200]


def paced(events: int, delay: float) -> Behavior:
    """A stream of 5,000 tokens in so many events, then its usage, generated to its end."""
    piece = event("x" * (TOKENS * 4 // events))

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(HEAD)
        for _ in range(events):
            writer.write(framed(piece))
            await asyncio.sleep(delay / events)
        writer.write(framed(usage(0, TOKENS)) + framed(DONE) + b"0\r\n\r\n")
        return True

    return behave


class TestClientsThatLeave:
    @pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
    def test_they_pay_for_what_was_generated(self, is_stream: bool) -> None:
        """200 clients hang up after 0.1 s; answers of $0.05 take 0.3 s and are generated whole.

        Before: generated $4.20, charged $0.00 (T3). Now: all of $10.00 is charged.
        """
        behavior = paced(3, 0.3) if is_stream else slow(0.3)
        with (
            HostileServer([behavior]) as expert,
            keyed(expert, None) as (gateway, headers, _),
        ):
            body = chat_body(stream=is_stream)
            post_all(gateway.port, headers, body, hang_up=0.1)
            until(lambda: gateway.app.limiter.in_flight == 0, 20.0)
            records = gateway.records(len(expert.calls))
        # A client may be gone before its request was read.
        assert len(expert.calls) >= 0.9 * REQUESTS
        assert sum(record.cost_usd for record in records) >= 0.95 * len(expert.calls) * COST
        assert {record.status for record in records} <= {200, 499}

    def test_they_pay_the_reservation_if_a_whole_answer_takes_longer_than_the_bound(self) -> None:
        settings = GatewayConfig(limits=RequestLimits(disconnect_timeout=0.1))
        with (
            HostileServer([hangs()]) as expert,
            keyed(expert, 1.0, settings) as (gateway, headers, spent),
        ):
            post_all(gateway.port, headers, chat_body(max_tokens=TOKENS), 1, hang_up=0.05)
            record = gateway.records()[0]
            until(lambda: spent() > 0)
            until(lambda: expert.at_once == 0)
        assert (record.status, record.cost_usd) == (499, COST)
        assert spent() == COST

    @pytest.mark.parametrize(
        "limits",
        [
            RequestLimits(disconnect_timeout=0.1),
            RequestLimits(disconnect_max_bytes=50_000),
            RequestLimits(disconnect_max_bytes=0),
        ],
        ids=["seconds", "bytes", "no bytes"],
    )
    def test_they_pay_what_is_known_of_a_stream_that_takes_longer(
        self, limits: RequestLimits
    ) -> None:
        with (
            HostileServer([endless(event("x" * 4_000))]) as expert,
            keyed(expert, 1.0, GatewayConfig(limits=limits)) as (gateway, headers, spent),
        ):
            post_all(gateway.port, headers, chat_body(stream=True), 1, hang_up=0.05)
            record = gateway.records()[0]
            until(lambda: expert.at_once == 0)
            until(lambda: spent() > 0)
        assert record.status == 499
        assert record.cost_usd == pytest.approx(record.tokens_out * 1e-5)

    def test_no_further_expert_is_called_for_them(self) -> None:
        with (
            HostileServer([status(500, {}, "{}", delay=0.2)]) as broken,
            HostileServer([says("x")]) as other,
            running(small=broken.url, large=other.url) as gateway,
        ):
            post_all(gateway.port, {}, chat_body(), 1, hang_up=0.1)
            record = gateway.records()[0]
        assert (record.status, len(record.attempts), record.cost_usd) == (499, 1, 0.0)
        assert not other.calls

    def test_their_answers_end_with_the_shutdown(self) -> None:
        settings = GatewayConfig(failover=FailoverConfig(drain_timeout=0.3))
        with (
            HostileServer([slow(0.1)]) as expert,
            keyed(expert, 1.0, settings) as (gateway, headers, spent),
        ):
            post_all(gateway.port, headers, chat_body(), 1, hang_up=0.05)
            until(lambda: len(expert.calls) == 1)
        assert spent() == pytest.approx(COST)


class TestStreams:
    PIECES = tuple(event("x" * 400) for _ in range(10))

    def test_a_stream_is_billed_alike_whether_its_client_asks_for_usage_or_not(self) -> None:
        """1,000 output tokens in 10 events.

        Before: $0.01001 with ``include_usage`` and $0.00011 without (T4). Now: $0.01 both times.
        """

        def script(call: Call) -> Behavior:
            asked = json.loads(call.body).get("stream_options", {}).get("include_usage")
            return streams(*self.PIECES, *((usage(0, 1000),) if asked else ()), DONE)

        with (
            HostileServer(script) as expert,
            keyed(expert, 1.0) as (gateway, headers, _),
        ):
            silent = gateway.chat(headers=headers, stream=True)
            asked = gateway.chat(
                headers=headers, stream=True, stream_options={"include_usage": True}
            )
            records = gateway.records(2)
        assert silent.content == b"".join(self.PIECES) + DONE
        assert asked.content == b"".join(self.PIECES) + usage(0, 1000) + DONE
        assert [record.tokens_out for record in records] == [1000, 1000]
        assert [record.cost_usd for record in records] == [0.01, 0.01]

    def test_an_expert_that_refuses_the_field_is_not_asked_and_characters_are_counted(self) -> None:
        """Before: 10 tokens, one for each event (T4). Now: 1,000."""
        with (
            HostileServer([streams(*self.PIECES, DONE)]) as expert,
            keyed(expert, 1.0, include_usage=False) as (gateway, headers, _),
        ):
            answer = gateway.chat(headers=headers, stream=True)
            record = gateway.records()[0]
        assert "stream_options" not in json.loads(expert.calls[0].body)
        assert answer.content == b"".join(self.PIECES) + DONE
        assert (record.tokens_out, record.cost_usd) == (1000, 0.01)

    def test_usage_is_taken_out_of_a_stream_that_comes_at_once_or_byte_by_byte(self) -> None:
        whole = b"".join(self.PIECES[:2]) + usage(0, 1000) + DONE
        for pieces in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
            with (
                HostileServer([streams(*pieces)]) as expert,
                keyed(expert, 1.0) as (gateway, headers, _),
            ):
                answer = gateway.chat(headers=headers, stream=True)
                record = gateway.records()[0]
            assert answer.content == b"".join(self.PIECES[:2]) + DONE
            assert record.tokens_out == 1000


class TestCachedTokens:
    def test_they_have_their_own_price_in_whole_answers_and_streams(self) -> None:
        """900 of 1,000 tokens from the prompt cache, at a tenth of the price."""
        counts = {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 900},
        }
        price = {"input": 10.0, "output": 20.0, "cached_input": 1.0}
        last = b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"
        with (
            HostileServer([says("x", usage=counts), streams(event("x"), last, DONE)]) as expert,
            running(small={"base_url": expert.url, "price": price}) as gateway,
        ):
            gateway.chat()
            gateway.chat(stream=True)
            records = gateway.records(2)
        assert [record.cost_usd for record in records] == pytest.approx([0.0039, 0.0039])
        assert [record.tokens_in for record in records] == [1000, 1000]
        assert [record.attempts[0]["cached_tokens"] for record in records] == [900, 900]

    def test_without_a_price_of_their_own_they_cost_as_others(self) -> None:
        counts = {
            "prompt_tokens": 1000,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 900},
        }
        with (
            HostileServer([says("x", usage=counts)]) as expert,
            running(small={"base_url": expert.url, "price": 10.0}) as gateway,
        ):
            gateway.chat()
            assert gateway.records()[0].cost_usd == pytest.approx(0.01)


class TestAttempts:
    def test_each_call_has_its_own_entry_and_the_bill_is_their_sum(self) -> None:
        """Before, the log had their number alone, and the bill of the last."""
        with (
            HostileServer([status(500, {}, "{}")]) as broken,
            HostileServer([says("x", (10, 1000))]) as sound,
            running(
                small={"base_url": broken.url, "price": 1.0},
                large={"base_url": sound.url, "price": PRICE},
            ) as gateway,
        ):
            gateway.chat()
            record = gateway.records()[0]
        first, second = (dict(entry) for entry in record.attempts)
        assert 0 < first.pop("seconds") < record.seconds
        assert 0 < second.pop("seconds") < record.seconds
        nothing = {"tokens_in": 0, "tokens_out": 0, "cached_tokens": 0, "cost_usd": 0.0}
        assert first == {"expert": "small", "reason": "5xx", "status": 500, **nothing}
        assert second == {
            "expert": "large",
            "reason": "",
            "status": 200,
            "tokens_in": 10,
            "tokens_out": 1000,
            "cached_tokens": 0,
            "cost_usd": 0.01,
        }
        assert record.cost_usd == 0.01
