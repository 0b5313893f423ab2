"""The client of one expert: its address and key, and the pool of connections to it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from mildroute import __version__
from mildroute.exceptions import MissingExtraError
from mildroute.experts.config import ExpertSpec
from mildroute.experts.secrets import Secret
from mildroute.serving.auth.leases import LeasedSlots
from mildroute.serving.http.body import ParsedRequest
from mildroute.serving.http.request import Header, forward_response_headers
from mildroute.serving.observability.metrics import GatewayMetrics
from mildroute.serving.observability.tracing import CallTarget
from mildroute.serving.upstream._http1 import (
    Connection,
    Deadlines,
    IncompleteStream,
    ResponseTooLarge,
    StaleConnection,
    StreamError,
    UpstreamConnectError,
    UpstreamConnectionLost,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from mildroute.serving.upstream.usage import StreamUsageParser, TokenUsage, parse_usage

__all__ = ["UpstreamClient", "UpstreamRequest", "UpstreamResponse"]


try:
    import aiohappyeyeballs
    import httpx
except ImportError:
    raise MissingExtraError.for_package("httpx", extra="serve", user="mildroute.serving") from None


_KEEP_ALIVE = 30.0
# A connection that is always busy would stay with an address that the name no longer has.
_MAX_AGE = 300.0
# As RFC 8305 recommends: seconds until the next address is tried beside the first.
_HAPPY_EYEBALLS_DELAY = 0.25
_PORTS = {"http": 80, "https": 443}
_EVENT_STREAM = b"text/event-stream"
_MAX_FIRST_EVENT = 1 << 16
# Ends of the hosts of providers that OpenTelemetry has names for.
_PROVIDERS = {
    "api.anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "inference.ai.azure.com": "azure.ai.inference",
    "azure.com": "azure.ai.openai",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "groq.com": "groq",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
_has_event = re.compile(rb"(?:^|[\r\n])data:[^\r\n]*[\r\n]").search


class UpstreamRequest(NamedTuple):
    """A request for an expert.

    Args:
        parsed: What the client sent; only its model is changed.
        headers: Further lines of the headers.
        logprobs: Whether log-probabilities are asked for, though the client did not.
    """

    parsed: ParsedRequest
    headers: bytes
    logprobs: bool = False


class UpstreamResponse:
    """The response of an expert: complete, or, of a stream, from its first bytes on.

    ``read`` gives the further bytes of a stream. It is no asynchronous generator: one that is left
    in the middle is closed by a task of its own, after the connection was released.

    Attributes:
        body: The bytes that have come so far, without our key if it is an error.
        has_events: Whether it is a stream of events.
    """

    __slots__ = (
        "_client",
        "_connection",
        "_is_stream",
        "_usage",
        "body",
        "has_events",
        "headers",
        "status",
    )

    def __init__(self, client: UpstreamClient, connection: Connection, *, is_stream: bool) -> None:
        self._client = client
        self._connection = connection
        self._is_stream = is_stream
        self._usage: StreamUsageParser | None = None
        self.status = connection.status
        self.headers = connection.headers
        self.has_events = is_stream and self.status == 200 and _are_events(connection.headers)
        body = connection.read_available()
        self.body = body if self.status < 400 else client.scrub(body)

    @property
    def is_complete(self) -> bool:
        """Whether all of it has been read, and a stream of events has ended as it should."""
        return self._connection.is_read and self.flaw is None

    @property
    def has_ended(self) -> bool:
        """Whether the expert has sent all of it, be it read or not."""
        return self._connection.is_complete

    async def read(self) -> bytes:
        """The next bytes of a stream; none at its end.

        An UpstreamError if it breaks, or has ended with an error or without its last event.
        """
        usage = self._stream_usage()
        if self._connection.is_read and (flaw := self.flaw) is not None:
            raise flaw
        data = await self._connection.read()
        usage.feed(data)
        return data

    @property
    def flaw(self) -> type[UpstreamError] | None:
        """Why a stream of events is no answer, as far as it has been read; else none."""
        if not self.has_events:
            return None
        usage = self._stream_usage()
        if usage.error:
            return StreamError
        return IncompleteStream if self._connection.is_read and not usage.is_complete else None

    async def read_first_event(self, deadline: float) -> None:
        """Read on until a stream has its first event, which may be an error.

        Comments that keep a connection alive come before it.
        """
        try:
            while not (
                _has_event(self.body)
                or self._connection.is_read
                or len(self.body) > _MAX_FIRST_EVENT
            ):
                async with asyncio.timeout_at(deadline):
                    self.body += await self._connection.read()
        except TimeoutError:
            raise UpstreamTimeout from None

    async def read_all(
        self,
        deadline: float,
        max_bytes: int,
        is_enough: Callable[[bytes | bytearray], bool] = lambda _body: False,
    ) -> None:
        """Read a stream to its end, or until it is enough.

        An UpstreamError as by ``read``, or if it is late or long.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_complete and not is_enough(self.body):
                    self.body += await self.read()
                    if len(self.body) > max_bytes:
                        raise ResponseTooLarge
        except TimeoutError:
            raise UpstreamTimeout from None

    @property
    def usage(self) -> TokenUsage:
        """Tokens of the request and of the response, as far as it reports them.

        Of a stream the second is counted by its events if it is not reported.
        """
        if self._is_stream:
            return self._stream_usage().usage()
        return parse_usage(self.body) or TokenUsage()

    def forwarded_headers(self) -> list[Header]:
        """The headers that the client gets, without our key."""
        return self._client.scrub_headers(forward_response_headers(self.headers))

    def close(self) -> None:
        """Be done with it; at any time, also in the middle."""
        self._client.release(self._connection)

    def _stream_usage(self) -> StreamUsageParser:
        if self._usage is None:
            self._usage = StreamUsageParser()
            self._usage.feed(self.body)
        return self._usage


