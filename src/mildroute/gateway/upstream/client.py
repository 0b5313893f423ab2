"""The client of one expert: its address and key, and the pool of connections to it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mildroute import __version__
from mildroute.exceptions import MissingExtraError
from mildroute.experts.anthropic import (
    DEFAULT_MAX_TOKENS,
    VERSION,
    ChatStream,
    TranslationError,
    chat_error,
    chat_to_messages,
    completion_to_message,
    message_to_completion,
)
from mildroute.experts.base import HTTPResult
from mildroute.experts.config import ExpertSpec, anthropic_headers
from mildroute.experts.litellm import UNSUPPORTED, LiteLLMModel
from mildroute.experts.secrets import LogGuard, RequestHeaders, Secret, SecretSet
from mildroute.experts.settings import messages_url, query_string
from mildroute.gateway.http.body import ParsedRequest, decoder_for
from mildroute.gateway.http.request import (
    FORWARDED_TO_EXPERT,
    Header,
    forward_response_headers,
    parse_body,
)
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.observability.tracing import CallTarget
from mildroute.gateway.upstream._http1 import (
    Connection,
    Deadlines,
    IncompleteStream,
    ResponseTooLarge,
    StaleConnection,
    StreamError,
    UnsupportedRequest,
    UpstreamConnectError,
    UpstreamConnectionLost,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamProtocolError,
    UpstreamTimeout,
)
from mildroute.gateway.upstream.usage import StreamUsageParser, TokenUsage, parse_usage

__all__ = [
    "AnthropicClient",
    "AnthropicResponse",
    "LiteLLMClient",
    "UpstreamClient",
    "UpstreamRequest",
    "UpstreamResponse",
]


try:
    import aiohappyeyeballs
    import httpx
except ImportError:
    raise MissingExtraError.for_package("httpx", extra="serve", user="mildroute.gateway") from None


_KEEP_ALIVE = 30.0
# A connection that is always busy would stay with an address that the name no longer has.
_MAX_AGE = 300.0
# As RFC 8305 recommends: seconds until the next address is tried beside the first.
_HAPPY_EYEBALLS_DELAY = 0.25
_PORTS = {"http": 80, "https": 443}
_END = b"\r\n"
_EVENT_STREAM = b"text/event-stream"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_DONE = b"data: [DONE]\n\n"
_LAST_CHUNK = b"0\r\n\r\n"
_MAX_FIRST_EVENT = 1 << 16
_MAX_ERROR = 1 << 16
_JSON = b"content-type: application/json\r\n"
# Headers of a client that do not hold for the translation of its body.
_OF_CHATS = frozenset((b"content-type", b"anthropic-version"))
_OF_MESSAGES = _OF_CHATS | {b"anthropic-beta"}
# Providers by LiteLLM's names where OpenTelemetry has others.
_LITELLM_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
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
        message: A whole answer as Anthropic's clients get it, once it is translated.
    """

    __slots__ = (
        "_client",
        "_connection",
        "_is_stream",
        "_usage",
        "_was_cut_off",
        "body",
        "has_events",
        "headers",
        "message",
        "status",
    )

    def __init__(self, client: UpstreamClient, connection: Connection, *, is_stream: bool) -> None:
        self._client = client
        self._connection = connection
        self._is_stream = is_stream
        self._usage: StreamUsageParser | None = None
        self._was_cut_off = False
        self.message = b""
        self.status = connection.status
        self.headers = connection.headers
        self.has_events = is_stream and self.status == 200 and _are_events(connection.headers)
        body = connection.read_available()
        is_error = self.status >= 400 or (self.has_events and b"error" in body)
        self.body = self._decode(client.scrub(body) if is_error else body)

    def _decode(self, data: bytes) -> bytes:
        """Bytes of the expert as a chat completion has them."""
        return data

    @property
    def is_complete(self) -> bool:
        """Whether all of it has been read, and a stream of events has ended as it should."""
        return (self._connection.is_read or self._was_cut_off) and self.flaw is None

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
        try:
            received = await self._receive()
        except UpstreamError:
            if not (self.has_events and usage.is_complete) or usage.error:
                raise
            # The last event has come; that the end of the body is missing takes nothing from it.
            self._was_cut_off = True
            return b""
        data = self._decode(received)
        usage.feed(data)
        return data

    async def _receive(self) -> bytes:
        """The next bytes, without our key should an error in a stream repeat it."""
        data = await self._connection.read()
        if not self.has_events or b"error" not in data:
            return data
        # A key that is cut in two would not be found; no client can read half a line either.
        while b"error" in data[data.rfind(b"\n") + 1 :] and len(data) < _MAX_ERROR:
            if self._connection.is_read:
                break
            data += await self._connection.read()
        return self._client.scrub(data)

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
                    self.body += self._decode(await self._receive())
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

    async def translate_to_message(self) -> None:
        """Translate a whole answer for an Anthropic client; an UpstreamProtocolError if it is none.

        Streams are translated as they come.
        """
        if self.has_events or self.status >= 300:
            return
        if self._is_stream:
            # Anthropic's clients find no event in it, and whether it has come whole is chance.
            raise UpstreamProtocolError
        try:
            self.message = await parse_body(self.body, _as_message, self.body)
        except (ValueError, RecursionError):
            # A TranslationError is a ValueError, too.
            raise UpstreamProtocolError from None

    @property
    def usage(self) -> TokenUsage:
        """Tokens of the request and of the response, as far as it reports them.

        Of a stream the second is counted by its events if it is not reported.
        """
        if self._is_stream:
            return self._stream_usage().usage()
        return parse_usage(self.body) or TokenUsage()

    @property
    def is_usage_partial(self) -> bool:
        """Whether those of the request are reported and those of the response counted."""
        return False

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
    """Calls one expert of the kind ``openai``.

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
    ) -> None:
        self.name = spec.name
        self.model = str(spec.settings["model"])
        self.includes_usage = bool(spec.settings.get("include_usage", True))
        self.has_logprobs = bool(spec.settings.get("logprobs", False))
        self._secrets = self._read_address(spec)
        self._connect_timeout = connect_timeout
        self._max_calls = int(spec.settings.get("concurrency", max_calls))
        self._calls = 0
        self._idle: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._metrics = metrics

    def _read_address(self, spec: ExpertSpec) -> SecretSet:
        """Read where and as whom the expert is called; gives the keys."""
        url = httpx.URL(spec.settings["base_url"].rstrip("/"))
        self._host = url.raw_host.decode()
        self._port = url.port or _PORTS[url.scheme]
        # The same authorities as for collecting; to make it takes a tenth of a second.
        self._ssl_context = httpx.create_ssl_context() if url.scheme == "https" else None
        self._base_path = url.raw_path.rstrip(b"/")
        self._query = query_string(spec.settings.get("query", {})).encode()
        self._headers = self._build_headers(spec)
        self._common_headers = b"host: %b\r\naccept-encoding: identity\r\n" % url.netloc
        if b"user-agent" not in self._headers.names:
            self._common_headers += b"user-agent: mildroute/%b\r\n" % __version__.encode()
        # In pieces that are never joined here: a key stays in an object that does not show it.
        self._own_headers = [
            piece for name, value in self._headers.pairs() for piece in (name + b": ", value, _END)
        ]
        return self._headers

    def _build_headers(self, spec: ExpertSpec) -> RequestHeaders:
        variable = spec.settings.get("api_key_env")
        return RequestHeaders(
            spec.settings.get("headers"), None if variable is None else Secret(variable)
        )

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
        message = await self._message(request)
        await self._acquire(deadlines)
        connection = None
        try:
            connection, is_new = await self._get_connection()
            stream = request.parsed.is_stream
            try:
                await connection.send(message, deadlines, stream=stream)
            except UpstreamConnectionLost:
                if is_new or not connection.was_unread:
                    raise
                # The others were probably closed with it.
                self._close_idle()
                raise StaleConnection from None
            return await self._respond(connection, request)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self.release(connection)
            raise _without_frames(error) from None

    async def _respond(self, connection: Connection, request: UpstreamRequest) -> UpstreamResponse:
        return UpstreamResponse(self, connection, is_stream=request.parsed.is_stream)

    def release(self, connection: Connection | None) -> None:
        """Keep a connection for the next call, if it can serve one, and let a waiting call go."""
        if connection is not None and connection.release():
            self._keep(connection)
        self._calls -= 1
        if self._waiting:
            self._wake()

    def scrub(self, body: bytes) -> bytes:
        """An error of this expert without our key, should it repeat it."""
        if not self._secrets.has_secrets:
            return body
        return self._secrets.scrub(body.decode("latin-1")).encode("latin-1")

    def scrub_headers(self, headers: list[Header]) -> list[Header]:
        """Headers of this expert without our key."""
        if not self._secrets.has_secrets:
            return headers
        scrub = self._secrets.scrub_answer
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
        if self._calls >= self._max_calls:
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

    async def _acquire(self, deadlines: Deadlines) -> None:
        if self._take_place():
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
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
        return connection

    async def _message(self, request: UpstreamRequest) -> Sequence[bytes | memoryview]:
        """Pieces that are never joined here: the key stays in an object that does not show it."""
        parsed = request.parsed
        body = parsed.body_for(
            self.model, include_usage=self.includes_usage, logprobs=request.logprobs
        )
        path = b"%b/%b" % (self._base_path, parsed.path.encode())
        lines = request.headers
        if parsed.original is not None:
            lines = _without_headers(lines, _OF_MESSAGES) + _JSON
        return self._pieces(path, lines, body)

    def _pieces(
        self, path: bytes, lines: bytes, body: Sequence[bytes | memoryview]
    ) -> Sequence[bytes | memoryview]:
        if self._headers.names & FORWARDED_TO_EXPERT:
            lines = _without_headers(lines, self._headers.names)
        start = b"POST %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n" % (
            path,
            self._query,
            self._common_headers,
            lines,
            sum(map(len, body)),
        )
        return start, *self._own_headers, _END, *body

    def _keep(self, connection: Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        self._idle.append(connection)
        # To drop one a call is enough for the connections of a burst to run out.
        oldest = self._idle[0]
        if oldest.idle_since < connection.idle_since - _KEEP_ALIVE or not oldest.is_open:
            self._idle.popleft().abort()


# The SDK of LiteLLM in the place of a socket.


class LiteLLMClient(UpstreamClient):
    """Calls one expert of the kind ``litellm``, through the SDK and in the process.

    LiteLLM is imported and made ready when this is made, which takes seconds. The SDK keeps the
    connections to the provider; this client bounds its calls, and their time, as those of others.

    Args:
        spec: What experts.yaml says of it; other arguments are those of :class:`UpstreamClient`.
    """

    def _read_address(self, spec: ExpertSpec) -> SecretSet:
        self._sdk_model = LiteLLMModel(spec.settings)
        # It writes parts of requests, such as the address of an image. Its errors are answers.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        self._sdk_model.warm_up()
        self._guard = LogGuard(self._sdk_model.secrets)
        self._guard.on()
        return self._sdk_model.secrets

    def target(self, operation: str) -> CallTarget:
        """What calls of an operation are for."""
        provider = self._sdk_model.provider
        return CallTarget(operation, _LITELLM_PROVIDERS.get(provider, provider), self.model)

    def close(self) -> None:
        """Make no further call."""
        super().close()
        self._guard.off()

    async def _connect(self) -> Connection:
        connection = Connection(asyncio.get_running_loop())
        connection.connection_made(_SDKTransport(self._sdk_model, connection))
        return connection

    async def _message(self, request: UpstreamRequest) -> Sequence[bytes | memoryview]:
        """The path and the body alone."""
        parsed = request.parsed
        include_usage = self.includes_usage
        body = parsed.body_for(self.model, include_usage=include_usage, logprobs=request.logprobs)
        return parsed.path.encode(), *body

    async def _respond(self, connection: Connection, request: UpstreamRequest) -> UpstreamResponse:
        response = await super()._respond(connection, request)
        if response.status == 400:
            # LiteLLMModel wrote it.
            error = json.loads(response.body)["error"]
            if error["code"] == UNSUPPORTED:
                raise UnsupportedRequest(error["message"])
        return response


class _SDKTransport(asyncio.Transport):
    """Gives a connection the answers of the SDK as if they came over HTTP/1.1.

    So deadlines, limits and the reading of streams are those of every other expert; to write and
    parse the few lines around an answer takes microseconds.
    """

    def __init__(self, model: LiteLLMModel, connection: Connection) -> None:
        super().__init__()
        self._model = model
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._is_read = asyncio.Event()
        self._is_read.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Take a request, as :meth:`LiteLLMClient._message` makes it."""
        path, *body = list_of_data
        call = self._serve(bytes(path).decode(), b"".join(body))
        self._task = asyncio.get_running_loop().create_task(call)

    def abort(self) -> None:
        """Give the call up."""
        if self._task is not None:
            self._task.cancel()

    def pause_reading(self) -> None:
        """Take nothing more from a stream for now."""
        self._is_read.clear()

    def resume_reading(self) -> None:
        """Continue with a stream."""
        self._is_read.set()

    async def _serve(self, path: str, body: bytes) -> None:
        answer = await self._model.call(path, body)
        if isinstance(answer, HTTPResult):
            self._send_whole(answer)
        elif hasattr(answer, "__aiter__"):
            await self._send_stream(answer)
        else:
            self._send_whole(HTTPResult(200, _body_of(answer)))

    def _send_whole(self, result: HTTPResult) -> None:
        again = "" if result.retry_after is None else f"retry-after: {result.retry_after}\r\n"
        head = (
            f"HTTP/1.1 {result.status} -\r\ncontent-type: application/json\r\n{again}"
            f"content-length: {len(result.body)}\r\n\r\n"
        )
        self._connection.data_received(head.encode("latin-1", "replace") + result.body)

    async def _send_stream(self, stream: Any) -> None:
        """Send events; an error before the first one is an answer of its own."""
        has_begun = False
        try:
            async for chunk in stream:
                self._send_event(_event_of(chunk), is_first=not has_begun)
                has_begun = True
                await self._is_read.wait()
            self._send_event(_DONE, is_first=not has_begun)
            self._connection.data_received(_LAST_CHUNK)
        except Exception as error:  # noqa: BLE001 - providers raise anything through the SDK
            result = self._model.result_of(error)
            if has_begun:
                self._send_event(b"data: %b\n\n" % result.body)
                self._connection.data_received(_LAST_CHUNK)
            else:
                self._send_whole(result)
        finally:
            await stream.aclose()

    def _send_event(self, event: bytes, *, is_first: bool = False) -> None:
        head = _STREAM_HEAD if is_first else b""
        self._connection.data_received(b"%b%x\r\n%b\r\n" % (head, len(event), event))


