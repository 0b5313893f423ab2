"""Calls of one expert over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mildroute.experts.config import ExpertSpec
from mildroute.experts.litellm import LiteLLMModel, load_litellm
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.upstream._http1 import (
    Connection,
    Deadlines,
    StaleConnection,
    UnsupportedRequest,
    UpstreamError,
)
from mildroute.gateway.upstream.client import (
    LiteLLMClient,
    UpstreamClient,
    UpstreamRequest,
    UpstreamResponse,
)
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    chunked,
    cut_off,
    disconnects,
    drips,
    hangs,
    huge,
    redirects,
    repeats,
    resets,
    says,
    sends,
    status,
)
from tests.support.certificates import make_certificate

pytestmark = pytest.mark.anyio


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes within moments on a quiet machine, and later on a busy one."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    assert holds()


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


BODY = b'{"model":"mildroute","messages":[{"role":"user","content":"Hi"}]}'


def parsed(*, is_stream: bool = False) -> ParsedRequest:
    return ParsedRequest("chat/completions", "mildroute", "Hi", BODY, (9, 20), is_stream)


def patience(
    first: float = 5.0, idle: float = 5.0, whole: float = 5.0, limit: int = 1 << 20
) -> Deadlines:
    now = asyncio.get_running_loop().time()
    return Deadlines(now + first, idle, now + whole, limit)


def upstream(url: str, **settings: Any) -> UpstreamClient:
    return UpstreamClient(
        ExpertSpec("small", "openai", {"base_url": url, "model": "tiny", **settings}),
        connect_timeout=2.0,
        max_calls=64,
    )


async def send(
    client: UpstreamClient, deadlines: Deadlines, *, is_stream: bool = False
) -> UpstreamResponse:
    request = UpstreamRequest(parsed(is_stream=is_stream), b"content-type: application/json\r\n")
    return await client.send(request, deadlines)


async def ask(
    client: UpstreamClient, deadlines: Deadlines | None = None, *, is_stream: bool = False
) -> tuple[int, bytes]:
    """Status and body; the connection is given back."""
    response = await send(client, deadlines or patience(), is_stream=is_stream)
    try:
        body = response.body
        while not response.is_complete:
            body += await response.read()
        return response.status, body
    finally:
        response.close()


@asynccontextmanager
async def serving(
    behavior: Callable[[asyncio.StreamReader, Writer], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server in the test's own loop, for what must happen in step with it."""

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            await behavior(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def request_on(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))


async def test_a_request_has_its_body_but_for_the_model_and_only_our_headers() -> None:
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url)
        assert (await ask(expert))[0] == 200
        expert.close()
    call = server.calls[0]
    assert call.path == "/v1/chat/completions"
    assert call.body == BODY.replace(b"mildroute", b"tiny")
    assert set(call.headers) == {
        "host",
        "accept-encoding",
        "user-agent",
        "content-type",
        "content-length",
    }
    assert call.headers["accept-encoding"] == "identity"
    assert call.headers["host"] == f"127.0.0.1:{server.port}"


async def test_headers_and_query_of_the_file_are_sent_and_no_header_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_KEY", "azure-key-0123456789")
    headers = {"Api-Key": {"env": "AZURE_KEY"}, "X-Team": "sales", "User-Agent": "ours/1"}
    with HostileServer([says("4")]) as server:
        expert = upstream(
            server.url, headers={**headers, "Accept": "x/y"}, query={"api-version": "2024-10-21"}
        )
        lines = b"content-type: application/json\r\naccept: */*\r\n"
        response = await expert.send(UpstreamRequest(parsed(), lines), patience())
        response.close()
        expert.close()
    call = server.calls[0]
    assert call.path == "/v1/chat/completions?api-version=2024-10-21"
    assert call.headers["api-key"] == "azure-key-0123456789"
    assert call.headers["x-team"] == "sales"
    assert call.headers["user-agent"] == "ours/1"
    assert call.headers["accept"] == "x/y"
    assert call.headers["content-type"] == "application/json"
    assert "authorization" not in call.headers


