"""Requests of clients over ASGI: bounded bodies, disconnects, forwarded headers, endpoints."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from mildroute.exceptions import MissingExtraError
from mildroute.gateway.config import RequestLimits
from mildroute.gateway.http.body import read_object
from mildroute.gateway.http.errors import APIError

try:
    import starlette.requests
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, Response
    from starlette.types import Receive, Scope, Send
except ImportError:
    raise MissingExtraError.for_package(
        "starlette", extra="serve", user="mildroute.gateway"
    ) from None

__all__ = [
    "FORWARDED_TO_EXPERT",
    "BodyReader",
    "ClientDisconnect",
    "Endpoint",
    "Handler",
    "Header",
    "InFlightLimiter",
    "Receive",
    "Request",
    "Scope",
    "Send",
    "check_local",
    "check_site",
    "forward_request_headers",
    "forward_response_headers",
    "is_local",
    "shutting_down",
]


_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

# Name, in lower case, and value.
Header = tuple[bytes, bytes]
# Headers of a client that an expert gets.
FORWARDED_TO_EXPERT = frozenset(
    (
        b"content-type",
        b"accept",
        b"openai-beta",
        b"anthropic-beta",
        b"anthropic-version",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
    )
)
_FORWARDED_TO_CLIENT = frozenset(
    (
        b"content-type",
        b"content-encoding",
        b"cache-control",
        b"retry-after",
        b"x-request-id",
        b"request-id",
        b"openai-processing-ms",
    )
)
_MAX_HEADER_VALUE = 8192
_RATE_LIMIT_PREFIXES = (b"x-ratelimit-", b"ratelimit-", b"anthropic-ratelimit-")
_is_unsafe = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
# Seconds that a request takes before its client is watched for a disconnect; most responses are
# sent by then, and need no task.
_UNWATCHED = 0.01
# Bytes of a body from which on it is decoded in a thread.
_LARGE_BODY = 256 << 10
_HOST = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")


def forward_request_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a client that an expert gets.

    Never its key, its cookies, its address or a value longer than 8 KiB.
    """
    return [
        header
        for header in headers
        if header[0] in FORWARDED_TO_EXPERT
        and len(header[1]) <= _MAX_HEADER_VALUE
        and not _is_unsafe(header[1])
    ]