def _body_of(answer: Any) -> bytes:
    usage = getattr(answer, "usage", None)
    if usage is not None and _is_uncounted(usage.model_dump()):
        return bytes(answer.model_dump_json(exclude={"usage"}).encode())
    return bytes(answer.model_dump_json().encode())


def _event_of(chunk: Any) -> bytes:
    """A chunk of a stream as an event."""
    document = chunk.model_dump(exclude_none=True)
    if _is_uncounted(document.get("usage")):
        del document["usage"]
    choices = document.get("choices") or []
    if "usage" in document and not any(_says_something(choice) for choice in choices):
        # As OpenAI has it, so that the event can be taken out for who did not ask for it.
        document["choices"] = []
    return b"data: %b\n\n" % json.dumps(document, separators=(",", ":")).encode()


def _is_uncounted(usage: Any) -> bool:
    """Whether the SDK has put zeros in the place of a usage that a provider has not told."""
    names = ("prompt_tokens", "completion_tokens")
    return isinstance(usage, dict) and not any(usage.get(name) for name in names)


def _says_something(choice: dict[str, Any]) -> bool:
    return bool(choice.get("delta") or choice.get("text") or choice.get("finish_reason"))


def _without_headers(lines: bytes, names: frozenset[bytes]) -> bytes:
    """Lines of a client without those headers that experts.yaml sets."""
    kept = [line for line in lines.split(_END) if line.partition(b":")[0] not in names]
    return _END.join(kept)