async def test_an_error_that_repeats_a_header_of_the_environment_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_KEY", "azure-key-0123456789")
    with HostileServer([status(401, body="bad key azure-key-0123456789")]) as server:
        expert = upstream(server.url, headers={"api-key": {"env": "AZURE_KEY"}})
        code, body = await ask(expert)
        expert.close()
    assert code == 401
    assert b"azure-key" not in body
    assert b"[secret]" in body
    assert b"azure-key" not in repr(vars(expert)).encode()


async def test_connections_are_used_again_and_bounded_by_the_calls_at_once() -> None:
    with HostileServer([says("4", delay=0.01)]) as server:
        expert = upstream(server.url, concurrency=3)
        await asyncio.gather(*(ask(expert) for _ in range(12)))
        await asyncio.gather(*(ask(expert) for _ in range(12)))
        assert expert.connections <= 3
        expert.close()
    assert server.most_at_once == 3
    assert server.connections == 3


async def test_who_waits_too_long_for_a_turn_is_told_so_and_takes_no_turn() -> None:
    with HostileServer([says("4", delay=0.1)]) as server:
        expert = upstream(server.url, concurrency=1)
        first = asyncio.ensure_future(ask(expert))
        await asyncio.sleep(0.01)
        with pytest.raises(UpstreamError, match="overloaded"):
            await ask(expert, patience(first=0.02))
        assert (await first)[0] == 200
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_there_is_no_room_when_as_many_wait_as_can_be_served() -> None:
    with HostileServer([hangs()]) as server:
        expert = upstream(server.url, concurrency=2)
        calls = [asyncio.ensure_future(ask(expert)) for _ in range(4)]
        await until(lambda: not expert.has_capacity)
        calls.pop().cancel()
        await asyncio.sleep(0)
        calls.pop().cancel()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: expert.has_capacity and expert.connections == 0)


@pytest.mark.parametrize(
    ("behavior", "why"),
    [
        (cut_off(), "connection_lost"),
        (chunked("4", whole=False), "connection_lost"),
        (disconnects(), "connection_lost"),
        (resets(), "connection_lost"),
        (sends(b"this is no HTTP at all\r\n\r\n"), "invalid_response"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n"), "invalid_response"),
        (
            sends(
                b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding:"
                b" chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            ),
            "invalid_response",
        ),
        (
            sends(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection:"
                b" upgrade\r\n\r\nxx"
            ),
            "invalid_response",
        ),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000), "invalid_response"),
        (huge(2 << 20), "response_too_large"),
    ],
    ids=[
        "cut",
        "chunks cut",
        "closed",
        "reset",
        "no http",
        "length",
        "smuggling",
        "upgrade",
        "head",
        "huge",
    ],
)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_a_broken_answer_is_lost_and_its_connection_not_used_again(
    behavior: Behavior, why: str, is_stream: bool
) -> None:
    with HostileServer([behavior, says("4")]) as server:
        expert = upstream(server.url)
        if is_stream and why == "response_too_large":
            assert len((await ask(expert, is_stream=True))[1]) > 2 << 20
        else:
            with pytest.raises(UpstreamError) as lost:
                await ask(expert, is_stream=is_stream)
            assert lost.value.reason == why
            assert expert.connections == 0
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_an_answer_that_nobody_asked_for_is_never_taken_for_the_next_one() -> None:
    with HostileServer([repeats(), says("4")]) as server:
        expert = upstream(server.url)
        first = await ask(expert)
        second = await ask(expert)
        expert.close()
    assert b"Hi" in first[1]
    assert b"nobody" not in second[1]
    assert server.connections == 2


async def test_bytes_on_an_idle_connection_end_it() -> None:
    async def talk(reader: asyncio.StreamReader, writer: Writer) -> None:
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
        await reader.read()

    async with serving(talk) as url:
        expert = upstream(url)
        assert await ask(expert) == (200, b"{}")
        await until(lambda: expert.connections == 0)
        assert await ask(expert) == (200, b"{}")
        expert.close()


