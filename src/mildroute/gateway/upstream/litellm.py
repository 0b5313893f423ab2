"""Experts of any provider, called through the SDK of LiteLLM in this process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from mildroute.experts.base import HTTPResult
from mildroute.experts.config import ExpertSpec
from mildroute.experts.events import event_bytes
from mildroute.experts.litellm import UNSUPPORTED, LiteLLMModel
from mildroute.experts.secrets import LogGuard
from mildroute.gateway.http.headers import Header
from mildroute.gateway.observability.tracing import CallTarget
from mildroute.gateway.upstream.base import CallSlots, Deadlines, UpstreamRequest, UpstreamResponse
from mildroute.gateway.upstream.errors import (
    ResponseTooLarge,
    UnsupportedRequest,
    UpstreamTimeout,
)

__all__ = ["LiteLLMUpstream"]

_JSON_HEADERS: tuple[Header, ...] = ((b"content-type", b"application/json"),)
_STREAM_HEADERS: tuple[Header, ...] = ((b"content-type", b"text/event-stream"),)
_DONE = b"data: [DONE]\n\n"
# OpenTelemetry's provider names, by LiteLLM's names where they differ.
_PROVIDERS = {
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


class LiteLLMUpstream:
    """A client for one expert of kind ``litellm``.

    Creating an instance imports LiteLLM and prepares it, which takes seconds. The SDK manages the
    connections to the provider.

    Args:
        spec: The expert's entry in experts.yaml.
        connect_timeout: Ignored, because the SDK connects.
        max_calls: Maximum concurrent calls if the file sets no ``concurrency``; further calls wait.

    Attributes:
        includes_usage: Whether to request usage for a stream when the client did not.
        has_logprobs: Whether log-probabilities may be requested from the expert.
        slots: Bounds the concurrent calls.
    """

    paths = frozenset(("chat/completions", "completions", "embeddings"))

    def __init__(
        self,
        spec: ExpertSpec,
        *,
        connect_timeout: float = 3.0,  # noqa: ARG002
        max_calls: int = 1024,
    ) -> None:
        self.name = spec.name
        self.model = str(spec.settings["model"])
        self.includes_usage = bool(spec.settings.get("include_usage", True))
        self.has_logprobs = bool(spec.settings.get("logprobs", False))
        self._sdk_model = LiteLLMModel(spec.settings)
        # LiteLLM logs parts of requests, such as the URL of an image. Its errors are returned.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        self._sdk_model.warm_up()
        self._guard = LogGuard(self._sdk_model.secrets)
        self._guard.on()
        limit = int(spec.settings.get("concurrency", max_calls))
        self.slots = CallSlots(limit)
        self._is_closed = False

    def target(self, operation: str) -> CallTarget:
        """Return the trace target of calls of an operation."""
        provider = self._sdk_model.provider
        return CallTarget(operation, _PROVIDERS.get(provider, provider), self.model)

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
            # The SDK's stack frames hold the key in local variables.
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    def close(self) -> None:
        """Stop scrubbing the SDK's logs as soon as no call is in flight."""
        self._is_closed = True
        self._stop_scrubbing_if_idle()

    async def wait_closed(self) -> None:
        """Stop scrubbing the SDK's logs; the SDK closes its own connections."""
        self._guard.off()

    def _release(self) -> None:
        """Release the slot of a call that has ended."""
        self.slots.release()
        self._stop_scrubbing_if_idle()

    def _stop_scrubbing_if_idle(self) -> None:
        if self._is_closed and not self.slots.calls:
            self._guard.off()

    async def _call(
        self, request: UpstreamRequest, body: bytes, deadlines: Deadlines
    ) -> UpstreamResponse:
        deadline = deadlines.complete_at
        if request.parsed.is_stream:
            deadline = min(deadline, deadlines.first_byte_at)
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._sdk_model.call(request.parsed.path, body)
                if hasattr(answer, "__aiter__"):
                    return await self._stream(answer, deadlines)
        except TimeoutError:
            raise UpstreamTimeout from None
        if not isinstance(answer, HTTPResult):
            answer = HTTPResult(200, _document_of(answer))
        return self._whole(answer, deadlines.max_bytes)

    def _whole(self, result: HTTPResult, max_bytes: int) -> UpstreamResponse:
        if len(result.body) > max_bytes:
            raise ResponseTooLarge
        if result.status == 400:
            # This body comes from LiteLLMModel.
            error = json.loads(result.body)["error"]
            if error["code"] == UNSUPPORTED:
                raise UnsupportedRequest(error["message"])
        headers = [*_JSON_HEADERS]
        if result.retry_after is not None:
            headers.append((b"retry-after", str(result.retry_after).encode("latin-1", "replace")))
        return UpstreamResponse(
            result.status,
            headers,
            self._sdk_model.secrets,
            result.body,
            on_close=self._release,
        )

    async def _stream(self, stream: Any, deadlines: Deadlines) -> UpstreamResponse:
        """Return a stream once its first event has arrived, or a response for an earlier error."""
        events = _Events(stream, self._sdk_model)
        error = await events.wait()
        if error is not None:
            return self._whole(error, deadlines.max_bytes)
        return UpstreamResponse(
            200,
            [*_STREAM_HEADERS],
            self._sdk_model.secrets,
            chunks=events,
            idle_timeout=deadlines.idle_timeout,
            on_close=self._release,
        )


