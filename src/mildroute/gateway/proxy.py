"""Serve a request with the response of an expert.

A request is authenticated, admitted, parsed, decided, reserved for, called, forwarded, settled,
recorded and perhaps sampled, in this order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from mildroute.decision.prompt import RoutingInput
from mildroute.gateway.authentication import Authenticator, check_model
from mildroute.gateway.cascade import CascadeCall
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import DETAILS, RequestContext, RequestRecorder
from mildroute.gateway.http.body import ParsedRequest, parse_request, read_object
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import (
    BodyReader,
    ClientDisconnect,
    Header,
    Request,
    forward_request_headers,
    shutting_down,
)
from mildroute.gateway.response_edits import ResponseEdits
from mildroute.gateway.response_ids import decode_response_id
from mildroute.gateway.routing.decider import RequestDecider, RoutingResult
from mildroute.gateway.routing.targets import get_request_id, resolve_target, target_headers
from mildroute.gateway.sampling import Sampler
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.charge import charge_of_call
from mildroute.gateway.upstream.errors import StreamError, UpstreamError, UpstreamTimeout
from mildroute.gateway.upstream.failover import (
    FAILURE_REASONS,
    Attempt,
    Failover,
    close_result,
    error_from_failures,
)
from mildroute.gateway.upstream.pool import ExpertPool

__all__ = ["Proxy"]

_INTERNAL_ERROR = 500
_COUNT_TOKENS = "messages/count_tokens"
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_EVENT_STREAM = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_KEEP_ALIVE = b": keep-alive\n\n"
# Reasons of calls whose experts may have generated a response that did not arrive.
_UNKNOWN = ("", "hedged")
# The reason of an exclusion that a client understands least by its name.
_EXCLUSIONS = {"path": "does not serve this API"}


class Proxy:
    """Serves requests with the responses of experts."""

    def __init__(
        self,
        authenticator: Authenticator,
        decider: RequestDecider,
        pool: ExpertPool,
        failover: Failover,
        recorder: RequestRecorder,
        config: GatewayConfig,
        sampler: Sampler | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._decider = decider
        self._pool = pool
        self._failover = failover
        self._recorder = recorder
        self._sampler = sampler
        self._limits = config.limits
        self._routing = config.routing
        self._routed = RoutingInput(config.routing.input, config.routing.input_characters)
        self._idle_timeout = config.failover.idle_timeout
        self._bodies = BodyReader()

    async def handle(self, path: str, request: Request) -> None:
        """Serve one request.

        Args:
            path: One of :data:`mildroute.gateway.http.body.PATHS`.
            request: The request of the client.
        """
        client = self._authenticator.authenticate(request)
        self._authenticator.admit(client, request)
        body = await request.read_body(self._limits)
        arrived = perf_counter()
        parse = partial(_parse, path, body, client.name, self._routed)
        parsed = await self._bodies.read(client.name, body, parse)
        del body, parse
        check_model(client, parsed.model)
        context = self._recorder.start(client, parsed, arrived)
        async with self._settled(context, request):
            routing = await self._decide(context, request)
            await self._reserve(context, routing)
            self._recorder.decided(context, routing)
            # A client that leaves now has caused a call that is paid for.
            request.linger(self._limits.disconnect_timeout, context.attempts.abandon)
            attempt = await self._call(context, request)
            await self._forward(attempt, context, request)
        if self._sampler is not None:
            self._sampler.offer(context, request.headers.raw)

    @asynccontextmanager
    async def _settled(self, context: RequestContext, request: Request) -> AsyncIterator[None]:
        """Watch the client, and settle and record the request however it ends."""
        request.watch_disconnect()
        try:
            self._recorder.trace(context, request)
            yield
        except asyncio.CancelledError:
            if not request.has_left:
                context.status = shutting_down().status
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            self._charge_unfinished(context)
        except ClientDisconnect:
            pass
        except APIError as error:
            context.status = error.status
            raise
        except BaseException:
            context.status = _INTERNAL_ERROR
            raise
        finally:
            request.unwatch()
            self._authenticator.settle(context.reservation, context.charge)
            if context.decided:
                request.is_decided = True
                await self._recorder.finish(context)

    async def _decide(self, context: RequestContext, request: Request) -> RoutingResult:
        parsed = context.parsed
        context.request_id = get_request_id(request.headers.raw)
        if not self._decider.is_route(parsed.model):
            return self._decider.pin_expert(parsed, context.decision_id)
        if parsed.path == "embeddings":
            message = (
                "model must name an expert here: vectors of different experts cannot be compared,"
                " so the gateway does not choose."
            )
            raise APIError(400, message, code="model_not_chosen", param="model")
        if parsed.path == _COUNT_TOKENS and (counter := self._token_counter()) is not None:
            return self._decider.pin_expert(replace(parsed, model=counter), context.decision_id)
        if parsed.owner is not None and parsed.owner not in self._pool.callable:
            message = (
                "previous_response_id must be of an expert that this gateway can call, got one of"
                f" {parsed.owner}, which is gone; send the whole conversation."
            )
            raise APIError(
                400, message, code="previous_response_not_found", param="previous_response_id"
            )
        target = resolve_target(target_headers(request.headers.raw), parsed.model, self._routing)
        return await self._decider.decide(parsed, target, context.coin_key, context.decision_id)

    def _token_counter(self) -> str | None:
        """Return the expert that counts tokens for a client that names none."""
        for name, status in self._pool.statuses().items():
            if status.is_available and _COUNT_TOKENS not in status.unserved_paths:
                return name
        return None

    async def _reserve(self, context: RequestContext, routing: RoutingResult) -> None:
        """Hold the most that a request can cost; an APIError if its key has not so much left."""
        client, parsed, decision = context.client, context.parsed, routing.decision
        if not client.has_limits:
            return
        predictor = routing.predictor
        if decision.look and predictor is not None:
            dollars = self._pool.max_dollars_of_look(
                parsed, predictor.looks[decision.look], decision.order, predictor.max_calls
            )
        else:
            dollars = self._pool.max_dollars(parsed, decision.order)
        is_bounded = parsed.tokens_out is not None or parsed.path in ("embeddings", _COUNT_TOKENS)
        context.reservation = await self._authenticator.reserve(
            client, dollars, is_bounded=is_bounded
        )

    async def _call(self, context: RequestContext, request: Request) -> Attempt | None:
        """Call the experts of the decision until one responds."""
        decision = context.decision
        if not decision.order:
            return None
        if self._sampler is not None and self._sampler.takes(context, request):
            context.answer = bytearray()
        headers = forward_request_headers(request.headers.raw)
        if context.span is not None:
            headers = [header for header in headers if header[0] not in _TRACE_HEADERS]
        upstream_request = UpstreamRequest(context.parsed, headers)
        deadline = self._failover.deadline()
        predictor = context.routing.predictor
        try:
            if not decision.look or predictor is None:
                return await self._failover.call(
                    upstream_request,
                    decision.order,
                    decision.excluded,
                    context.attempts,
                    context.span,
                    deadline,
                )
            cascade = CascadeCall(
                self._failover,
                predictor,
                context,
                upstream_request,
                deadline,
                self._limits.max_response_bytes,
            )
            if context.parsed.is_stream:
                return await self._hold(cascade.run(), context, request)
            return await cascade.run()
        finally:
            self._charge_lost(context)
            self._recorder.attempted(context)

    async def _hold(
        self,
        cascade: Coroutine[Any, Any, Attempt | None],
        context: RequestContext,
        request: Request,
    ) -> Attempt | None:
        """Wait for a cascade whose client wants a stream.

        If it takes long the response begins before its expert is known, and comments keep it alive.
        """
        task = asyncio.create_task(cascade)
        try:
            while not (await asyncio.wait((task,), timeout=self._routing.stream_keep_alive))[0]:
                if not request.has_response and not request.has_left:
                    # Of the calls not all have been made.
                    headers = [
                        header for header in context.headers() if header[0] != b"x-mildroute-calls"
                    ]
                    await request.start_stream(200, [*_EVENT_STREAM, *headers])
                await self._send_chunk(_KEEP_ALIVE, request)
        except asyncio.CancelledError:
            # It charges its calls when it ends.
            task.cancel()
            task.add_done_callback(close_result)
            await asyncio.wait((task,))
            if request.has_response:
                await self._end_stream(shutting_down(), context, request)
            raise
        return task.result()

    async def _forward(
        self, attempt: Attempt | None, context: RequestContext, request: Request
    ) -> None:
        """Send the response of an expert, or why there is none."""
        if attempt is None:
            await self._send_failure(context, request)
            return
        response, expert = attempt.response, attempt.expert
        try:
            context.served_by = expert.name
            context.first_byte = perf_counter()
            attempt.call.status = response.status
            if response.status < 300:
                self._decider.remember(context.parsed.conversation, expert.name)
            if response.has_events:
                await self._send_events(attempt, context, request)
            else:
                await self._send_whole(attempt, context, request)
        finally:
            attempt.close()

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
        # A stream that was held back has begun: an error becomes an event.
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
            message = f"{attempt.expert.name} {cause} in the middle of its answer; ask again."
            failure = APIError(504 if isinstance(error, UpstreamTimeout) else 502, message)
            # An error that the expert reported itself has been passed on.
            is_told = isinstance(error, StreamError)
            await self._end_stream(failure, context, request, is_told=is_told)
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
        # Bytes that are still read for the bill of a client that has left.
        unread = self._limits.disconnect_max_bytes
        while events := await attempt.read():
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
        is_told: bool = False,
    ) -> None:
        """End a stream that has begun by an error event, unless the client was told."""
        if request.has_left:
            return
        context.status = failure.status
        event = b"" if is_told else failure.event(context.parsed.path)
        await request.send_chunk(event, self._idle_timeout, is_last=True)

    def _charge_lost(self, context: RequestContext) -> None:
        """Charge calls whose answers were not read to the end.

        A call that took too long may have generated all that it was allowed, or nothing: it is in
        no bill, but counts for the limits of keys, which could else spend without end on late
        answers.
        """
        for call in context.attempts.calls:
            if call.reason == "hedged":
                call.charge = charge_of_call(self._pool.find(call.expert), context.parsed, "outrun")
            elif call.reason == "timeout" and not (call.status or call.is_charged):
                charge = self._pool.max_charge(context.parsed, call.expert)
                context.lost_dollars += charge.dollars

    def _charge_unfinished(self, context: RequestContext) -> None:
        """Charge the most that calls can have cost which ended before they told."""
        if context.served_by:
            return
        for call in context.attempts.calls:
            if call.reason in _UNKNOWN and (call.reason or not call.is_charged):
                call.charge = self._pool.max_charge(context.parsed, call.expert)

    def _edits(self, attempt: Attempt, context: RequestContext, request: Request) -> ResponseEdits:
        """Return what the client gets otherwise than the expert sent it."""
        expert, parsed = attempt.expert, context.parsed
        wants_details = request.headers.get(DETAILS, "").strip().lower() == "on"
        includes_usage = expert.upstream is not None and expert.upstream.includes_usage
        return ResponseEdits(
            parsed,
            expert.name,
            hides_usage=parsed.lacks_usage and includes_usage,
            details=partial(_details, attempt, context) if wants_details else None,
        )


def _parse(path: str, body: bytes | bytearray, client: str, routed: RoutingInput) -> ParsedRequest:
    parsed = parse_request(path, read_object(body), client, routed, size=len(body))
    if parsed.previous_id is None:
        return parsed
    decoded = decode_response_id(parsed.previous_id)
    if decoded is None:
        raise APIError(
            400,
            "previous_response_id must be the id of a response of this gateway, got another one;"
            " send the whole conversation.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    response_id, owner = decoded
    return parsed.continues(response_id, owner)


def _charge_answer(attempt: Attempt, context: RequestContext) -> None:
    """Charge the part of the response that has arrived for the client."""
    charge = attempt.charge(context.parsed)
    context.tokens = (charge.tokens_in, charge.tokens_out)
    context.cached_tokens = charge.cached_tokens


def _details(attempt: Attempt, context: RequestContext) -> dict[str, Any]:
    _charge_answer(attempt, context)
    return context.details(has_price=attempt.expert.has_price)


def _late_headers(headers: list[Header]) -> bytes:
    """Return the headers of a stream that has begun without them, as comments."""
    return b"".join([b": %b: %b\n" % header for header in headers]) + b"\n"


def _as_event(body: bytes, path: str) -> bytes:
    """Return a body that is not made of events, such as an error, as an event of a stream."""
    name = b"event: error\n" if path == "messages" else b""
    return name + b"".join([b"data: %b\n" % line for line in body.splitlines()]) + b"\n"


def _no_eligible_expert(context: RequestContext) -> APIError:
    """Return why no expert can serve a request: it is too long, or needs what none can do."""
    excluded = context.decision.excluded
    causes = (
        "; ".join(f"{name}: {_EXCLUSIONS.get(cause, cause)}" for name, cause in excluded.items())
        or "there is none that can be called"
    )
    if all(cause == "absent" for cause in excluded.values()):
        return APIError(
            400,
            f"this gateway can call none of its experts ({causes}); ask /v1/route which of them to"
            " call.",
            code="no_expert",
        )
    advice = "shorten it, or ask for less"
    if "path" in excluded.values():
        advice = (
            "/v1/messages is served by experts of kind anthropic, and chats by those of kind openai"
            " and litellm"
        )
    return APIError(400, f"no expert can take this request ({causes}); {advice}.", code="no_expert")