class AnthropicResponse(UpstreamResponse):
    """The response of Anthropic's Messages API, as a chat completion.

    Args:
        keeps_original: Whether its client is one of Anthropic's, and gets the bytes as they came.
    """

    __slots__ = ("_keeps_original", "_original", "_stream")

    def __init__(
        self,
        client: UpstreamClient,
        connection: Connection,
        *,
        is_stream: bool,
        keeps_original: bool = False,
    ) -> None:
        self._stream = ChatStream()
        self._original = bytearray()
        self._keeps_original = keeps_original
        super().__init__(client, connection, is_stream=is_stream)

    async def translate_to_message(self) -> None:
        """Nothing: it came as one."""

    def take_original(self) -> bytes:
        """The bytes that have come since the last call, without our key if it is an error."""
        found = bytes(self._original)
        self._original.clear()
        return found

    @property
    def usage(self) -> TokenUsage:
        """Tokens; of a stream that was cut off those of the request are known from its begin."""
        found = super().usage
        if found.tokens_in is not None or (known := self._stream.usage) is None:
            return found
        details = known["prompt_tokens_details"]
        cached, written = details["cached_tokens"], details["cache_write_tokens"]
        return TokenUsage(known["prompt_tokens"], found.tokens_out, cached, written)

    @property
    def is_usage_partial(self) -> bool:
        """Whether those of the request are reported and those of the response counted."""
        return self.has_events and super().usage.tokens_in is None

    def forwarded_headers(self) -> list[Header]:
        """The headers that the client gets, without our key."""
        # What is encoded has not been translated.
        return [each for each in super().forwarded_headers() if each[0] != b"content-encoding"]

    def _decode(self, data: bytes) -> bytes:
        if self._keeps_original:
            self._original += data
        if not self.has_events:
            return data
        try:
            return self._stream.feed(data)
        except TranslationError:
            raise UpstreamProtocolError from None

    async def translate(self) -> None:
        """Translate a response that has come whole; an UpstreamProtocolError if it is none."""
        if self.has_events or not (self.status == 200 or self.status >= 400):
            return
        if not self._connection.is_complete:
            # An answer that is no stream of events, though one was asked for.
            raise UpstreamProtocolError
        if self.status >= 400:
            self.body = await parse_body(self.body, _as_chat_error, self.body)
            return
        try:
            self.body = await parse_body(self.body, _as_completion, self.body)
        except (ValueError, RecursionError):
            # A TranslationError is a ValueError, too.
            raise UpstreamProtocolError from None