class _Events:
    """The chunks of an SDK stream as server-sent events."""

    def __init__(self, stream: Any, model: LiteLLMModel) -> None:
        self._stream = stream
        self._model = model
        self._chunks: AsyncIterator[Any] = aiter(stream)
        self._first = b""
        self._has_ended = False
        self._closing: asyncio.Task[None] | None = None

    async def wait(self) -> HTTPResult | None:
        """Wait for the first event; return the error that arrived instead, or ``None``."""
        try:
            self._first = await self._next()
        except Exception as error:  # noqa: BLE001 - providers raise anything through the SDK
            self.close()
            return self._model.result_of(error)
        return None

    async def read(self) -> bytes:
        if self._first:
            first = self._first
            self._first = b""
            return first
        if self._has_ended:
            return b""
        try:
            return await self._next()
        except Exception as error:  # noqa: BLE001 - as above
            self._has_ended = True
            return b"data: %b\n\n" % self._model.result_of(error).body

    def close(self) -> None:
        # The event loop may end before this task does; the SDK then closes the stream itself.
        self._closing = asyncio.get_running_loop().create_task(self._stream.aclose())

    async def _next(self) -> bytes:
        try:
            return _event_of(await anext(self._chunks))
        except StopAsyncIteration:
            self._has_ended = True
            return _DONE


def _document_of(answer: Any) -> bytes:
    usage = getattr(answer, "usage", None)
    if usage is not None and _is_uncounted(usage.model_dump()):
        return bytes(answer.model_dump_json(exclude={"usage"}).encode())
    return bytes(answer.model_dump_json().encode())


def _event_of(chunk: Any) -> bytes:
    """Write a chunk of a stream as an event."""
    document = chunk.model_dump(exclude_none=True)
    if _is_uncounted(document.get("usage")):
        del document["usage"]
    choices = document.get("choices") or []
    if "usage" in document and not any(_has_content(choice) for choice in choices):
        # Match OpenAI's format, so that the event can be removed for clients that did not request
        # it.
        document["choices"] = []
    return event_bytes("", document)


def _is_uncounted(usage: Any) -> bool:
    """Return whether the SDK shows zeros because the provider has reported no usage."""
    names = ("prompt_tokens", "completion_tokens")
    return isinstance(usage, dict) and not any(usage.get(name) for name in names)


def _has_content(choice: dict[str, Any]) -> bool:
    return bool(choice.get("delta") or choice.get("text") or choice.get("finish_reason"))
