"""HTTP calls to an endpoint: the transport, and what a response or a failure means for the call."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from mildroute import __version__
from mildroute._optional import needs_extra
from mildroute.experts.base import Completion, HTTPResult, TransportFailure, parse_completion
from mildroute.experts.retry import retry_after
from mildroute.experts.secrets import LONGEST, LogGuard, RequestHeaders
from mildroute.experts.settings import CallSettings, Timeouts

# The proxy that the environment names for an address.


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for an address.

    It is what ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say, in capital or
    small letters.

    Returns:
        Address of the proxy, or none.
    """
    parts, proxies = urlsplit(url), getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return None
    return found if "://" in found else f"http://{found}"


# What one attempt came to: an answer, an error for good, or a reason to try again.


Again = Literal["never", "after failure", "after refusal"]
Scrub = Callable[[str], str]

_REPEATED = {408, 409, 429}
_REFUSED_FOR_LOAD = {503, 529}
_LOST_BEHIND_A_GATEWAY = {408, 502, 504, 520, 521, 522, 523, 524}
_SHOWN = 200
_LONGEST_SPELLING = 3 * LONGEST
_ADVICE = {
    401: "check the key that api_key_env names",
    403: "check the key that api_key_env names",
    404: "check base_url and model",
    413: "shorten the prompt",
}


@dataclass(frozen=True)
class AttemptOutcome:
    """What is done after an attempt.

    Args:
        completion: The answer, or an answer without text that was paid all the same.
        doubtful: Whether it may have been charged although there is no completion.
    """

    completion: Completion | None = None
    error: str = ""
    again: Again = "never"
    doubtful: bool = False
    wait: float | None = None


def classify_attempt(
    result: HTTPResult | TransportFailure,
    scrub: Scrub,
    *,
    now: float,
    parse: Callable[[Any], Completion] = parse_completion,
) -> AttemptOutcome:
    """Judge one attempt.

    Args:
        result: What came over the wire.
        scrub: Removes secrets from a text of the server.
        now: Seconds since 1970, for dates in Retry-After.
        parse: Reads the answer in a parsed body.

    Returns:
        Tried again are lost connections, timeouts, bodies that are no JSON, 408, 409, 429 and 5xx;
        nothing else is.
    """
    if isinstance(result, TransportFailure):
        return AttemptOutcome(
            error=result.reason,
            again="never" if result.final else "after failure",
            doubtful=result.sent,
        )
    if 200 <= result.status < 300:
        return _of_body(result, scrub, parse)
    error = _complaint(result, scrub)
    is_repeated = result.status in _REPEATED or result.status >= 500
    if not is_repeated or (result.status == 429 and b"insufficient_quota" in result.body):
        return AttemptOutcome(error=error)
    wait = retry_after(result.retry_after, now)
    refused = result.status == 429 or (result.status in _REFUSED_FOR_LOAD and wait is not None)
    doubtful = result.status in _LOST_BEHIND_A_GATEWAY
    return AttemptOutcome(
        error=error,
        again="after refusal" if refused else "after failure",
        doubtful=doubtful,
        wait=wait,
    )


def _of_body(
    received: HTTPResult, scrub: Scrub, parse: Callable[[Any], Completion]
) -> AttemptOutcome:
    if received.cut:
        return AttemptOutcome(
            error=f"the answer is longer than the {len(received.body):,} bytes that are read",
            doubtful=True,
        )
    try:
        document = json.loads(received.body)
    except (ValueError, RecursionError):
        return AttemptOutcome(
            error=f"the body is no JSON: {_excerpt(received, scrub)}",
            again="after failure",
            doubtful=True,
        )
    completion = parse(document)
    if completion.text is None and completion.tokens_in is None and completion.tokens_out is None:
        return AttemptOutcome(
            error=f"{completion.problem}: {_excerpt(received, scrub)}", doubtful=True
        )
    return AttemptOutcome(completion)


def _complaint(received: HTTPResult, scrub: Scrub) -> str:
    said = f"HTTP {received.status}: {_excerpt(received, scrub)}"
    if 300 <= received.status < 400:
        where = _shown(scrub(received.location or "nowhere"))
        return (
            f"{said}; redirects are not followed, since a key must not go elsewhere; set base_url"
            f" for {where} if you trust it"
        )
    return f"{said}; {_ADVICE[received.status]}" if received.status in _ADVICE else said


