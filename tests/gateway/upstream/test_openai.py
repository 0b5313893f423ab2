"""Calls of an expert over real connections, with all that a server may do wrong."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mildroute.experts.config import ExpertSpec
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.errors import UpstreamError
from mildroute.gateway.upstream.openai import OpenAIUpstream
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
from tests.gateway.upstream.calls import ask, patience, request, send
from tests.support.certificates import make_certificate

pytestmark = pytest.mark.anyio


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes within moments on a quiet machine, and later on a busy one."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    assert holds()


OPEN: list[OpenAIUpstream] = []
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


def upstream(url: str, **settings: Any) -> OpenAIUpstream:
    made = OpenAIUpstream(
        ExpertSpec("small", "openai", {"base_url": url, "model": "tiny", **settings}),
        connect_timeout=2.0,
        max_calls=64,
    )
    OPEN.append(made)
    return made


@pytest.fixture(autouse=True)
async def closed(anyio_backend: Any) -> AsyncIterator[None]:
    """Close the connections of a test."""
    yield
    while OPEN:
        await OPEN.pop().wait_closed()


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
    assert call.json == {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    assert set(call.headers) == {
        "host",
        "accept-encoding",
        "user-agent",
        "accept",
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
        headers = [(b"content-type", b"application/json"), (b"accept", b"*/*")]
        response = await expert.send(request()._replace(headers=headers), patience())
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
        assert expert.slots.calls == 0
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
        await until(lambda: not expert.slots.has_capacity)
        calls.pop().cancel()
        await asyncio.sleep(0)
        calls.pop().cancel()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: expert.slots.has_capacity and expert.slots.calls == 0)


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
        with pytest.raises(UpstreamError) as lost:
            await ask(expert, is_stream=is_stream)
        assert lost.value.reason == why
        assert expert.slots.calls == 0
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
        await asyncio.sleep(0.05)
        assert await ask(expert) == (200, b"{}")
        expert.close()


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
        assert expert.slots.calls == 0


def _begins_and_hangs() -> Behavior:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        await call.reader.read()
        return False

    return behave


async def test_headers_alone_are_no_first_byte() -> None:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(STREAM_HEAD)
        await call.reader.read()
        return False

    with HostileServer([behave]) as server:
        expert = upstream(server.url)
        with pytest.raises(UpstreamError, match="timeout"):
            await ask(expert, patience(first=0.05), is_stream=True)


async def test_a_stream_may_take_longer_than_the_deadline_once_it_has_begun() -> None:
    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(STREAM_HEAD)
        for piece in [b"data: {}\n\n"] * 50 + [b"data: [DONE]\n\n"]:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.002)
        writer.write(b"0\r\n\r\n")
        return True

    with HostileServer([behave]) as server:
        expert = upstream(server.url)
        _, body = await ask(expert, patience(whole=0.08), is_stream=True)
        assert body.count(b"data:") == 51
        expert.close()


async def test_a_cancelled_call_closes_its_connection_at_once() -> None:
    with HostileServer([hangs(), says("4")]) as server:
        expert = upstream(server.url)
        call = asyncio.ensure_future(ask(expert))
        await until(lambda: server.at_once == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: server.at_once == 0 and expert.slots.calls == 0)
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_a_slow_reader_stops_the_expert_and_loses_nothing() -> None:
    piece = b"data: " + b"x" * 65_000 + b"\n\n"
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: Writer) -> None:
        nonlocal sent
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(400):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        writer.write(b"data: [DONE]\n\n")

    async with serving(flood) as url:
        expert = upstream(url)
        response = await send(expert, patience(idle=0.5), is_stream=True)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 16 << 20
        events = 0
        while read := await response.read():
            events += len(read)
        response.close()
        assert events == 401
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
        assert expert.slots.calls == 0
        expert.close()


async def test_nothing_is_left_behind() -> None:
    tasks = len(asyncio.all_tasks())
    with HostileServer([says("4")]) as server:
        expert = upstream(server.url)
        for _ in range(3):
            await asyncio.gather(*(ask(expert) for _ in range(10)))
        await until(lambda: server.at_once == 0)
        expert.close()
        await until(lambda: len(asyncio.all_tasks()) == tasks)


async def test_a_connection_that_is_in_use_while_all_are_closed_ends_with_its_answer() -> None:
    with HostileServer([says("4", delay=0.05)]) as server:
        expert = upstream(server.url)
        call = asyncio.ensure_future(send(expert, patience()))
        await asyncio.sleep(0.02)
        expert.close()
        response = await call
        assert response.status == 200
        response.close()
        assert expert.slots.calls == 0


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

    fields = {"model": "mildroute", "x": "x" * (32 << 20)}
    async with serving(early) as url:
        expert = upstream(url)
        body = ParsedRequest("chat/completions", "mildroute", "Hi", fields)
        response = await expert.send(UpstreamRequest(body, ()), patience())
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
    """An expert that never ends its answer is given up."""
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
        # aiohttp bounds the lines of trailers and extensions only once they end.
        with pytest.raises(UpstreamError, match=r"invalid_response|timeout|connection_lost"):
            await ask(expert, patience(whole=0.5), is_stream=is_stream)
        assert expert.slots.calls == 0


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
    "carriage return": b"X-A: a\rb\r\nContent-Length: 2\r\n\r\n{}",
    "null byte": b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    "bare line feeds": b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "overflowing chunk": b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
}
# What aiohttp takes, and takes in one way.
LENIENT = {
    "space before colon": b"Content-Length : 2\r\n\r\n{}",
    "folded line": b"X-A: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
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
        assert expert.slots.calls == 0
        assert b"4" in (await ask(expert))[1]
        expert.close()


@pytest.mark.parametrize("name", [*LENIENT])
async def test_a_response_that_is_taken_leniently_has_one_meaning(name: str) -> None:
    with HostileServer([sends(b"HTTP/1.1 200 OK\r\n" + LENIENT[name])]) as server:
        assert await ask(upstream(server.url)) == (200, b"{}")