def forward_response_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of an expert that a client gets: content, rate limits and ids."""
    return [
        header
        for header in headers
        if (header[0] in _FORWARDED_TO_CLIENT or header[0].startswith(_RATE_LIMIT_PREFIXES))
        and not _is_unsafe(header[1])
    ]


class Request(starlette.requests.Request):
    """One request over ASGI, with a bounded body and a watch for disconnects.

    Starlette's StreamingResponse cannot carry the response of an expert: it cancels a response
    whose client has left, and that client has to pay for what is still generated.

    Attributes:
        has_left: Whether the client disconnected while it was watched, or does not read.
        is_decided: Whether the request was decided, and is counted as such.
        has_response: Whether the response has begun.
        limiter: Counts the request as in flight, or ``None``.
        holder: What the client has in flight, or ``None``.
        held_bytes: Bytes of the body that the limiter counts.
        is_shared: Whether other clients may want the place of this one.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.has_left = False
        self.has_response = False
        self.is_decided = False
        self.limiter: InFlightLimiter | None = None
        self.holder: InFlightUsage | None = None
        self.held_bytes = 0
        self.is_shared = False
        self._is_ending = False
        self._linger = 0.0
        self._on_disconnect: Callable[[], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def error_path(self) -> str:
        """The path whose clients know another shape of errors, or empty."""
        path = self.scope["path"]
        return next((name for name in ("messages", "systemone") if f"/v1/{name}" in path), "")

    async def read_body(self, limits: RequestLimits) -> bytes | bytearray:
        """Return the complete body; raises an APIError if it is too large or too slow."""
        max_bytes = int(limits.max_body_mb * (1 << 20))
        length = self.headers.get("content-length", "")
        if length.isdigit():
            size = int(length[:20])
            if size > max_bytes:
                raise _too_large(max_bytes)
            self._hold(size)
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_timeout):
                async for chunk in self.stream():
                    body += chunk
                    if len(body) > max_bytes:
                        raise _too_large(max_bytes)
                    self._hold(len(body))
        except TimeoutError:
            raise APIError(
                408,
                f"a request must be sent within {limits.body_timeout:g} seconds; send it again.",
            ) from None
        return body

    def _hold(self, size: int) -> None:
        """Count bytes of the body that come now, or will."""
        if self.limiter is not None and size > self.held_bytes:
            self.limiter.hold_bytes(self, size - self.held_bytes)

    async def read_object(self, limits: RequestLimits) -> dict[str, Any]:
        """Return the JSON object of a short body; raises an APIError if it is none."""
        return read_object(await self.read_body(limits))

    def watch_disconnect(self) -> None:
        """Cancel the task of the request if its client disconnects before :meth:`unwatch`."""
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED, self._start_watcher)

    def linger(self, seconds: float, on_disconnect: Callable[[], None]) -> None:
        """Delay the cancellation of the task after a disconnect by this many seconds."""
        self._linger = seconds
        self._on_disconnect = on_disconnect

    def disconnect(self) -> None:
        """Record that the client has disconnected, and cancel the task."""
        self.has_left = True
        if self._on_disconnect is not None:
            self._on_disconnect()
        if self._task is None:
            return
        if self._linger:
            self._timer = asyncio.get_running_loop().call_later(self._linger, self._task.cancel)
        else:
            self._task.cancel()

    def unwatch(self) -> None:
        """Do not cancel it any more."""
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _start_watcher(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Servers send the same when a response has been sent to its end.
        if not self._is_ending and not self.has_left:
            self.disconnect()

    async def send(self, response: Response) -> None:
        """Send a complete response."""
        self.has_response = True
        self._is_ending = True
        await response(self.scope, self._receive, self._send)

    async def send_response(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a complete response with raw headers, which may come twice."""
        response = Response(body, status)
        response.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.send(response)

    async def send_json(self, document: Any, status: int = 200) -> None:
        """Send a response of JSON."""
        await self.send(JSONResponse(document, status))

    async def send_error(self, error: APIError, headers: Sequence[Header] = ()) -> None:
        """Send an error."""
        body = error.body(self.error_path)
        await self.send_response(error.status, [*error.headers(), *headers], body)

    async def start_stream(self, status: int, headers: Sequence[Header]) -> None:
        """Begin a response that is streamed."""
        self.has_response = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def send_chunk(self, data: bytes, timeout: float, *, is_last: bool = False) -> None:
        """Send a chunk; a client that does not read before the timeout counts as disconnected."""
        self._is_ending = self._is_ending or is_last
        try:
            async with asyncio.timeout(timeout):
                await self._send(
                    {"type": "http.response.body", "body": data, "more_body": not is_last}
                )
        except TimeoutError:
            raise ClientDisconnect from None


class BodyReader:
    """Decodes bodies; large ones in threads, one at a time for each client.

    A client with many large bodies waits for itself, and not others for it.
    """

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, client: str, body: bytes | bytearray, parse: Callable[[], _T]) -> _T:
        """Call a function that decodes a body of a client."""
        if len(body) <= _LARGE_BODY:
            return parse()
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Lock()
        async with turn:
            return await asyncio.to_thread(parse)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_loopback_host(request: Request) -> bool:
    """Return whether the Host is a loopback name, which no other website can have."""
    match = _HOST.fullmatch(request.headers.get("host", ""))
    return match is not None and _is_loopback((match[1] or match[2]).lower())


def _is_from_loopback(request: Request) -> bool:
    client = request.scope.get("client")
    return client is not None and _is_loopback(client[0])


def is_local(request: Request) -> bool:
    """Return whether a request comes from this machine and addresses this machine."""
    return _is_from_loopback(request) and _has_loopback_host(request)


def check_local(request: Request) -> None:
    """Refuse a request from this machine that is meant for another host, or comes from a website.

    For a gateway without keys that only this machine can reach. A website whose name was made to
    point at the gateway's address (DNS rebinding) calls it under that name, and a script may set
    any header but ``Host`` and ``Origin``, so these two decide whatever the others say.
    """
    if not _is_from_loopback(request):
        return
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_own = origin is None or origin.partition("://")[2].lower() == host.lower()
    if not (_has_loopback_host(request) and is_own):
        raise _cross_site()


def check_site(request: Request) -> None:
    """Refuse a request that a browser sends for another website, which has no key."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise _cross_site()


def _cross_site() -> APIError:
    return APIError(
        403,
        "a gateway without client keys takes requests for localhost alone, and none of other"
        " websites; give it keys.",
        code="cross_site",
    )


def shutting_down() -> APIError:
    """Return the error for a request that outlasts the drain."""
    return APIError(503, "the gateway is shutting down; send the request again.", retry_after=1.0)


def _too_large(max_bytes: int) -> APIError:
    return APIError(413, f"a request must have at most {max_bytes:,} bytes; send a smaller one.")


# Handles one request.
Handler = Callable[[Request], Awaitable[None]]


class InFlightUsage:
    """The requests and bytes that one client has in flight."""

    __slots__ = ("body_bytes", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.body_bytes = 0


class InFlightLimiter:
    """Counts requests in flight and the bytes of their bodies, in total and of each client.

    If clients share the gateway, none of them holds more places, or bytes, than are free: one
    alone gets half of them, two a third each, and so on, and a newcomer finds as much as each of
    the others has. (Dynamic thresholds of Choudhury and Hahne, with factor 1: one
    comparison a request, and no count of active clients.) Without shares one key took 256 of 256
    places, and all others got a 503.

    Args:
        max_in_flight: Requests at the same time.
        max_bytes: Of their bodies.

    Attributes:
        is_draining: Whether the gateway is about to stop; it still serves, but should get no new
            requests.
    """

    def __init__(self, max_in_flight: int, max_bytes: int) -> None:
        self._max_in_flight = max_in_flight
        self._max_bytes = max_bytes
        self._holders: dict[str, InFlightUsage] = {}
        self.in_flight = 0
        self.body_bytes = 0
        self.is_draining = False

    def acquire(self, request: Request) -> None:
        """Count one more; an APIError if there are too many."""
        if self.in_flight >= self._max_in_flight:
            raise APIError(
                503,
                "too many requests are in flight; retry later.",
                code="overloaded",
                retry_after=1.0,
            )
        self.in_flight += 1
        request.limiter = self

    def assign(self, request: Request, client: str, *, is_shared: bool) -> None:
        """Count a request that was acquired as its client's; an APIError if that has too many.

        Args:
            request: Of the client.
            client: Its name.
            is_shared: Whether there are other clients.
        """
        holder = self._holders.get(client)
        if holder is None:
            holder = self._holders[client] = InFlightUsage()
        if is_shared and holder.in_flight > self._max_in_flight - self.in_flight:
            raise _too_many("it holds its share of places")
        request.is_shared = is_shared
        request.holder = holder
        holder.in_flight += 1

    def hold_bytes(self, request: Request, size: int) -> None:
        """Count bytes of a body, before they are read; an APIError if there are too many."""
        free = self._max_bytes - self.body_bytes - size
        if free < 0:
            raise APIError(
                503,
                "the requests in flight hold too many bytes; retry later, or send less.",
                code="overloaded",
                retry_after=1.0,
            )
        holder = request.holder
        if request.is_shared and holder is not None and holder.body_bytes > free:
            raise _too_many("it holds its share of bytes")
        self.body_bytes += size
        request.held_bytes += size
        if holder is not None:
            holder.body_bytes += size

    def release(self, request: Request) -> None:
        """Release what a request has acquired, once the request has ended."""
        self.in_flight -= 1
        self.body_bytes -= request.held_bytes
        if request.holder is not None:
            request.holder.in_flight -= 1
            request.holder.body_bytes -= request.held_bytes


def _too_many(rule: str) -> APIError:
    return APIError(
        429,
        f"this key has too many requests in flight ({rule}); wait for them, and retry.",
        retry_after=1.0,
    )


class Endpoint:
    """An ASGI application for one path.

    It counts requests in flight and rejections, and answers errors in the shape that the client
    of each path knows.

    Args:
        handlers: By method.
        limiter: Counts requests; ``None`` for paths that must respond even under overload.
        on_rejection: Gets status and code of each request that is rejected before a decision.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        limiter: InFlightLimiter | None,
        on_rejection: Callable[[int, str | None], None],
    ) -> None:
        self._handlers = dict(handlers)
        self._limiter = limiter
        self._on_rejection = on_rejection
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self.methods = tuple(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, whatever happens."""
        request = Request(scope, receive, send)
        try:
            await self._handle(request)
        except APIError as error:
            await self._reject(request, error)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            # uvicorn cancels what is left when the drain has ended, would print a traceback for
            # each and send a status 500.
            await self._reject(request, shutting_down())
        except Exception as error:  # noqa: BLE001 - the last line of defense: a client must not see what went wrong inside
            # Neither the text of the error nor its frames: they may quote the request.
            _LOG.error(
                "%s %s failed: %s in %s",
                scope["method"],
                scope["path"],
                type(error).__name__,
                _place(error),
            )
            await self._reject(
                request,
                APIError(500, "the gateway failed; its operator can find the reason in its log."),
            )

    async def _handle(self, request: Request) -> None:
        handler = self._handlers.get(request.scope["method"])
        if handler is None:
            methods = ", ".join(self.methods)
            error = APIError(405, f"this path takes {methods}, got another method.")
            await self._reject(request, error, [(b"allow", methods.encode())])
            return
        if self._limiter is None:
            await handler(request)
            return
        self._limiter.acquire(request)
        try:
            await handler(request)
        finally:
            self._limiter.release(request)

    async def _reject(
        self, request: Request, error: APIError, headers: Sequence[Header] = ()
    ) -> None:
        """Send an error, unless the response has begun; the server then cuts the response off."""
        if not request.is_decided:
            self._on_rejection(error.status, error.code)
        if not request.has_response:
            await request.send_error(error, headers)


def _place(error: Exception) -> str:
    """Return file and line at which an error was raised."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return (
        "nowhere" if frames is None else f"{frames.tb_frame.f_code.co_filename}:{frames.tb_lineno}"
    )