def _excerpt(received: HTTPResult, scrub: Scrub) -> str:
    """The server's own message where there is one.

    Scrubbed before it is shortened, so that no part of a key is left.
    """
    text = _message_in(received.body) or received.body.decode("utf-8", "replace")
    # The end of a body that was cut may be the beginning of a key.
    return _shown(scrub(text)[: -_LONGEST_SPELLING if received.cut else None]) or "(empty)"


def _message_in(body: bytes) -> str | None:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for name in ("error", "message", "detail"):
        if isinstance(document, dict) and name in document:
            document = document[name]
    return document if isinstance(document, str) else None


def _shown(text: str) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."


# One attempt over HTTP: bytes out, a bounded number of bytes back, and no exception but
# cancellation.


with needs_extra("httpx with HTTP/2", extra="collect", user="mildroute.experts.OpenAIExpert"):
    import anyio
    import httpx
    from h2.exceptions import H2Error


_LARGEST_COMPLAINT = 2**16
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
# A transport that is closed under a call fails with whatever its innermost layer says.
_LOST = (
    httpx.HTTPError,
    httpx.InvalidURL,
    H2Error,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    OSError,
    RuntimeError,
)


@dataclass(eq=False)
class _Line:
    """A transport, how many calls use it, and whether it must not be used again.

    Not an ``httpx.AsyncClient``, which does for each call what none of ours needs (cookies,
    redirects, merged headers): a call took 1.19 ms of processor time by transports, 1.43 ms by a
    client for each slot and 1.71 ms by one client for eight slots (loopback, httpx 0.28).
    """

    transport: httpx.AsyncHTTPTransport
    busy: int = 0
    spoiled: bool = False


class Transport(Protocol):
    """What an expert sends its requests through."""

    loop: asyncio.AbstractEventLoop
    slots: asyncio.Semaphore
    closed: bool

    async def post(self, body: bytes) -> HTTPResult | TransportFailure: ...

    async def close(self) -> None: ...

    def forget(self) -> None: ...


