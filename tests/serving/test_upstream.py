"""Calls of one expert over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mildroute.experts.config import ExpertSpec
from mildroute.serving.http.body import ParsedRequest
from mildroute.serving.upstream._http1 import Connection, Deadlines, UpstreamError
from mildroute.serving.upstream.client import UpstreamClient
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
from tests.experts.http2_server import make_certificate

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


def patience(first: float = 5.0, idle: float = 5.0, whole: float = 5.0, limit: int = 1 << 20) -> Deadlines:
    now = asyncio.get_running_loop().time()
    return Deadlines(now + first, idle, now + whole, limit)


def upstream(url: str, **settings: Any) -> UpstreamClient:
    return UpstreamClient(ExpertSpec("small", "openai", {"base_url": url, "model": "tiny", **settings}), connect=2.0, most=64)


async def ask(expert: UpstreamClient, waiting: Deadlines | None = None, *, is_stream: bool = False) -> tuple[int, bytes]:
    """Status and body; the connection is given back."""
    connection = await expert.ask(parsed(is_stream=is_stream), b"content-type: application/json\r\n", waiting or patience())
    try:
        body = connection.take()
        while not connection.is_whole:
            body += await connection.more()
        return connection.status, body
    finally:
        expert.release(connection)


@asynccontextmanager
async def serving(behavior: Callable[[asyncio.StreamReader, Writer], Awaitable[None]]) -> AsyncIterator[str]:
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
    assert set(call.headers) == {"host", "accept-encoding", "user-agent", "content-type", "content-length"}
    assert call.headers["accept-encoding"] == "identity"
    assert call.headers["host"] == f"127.0.0.1:{server.port}"


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
        with pytest.raises(UpstreamError, match="busy"):
            await ask(expert, patience(first=0.02))
        assert (await first)[0] == 200
        assert (await ask(expert))[0] == 200
        expert.close()


async def test_there_is_no_room_when_as_many_wait_as_can_be_served() -> None:
    with HostileServer([hangs()]) as server:
        expert = upstream(server.url, concurrency=2)
        calls = [asyncio.ensure_future(ask(expert)) for _ in range(4)]
        await until(lambda: not expert.has_room)
        calls.pop().cancel()
        await asyncio.sleep(0)
        calls.pop().cancel()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: expert.has_room and expert.connections == 0)


@pytest.mark.parametrize(
    ("behavior", "why"),
    [
        (cut_off(), "lost"),
        (chunked("4", whole=False), "lost"),
        (disconnects(), "lost"),
        (resets(), "lost"),
        (sends(b"this is no HTTP at all\r\n\r\n"), "malformed"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n"), "malformed"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "malformed"),
        (sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nxx"), "malformed"),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000), "malformed"),
        (huge(2 << 20), "oversize"),
    ],
    ids=["cut", "chunks cut", "closed", "reset", "no http", "length", "smuggling", "upgrade", "head", "huge"],
)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_a_broken_answer_is_lost_and_its_connection_not_used_again(behavior: Behavior, why: str, is_stream: bool) -> None:
    with HostileServer([behavior, says("4")]) as server:
        expert = upstream(server.url)
        if is_stream and why == "oversize":
            assert len((await ask(expert, is_stream=True))[1]) > 2 << 20
        else:
            with pytest.raises(UpstreamError) as lost:
                await ask(expert, is_stream=is_stream)
            assert lost.value.why == why
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


async def test_a_connection_that_the_expert_closed_meanwhile_is_replaced_without_a_failure() -> None:
    async def once(reader: asyncio.StreamReader, writer: Writer) -> None:
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        # It promises to stay and goes when the next request comes, which is how a race looks.
        await reader.read(1)
        writer.transport.abort()

    async with serving(once) as url:
        expert = upstream(url)
        for _ in range(5):
            assert await ask(expert) == (200, b"{}")
        expert.close()


async def test_an_expert_that_closes_each_time_is_asked_twice_at_most() -> None:
    with HostileServer([says("4"), disconnects()]) as server:
        expert = upstream(server.url)
        await ask(expert)
        with pytest.raises(UpstreamError, match="lost"):
            await ask(expert)
    assert len(server.calls) == 3


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nold", b"old"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n", b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    ],
    ids=["until close", "1.0", "continue", "trailer", "empty", "422"],
)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_every_way_to_end_an_answer_is_known(raw: bytes, body: bytes, is_stream: bool) -> None:
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
            await ask(expert, patience(**waiting[name]))
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
        connection = await expert.ask(parsed(is_stream=True), b"", patience(idle=0.05))
        await asyncio.sleep(0.15)
        held = len(connection.take())
        assert held < 4 << 20
        while not connection.is_whole:
            held += len(await connection.more())
        expert.release(connection)
        assert held + len(connection.take()) == size
        expert.close()


@pytest.mark.parametrize(
    ("base", "path"), [("/v1", "/v1/chat/completions"), ("", "/chat/completions"), ("/b\u00fccher", "/b%C3%BCcher/chat/completions")]
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
    with HostileServer([says("key thief")]) as thief, HostileServer([redirects(thief.url)]) as server:
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
        for waiting in (patience(first=0.02), patience()):
            with pytest.raises(UpstreamError) as lost:
                await ask(expert, waiting)
            shown = traceback.TracebackException.from_exception(lost.value, capture_locals=True)
            assert str(key) not in "".join(shown.format())
        assert key not in repr(vars(expert))
        assert expert.scrubbed(f"key {key}".encode()) == b"key [secret]"


async def test_an_expert_behind_tls_must_have_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert not [thing for thing in gc.get_objects() if type(thing) is Connection and thing.is_open]
    assert len(asyncio.all_tasks()) == tasks


async def test_connections_of_a_burst_are_let_go_when_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mildroute.serving.upstream.client._KEPT_ALIVE", 0.05)
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
        call = asyncio.ensure_future(expert.ask(parsed(), b"", patience()))
        await asyncio.sleep(0.02)
        expert.close()
        line = await call
        assert line.status == 200
        expert.release(line)
        assert not line.is_open


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
        line = await expert.ask(ParsedRequest("chat/completions", "mildroute", "Hi", long, (9, 20)), b"", patience())
        assert line.status == 413
        await asyncio.sleep(0.01)
        expert.release(line)
        await asyncio.sleep(0.01)
        has_answered.set()
        await asyncio.wait_for(has_ended.wait(), 5)
    # What was under way arrives; what was waiting on our side was dropped with the connection.
    assert sum(sizes) < 30 << 20
