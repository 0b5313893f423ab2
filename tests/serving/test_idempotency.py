"""A request that is sent again with its idempotency key is paid for once."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.serving.auth.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.serving.auth.leases import SCRIPTS, LeasedBudgets
from mildroute.serving.auth.limits import UsageLimiter
from mildroute.serving.config import (
    FailoverConfig,
    GatewayConfig,
    IdempotencyConfig,
    StoreConfig,
    read_config,
)
from mildroute.serving.http.idempotency import RecordedResponse
from mildroute.serving.store import RedisStore
from tests.experts.hostile_server import Behavior, Call, HostileServer, Writer, huge, says, status
from tests.serving.running import Running, running, until
from tests.serving.streams import DONE, event, streams, usage
from tests.serving.test_money import chat_body, post
from tests.support.redis import RedisServer

PRICE = {"input": 0.0, "output": 10.0}
COST = 0.05
REPLAYED = "idempotent-replayed"
KEYS = {"a": new_key(), "b": new_key()}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


def headers(key: str = "k", client: str = "a") -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[client]}", "idempotency-key": key}


@contextmanager
def gateway(
    expert: HostileServer,
    store: StoreConfig | None = None,
    dollars_per_day: float | None = None,
    **idempotency: Any,
) -> Iterator[Running]:
    clients = {name: APIClient(name, dollars_per_day=dollars_per_day) for name in KEYS}
    lender = None if store is None else LeasedBudgets(RedisStore(store, SCRIPTS))
    services = {
        "key_store": KeyStore([(hash_key(KEYS[name]), clients[name]) for name in KEYS]),
        "usage_limiter": UsageLimiter(budgets=lender),
        "leases": lender,
    }
    settings = GatewayConfig(
        failover=FailoverConfig(drain_timeout=1.0),
        idempotency=IdempotencyConfig(**idempotency),
    )
    small = {"base_url": expert.url, "price": PRICE}
    with running(settings, services=services, small=small) as found:
        yield found


def numbered(tokens: int = 5000) -> HostileServer:
    """Each answer is another one, and costs $0.05."""
    return HostileServer(lambda call: says(f"answer {call.number}", (0, tokens)))


def text_of(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


class Gate:
    """An expert that answers when it is told to."""

    def __init__(self, then: Behavior | None = None) -> None:
        self.opened = threading.Event()
        self._then = then or says("late", (0, 5000))

    async def __call__(self, call: Call, writer: Writer) -> bool:
        while not self.opened.is_set():
            await asyncio.sleep(0.005)
        return await self._then(call, writer)


class TestOneGateway:
    def test_a_retry_gets_the_same_response_and_pays_nothing(self) -> None:
        with numbered() as expert, gateway(expert, dollars_per_day=10.0) as served:
            first = served.chat(headers=headers())
            again = served.chat(headers=headers())
            other = served.chat(headers=headers("k2"))
            records = served.records(2)
            spent = served.services.usage_limiter.spent(APIClient("a", dollars_per_day=10.0))
            metrics = served.http.get("/metrics").text
        assert REPLAYED not in first.headers
        assert again.headers[REPLAYED] == "true"
        assert again.content == first.content
        for name in ("content-type", "x-mildroute-decision-id", "x-mildroute-expert"):
            assert again.headers[name] == first.headers[name]
        assert text_of(other) == "answer 1"
        assert len(expert.calls) == len(records) == 2
        assert spent == pytest.approx(2 * COST)
        assert "mildroute_idempotent_replays_total 1.0" in metrics

    def test_the_last_dollar_is_not_needed_twice(self) -> None:
        with numbered() as expert, gateway(expert, dollars_per_day=COST) as served:
            first = served.chat(headers=headers(), max_tokens=5000)
            until(lambda: served.chat(headers=headers("k2"), max_tokens=5000).status_code == 429)
            again = served.chat(headers=headers(), max_tokens=5000)
        assert again.status_code == 200
        assert again.content == first.content

    def test_another_body_or_path_is_refused(self) -> None:
        with numbered() as expert, gateway(expert) as served:
            served.chat(headers=headers())
            other = served.chat("Something else", headers=headers())
            body = chat_body()
            path = served.http.post("/v1/completions", content=body, headers=headers())
            target = served.chat(headers=headers() | {"x-mildroute-preset": "other"})
        assert [other.status_code, path.status_code, target.status_code] == [422, 422, 422]
        assert other.json()["error"]["code"] == "idempotency_key_reused"
        assert len(expert.calls) == 1

    def test_no_client_sees_the_response_of_another(self) -> None:
        """Same key, same body, and names that would make the same text."""
        with numbered() as expert, gateway(expert) as served:
            mine = served.chat(headers=headers("k", "a"))
            for key in ("k", "a\0k", "\0k", "a:k"):
                try:
                    found = served.chat(headers=headers(key, "b"))
                except (httpx.LocalProtocolError, httpx.RemoteProtocolError):
                    continue
                assert REPLAYED not in found.headers
                assert text_of(mine) not in found.text
        assert text_of(mine) == "answer 0"

    def test_requests_at_the_same_time_share_one_call(self) -> None:
        gate = Gate()
        with (
            HostileServer([gate]) as expert,
            gateway(expert) as served,
            ThreadPoolExecutor(8) as threads,
        ):
            sent = [threads.submit(served.chat, headers=headers()) for _ in range(8)]
            until(lambda: served.app.limiter.in_flight == 8)
            gate.opened.set()
            found = [each.result() for each in sent]
        assert [each.status_code for each in found] == [200] * 8
        assert len({each.content for each in found}) == 1
        assert sum(REPLAYED in each.headers for each in found) == 7
        assert len(expert.calls) == 1

    def test_a_client_that_gave_up_gets_its_response_later(self) -> None:
        """What SDKs do: time out, hang up, and send the request again."""
        gate = Gate()
        with HostileServer([gate]) as expert, gateway(expert) as served:
            asyncio.run(post(served.port, headers(), chat_body(), hang_up=0.2))
            until(lambda: len(expert.calls) == 1)
            gate.opened.set()
            found = served.http.post("/v1/chat/completions", content=chat_body(), headers=headers())
        assert found.status_code == 200
        assert text_of(found) == "late"
        assert len(expert.calls) == 1

    def test_a_waiting_client_that_leaves_disturbs_nobody(self) -> None:
        gate = Gate()
        with (
            HostileServer([gate]) as expert,
            gateway(expert) as served,
            ThreadPoolExecutor(1) as threads,
        ):
            first: Future[httpx.Response] = threads.submit(
                served.http.post, "/v1/chat/completions", content=chat_body(), headers=headers()
            )
            until(lambda: len(expert.calls) == 1)
            asyncio.run(post(served.port, headers(), chat_body(), hang_up=0.2))
            until(lambda: served.app.limiter.in_flight == 1)
            gate.opened.set()
            assert first.result().status_code == 200
        assert len(expert.calls) == 1

    def test_a_failure_frees_the_key(self) -> None:
        with (
            HostileServer([status(400, {}, "{}"), says("better")]) as expert,
            gateway(expert) as served,
        ):
            assert served.chat(headers=headers()).status_code == 400
            assert text_of(served.chat(headers=headers())) == "better"
            assert served.chat(headers=headers()).headers[REPLAYED] == "true"

    def test_those_who_waited_for_a_failure_are_told_to_come_again(self) -> None:
        gate = Gate(status(400, {}, "{}"))
        with (
            HostileServer([gate]) as expert,
            gateway(expert) as served,
            ThreadPoolExecutor(2) as threads,
        ):
            sent = [threads.submit(served.chat, headers=headers()) for _ in range(2)]
            until(lambda: served.app.limiter.in_flight == 2)
            gate.opened.set()
            found = sorted(each.result().status_code for each in sent)
        assert found == [400, 409]

    def test_a_stream_is_replayed_when_it_has_ended(self) -> None:
        behavior = streams(event("one"), event("two"), usage(0, 5000), DONE)
        with HostileServer([behavior]) as expert, gateway(expert) as served:
            first = served.chat(headers=headers(), stream=True)
            again = served.chat(headers=headers(), stream=True)
        assert again.content == first.content
        assert again.content.endswith(DONE)
        assert again.headers["content-type"] == "text/event-stream"
        assert again.headers[REPLAYED] == "true"
        assert len(expert.calls) == 1

    def test_a_stream_in_flight_is_not_waited_for(self) -> None:
        gate = Gate(streams(event("one"), DONE))
        with (
            HostileServer([gate]) as expert,
            gateway(expert) as served,
            ThreadPoolExecutor(1) as threads,
        ):
            first = threads.submit(served.chat, headers=headers(), stream=True)
            until(lambda: len(expert.calls) == 1)
            second = served.chat(headers=headers(), stream=True)
            gate.opened.set()
            assert first.result().status_code == 200
        assert second.status_code == 409
        assert second.json()["error"]["code"] == "idempotency_key_in_use"
        assert second.headers["retry-after"] == "1"

    def test_a_stream_that_breaks_off_frees_the_key(self) -> None:
        broken = streams(event("one"), ends=False)
        whole = streams(event("one"), event("two"), DONE)
        with HostileServer([broken, whole]) as expert, gateway(expert) as served:
            first = served.chat(headers=headers(), stream=True)
            assert b"error" in first.content
            again = served.chat(headers=headers(), stream=True)
            assert REPLAYED not in again.headers
            assert again.content.endswith(DONE)

    @pytest.mark.parametrize("key", ["", "x" * 256, "ü"])
    def test_what_is_no_key_is_refused(self, key: str) -> None:
        with numbered() as expert, gateway(expert) as served:
            found = served.http.post(
                "/v1/chat/completions",
                content=chat_body(),
                headers=[
                    (b"authorization", f"Bearer {KEYS['a']}".encode()),
                    (b"idempotency-key", key.encode("latin-1")),
                ],
            )
        assert found.status_code == 400
        assert found.json()["error"]["code"] == "idempotency_key_invalid"

    def test_it_can_be_turned_off(self) -> None:
        with numbered() as expert, gateway(expert, ttl=0.0) as served:
            texts = [text_of(served.chat(headers=headers())) for _ in range(2)]
        assert texts == ["answer 0", "answer 1"]

    def test_old_ones_go_by_number_bytes_and_time(self) -> None:
        with numbered() as expert, gateway(expert, max_keys=2) as served:
            for key in "abc":
                served.chat(headers=headers(key))
            found = [REPLAYED in served.chat(headers=headers(key)).headers for key in "cba"]
        assert found == [True, True, False]
        with HostileServer([huge(1000)]) as expert, gateway(expert, max_bytes=40_000) as served:
            for key in range(30):
                served.chat(headers=headers(str(key)))
            assert REPLAYED in served.chat(headers=headers("29")).headers
            assert REPLAYED not in served.chat(headers=headers("0")).headers
        with numbered() as expert, gateway(expert, ttl=0.05) as served:
            served.chat(headers=headers())
            until(lambda: REPLAYED not in served.chat(headers=headers()).headers)

    def test_what_is_too_large_to_be_kept_is_not_paid_for_again(self) -> None:
        with HostileServer([huge(5000)]) as expert, gateway(expert, max_bytes=8000) as served:
            assert served.chat(headers=headers()).status_code == 200
            again = served.chat(headers=headers())
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "idempotency_response_not_kept"
        assert len(expert.calls) == 1


def elsewhere(served: Running) -> httpx.Response:
    """A response at another gateway, once the store has heard of the first one."""
    end = time.monotonic() + 10
    while True:
        response = served.chat(headers=headers())
        is_in_flight = response.status_code == 409 and "is in flight" in response.text
        if not is_in_flight:
            return response
        assert time.monotonic() < end
        time.sleep(0.01)


class TestFleet:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a busy machine a call of the store may take longer than the 10 ms of a request."""
        monkeypatch.setattr("mildroute.serving.store._REQUEST_TIMEOUT", 1.0)

    def test_another_gateway_replays_the_response(self, redis: RedisServer) -> None:
        store = StoreConfig(url=redis.url, prefix="replay")
        with (
            numbered() as expert,
            gateway(expert, store) as one,
            gateway(expert, store) as other,
        ):
            first = one.chat(headers=headers())
            again = elsewhere(other)
            reused = other.chat("Else", headers=headers())
            foreign = other.chat(headers=headers(client="b"))
        assert again.content == first.content
        assert again.headers[REPLAYED] == "true"
        assert reused.status_code == 422
        assert text_of(foreign) == "answer 1"
        assert len(expert.calls) == 2

    def test_what_is_in_flight_elsewhere_is_refused(self, redis: RedisServer) -> None:
        store = StoreConfig(url=redis.url, prefix="flight", lease_ttl=0.6)
        gate = Gate()
        with (
            HostileServer([gate]) as expert,
            gateway(expert, store) as one,
            gateway(expert, store) as other,
            ThreadPoolExecutor(1) as threads,
        ):
            first = threads.submit(one.chat, headers=headers())
            until(lambda: len(expert.calls) == 1)
            # Longer than the marker lives: it is renewed.
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                refused = other.chat(headers=headers())
                assert refused.status_code == 409
                assert refused.headers["retry-after"] == "1"
                time.sleep(0.05)
            gate.opened.set()
            assert first.result().status_code == 200
            until(lambda: other.chat(headers=headers()).headers.get(REPLAYED) == "true")
        assert len(expert.calls) == 1

    def test_a_failure_frees_the_key_everywhere(self, redis: RedisServer) -> None:
        store = StoreConfig(url=redis.url, prefix="failure")
        with (
            HostileServer([status(400, {}, "{}"), says("better")]) as expert,
            gateway(expert, store) as one,
            gateway(expert, store) as other,
        ):
            assert one.chat(headers=headers()).status_code == 400
            until(lambda: other.chat(headers=headers()).status_code == 200)
        assert len(expert.calls) == 2

    @pytest.mark.parametrize("size", [0, 3000])
    def test_large_responses_and_no_text_stay_out_of_the_store(
        self, redis: RedisServer, size: int
    ) -> None:
        store = StoreConfig(url=redis.url, prefix=f"large{size}")
        with (
            HostileServer([huge(5000)]) as expert,
            gateway(expert, store, max_stored_bytes=size) as one,
            gateway(expert, store, max_stored_bytes=size) as other,
        ):
            assert one.chat(headers=headers()).status_code == 200
            assert one.chat(headers=headers()).headers[REPLAYED] == "true"
            again = elsewhere(other)
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "idempotency_response_not_kept"
        assert len(expert.calls) == 1

    def test_what_a_gateway_drops_leaves_the_store(self, redis: RedisServer) -> None:
        store = StoreConfig(url=redis.url, prefix="dropped")

        def replays(served: Running, key: str) -> bool:
            return REPLAYED in served.chat(headers=headers(key)).headers

        with (
            numbered() as expert,
            gateway(expert, store, max_keys=1) as one,
            gateway(expert, store) as other,
        ):
            for key in "ab":
                one.chat(headers=headers(key))
            until(lambda: replays(other, "b"))
            assert not replays(other, "a")

    def test_without_the_store_each_gateway_keeps_its_own(self, tmp_path: Path) -> None:
        with RedisServer(tmp_path) as own:
            store = StoreConfig(url=own.url)
            with (
                numbered() as expert,
                gateway(expert, store) as one,
                gateway(expert, store) as other,
            ):
                own.pause()
                first = one.chat(headers=headers())
                assert one.chat(headers=headers()).content == first.content
                assert other.chat(headers=headers()).status_code == 200
                own.resume()
        assert len(expert.calls) == 2


def test_a_response_survives_the_store() -> None:
    response = RecordedResponse(200, [(b"x", b"\xe9\n")], b"line\nline\x00\xff")
    assert RecordedResponse.decode(response.encode()) == response


def test_settings(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps({"idempotency": {"ttl": 0, "max_stored_bytes": 0}}))
    assert read_config(file).idempotency == IdempotencyConfig(ttl=0, max_stored_bytes=0)
