"""Experts behind an OpenAI-compatible address, called through aiohttp."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import ssl
from typing import Any

import certifi
import yarl

from mildroute import __version__
from mildroute.exceptions import MissingExtraError
from mildroute.experts.config import ExpertSpec
from mildroute.experts.secrets import RequestHeaders, Secret
from mildroute.experts.settings import query_string
from mildroute.gateway.http.headers import Header
from mildroute.gateway.observability.tracing import CallTarget
from mildroute.gateway.upstream.base import (
    CallSlots,
    Deadlines,
    UpstreamRequest,
    UpstreamResponse,
    are_events,
    read_whole,
)
from mildroute.gateway.upstream.errors import (
    UpstreamConnectError,
    UpstreamConnectionLost,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
)

try:
    import aiohttp
except ImportError:
    raise MissingExtraError.for_package(
        "aiohttp", extra="serve", user="mildroute.gateway"
    ) from None

__all__ = ["OpenAIUpstream"]

# Seconds that an idle connection is kept. uvicorn and similar servers keep theirs longer, so no
# request is sent on a connection that the server is closing. Such a POST would be lost: it cannot
# be retried, because the server may have read it.
_KEEP_ALIVE = 4.0
_MAX_HEADER = 1 << 16
# OpenTelemetry's provider names by host suffix.
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


class OpenAIUpstream:
    """A client for one expert of kind ``openai``.

    The address and key come from experts.yaml only. Redirects are not followed, proxies of the
    environment are ignored, and requests are never retried here.

    Args:
        spec: The expert's entry in experts.yaml.
        connect_timeout: Seconds to connect.
        max_calls: Maximum concurrent calls if the file sets no ``concurrency``; further calls wait.

    Attributes:
        includes_usage: Whether to request usage for a stream when the client did not.
        has_logprobs: Whether log-probabilities may be requested from the expert.
        slots: Bounds the concurrent calls.
    """

    paths = frozenset(("chat/completions", "completions", "responses", "embeddings"))

    def __init__(
        self,
        spec: ExpertSpec,
        *,
        connect_timeout: float = 3.0,
        max_calls: int = 1024,
    ) -> None:
        self.name = spec.name
        self.model = str(spec.settings["model"])
        self.includes_usage = bool(spec.settings.get("include_usage", True))
        self.has_logprobs = bool(spec.settings.get("logprobs", False))
        self._headers = self._configured_headers(spec)
        self._base_url = yarl.URL(str(spec.settings["base_url"]).rstrip("/"))
        self._query = query_string(spec.settings.get("query", {}))
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        limit = int(spec.settings.get("concurrency", max_calls))
        self.slots = CallSlots(limit)

    def _configured_headers(self, spec: ExpertSpec) -> RequestHeaders:
        """Return the key, and the headers that experts.yaml adds."""
        variable = spec.settings.get("api_key_env")
        return RequestHeaders(
            spec.settings.get("headers"), None if variable is None else Secret(variable)
        )

    def target(self, operation: str) -> CallTarget:
        """Return the trace target of calls of an operation."""
        host = self._base_url.host or ""
        return CallTarget(
            operation, _provider_of(host), self.model, host, str(self._base_url.port or "")
        )

    async def send(self, request: UpstreamRequest, deadlines: Deadlines) -> UpstreamResponse:
        """Send a request once."""
        body = request.parsed.body_for(
            self.model, include_usage=self.includes_usage, logprobs=request.logprobs
        )
        await self.slots.acquire(min(deadlines.first_byte_at, deadlines.complete_at))
        try:
            return await self._call(request, body, deadlines)
        except BaseException as error:  # noqa: BLE001 - re-raised
            self._release()
            # aiohttp's stack frames hold the key in local variables.
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    def close(self) -> None:
        """Close the session as soon as no call is in flight."""
        self._is_closed = True
        self._close_if_idle()

    async def wait_closed(self) -> None:
        """Close all connections, even those in use."""
        self.close()
        if self._session is not None:
            await self._session.close()
        if self._closing is not None:
            await self._closing

    def url(self, path: str) -> yarl.URL:
        """Return the address of a path below ``/v1``."""
        return yarl.URL(f"{self._base_url}/{path}{self._query}", encoded=True)

    async def _call(
        self, request: UpstreamRequest, body: bytes, deadlines: Deadlines
    ) -> UpstreamResponse:
        is_stream = request.parsed.is_stream
        deadline = deadlines.complete_at
        if is_stream:
            deadline = min(deadline, deadlines.first_byte_at)
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._open_session().post(
                    self.url(request.parsed.path),
                    # aiohttp sends a BytesIO in chunks and lets other tasks run in between.
                    data=io.BytesIO(body),
                    headers=self._headers_for(request),
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _upstream_error(error) from None
        headers = [(name.lower(), value) for name, value in response.raw_headers]
        chunks = _Body(response)
        if response.status < 200:
            chunks.close()
            raise UpstreamProtocolError
        try:
            if is_stream and response.status == 200 and are_events(headers):
                # The first-byte deadline applies to the body, not only to the headers.
                async with asyncio.timeout_at(deadline):
                    await chunks.wait_first_bytes()
                return UpstreamResponse(
                    response.status,
                    headers,
                    self._headers,
                    chunks=chunks,
                    idle_timeout=deadlines.idle_timeout,
                    on_close=self._release,
                )
            whole = await read_whole(chunks, deadlines)
        except TimeoutError:
            chunks.close()
            raise UpstreamTimeout from None
        except BaseException:
            chunks.close()
            raise
        chunks.close()
        return UpstreamResponse(
            response.status, headers, self._headers, whole, on_close=self._release
        )

    def _headers_for(self, request: UpstreamRequest) -> list[tuple[str, str]]:
        """Return all headers of a request; those of experts.yaml replace those of the client."""
        own = [*self._headers.pairs()]
        headers: list[Header] = [
            *(header for header in request.headers if header[0] not in self._headers.names),
            *own,
        ]
        defaults = {
            b"content-type": b"application/json",
            b"accept-encoding": b"identity",
            b"user-agent": b"mildroute/%b" % __version__.encode(),
        }
        names = {name for name, _ in headers}
        headers += [header for header in defaults.items() if header[0] not in names]
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=0,
                    keepalive_timeout=_KEEP_ALIVE,
                    ssl=_ssl_context(
                        os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
                    ),
                ),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_field_size=_MAX_HEADER,
                max_line_size=_MAX_HEADER,
                trust_env=False,
            )
        return self._session

    def _release(self) -> None:
        self.slots.release()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_closed and self._session is not None and not self.slots.calls:
            session = self._session
            self._session = None
            self._closing = asyncio.get_running_loop().create_task(session.close())


class _Connector(aiohttp.TCPConnector):
    """A connector that discards idle connections on which unsolicited bytes arrived.

    aiohttp would mistake them for the response to the next request, which may be another client's.
    """

    async def _get(self, key: Any, traces: Any) -> Any:
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        return None


class _Body:
    """The body of an aiohttp response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._first = b""
        self._error: UpstreamError | None = None

    async def wait_first_bytes(self) -> None:
        """Wait for the first bytes."""
        self._first = await self.read()

    async def read(self) -> bytes:
        if self._first:
            first = self._first
            self._first = b""
            return first
        if self._error is not None:
            raise self._error
        content = self._response.content
        try:
            return await content.readany()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._error = _upstream_error(error)
        # Bytes that arrived before the error are charged; aiohttp buffers them, but raises.
        rest = b"".join(content._buffer)
        content._buffer.clear()
        if not rest:
            raise self._error
        return rest

    def close(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


@functools.lru_cache(maxsize=8)
def _ssl_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return an SSL context with the trusted authorities; loading them takes 0.1 s."""
    if file is None and folder is None:
        file = certifi.where()
    return ssl.create_default_context(cafile=file, capath=folder)


def _upstream_error(error: Exception) -> UpstreamError:
    """Return the gateway's error for an error of aiohttp."""
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return UpstreamConnectError()
    if isinstance(error, aiohttp.InvalidURL):
        return UpstreamConnectError()
    if isinstance(error, TimeoutError):
        return UpstreamTimeout()
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamProtocolError()
    # This includes ClientPayloadError: the body ended early or in the middle of a chunk.
    return UpstreamConnectionLost()


def _provider_of(host: str) -> str:
    """Return OpenTelemetry's name of a provider.

    The name denotes the dialect of the API, so unknown hosts count as ``openai``.
    """
    for suffix, provider in _PROVIDERS.items():
        if host == suffix or host.endswith((f".{suffix}", f"-{suffix}")):
            return provider
    return "openai"