class HTTPTransport:
    """Connections to one address, for one event loop.

    Args:
        headers: The key, and headers that a file adds.
    """

    def __init__(self, url: str, calls: CallSettings, headers: RequestHeaders) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(calls.concurrency)
        self.closed = False
        self._url, self._calls, self._scrub = httpx.URL(url), calls, headers.scrub
        self._headers, self._ssl = (
            _headers(headers),
            _trust(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )
        self._proxy, self._extensions = proxy_for(url), {"timeout": _timeouts(calls.timeouts)}
        self._guard = LogGuard(headers) if headers.has_secrets else None
        if self._guard is not None:
            self._guard.on()
        self._lines: set[_Line] = set()
        self._free: list[_Line] = []
        self._shared: _Line | None = None
        self._endings: set[asyncio.Future[None]] = set()

    async def post(self, body: bytes) -> HTTPResult | TransportFailure:
        """Send a request and read its answer; redirects are not followed."""
        if self.closed:
            return TransportFailure("the endpoint was closed", sent=False, final=True)
        line = self._take()
        try:
            with anyio.fail_after(self._calls.timeouts.total):
                return await self._exchange(line, body)
        except _LOST as error:
            line.spoiled |= isinstance(error, TimeoutError)
            return self._lost(error)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            # Frames of HTTP libraries hold the key in their locals; a cancellation needs none of
            # them.
            line.spoiled = True
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None
        finally:
            self._give_back(line)

    async def close(self) -> None:
        """End all connections; calls in flight are lost.

        Cancelled or repeated, it still ends them once.
        """
        self.closed = True
        for line in tuple(self._lines):
            self._end(line)
        try:
            await asyncio.shield(asyncio.gather(*self._endings))
        finally:
            self.forget()  # not before: calls in flight may still be logged

    def forget(self) -> None:
        """Make no further call; all that can be done once the event loop is gone."""
        self.closed = True
        if self._guard is not None:
            self._guard.off()

    def _take(self) -> _Line:
        """A free line.

        With HTTP/2 all calls share one; before, each has its own, since a pool's work grows with
        its connections.
        """
        line = self._shared or (
            self._free.pop() if self._free else _Line(_transport(self._ssl, self._proxy))
        )
        self._lines.add(line)
        line.busy += 1
        return line

    def _give_back(self, line: _Line) -> None:
        line.busy -= 1
        if line.spoiled and line is self._shared:
            # What still arrives for an abandoned call uses up the window of an HTTP/2 connection
            # for good.
            self._shared = None
        if line.busy or line is self._shared or line not in self._lines:
            return
        if line.spoiled or self._shared is not None:
            self._end(line)
        else:
            self._free.append(line)

    def _end(self, line: _Line) -> None:
        self._lines.discard(line)
        ending = asyncio.ensure_future(line.transport.aclose())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _exchange(self, line: _Line, body: bytes) -> HTTPResult | TransportFailure:
        request = httpx.Request(
            "POST", self._url, headers=self._headers, content=body, extensions=self._extensions
        )
        response = await line.transport.handle_async_request(request)
        try:
            if (
                self._shared is None
                and not line.spoiled
                and response.extensions.get("http_version") == b"HTTP/2"
            ):
                self._shared = line
            received = await self._read(response)
        finally:
            await response.aclose()
        line.spoiled |= (
            isinstance(received, TransportFailure) or received.cut or _left_over(response)
        )
        return received

    async def _read(self, response: httpx.Response) -> HTTPResult | TransportFailure:
        good, headers = response.is_success, response.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            return TransportFailure(
                "the answer is compressed, which was not requested", sent=True, final=True
            )
        most = self._calls.largest if good else _LARGEST_COMPLAINT
        chunks, size = [], 0
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                break
        body = b"".join(chunks)[:most]
        if good:
            return HTTPResult(response.status_code, body, size > most)
        return HTTPResult(
            response.status_code,
            body,
            size > most,
            headers.get("retry-after"),
            headers.get("location"),
        )

    def _lost(self, error: Exception) -> TransportFailure:
        if self.closed:
            return TransportFailure("the endpoint was closed", sent=True, final=True)
        sent = not isinstance(error, _NEVER_SENT)
        if isinstance(error, (TimeoutError, httpx.TimeoutException)):
            return TransportFailure(_timeout(error, self._calls.timeouts), sent=sent)
        said = self._scrub(" ".join(str(error).split()) or type(error).__name__)
        return TransportFailure(
            f"{'connection lost' if sent else 'no connection'}: {said[:_SHOWN]}", sent=sent
        )


def _timeout(error: Exception, timeouts: Timeouts) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"timeout: no connection within {timeouts.connect:g} s"
    if isinstance(error, httpx.ReadTimeout):
        return f"timeout: no byte for {timeouts.read or timeouts.total:g} s"
    return f"timeout: no whole answer within {timeouts.total:g} s"


def _left_over(response: httpx.Response) -> bool:
    """Whether a server sent more than its answer.

    The HTTP libraries would take the rest for the answer to the next query on the same connection.
    They offer no other way to see it; a test says so if this one ends.
    """
    held: Any = response.stream
    for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state"):
        held = getattr(held, name, None)
    return held is not None and bool(held.trailing_data[0])


@functools.lru_cache(maxsize=8)
def _trust(file: str | None, folder: str | None) -> ssl.SSLContext:  # noqa: ARG001 - httpx reads both names itself
    """Trusted certificates; loading them takes a tenth of a second, so all endpoints share them."""
    return httpx.create_ssl_context()


def _transport(trust: ssl.SSLContext, proxy: str | None) -> httpx.AsyncHTTPTransport:
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=30.0
    )
    return httpx.AsyncHTTPTransport(verify=trust, http2=True, limits=limits, proxy=proxy)


def _timeouts(given: Timeouts) -> dict[str, float | None]:
    return httpx.Timeout(given.read or given.total, connect=given.connect).as_dict()


def _headers(added: RequestHeaders) -> httpx.Headers:
    """Compressed answers are rejected, not only not requested.

    A few of their bytes can become gigabytes.
    """
    headers: dict[bytes, bytes] = {
        b"content-type": b"application/json",
        b"accept": b"application/json",
        b"accept-encoding": b"identity",
        b"user-agent": f"mildroute/{__version__}".encode(),
    }
    return httpx.Headers([*(headers | dict(added.pairs())).items()])