async def test_a_kept_connection_that_was_closed_before_the_request_came_is_stale() -> None:
    """The proof is the kernel's: it has no acknowledgment of any byte of the request."""
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    expert = upstream(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")

    async def answer(server: socket.socket) -> None:
        await loop.sock_recv(server, 65536)
        await loop.sock_sendall(server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with listener:
        call = asyncio.ensure_future(ask(expert))
        accepted.append((await loop.sock_accept(listener))[0])
        await answer(accepted[0])
        assert await call == (200, b"{}")
        # No turn of the loop lies between this and the write of the next request.
        accepted[0].close()
        with pytest.raises(StaleConnection):
            await ask(expert)
        assert expert.connections == 0


@pytest.mark.parametrize("reads", [0, 1, 65536], ids=["unread", "a byte", "all"])
async def test_a_request_that_reached_the_expert_is_never_called_unread(reads: int) -> None:
    """Audit T1: 20 requests made 40 calls, all logged as one attempt; now 20 make 20."""
    requests = 0

    async def once(reader: asyncio.StreamReader, writer: Writer) -> None:
        nonlocal requests
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await reader.read(reads or 1)
        requests += 1
        if reads:
            writer.close()
        else:
            writer.transport.abort()

    async with serving(once) as url:
        expert = upstream(url)
        for number in range(20):
            assert await ask(expert) == (200, b"{}")
            with pytest.raises(UpstreamError) as lost:
                await ask(expert)
            assert lost.value.reason == "connection_lost"
            assert requests == number + 1


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nold", b"old"),
        (
            (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200"
                b" OK\r\nContent-Length: 2\r\n\r\nok"
            ),
            b"ok",
        ),
        (
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Trailer:"
                b" 1\r\n\r\n"
            ),
            b"ok",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    ],
    ids=["until close", "1.0", "continue", "trailer", "empty", "422"],
)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_every_way_to_end_an_answer_is_known(
    raw: bytes, body: bytes, is_stream: bool
) -> None:
    with HostileServer([sends(raw)]) as server:
        expert = upstream(server.url)
        assert (await ask(expert, is_stream=is_stream))[1] == body
        expert.close()


@pytest.mark.parametrize("name", ["first", "idle", "whole"])
async def test_each_kind_of_waiting_has_its_end(name: str) -> None:
    script = {"first": hangs(), "idle": _begins_and_hangs(), "whole": drips(0.01)}
    waiting = {"first": {"first": 0.05}, "idle": {"idle": 0.05}, "whole": {"whole": 0.08}}
    with HostileServer([script[name]]) as server:
        expert = upstream(server.url)
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(UpstreamError, match="timeout"):
            await ask(expert, patience(**waiting[name]), is_stream=name == "first")
        assert 0.04 < loop.time() - started < 1.0
        assert expert.connections == 0


def _begins_and_hangs() -> Behavior:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        await call.reader.read()
        return False

    return behave


async def test_headers_alone_are_no_first_byte() -> None:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await call.reader.read()
        return False

    with HostileServer([behave]) as server:
        expert = upstream(server.url)
        with pytest.raises(UpstreamError, match="timeout"):
            await ask(expert, patience(first=0.05), is_stream=True)


async def test_a_stream_may_take_longer_than_the_deadline_once_it_has_begun() -> None:
    with HostileServer([drips(0.002)]) as server:
        expert = upstream(server.url)
        assert (await ask(expert, patience(whole=0.05), is_stream=True))[1].endswith(b"}")
        expert.close()


