"""Calls to one address over HTTP, with httpx."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
from typing import Protocol

from mildroute import __version__
from mildroute._optional import needs_extra
from mildroute.experts._attempt import MAX_SHOWN
from mildroute.experts.base import HTTPResult, TransportFailure
from mildroute.experts.secrets import LogGuard, RequestHeaders
from mildroute.experts.settings import CallSettings, Timeouts

with needs_extra("httpx", extra="collect", user="mildroute.experts.OpenAIExpert"):
    import httpx

_MAX_ERROR_BYTES = 2**16
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
# A client that is closed during a call raises a RuntimeError.
_LOST = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, RuntimeError)


class Transport(Protocol):
    """A way to send an expert's requests, for one event loop.

    Attributes:
        loop: The event loop.
        slots: Limit of concurrent requests.
        closed: Whether no further request is sent.
    """

    loop: asyncio.AbstractEventLoop
    slots: asyncio.Semaphore
    closed: bool

    async def post(self, body: bytes) -> HTTPResult | TransportFailure: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


class HTTPTransport:
    """Connections to one address, for one event loop.

    Args:
        url: The address.
        calls: Concurrency, timeouts and the maximum size of an answer.
        headers: The key and additional headers.
    """

    def __init__(self, url: str, calls: CallSettings, headers: RequestHeaders) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(calls.concurrency)
        self.closed = False
        self._url = url
        self._calls = calls
        self._scrub = headers.scrub
        timeouts = calls.timeouts
        self._client = httpx.AsyncClient(
            headers=_headers(headers),
            timeout=httpx.Timeout(timeouts.read or timeouts.total, connect=timeouts.connect),
            # Each call has its own connection. On a reused one, a server that sends two answers at
            # once would also answer the next query, and its score would be wrong.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            verify=_ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )
        self._guard = LogGuard(headers) if headers.has_secrets else None
        if self._guard is not None:
            self._guard.on()

    async def post(self, body: bytes) -> HTTPResult | TransportFailure:
        """Send a request and return its response; redirects are not followed."""
        if self.closed:
            return TransportFailure("the endpoint was closed", sent=False, final=True)
        try:
            async with (
                asyncio.timeout(self._calls.timeouts.total),
                self._client.stream("POST", self._url, content=body) as response,
            ):
                return await self._read(response)
        except _LOST as error:
            return self._describe_failure(error)
        except BaseException as error:  # noqa: BLE001 - The error is raised again.
            # The traceback's frames of HTTP libraries hold the key in local variables.
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    async def close(self) -> None:
        """Close all connections; calls in flight fail."""
        self.closed = True
        try:
            await asyncio.shield(self._client.aclose())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Refuse further calls, without closing connections, which requires the event loop."""
        self.closed = True
        if self._guard is not None:
            self._guard.off()

    async def _read(self, response: httpx.Response) -> HTTPResult | TransportFailure:
        headers = response.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            return TransportFailure(
                "the answer is compressed, which was not requested", sent=True, final=True
            )
        limit = self._calls.largest if response.is_success else _MAX_ERROR_BYTES
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > limit:
                break
        is_cut = len(content) > limit
        return HTTPResult(
            response.status_code,
            bytes(content[:limit]),
            is_cut,
            headers.get("retry-after"),
            headers.get("location"),
        )

    def _describe_failure(self, error: Exception) -> TransportFailure:
        if self.closed:
            return TransportFailure("the endpoint was closed", sent=True, final=True)
        sent = not isinstance(error, _NEVER_SENT)
        if isinstance(error, (TimeoutError, httpx.TimeoutException)):
            return TransportFailure(_describe_timeout(error, self._calls.timeouts), sent=sent)
        reason = self._scrub(" ".join(str(error).split()) or type(error).__name__)
        return TransportFailure(
            f"{'connection lost' if sent else 'no connection'}: {reason[:MAX_SHOWN]}", sent=sent
        )


def _describe_timeout(error: Exception, timeouts: Timeouts) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"timeout: no connection within {timeouts.connect:g} s"
    if isinstance(error, httpx.ReadTimeout):
        return f"timeout: no byte for {timeouts.read or timeouts.total:g} s"
    return f"timeout: no whole answer within {timeouts.total:g} s"


@functools.lru_cache(maxsize=8)
def _ssl_context(file: str | None, folder: str | None) -> ssl.SSLContext:  # noqa: ARG001 - httpx reads both variables itself.
    """Return a cached SSL context, because loading its certificates takes a tenth of a second."""
    return httpx.create_ssl_context()


def _headers(added: RequestHeaders) -> httpx.Headers:
    """Return the headers of every request.

    Compressed answers are not requested, because a few bytes can expand to gigabytes.
    """
    headers: dict[bytes, bytes] = {
        b"content-type": b"application/json",
        b"accept": b"application/json",
        b"accept-encoding": b"identity",
        b"user-agent": f"mildroute/{__version__}".encode(),
    }
    return httpx.Headers([*(headers | dict(added.pairs())).items()])