class UpstreamClient:
    """Calls one expert of kind ``openai``.

    Its address and key come from experts.yaml and from nowhere else.

    Connections are kept alive and used again, the latest first, for five minutes at most; each new
    one resolves the name again and tries its addresses a quarter of a second apart. A connection
    whose call was cancelled, cut off or answered with more than was requested is closed. Redirects
    are not followed and proxies of the environment are not used.

    A request is sent once. If a kept connection turns out to have been closed before the request
    reached the expert's machine, :class:`StaleConnection` says so, and the caller may send it
    again, on a new connection; it counts as another attempt.

    Args:
        connect_timeout: Seconds to connect.
        max_calls: Calls at the same time if the file sets no ``concurrency``; more wait.
        metrics: Get the seconds of connecting and waiting, or none.
        slots: Calls that gateways share, or none.

    Attributes:
        has_logprobs: Whether it may be asked for log-probabilities.
    """

    def __init__(
        self,
        spec: ExpertSpec,
        *,
        connect_timeout: float = 3.0,
        max_calls: int = 1024,
        metrics: GatewayMetrics | None = None,
        slots: LeasedSlots | None = None,
    ) -> None:
        url = httpx.URL(spec.settings["base_url"].rstrip("/"))
        self.name = spec.name
        self.model = str(spec.settings["model"])
        self.includes_usage = bool(spec.settings.get("include_usage", True))
        self.has_logprobs = bool(spec.settings.get("logprobs", False))
        self._host = url.raw_host.decode()
        self._port = url.port or _PORTS[url.scheme]
        # The same authorities as for collecting; to make it takes a tenth of a second.
        self._ssl_context = httpx.create_ssl_context() if url.scheme == "https" else None
        self._base_path = url.raw_path.rstrip(b"/")
        variable = spec.settings.get("api_key_env")
        self._secret = None if variable is None else Secret(variable)
        self._common_headers = (
            b"host: %b\r\naccept-encoding: identity\r\nuser-agent: mildroute/%b\r\n"
            % (url.netloc, __version__.encode())
        )
        self._connect_timeout = connect_timeout
        self._max_calls = int(spec.settings.get("concurrency", max_calls))
        self._slots = slots
        if slots is not None:
            slots.on_change = self._wake
        self._calls = 0
        self._idle: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._metrics = metrics

    def target(self, operation: str) -> CallTarget:
        """What calls of an operation are for."""
        return CallTarget(
            operation, _provider_of(self._host), self.model, self._host, str(self._port)
        )

    @property
    def load(self) -> tuple[int, int, int]:
        """Idle connections, calls in flight, and calls that wait for their turn."""
        return len(self._idle), self._calls, len(self._waiting)

    @property
    def has_capacity(self) -> bool:
        """Whether a call would be made now or soon: no more calls wait than can be made at once."""
        return len(self._waiting) < self._max_calls

    @property
    def has_free_slot(self) -> bool:
        """Whether a call would be made at once, before no other one that waits."""
        return not self._waiting and self._calls < self._max_calls

    @property
    def connections(self) -> int:
        """Connections that are idle or in use."""
        return self._calls + sum(connection.is_open for connection in self._idle)

    async def send(self, request: UpstreamRequest, deadlines: Deadlines) -> UpstreamResponse:
        """Send a request; an UpstreamError says why there is no response.

        Returns:
            The response, complete, or from its first bytes on if the request wants a stream. Close
            it in any case.
        """
        await self._acquire(deadlines)
        connection = None
        try:
            connection, is_new = await self._get_connection()
            stream = request.parsed.is_stream
            try:
                await connection.send(self._message(request), deadlines, stream=stream)
            except UpstreamConnectionLost:
                if is_new or not connection.was_unread:
                    raise
                # The others were probably closed with it.
                self._close_idle()
                raise StaleConnection from None
            return UpstreamResponse(self, connection, is_stream=stream)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self.release(connection)
            raise _without_frames(error) from None

    def release(self, connection: Connection | None) -> None:
        """Keep a connection for the next call, if it can serve one, and let a waiting call go."""
        if connection is not None and connection.release():
            self._keep(connection)
        self._calls -= 1
        if self._slots is not None:
            self._slots.give_back()
        if self._waiting:
            self._wake()

    def scrub(self, body: bytes) -> bytes:
        """An error of this expert without our key, should it repeat it."""
        if self._secret is None:
            return body
        return self._secret.scrub(body.decode("latin-1")).encode("latin-1")

    def scrub_headers(self, headers: list[Header]) -> list[Header]:
        """Headers of this expert without our key."""
        if self._secret is None:
            return headers
        scrub = self._secret.scrub_answer
        return [(name, scrub(value.decode("latin-1")).encode("latin-1")) for name, value in headers]

    def close(self) -> None:
        """Close all connections that are not in use; those in use end with their responses."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _take_place(self) -> bool:
        """Count one more call, if there may be one."""
        if self._calls >= self._max_calls or (self._slots is not None and not self._slots.take()):
            return False
        self._calls += 1
        return True

    def _wake(self) -> None:
        """Let calls go that wait, as many as there are places."""
        waiting = self._waiting
        while waiting and (waiting[0].done() or self._take_place()):
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if waiting and self._slots is not None:
            self._slots.want(len(waiting))

    async def _acquire(self, deadlines: Deadlines) -> None:
        if self._take_place():
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if self._slots is not None:
            self._slots.want(len(self._waiting))
        try:
            until = min(deadlines.first_byte_at, deadlines.complete_at)
            async with asyncio.timeout(until - loop.time()):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(None)
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise UpstreamOverloaded from None
            raise
        finally:
            if self._metrics is not None:
                self._metrics.record_wait(self.name, loop.time() - started)

    async def _get_connection(self) -> tuple[Connection, bool]:
        """A connection, and whether it is a new one."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if (
                connection.is_open
                and connection.idle_since > now - _KEEP_ALIVE
                and connection.opened_at > now - _MAX_AGE
            ):
                return connection, False
            connection.abort()
        return await self._connect(), True

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        started = perf_counter()
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                # uvloop has no such parameter of its own, so it gets the socket.
                _, connection = await loop.create_connection(
                    lambda: Connection(loop),
                    sock=await aiohappyeyeballs.start_connection(
                        addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, interleave=1
                    ),
                    ssl=self._ssl_context,
                    server_hostname=None if self._ssl_context is None else self._host,
                )
        except (OSError, UnicodeError):
            raise UpstreamConnectError from None
        if self._metrics is not None:
            self._metrics.record_connect(self.name, perf_counter() - started)
        return connection

    def _message(self, request: UpstreamRequest) -> Sequence[bytes | memoryview]:
        """Pieces that are never joined here: the key stays in an object that does not show it."""
        parsed = request.parsed
        body = parsed.body_for(
            self.model, include_usage=self.includes_usage, logprobs=request.logprobs
        )
        start = b"POST %b/%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n" % (
            self._base_path,
            parsed.path.encode(),
            self._common_headers,
            request.headers,
            sum(map(len, body)),
        )
        if self._secret is None:
            return start, b"\r\n", *body
        return start, b"authorization: ", self._secret.bearer(), b"\r\n\r\n", *body

    def _keep(self, connection: Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        self._idle.append(connection)
        # To drop one a call is enough for the connections of a burst to run out.
        oldest = self._idle[0]
        if oldest.idle_since < connection.idle_since - _KEEP_ALIVE or not oldest.is_open:
            self._idle.popleft().abort()


def _provider_of(host: str) -> str:
    """OpenTelemetry's name of a provider.

    It stands for the form of its API, so a server that no name is known of is ``openai``.
    """
    for end, provider in _PROVIDERS.items():
        if host == end or host.endswith((f".{end}", f"-{end}")):
            return provider
    return "openai"


def _are_events(headers: list[Header]) -> bool:
    """Whether a body is a stream of events that can be read: not one that is encoded."""
    is_stream = False
    for name, value in headers:
        if name == b"content-encoding" and value != b"identity":
            return False
        if name == b"content-type":
            is_stream = value[:17].lower() == _EVENT_STREAM
    return is_stream


def _without_frames(error: BaseException) -> BaseException:
    """The error without the frames that it came through, whose variables hold the request."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
