"""Clients that mean harm.

benchmarks/service/hostile.py sends thousands more; tests/test_benchmarks.py runs it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from mildroute.gateway.app import Gateway, GatewayServices, create_app
from mildroute.gateway.config import FailoverConfig, GatewayConfig, RequestLimits
from mildroute.gateway.http.body import BadRequest, parse_request
from mildroute.gateway.observability.logs import LogThrottle
from mildroute.gateway.server import limit_warnings, protocol_with_limits
from tests.experts.hostile_server import HostileServer, answers, completion, hangs, sends
from tests.gateway.fakes import FakeManager, FakePredictor, KeptLog, experts_at
from tests.gateway.running import running, until
from tests.gateway.streams import DONE, event, streams

SERVICE = Path(__file__).parents[2] / "benchmarks" / "service"
PIECE = b"data: " + b"x" * 60_000 + b"\n\n"
ASK = b'{"model":"mildroute","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ASK),
    ASK,
)


@contextmanager
def fronted(
    seconds: float = 0.25, max_connections: int = 1000
) -> Iterator[tuple[int, Gateway, uvicorn.Server]]:
    """A gateway as ``mildroute serve`` runs it, with little patience, before an expert that streams
    12 MB.
    """
    settings = GatewayConfig(
        limits=RequestLimits(
            header_timeout=seconds, body_timeout=seconds, max_connections=max_connections
        ),
        failover=FailoverConfig(idle_timeout=5.0),
    )
    with HostileServer([streams(*[PIECE] * 200, DONE)]) as expert:
        app = create_app(
            GatewayServices(
                settings,
                experts_at(small=expert.url),
                FakeManager(FakePredictor("small")),
                log=KeptLog(),
            )
        )
        front = protocol_with_limits(settings.limits)
        config = uvicorn.Config(
            app,
            port=0,
            http=front,
            log_level="critical",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=75,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        until(lambda: server.started, 20)
        try:
            yield server.servers[0].sockets[0].getsockname()[1], app, server
        finally:
            server.should_exit = True
            thread.join(20)


def is_ended(connection: socket.socket) -> bool:
    connection.settimeout(3)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    ("opening", "more"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\r\n"),
        (b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n", b"x"),
        (b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\r\n"),
    ],
    ids=["an empty line behind an answer", "a body that nobody reads", "a path that is none"],
)
def test_what_comes_between_requests_does_not_hold_the_connection(
    opening: bytes, more: bytes
) -> None:
    with fronted() as (port, _, _), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(opening)
        assert connection.recv(4096).startswith(b"HTTP/1.1 ")
        connection.sendall(more)
        assert is_ended(connection)


def test_a_connection_that_rests_between_requests_is_kept() -> None:
    with (
        fronted() as (port, _, server),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):
        for rest in (0.0, 0.0, 0.6, 0.0):
            time.sleep(rest)
            assert http.get("/healthz").status_code == 200
        assert len(server.server_state.connections) == 1


def test_a_client_that_reads_nothing_loses_its_connection() -> None:
    with fronted() as (port, app, server), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(POST)
        until(lambda: app.limiter.in_flight == 1)
        until(lambda: not server.server_state.connections and not app.limiter.in_flight)


def test_a_client_that_leaves_many_answers_unread_loses_its_connection() -> None:
    with fronted() as (port, _, server), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", port))
        connection.settimeout(0.5)
        with contextlib.suppress(OSError):
            for _ in range(2000):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
        until(lambda: not server.server_state.connections)


def test_a_client_that_reads_slowly_gets_all() -> None:
    with fronted(2.0) as (port, _, _), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(POST.replace(b"host: x", b"host: localhost\r\nconnection: close"))
        size = 0
        while data := connection.recv(1 << 17):
            size += len(data)
            time.sleep(0.002)
        assert size > 200 * len(PIECE)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m",' + b",".join(b'"a%d":1' % number for number in range(9_000)) + b',"a0":2}',
        b'{"model":"m",' + b",".join(b'"a%d":1' % number for number in range(200_000)) + b"}",
        b'{"model":"m",' + b",".join(b'"\\n%d":1' % number for number in range(200_000)) + b"}",
        b'{"model":"m","messages":[' + b"{}," * 300_000 + b"{}]}",
        b'{"model":"m","messages":[{"role":"user","content":[' + b"{}," * 300_000 + b"{}]}]}",
    ],
    ids=["a name twice among many", "many members", "many escapes", "many messages", "many parts"],
)
def test_a_wide_body_does_not_keep_all_others_waiting(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(BadRequest) as caught:
        parse_request("chat/completions", body)
    assert caught.value.status == 400
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_number_of_tokens_that_cannot_be_true_is_not_believed(is_stream: bool) -> None:
    absurd = completion("4", (10**400, 2))
    told = streams(
        event("4"),
        b"data: " + httpx.Request("POST", "http://x", json=absurd).content + b"\n\n",
        DONE,
    )
    with HostileServer([told if is_stream else answers(absurd)]) as expert:
        priced = {"base_url": expert.url, "price": {"input": 1, "output": 1}}
        with running(small=priced) as gateway:
            assert gateway.chat("Hi", stream=is_stream).status_code == 200
            record = gateway.records()[0]
    assert (record.status, record.served_by) == (200, "small")
    assert 0 < record.cost_usd < 0.001


def test_a_judge_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SERVICE))
    from attack import CLIENT_ERRORS, Attack
    from judge import Judge, drip

    told = (
        b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\nX-Injected: 1\r\n\r\n{NaN}"
        b" SK-secret"
    )
    twice = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{NaN}"
    with HostileServer([sends(told), sends(twice), sends(twice + twice), hangs()]) as server:
        judge = Judge(server.port, {"a key": b"sk-secret"}, seconds=0.2)
        for _ in range(4):
            judge.try_one(Attack("x", b"GET / HTTP/1.1\r\n\r\n", CLIENT_ERRORS))
        assert drip(server.port, b"G", b"", seconds=0.1, pause=0.02) == float("inf")
    assert judge.faults == {
        "answers with 500": 1,
        "headers that were injected": 1,
        "secrets in answers": 1,
        "answers with a status that should not be": 2,
        "answers that are called JSON and are none": 1,
        "more answers than requests": 1,
        "connections that hang": 1,
    }


def _head(size: int) -> bytes:
    return b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"x" * size + b"\r\n\r\n"


@pytest.mark.parametrize(("size", "code"), [(60_000, b"200"), (70_000, b"431"), (200_000, b"431")])
def test_a_long_head_is_refused_also_if_it_comes_in_one_read(size: int, code: bytes) -> None:
    """Audit B2: a head of 70 KB in one read was answered with 200."""
    with fronted(5.0) as (port, _, _), socket.create_connection(("127.0.0.1", port)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(_head(size))
        connection.settimeout(5)
        assert connection.recv(4096).startswith(b"HTTP/1.1 " + code)


def test_a_long_body_behind_a_head_in_the_same_read_is_taken() -> None:
    body = ASK[:-1] + b',"x":"' + b"y" * 300_000 + b'"}'
    with fronted(5.0) as (port, _, _), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
            % len(body)
            + body
        )
        connection.settimeout(5)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_sockets_without_requests_do_not_keep_others_out() -> None:
    """Audit T14: behind 1,200 idle connections a client with a key got nothing."""
    with fronted(60.0, max_connections=20) as (port, _, server), contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(120)
        ]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for _ in range(3):
                assert http.get("/healthz").status_code == 200
        until(lambda: len(server.server_state.connections) <= 20)
        assert is_ended(connections[0])


def test_a_connection_with_a_request_is_never_closed_for_a_new_one() -> None:
    with fronted(60.0, max_connections=2) as (port, app, server), contextlib.ExitStack() as stack:
        busy = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        ]
        for connection in busy:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(POST)
        until(lambda: app.limiter.in_flight == 2)
        late = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        late.settimeout(5)
        assert late.recv(4096).startswith(b"HTTP/1.1 503")
        assert is_ended(late)
        assert app.limiter.in_flight == 2
        until(lambda: len(server.server_state.connections) == 2)


def test_warnings_about_bad_requests_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit B3: each bad request wrote a line to stderr."""
    now = 100.0
    throttle = LogThrottle(10.0, lambda: now)
    monkeypatch.setattr("mildroute.gateway.server._WARNINGS", throttle)

    def record(level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("uvicorn.error", level, "", 0, "Invalid %s", ("request",), None)

    assert [limit_warnings(record()) for _ in range(1000)] == [True] + [False] * 999
    assert limit_warnings(record(logging.ERROR))
    now = 111.0
    later = record()
    assert limit_warnings(later)
    assert later.fields == {"suppressed": 999}  # type: ignore[attr-defined]
