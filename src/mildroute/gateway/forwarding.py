"""Forwarding of an expert's response, or of an error, to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Any

from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import DETAILS, RequestContext
from mildroute.gateway.http.errors import APIError, shutting_down
from mildroute.gateway.http.headers import Header
from mildroute.gateway.http.request import ClientDisconnect, Request
from mildroute.gateway.response_edits import ResponseEdits
from mildroute.gateway.upstream.attempts import Attempt, close_result
from mildroute.gateway.upstream.errors import StreamError, UpstreamError, UpstreamTimeout
from mildroute.gateway.upstream.failures import FAILURE_REASONS, error_from_failures

__all__ = ["Forwarder"]

_EVENT_STREAM = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_KEEP_ALIVE = b": keep-alive\n\n"
# Descriptions of exclusions whose names clients would not understand.
_EXCLUSIONS = {"path": "does not serve this API"}


class Forwarder:
    """A forwarder of experts' responses to clients, which charges the part that has arrived.

    Args:
        config: Timeouts and limits.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._idle_timeout = config.failover.idle_timeout
        self._keep_alive = config.routing.stream_keep_alive
        self._max_unread_bytes = config.limits.disconnect_max_bytes

    async def forward(
        self, attempt: Attempt | None, context: RequestContext, request: Request
    ) -> None:
        """Send the response of an expert, or the reason why there is none."""
        if attempt is None:
            await self._send_failure(context, request)
            return
        response, expert = attempt.response, attempt.expert
        try:
            context.served_by = expert.name
            context.first_byte = perf_counter()
            attempt.call.status = response.status
            if response.has_events:
                await self._send_events(attempt, context, request)
            else:
                await self._send_whole(attempt, context, request)
        finally:
            attempt.close()

    async def hold(
        self,
        cascade: Coroutine[Any, Any, Attempt | None],
        context: RequestContext,
        request: Request,
    ) -> Attempt | None:
        """Wait for a cascade whose client wants a stream.

        If the cascade takes long, the response begins before its expert is known, and comments keep
        the connection alive.
        """
        task = asyncio.create_task(cascade)
        try:
            while not (await asyncio.wait((task,), timeout=self._keep_alive))[0]:
                if not request.has_response and not request.has_left:
                    # More calls may follow.
                    headers = [
                        header for header in context.headers() if header[0] != b"x-mildroute-calls"
                    ]
                    await request.start_stream(200, [*_EVENT_STREAM, *headers])
                await self._send_chunk(_KEEP_ALIVE, request)
        except asyncio.CancelledError:
            # The cascade charges its calls when it ends.
            task.cancel()
            task.add_done_callback(close_result)
            await asyncio.wait((task,))
            if request.has_response:
                await self._end_stream(shutting_down(), context, request)
            raise
        return task.result()

    async def _send_whole(
        self, attempt: Attempt, context: RequestContext, request: Request
    ) -> None:
        response, expert = attempt.response, attempt.expert
        if response.status < 400:
            _charge_answer(attempt, context)
        context.keep(response.body)
        body = self._edits(attempt, context, request).body(response)
        if request.has_left:
            return
        context.status = response.status
        is_charged = response.status < 300 and expert.has_price
        decision_headers = context.headers(expert.header, is_charged=is_charged)
        if not request.has_response:
            headers = [*response.forwarded_headers(), *decision_headers]
            await request.send_response(response.status, headers, body)
            return
        # The stream of a cascade has begun, so an error becomes an event.
        error = APIError(response.status, f"{expert.name} refused the request.")
        path = context.parsed.path
        event = _late_headers(decision_headers) + _as_event(body or error.body(path), path)
        await request.send_chunk(event, self._idle_timeout, is_last=True)

    async def _send_events(
        self, attempt: Attempt, context: RequestContext, request: Request
    ) -> None:
        try:
            await self._begin_stream(attempt, context, request)
            await self._pass_events(attempt, context, request)
            await self._send_chunk(b"", request, is_last=True)
            if not request.has_left:
                context.status = attempt.response.status
        except UpstreamError as error:
            attempt.record_failure()
            attempt.call.reason = error.reason
            cause = FAILURE_REASONS.get(error.reason, "failed")
            message = f"{attempt.expert.name} {cause} in the middle of its answer; retry."
            failure = APIError(504 if isinstance(error, UpstreamTimeout) else 502, message)
            # An error that the expert itself reported has been forwarded.
            is_reported = isinstance(error, StreamError)
            await self._end_stream(failure, context, request, is_reported=is_reported)
        except asyncio.CancelledError:
            await self._end_stream(shutting_down(), context, request)
            raise
        finally:
            _charge_answer(attempt, context)

    async def _begin_stream(
        self, attempt: Attempt, context: RequestContext, request: Request
    ) -> None:
        headers = context.headers(attempt.expert.header)
        if request.has_response:
            await self._send_chunk(_late_headers(headers), request)
        elif not request.has_left:
            forwarded = attempt.response.forwarded_headers()
            await request.start_stream(attempt.response.status, [*forwarded, *headers])

    async def _pass_events(
        self, attempt: Attempt, context: RequestContext, request: Request
    ) -> None:
        edits = self._edits(attempt, context, request)
        # Bytes that are still read to charge a client that has disconnected.
        unread = self._max_unread_bytes
        while events := await attempt.response.read():
            if request.has_left:
                unread -= sum(len(event.raw) for event in events)
                if unread < 0:
                    return
            for event in events:
                context.keep(event.raw)
            chunk = b"".join([edits.event(event) for event in events])
            if chunk:
                await self._send_chunk(chunk, request)

    async def _send_failure(self, context: RequestContext, request: Request) -> None:
        if request.has_left:
            return
        if context.decision.order:
            error = error_from_failures(context.attempts.failures)
        else:
            error = _no_eligible_expert(context)
        if request.has_response:
            await self._end_stream(error, context, request)
            return
        context.status = error.status
        await request.send_error(error, context.headers())

    async def _send_chunk(self, chunk: bytes, request: Request, *, is_last: bool = False) -> None:
        if request.has_left:
            return
        try:
            await request.send_chunk(chunk, self._idle_timeout, is_last=is_last)
        except ClientDisconnect:
            request.disconnect()

    async def _end_stream(
        self,
        failure: APIError,
        context: RequestContext,
        request: Request,
        *,
        is_reported: bool = False,
    ) -> None:
        """End a stream with an error event, unless the client already has one."""
        if request.has_left:
            return
        context.status = failure.status
        event = b"" if is_reported else failure.event(context.parsed.path)
        await request.send_chunk(event, self._idle_timeout, is_last=True)

    def _edits(self, attempt: Attempt, context: RequestContext, request: Request) -> ResponseEdits:
        """Return the edits of the response for this client."""
        expert, parsed = attempt.expert, context.parsed
        wants_details = request.headers.get(DETAILS, "").strip().lower() == "on"
        includes_usage = expert.upstream is not None and expert.upstream.includes_usage
        return ResponseEdits(
            parsed,
            expert.name,
            hides_usage=parsed.lacks_usage and includes_usage,
            details=partial(_details, attempt, context) if wants_details else None,
        )


