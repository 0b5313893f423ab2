"""One attempt over HTTP: bytes out, a bounded number of bytes back, and no exception but cancellation."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
from dataclasses import dataclass
from typing import Any

from mildroute import __version__
from mildroute.errors import MissingExtraError
from mildroute.experts.call_settings import CallSettings, Timeouts
from mildroute.experts.log_guard import LogGuard
from mildroute.experts.outcome import Lost, Received
from mildroute.experts.proxy import proxy_for
from mildroute.experts.secret import Secret

try:
    import anyio
    import httpx
    from h2.exceptions import H2Error
except ImportError:
    raise MissingExtraError.for_package("httpx with HTTP/2", extra="collect", user="mildroute.experts.Endpoint") from None

__all__ = ["Wire"]

_LARGEST_COMPLAINT = 2**16
_SHOWN = 200
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
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

    A client would do for each call what none of ours needs, cookies and redirects, at a tenth of all the work.
    """

    transport: httpx.AsyncHTTPTransport
    busy: int = 0
    spoiled: bool = False


class Wire:
    """Connections to one address, for one event loop.

    Args:
        url: Where requests are posted.
        calls: Concurrency, timeouts and the largest answer.
        secret: The key, or none.

    Example:
        >>> async def ask_nobody():
        ...     wire = Wire("http://127.0.0.1:1/v1/chat/completions", CallSettings())
        ...     lost = await wire.post(b"{}")
        ...     await wire.close()
        ...     return lost
        >>> asyncio.run(ask_nobody()).sent
        False
    """

    def __init__(self, url: str, calls: CallSettings, secret: Secret | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(calls.concurrency)
        self.closed = False
        self._url, self._calls, self._secret = httpx.URL(url), calls, secret
        self._headers, self._ssl = _headers(secret), _trust(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        self._proxy, self._extensions = proxy_for(url), {"timeout": _timeouts(calls.timeouts)}
        self._guard = None if secret is None else LogGuard(secret)
        if self._guard is not None:
            self._guard.on()
        self._lines: set[_Line] = set()
        self._free: list[_Line] = []
        self._shared: _Line | None = None
        self._endings: set[asyncio.Future[None]] = set()

    async def post(self, body: bytes) -> Received | Lost:
        """Send a request and read its answer; redirects are not followed."""
        if self.closed:
            return Lost("the endpoint was closed", sent=False, final=True)
        line = self._take()
        try:
            with anyio.fail_after(self._calls.timeouts.total):
                return await self._exchange(line, body)
        except _LOST as error:
            line.spoiled |= isinstance(error, TimeoutError)
            return self._lost(error)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            # Frames of HTTP libraries hold the key in their locals; a cancellation needs none of them.
            line.spoiled = True
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None
        finally:
            self._give_back(line)

    async def close(self) -> None:
        """End all connections; calls under way are lost. Cancelled or repeated, it still ends them once."""
        self.closed = True
        for line in tuple(self._lines):
            self._end(line)
        try:
            await asyncio.shield(asyncio.gather(*self._endings))
        finally:
            self.forget()  # not before: calls under way may still be logged

    def forget(self) -> None:
        """Make no further call; all that can be done once the event loop is gone."""
        self.closed = True
        if self._guard is not None:
            self._guard.off()

    def _take(self) -> _Line:
        """A free line. With HTTP/2 all calls share one; before, each has its own, since a pool's work grows with its connections."""
        line = self._shared or (self._free.pop() if self._free else _Line(_transport(self._ssl, self._proxy)))
        self._lines.add(line)
        line.busy += 1
        return line

    def _give_back(self, line: _Line) -> None:
        line.busy -= 1
        if line.spoiled and line is self._shared:
            # What still arrives for an abandoned call uses up the window of an HTTP/2 connection for good.
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

    async def _exchange(self, line: _Line, body: bytes) -> Received | Lost:
        request = httpx.Request("POST", self._url, headers=self._headers, content=body, extensions=self._extensions)
        response = await line.transport.handle_async_request(request)
        try:
            if self._shared is None and not line.spoiled and response.extensions.get("http_version") == b"HTTP/2":
                self._shared = line
            received = await self._read(response)
        finally:
            await response.aclose()
        line.spoiled |= isinstance(received, Lost) or received.cut or _left_over(response)
        return received

    async def _read(self, response: httpx.Response) -> Received | Lost:
        good, headers = response.is_success, response.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            return Lost("the answer is compressed, which was not asked for", sent=True, final=True)
        most = self._calls.largest if good else _LARGEST_COMPLAINT
        chunks, size = [], 0
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                break
        body = b"".join(chunks)[:most]
        if good:
            return Received(response.status_code, body, size > most)
        return Received(response.status_code, body, size > most, headers.get("retry-after"), headers.get("location"))

    def _lost(self, error: Exception) -> Lost:
        if self.closed:
            return Lost("the endpoint was closed", sent=True, final=True)
        sent = not isinstance(error, _NEVER_SENT)
        if isinstance(error, (TimeoutError, httpx.TimeoutException)):
            return Lost(_timeout(error, self._calls.timeouts), sent=sent)
        said = " ".join(str(error).split()) or type(error).__name__
        said = said if self._secret is None else self._secret.scrub(said)
        return Lost(f"{'connection lost' if sent else 'no connection'}: {said[:_SHOWN]}", sent=sent)


def _timeout(error: Exception, timeouts: Timeouts) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"timeout: no connection within {timeouts.connect:g} s"
    if isinstance(error, httpx.ReadTimeout):
        return f"timeout: no byte for {timeouts.read or timeouts.total:g} s"
    return f"timeout: no whole answer within {timeouts.total:g} s"


def _left_over(response: httpx.Response) -> bool:
    """Whether a server sent more than its answer.

    The HTTP libraries would take the rest for the answer to the next query on the same connection. They offer no other way to see it;
    a test says so if this one ends.
    """
    held: Any = response.stream
    for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state"):
        held = getattr(held, name, None)
    return held is not None and bool(held.trailing_data[0])


@functools.lru_cache(maxsize=8)
def _trust(file: str | None, folder: str | None) -> ssl.SSLContext:  # noqa: ARG001 - httpx reads both names itself
    """Whom to believe; making it takes a tenth of a second, so all endpoints share it."""
    return httpx.create_ssl_context()


def _transport(trust: ssl.SSLContext, proxy: str | None) -> httpx.AsyncHTTPTransport:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30.0)
    return httpx.AsyncHTTPTransport(verify=trust, http2=True, limits=limits, proxy=proxy)


def _timeouts(given: Timeouts) -> dict[str, float | None]:
    return httpx.Timeout(given.read or given.total, connect=given.connect).as_dict()


def _headers(secret: Secret | None) -> httpx.Headers:
    """Compressed answers are refused, not only not asked for: a few of their bytes can become gigabytes."""
    headers: dict[str, str | bytes] = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"mildroute/{__version__}",
    }
    if secret is not None:
        headers["Authorization"] = secret.bearer()
    return httpx.Headers(headers)  # type: ignore[arg-type]
