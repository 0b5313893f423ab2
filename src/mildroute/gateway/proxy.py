"""Serving of requests with the responses of experts, in ten steps.

:meth:`Proxy.handle` takes them in this order: authenticate, admit, parse, decide, reserve, call,
forward, settle, record, sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter

from mildroute.decision.prompt import RoutingInput
from mildroute.gateway.authentication import Authenticator, check_model
from mildroute.gateway.cascade import CascadeCall
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import RequestContext
from mildroute.gateway.forwarding import Forwarder
from mildroute.gateway.http.body import ParsedRequest, parse_request, read_object
from mildroute.gateway.http.decoder import BodyDecoder
from mildroute.gateway.http.errors import APIError, shutting_down
from mildroute.gateway.http.headers import forward_request_headers
from mildroute.gateway.http.request import ClientDisconnect, Request
from mildroute.gateway.keys import APIClient
from mildroute.gateway.recorder import RequestRecorder
from mildroute.gateway.response_ids import decode_response_id
from mildroute.gateway.routing.decider import RequestDecider, RoutingResult
from mildroute.gateway.routing.targets import get_request_id
from mildroute.gateway.sampling.sampler import Sampler
from mildroute.gateway.upstream.attempts import Attempt
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.failover import Failover
from mildroute.gateway.upstream.pool import ExpertPool

__all__ = ["Proxy"]

_INTERNAL_ERROR = 500
_TRACE_HEADERS = (b"traceparent", b"tracestate")
# Paths whose cost does not depend on the length of a response.
_WITHOUT_OUTPUT = ("embeddings", "messages/count_tokens")


class Proxy:
    """A proxy that serves requests with the responses of experts.

    Args:
        authenticator: Authenticates clients and applies their limits.
        decoder: Decodes bodies.
        decider: Chooses the experts to call.
        pool: The experts.
        failover: Calls experts until one responds.
        recorder: Reports the steps to the log, metrics and traces.
        config: Limits, and the part of a request that the router reads.
        sampler: Sends a share of requests to the other experts as well, or ``None``.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        decoder: BodyDecoder,
        decider: RequestDecider,
        pool: ExpertPool,
        failover: Failover,
        recorder: RequestRecorder,
        config: GatewayConfig,
        sampler: Sampler | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._decoder = decoder
        self._decider = decider
        self._pool = pool
        self._failover = failover
        self._forwarder = Forwarder(config)
        self._recorder = recorder
        self._sampler = sampler
        self._limits = config.limits
        self._routed = RoutingInput(config.routing.input, config.routing.input_characters)

    async def handle(self, path: str, request: Request) -> None:
        """Serve one request.

        Args:
            path: One of :data:`mildroute.gateway.http.body.PATHS`.
            request: The request of the client.
        """
        client = self._authenticator.authenticate(request)
        self._authenticator.admit(client, request)
        context = await self._parse(path, client, request)
        try:
            async with self._watched(context, request):
                routing = await self._decide(context, request)
                await self._reserve(context, routing, request)
                attempt = await self._call(context, request)
                await self._forward(attempt, context, request)
        finally:
            self._authenticator.settle(context.reservation, context.charge)
            await self._recorder.record_end(context)
        self._sample(context, request)

    async def _parse(self, path: str, client: APIClient, request: Request) -> RequestContext:
        """Read the body; raise an APIError if it is invalid or names a forbidden model."""
        body = await request.read_body(self._limits)
        arrived = perf_counter()
        parse = partial(_parse_body, path, body, client.name, self._routed)
        parsed = await self._decoder.decode(client.name, len(body), parse)
        check_model(client, parsed.model)
        return self._recorder.start(client, parsed, arrived)

    @asynccontextmanager
    async def _watched(self, context: RequestContext, request: Request) -> AsyncIterator[None]:
        """Watch the client for a disconnect, and set the status of a request that fails."""
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

    async def _decide(self, context: RequestContext, request: Request) -> RoutingResult:
        """Choose the experts to call."""
        headers = request.headers.raw
        context.request_id = get_request_id(headers)
        return await self._decider.route(
            context.parsed, headers, context.coin_key, context.decision_id
        )

    async def _reserve(
        self, context: RequestContext, routing: RoutingResult, request: Request
    ) -> None:
        """Hold the maximum cost of the request; raise an APIError if its key cannot afford it.

        From here on the request counts as decided, and a client that disconnects still pays.
        """
        parsed = context.parsed
        if context.client.has_limits:
            context.reservation = await self._authenticator.reserve(
                context.client,
                self._max_dollars(parsed, routing),
                is_bounded=parsed.tokens_out is not None or parsed.path in _WITHOUT_OUTPUT,
            )
        self._recorder.record_decision(context, routing)
        request.is_decided = True
        request.linger(self._limits.disconnect_timeout, context.attempts.abandon)

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
                return await self._forwarder.hold(cascade.run(), context, request)
            return await cascade.run()
        finally:
            self._charge_lost(context)
            self._recorder.record_failures(context)

    async def _forward(
        self, attempt: Attempt | None, context: RequestContext, request: Request
    ) -> None:
        """Send the response of an expert, and remember the expert for the conversation."""
        if attempt is not None and attempt.response.status < 300:
            self._decider.remember(context.parsed.conversation, attempt.expert.name)
        await self._forwarder.forward(attempt, context, request)

    def _sample(self, context: RequestContext, request: Request) -> None:
        """Offer the request to the sampler, which calls the other experts in the background."""
        if self._sampler is not None:
            self._sampler.offer(context, request.headers.raw)

    def _max_dollars(self, parsed: ParsedRequest, routing: RoutingResult) -> float:
        """Return the maximum cost of a request."""
        decision, predictor = routing.decision, routing.predictor
        if not decision.look or predictor is None:
            return self._pool.max_dollars(parsed, decision.order)
        return self._pool.max_dollars_of_look(
            parsed, predictor.looks[decision.look], decision.order, predictor.max_calls
        )

    def _charge_lost(self, context: RequestContext) -> None:
        """Count calls that took too long toward the limits of the key.

        Such a call may have generated its maximum number of tokens, or none. Its cost appears on no
        bill, but if it were not counted, late answers would cost a key nothing.
        """
        for call in context.attempts.calls:
            if call.reason == "timeout" and not (call.status or call.is_charged):
                charge = self._pool.max_charge(context.parsed, call.expert)
                context.lost_dollars += charge.dollars

    def _charge_unfinished(self, context: RequestContext) -> None:
        """Charge the maximum cost of calls that were canceled before they responded."""
        if context.served_by:
            return
        for call in context.attempts.calls:
            if not call.reason and not call.is_charged:
                call.charge = self._pool.max_charge(context.parsed, call.expert)


def _parse_body(
    path: str, body: bytes | bytearray, client: str, routed: RoutingInput
) -> ParsedRequest:
    parsed = parse_request(path, read_object(body), client, routed, size=len(body))
    if parsed.previous_id is None:
        return parsed
    decoded = decode_response_id(parsed.previous_id)
    if decoded is None:
        raise APIError(
            400,
            "previous_response_id must be the id of a response from this gateway, got another one;"
            " send the whole conversation.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    response_id, owner = decoded
    return parsed.continues(response_id, owner)