def _charge_answer(attempt: Attempt, context: RequestContext) -> None:
    """Charge the part of the response that has arrived for the client."""
    charge = attempt.charge(context.parsed)
    context.tokens = (charge.tokens_in, charge.tokens_out)
    context.cached_tokens = charge.cached_tokens


def _details(attempt: Attempt, context: RequestContext) -> dict[str, Any]:
    _charge_answer(attempt, context)
    return context.details(has_price=attempt.expert.has_price)


def _late_headers(headers: list[Header]) -> bytes:
    """Return headers as comments, for a stream that began without them."""
    return b"".join([b": %b: %b\n" % header for header in headers]) + b"\n"


def _as_event(body: bytes, path: str) -> bytes:
    """Return a body without events, such as an error, as an event of a stream."""
    name = b"event: error\n" if path == "messages" else b""
    return name + b"".join([b"data: %b\n" % line for line in body.splitlines()]) + b"\n"


def _no_eligible_expert(context: RequestContext) -> APIError:
    """Return the error for a request that no expert can take."""
    excluded = context.decision.excluded
    causes = (
        "; ".join(f"{name}: {_EXCLUSIONS.get(cause, cause)}" for name, cause in excluded.items())
        or "there is no expert that can be called"
    )
    if all(cause == "absent" for cause in excluded.values()):
        return APIError(
            400,
            f"this gateway can call none of its experts ({causes}); use /v1/route to find out which"
            " one to call.",
            code="no_expert",
        )
    advice = "shorten it or request less"
    if "path" in excluded.values():
        advice = (
            "/v1/messages is served by experts of kind anthropic, and chats by those of kind openai"
            " and litellm"
        )
    return APIError(400, f"no expert can take this request ({causes}); {advice}.", code="no_expert")