async def test_a_cancelled_call_closes_its_connection_at_once() -> None:
    with HostileServer([hangs(), says("4")]) as server:
        expert = upstream(server.url)
        call = asyncio.ensure_future(ask(expert))
        await until(lambda: server.at_once == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: server.at_once == 0 and expert.connections == 0)
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_a_slow_reader_stops_the_expert_and_loses_nothing() -> None:
    size = 8 << 20

    async def flood(reader: asyncio.StreamReader, writer: Writer) -> None:
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()

    async with serving(flood) as url:
        expert = upstream(url)
        response = await send(expert, patience(idle=0.05), is_stream=True)
        await asyncio.sleep(0.15)
        held = len(response.body) + len(await response.read())
        assert held < 4 << 20
        while not response.is_complete:
            held += len(await response.read())
        response.close()
        assert held == size
        expert.close()


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("/v1", "/v1/chat/completions"),
        ("", "/chat/completions"),
        ("/b\u00fccher", "/b%C3%BCcher/chat/completions"),
    ],
)
async def test_any_base_of_a_path_is_asked_as_http_writes_it(base: str, path: str) -> None:
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url.removesuffix("/v1") + base)
        assert (await ask(expert))[0] == 200
        expert.close()
    assert server.calls[0].path == path


async def test_nobody_at_the_address_is_a_failed_connection() -> None:
    with pytest.raises(UpstreamError, match="connect"):
        await ask(upstream("http://127.0.0.1:1/v1"))
    with pytest.raises(UpstreamError, match="connect"):
        await ask(upstream("http://no-such-host.invalid/v1"))


async def test_redirects_are_not_followed() -> None:
    with (
        HostileServer([says("key thief")]) as thief,
        HostileServer([redirects(thief.url)]) as server,
    ):
        expert = upstream(server.url)
        assert (await ask(expert))[0] == 307
        expert.close()
    assert thief.calls == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url)
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "the key, in the test itself"

    key = Hidden("sk-0123456789abcdef0123456789")
    monkeypatch.setenv("SMALL_KEY", key)
    with HostileServer([says("4"), hangs(), cut_off()]) as server:
        expert = upstream(server.url, api_key_env="SMALL_KEY")
        await ask(expert)
        assert server.calls[0].headers["authorization"] == f"Bearer {key}"
        for waiting in (patience(whole=0.02), patience()):
            with pytest.raises(UpstreamError) as lost:
                await ask(expert, waiting)
            shown = traceback.TracebackException.from_exception(lost.value, capture_locals=True)
            assert str(key) not in "".join(shown.format())
        assert key not in repr(vars(expert))
        assert expert.scrub(f"key {key}".encode()) == b"key [secret]"


async def test_an_expert_behind_tls_must_have_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = HostileServer([says("4"), repeats()])
    server.tls = tls
    with server:
        with pytest.raises(UpstreamError, match="connect"):
            await ask(upstream(server.url))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        expert = upstream(server.url)
        assert (await ask(expert))[0] == 200
        assert (await ask(expert))[0] == 200
        assert expert.connections == 0
        expert.close()


async def test_nothing_is_left_behind() -> None:
    tasks = len(asyncio.all_tasks())
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url)
        for _ in range(3):
            await asyncio.gather(*(ask(expert) for _ in range(10)))
        expert.close()
        await asyncio.sleep(0.01)
        del expert
        gc.collect()
        assert not [
            thing for thing in gc.get_objects() if type(thing) is Connection and thing.is_open
        ]
    assert len(asyncio.all_tasks()) == tasks


async def test_connections_of_a_burst_are_let_go_when_they_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mildroute.gateway.upstream.client._KEEP_ALIVE", 0.05)
    with HostileServer([status(200, {}, "{}", delay=0.005)]) as server:
        expert = upstream(server.url)
        await asyncio.gather(*(ask(expert) for _ in range(10)))
        assert expert.connections == 10
        for _ in range(12):
            await asyncio.sleep(0.01)
            await ask(expert)
        assert expert.connections <= 2
        expert.close()


async def test_a_connection_that_is_in_use_while_all_are_closed_ends_with_its_answer() -> None:
    with HostileServer([says("4", delay=0.05)]) as server:
        expert = upstream(server.url)
        call = asyncio.ensure_future(send(expert, patience()))
        await asyncio.sleep(0.02)
        expert.close()
        response = await call
        assert response.status == 200
        response.close()
        assert expert.connections == 0