def _as_message(body: bytes) -> bytes:
    return json.dumps(completion_to_message(json.loads(body))).encode()


def _as_completion(body: bytes) -> bytes:
    return json.dumps(message_to_completion(json.loads(body))).encode()


def _as_chat_error(body: bytes) -> bytes:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        # Of a proxy in between.
        document = None
    return json.dumps(chat_error(document)).encode()


class AnthropicClient(UpstreamClient):
    """Calls one expert of kind ``anthropic``: the Messages API, of which others see only chats."""

    def __init__(self, spec: ExpertSpec, **settings: Any) -> None:
        super().__init__(spec, **settings)
        url = httpx.URL(messages_url(spec.settings["base_url"]))
        self._path = url.raw_path
        # A client's own version holds if its request is passed on as it came.
        is_set = b"anthropic-version" in self._headers.names
        self._version = b"" if is_set else b"anthropic-version: %b\r\n" % VERSION.encode()
        self._sampling = bool(spec.settings.get("sampling", True))
        request = spec.settings.get("request", {})
        self._max_tokens = request.get("max_tokens") or DEFAULT_MAX_TOKENS

    def _build_headers(self, spec: ExpertSpec) -> RequestHeaders:
        headers = anthropic_headers(spec.settings)
        if headers["anthropic-version"] == VERSION:
            del headers["anthropic-version"]
        return RequestHeaders(headers)

    def target(self, operation: str) -> CallTarget:
        """What calls of an operation are for."""
        return super().target(operation)._replace(provider="anthropic")

    async def _message(self, request: UpstreamRequest) -> Sequence[bytes | memoryview]:
        parsed = request.parsed
        lines = request.headers
        if parsed.original is not None:
            version = b"" if b"anthropic-version:" in lines else self._version
            return self._pieces(self._path, lines + version, parsed.original_for(self.model))
        if parsed.path != "chat/completions":
            raise UnsupportedRequest(f"{self.name} serves chats only, got {parsed.path}.")
        try:
            body = await parse_body(parsed.body, self._translate, parsed.body)
        except TranslationError as error:
            raise UnsupportedRequest(str(error)) from None
        except RecursionError:
            raise UnsupportedRequest("a request must not be nested too deeply.") from None
        lines = _without_headers(lines, _OF_CHATS) + _JSON + self._version
        return self._pieces(self._path, lines, [body])

    def _translate(self, body: bytes | bytearray) -> bytes:
        text = body.decode()
        chat = decoder_for(text).decode(text) | {"model": self.model}
        messages = chat_to_messages(chat, max_tokens=self._max_tokens, sampling=self._sampling)
        return json.dumps(messages).encode()

    async def _respond(self, connection: Connection, request: UpstreamRequest) -> UpstreamResponse:
        response = AnthropicResponse(
            self,
            connection,
            is_stream=request.parsed.is_stream,
            keeps_original=request.parsed.original is not None,
        )
        await response.translate()
        return response


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