async def test_an_expert_that_answers_early_and_reads_no_further_holds_nothing() -> None:
    has_answered, has_ended, sizes = asyncio.Event(), asyncio.Event(), []

    async def early(reader: asyncio.StreamReader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.write_eof()
        await has_answered.wait()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                sizes.append(len(data))
        has_ended.set()

    long = b'{"model":"mildroute","x":"' + b"x" * (32 << 20) + b'"}'
    async with serving(early) as url:
        expert = upstream(url)
        body = ParsedRequest("chat/completions", "mildroute", "Hi", long, (9, 20))
        response = await expert.send(UpstreamRequest(body, b""), patience())
        assert response.status == 413
        await asyncio.sleep(0.01)
        response.close()
        await asyncio.sleep(0.01)
        has_answered.set()
        await asyncio.wait_for(has_ended.wait(), 5)
    # What was in flight arrives; what was waiting on our side was dropped with the connection.
    assert sum(sizes) < 30 << 20


@pytest.mark.parametrize("size", [70_000, 200_000])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_headers_are_bounded_also_if_they_come_in_one_read(
    size: int, is_stream: bool
) -> None:
    """Audit B2: heads of 70 and 200 KB were accepted when they came in one read."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Long: " + b"x" * size + b"\r\n\r\n{}"
    with HostileServer([sends(head)]) as server:
        expert = upstream(server.url)
        with pytest.raises(UpstreamError, match="invalid_response"):
            await ask(expert, is_stream=is_stream)


@pytest.mark.parametrize("size", [60_000, 64_000])
async def test_a_long_head_with_a_long_body_behind_it_is_taken(size: int) -> None:
    body = b'{"x":"' + b"y" * 300_000 + b'"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Long: " % len(body)
    with HostileServer([sends(head + b"x" * size + b"\r\n\r\n" + body)]) as server:
        expert = upstream(server.url)
        assert await ask(expert) == (200, body)
        expert.close()


@pytest.mark.parametrize("end", [b"0\r\nX-Trailer: ", b"2;x="], ids=["trailer", "extension"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("is_fast", [False, True], ids=["slow", "fast"])
async def test_trailers_and_extensions_are_bounded_in_bytes_and_in_time(
    end: bytes, is_stream: bool, is_fast: bool
) -> None:
    """Audit A2: held for as long as the expert sent, 30 MB in 7 s; now 64 KiB, or idle_timeout."""
    sent = 0

    async def drip(reader: asyncio.StreamReader, writer: Writer) -> None:
        nonlocal sent
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + end)
        piece = b"x" * (4096 if is_fast else 1)
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
                await asyncio.sleep(0.0 if is_fast else 0.005)

    async with serving(drip) as url:
        expert = upstream(url)
        reason = "invalid_response" if is_fast else "timeout"
        with pytest.raises(UpstreamError, match=reason):
            await ask(expert, patience(idle=5.0 if is_fast else 0.1), is_stream=is_stream)
        assert expert.connections == 0
        assert sent < 16 << 20


async def test_the_second_address_is_tried_while_the_first_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Audit A2: the first address a black hole, `connect` after 3.0 s; now 0.25 s and a 200."""
    loop = asyncio.get_running_loop()
    with HostileServer([says("4")]) as server, contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.2", server.port))
        hole.listen(0)
        for _ in range(3):
            # They fill its queue; further ones hear nothing.
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.2", server.port))
        expert = upstream(server.url.replace("127.0.0.1", "expert.test"))
        resolved: list[str] = []

        original = loop.getaddrinfo

        async def resolve(host: str, port: int, **options: Any) -> list[Any]:
            if host != "expert.test":
                return await original(host, port, **options)
            resolved.append(host)
            kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        started = loop.time()
        assert (await ask(expert))[0] == 200
        assert loop.time() - started < 1.5
        assert (await ask(expert))[0] == 200
        assert resolved == ["expert.test"]
        expert.close()
        await ask(expert)
        assert len(resolved) == 2


async def test_a_connection_is_replaced_when_it_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Audit F: a busy connection stayed with its address for ever; now five minutes."""
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url)
        await ask(expert)
        await ask(expert)
        assert server.connections == 1
        monkeypatch.setattr("mildroute.gateway.upstream.client._MAX_AGE", 0.0)
        await ask(expert)
        assert server.connections == 2
        expert.close()


CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
HOSTILE = {
    "length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" + CHUNKS,
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "equal lengths": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "list of lengths": b"Content-Length: 2, 2\r\n\r\n{}",
    "plus": b"Content-Length: +2\r\n\r\n{}",
    "hexadecimal": b"Content-Length: 0x2\r\n\r\n{}",
    "huge length": b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "space before colon": b"Content-Length : 2\r\n\r\n{}",
    "folded line": b"X-A: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "carriage return": b"X-A: a\rb\r\nContent-Length: 2\r\n\r\n{}",
    "null byte": b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    "bare line feeds": b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "overflowing chunk": b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
}
NO_STATUS_LINES = {
    "0.9": b"<html>{}</html>",
    "icy": b"ICY 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http/2": b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", [*HOSTILE, *NO_STATUS_LINES])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_a_response_whose_bounds_are_in_doubt_is_refused(name: str, is_stream: bool) -> None:
    """Audit B2: all of these were refused; they must stay so."""
    raw = NO_STATUS_LINES.get(name) or b"HTTP/1.1 200 OK\r\n" + HOSTILE[name]
    with HostileServer([sends(raw), says("4")]) as server:
        expert = upstream(server.url)
        with pytest.raises(UpstreamError, match=r"invalid_response|connection_lost"):
            await ask(expert, patience(2.0, 0.3, 2.0), is_stream=is_stream)
        assert expert.connections == 0
        assert b"4" in (await ask(expert))[1]
        expert.close()


# Through an SDK; tests/gateway/test_litellm.py has the real one.


class _Chunk:
    def __init__(self, **document: Any) -> None:
        self._document = document

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        assert exclude_none
        return self._document

    def model_dump_json(self) -> str:
        return json.dumps(self._document)


class _Stream:
    """Gives its parts, of which an exception is raised; the last one may repeat."""

    def __init__(self, *parts: Any, endless: bool = False) -> None:
        self._parts = list(parts)
        self._endless = endless
        self.given = 0
        self.is_closed = False

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Any:
        if not self._parts:
            raise StopAsyncIteration
        part = self._parts[0] if self._endless else self._parts.pop(0)
        if isinstance(part, Exception):
            raise part
        self.given += 1
        await asyncio.sleep(0)
        return part

    async def aclose(self) -> None:
        self.is_closed = True


class _SDKError(Exception):
    status_code = 429
    litellm_response_headers = {"retry-after": "7"}  # noqa: RUF012


class _UnsupportedParamsError(Exception):
    status_code = 400


def _said(text: str) -> _Chunk:
    return _Chunk(choices=[{"index": 0, "delta": {"content": text}}])


@pytest.fixture
def sdk_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a client whose SDK gives an answer, or raises it."""

    def make(answer: Any) -> LiteLLMClient:
        async def acompletion(**arguments: Any) -> Any:
            sdk.arguments = arguments
            if isinstance(answer, Exception):
                raise answer
            return answer

        sdk = SimpleNamespace(
            acompletion=acompletion,
            get_llm_provider=lambda _model, **_: ("tiny", "gemini"),
            BadRequestError=KeyError,
            ContextWindowExceededError=IndexError,
            UnsupportedParamsError=_UnsupportedParamsError,
            user_url_validation=False,
        )
        monkeypatch.setitem(sys.modules, "litellm", sdk)
        monkeypatch.setattr(LiteLLMModel, "warm_up", lambda _: None)
        load_litellm.cache_clear()
        client = LiteLLMClient(ExpertSpec("small", "litellm", {"model": "gemini/tiny"}))
        assert sdk.user_url_validation
        client.sdk = sdk  # type: ignore[attr-defined]
        return client

    monkeypatch.setenv("GEMINI_API_KEY", "gemini-key-0123456789")
    # Those that the package sets, so that they are reset.
    for name in ("LOCAL_MODEL_COST_MAP", "LOCAL_ANTHROPIC_BETA_HEADERS", "MODE"):
        monkeypatch.setenv(f"LITELLM_{name}", "")
    yield make
    load_litellm.cache_clear()


async def test_an_answer_of_an_sdk_is_a_response(sdk_client: Any) -> None:
    client = sdk_client(_Chunk(choices=[], usage=None))
    assert await ask(client) == (200, b'{"choices": [], "usage": null}')
    assert client.sdk.arguments["messages"] == [{"role": "user", "content": "Hi"}]
    assert client.sdk.arguments["model"] == "gemini/tiny"
    assert (client.sdk.arguments["num_retries"], client.sdk.arguments["max_retries"]) == (0, 0)
    assert client.target("chat") == ("chat", "gcp.gemini", "gemini/tiny", "", "")
    assert client.load[1:] == (0, 0)
    client.close()


async def test_an_error_of_an_sdk_is_a_response_without_the_key(sdk_client: Any) -> None:
    error = _SDKError("no gemini-key-0123456789\nTraceback (most recent call last): /home/x")
    for is_stream in (False, True):
        client = sdk_client(_Stream(error) if is_stream else error)
        response = await send(client, patience(), is_stream=is_stream)
        assert response.status == 429
        assert (b"retry-after", b"7") in response.headers
        assert json.loads(response.body)["error"]["message"] == "no [secret]"
        response.close()
        client.close()


async def test_what_an_sdk_cannot_express_is_an_unsupported_request(sdk_client: Any) -> None:
    error = _UnsupportedParamsError("x does not support parameters: ['n']. To drop these, set y")
    for is_stream in (False, True):
        client = sdk_client(_Stream(error) if is_stream else error)
        with pytest.raises(UnsupportedRequest) as caught:
            await ask(client, is_stream=is_stream)
        assert caught.value.detail == "x does not support parameters: ['n']; leave them out."
        assert client.load[1:] == (0, 0)
        client.close()


async def test_a_stream_of_an_sdk_has_events_an_end_and_the_usage_apart(sdk_client: Any) -> None:
    last = _Chunk(choices=[{"index": 0, "delta": {}}], usage={"prompt_tokens": 3})
    stream = _Stream(_said("a"), last)
    client = sdk_client(stream)
    status_code, body = await ask(client, is_stream=True)
    events = [line[6:] for line in body.decode().split("\n\n") if line]
    assert status_code == 200
    assert json.loads(events[0])["choices"][0]["delta"] == {"content": "a"}
    assert json.loads(events[1]) == {"choices": [], "usage": {"prompt_tokens": 3}}
    assert events[2:] == ["[DONE]"]
    assert stream.is_closed
    client.close()


async def test_a_stream_of_an_sdk_that_fails_in_the_middle_is_an_error(sdk_client: Any) -> None:
    client = sdk_client(_Stream(_said("a"), _SDKError("oh")))
    with pytest.raises(UpstreamError, match="error_event"):
        await ask(client, is_stream=True)
    assert client.load[1:] == (0, 0)
    client.close()


async def test_a_stream_of_an_sdk_that_nobody_reads_waits_and_can_be_left(sdk_client: Any) -> None:
    stream = _Stream(_said("a" * 4000), endless=True)
    client = sdk_client(stream)
    response = await send(client, patience(), is_stream=True)
    before = -1
    while stream.given != before:
        before = stream.given
        for _ in range(50):
            await asyncio.sleep(0)
    # A mebibyte is held, and no more is taken.
    assert 250 <= stream.given <= 280
    await response.read()
    response.close()
    await until(lambda: stream.is_closed)
    client.close()


async def test_an_sdk_that_hangs_meets_the_deadline(sdk_client: Any) -> None:
    client = sdk_client(None)

    async def hang(**_: Any) -> None:
        await asyncio.Event().wait()

    client.sdk.acompletion = hang
    for is_stream in (False, True):
        with pytest.raises(UpstreamError, match="timeout"):
            await ask(client, patience(first=0.05, whole=0.05), is_stream=is_stream)
    assert client.load[1:] == (0, 0)
    client.close()
