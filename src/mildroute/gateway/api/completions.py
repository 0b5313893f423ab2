"""``POST /v1/chat/completions`` and its kin: parse, decide, call an expert, forward, record."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from mildroute.decision.predictor import Predictor
from mildroute.decision.prompt import RoutingInput
from mildroute.experts.anthropic import MessageStream, message_error
from mildroute.experts.completion import answer_logprob, answer_text
from mildroute.gateway.authentication import Authenticator, check_model
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import DETAILS, RequestContext, RequestRecorder
from mildroute.gateway.http.body import ParsedRequest, parse_messages, parse_request
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import (
    ClientDisconnect,
    Header,
    Request,
    forward_request_headers,
    parse_body,
    shutting_down,
)
from mildroute.gateway.observability.logs import log_event
from mildroute.gateway.routing.decider import RequestDecider, RoutingResult
from mildroute.gateway.routing.targets import get_request_id, resolve_target, target_headers
from mildroute.gateway.sampling import Sampler
from mildroute.gateway.upstream._http1 import (
    StreamError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
)
from mildroute.gateway.upstream.client import (
    AnthropicResponse,
    UpstreamRequest,
    UpstreamResponse,
)
from mildroute.gateway.upstream.failover import (
    FAILURE_REASONS,
    Attempt,
    Failover,
    close_result,
    error_from_failures,
)
from mildroute.gateway.upstream.pool import ExpertPool
from mildroute.gateway.upstream.usage import (
    ResponseIdFilter,
    UsageFilter,
    decode_response_id,
    encode_response_id,
    without_logprobs,
)

__all__ = ["CompletionsEndpoint"]


_LOG = logging.getLogger(__name__)
_INTERNAL_ERROR = 500
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_EVENT_STREAM = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_KEEP_ALIVE = b": keep-alive\n\n"
# Statuses of a request that has a field which an expert does not know.
_REFUSED = (400, 422)
_BRACKETS = 8
# Reasons of calls whose experts may have generated a response that did not arrive.
_UNKNOWN = ("", "hedged")


@dataclass
class _Calls:
    """Calls of one request.

    Attributes:
        characters: Of a stream that are looked at, or none for all.
        answered: Responses of experts whose answers are looked at.
        silent: Experts whose answers say nothing.
        logprobs: Mean log-probabilities of their tokens, as far as they are known.
    """

    request: UpstreamRequest
    deadline: float
    context: RequestContext
    characters: int | None = None
    answered: dict[str, Attempt] = field(default_factory=dict)
    logprobs: dict[str, float | None] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)


class CompletionsEndpoint:
    """Serves requests with the response of an expert."""

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

    async def handle(self, path: str, request: Request) -> None:
        """Serve one request.

        Args:
            path: ``"chat/completions"``, ``"completions"``, ``"responses"``, ``"embeddings"`` or
                ``"messages"``.
            request: Of the client.
        """
        client = self._authenticator.authenticate(request)
        self._authenticator.admit(client, request)
        body = await request.body(self._limits)
        arrived = perf_counter()
        parse = parse_messages if path == "messages" else partial(parse_request, path)
        parsed = await parse_body(body, parse, body, client.name, self._routed)
        check_model(client, parsed.model)
        parsed = _with_owner(parsed)
        context = self._recorder.start(client, parsed, arrived)
        try:
            await self._serve(context, request)
        finally:
            self._authenticator.settle(context.reservation, context.charge)
        if self._sampler is not None:
            self._sampler.offer(context, request.headers)

    async def _serve(self, context: RequestContext, request: Request) -> None:
        request.watch_disconnect()
        try:
            self._recorder.trace(context, request)
            context.request_id = get_request_id(request.headers)
            routing = await self._decide(context, request)
            await self._reserve(context, routing)
            self._recorder.decided(context, routing)
            # A client that leaves now has caused a call that is paid for.
            request.linger(self._limits.disconnect_timeout, context.attempts.abandon)
            attempt = await self._call(context, request)
            if attempt is None:
                await self._send_failure(context, request)
                return
            try:
                await self._forward(attempt, context, request)
            finally:
                attempt.close()
        except asyncio.CancelledError:
            if not request.is_disconnected:
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
            if context.decided:
                request.is_decided = True
                await self._recorder.finish(context)

    async def _decide(self, context: RequestContext, request: Request) -> RoutingResult:
        parsed = context.parsed
        if not self._decider.is_route(parsed.model):
            return self._decider.pin_expert(parsed, context.decision_id)
        if parsed.path == "embeddings":
            message = (
                "model must name an expert here: vectors of different experts cannot be compared,"
                " so the gateway does not choose."
            )
            raise APIError(400, message, code="model_not_chosen", param="model")
        if parsed.owner is not None and parsed.owner not in self._pool.callable:
            message = (
                "previous_response_id must be of an expert that this gateway can call, got one of"
                f" {parsed.owner}, which is gone; send the whole conversation."
            )
            raise APIError(
                400, message, code="previous_response_not_found", param="previous_response_id"
            )
        target = resolve_target(target_headers(request.headers), parsed.model, self._routing)
        return await self._decider.decide(parsed, target, context.coin_key, context.decision_id)

    async def _reserve(self, context: RequestContext, routing: RoutingResult) -> None:
        """Hold the most that a request can take; an APIError if its key has not so much left."""
        client, parsed, decision = context.client, context.parsed, routing.decision
        if client.has_limits:
            charge = self._pool.max_charge(parsed, decision.order)
            if decision.look and routing.predictor is not None:
                predictor = routing.predictor
                charge = self._pool.max_charge_of_look(
                    parsed, predictor.looks[decision.look], decision.order, predictor.max_calls
                )
            is_bounded = parsed.tokens_out is not None or parsed.path == "embeddings"
            context.reservation = await self._authenticator.reserve(
                client, charge.dollars, is_bounded=is_bounded
            )

    async def _call(self, context: RequestContext, request: Request) -> Attempt | None:
        decision = context.decision
        if not decision.order:
            return None
        if self._sampler is not None and self._sampler.takes(context, request):
            context.answer = bytearray()
        headers = request.headers
        if context.span is not None:
            headers = [header for header in headers if header[0] not in _TRACE_HEADERS]
        calls = _Calls(
            UpstreamRequest(context.parsed, forward_request_headers(headers)),
            self._failover.deadline(),
            context,
        )
        try:
            if decision.look and context.routing.predictor is not None:
                look = self._look(calls, context.routing.predictor)
                if context.parsed.is_stream:
                    return await self._hold(look, context, request)
                return await look
            return await self._attempt(decision.order, calls)
        finally:
            self._charge_lost(context)
            self._recorder.attempted(context)

    async def _attempt(
        self,
        order: Sequence[str],
        calls: _Calls,
        *,
        is_look: bool = False,
        logprobs: bool = False,
    ) -> Attempt | None:
        """Call experts until one responds."""
        context, started = calls.context, perf_counter()
        try:
            return await self._failover.call(
                calls.request._replace(logprobs=logprobs),
                order,
                context.decision.excluded,
                context.attempts,
                context.span,
                calls.deadline,
                is_look=is_look,
            )
        finally:
            context.waited += perf_counter() - started

    async def _look(self, calls: _Calls, predictor: Predictor) -> Attempt | None:
        """Call the experts of a look, and decide again by what they answered.

        An expert that fails or says nothing ends it: the first answer that has come is returned,
        and if there is none the next expert of the order is called.
        """
        context = calls.context
        prediction = context.decision.prediction
        if context.parsed.is_stream and self._routing.stream_looks == "first":
            calls.characters = predictor.look_characters
        stage: int | None = predictor.stage_of(context.decision.look)
        found: int | str | None = None
        try:
            while stage is not None:
                wanted = predictor.asked(stage)
                is_answered = await self._ask(wanted, calls, predictor.logprob_experts)
                if not is_answered or prediction is None:
                    break
                found = await asyncio.to_thread(_step, predictor, stage, prediction.row, calls)
                stage = found if isinstance(found, int) else None
            if isinstance(found, str):
                return await self._escalate(found, calls) or await self._first_answer(calls)
            return await self._first_answer(calls)
        finally:
            for attempt in calls.answered.values():
                _discard(attempt, context)

    async def _escalate(self, name: str, calls: _Calls) -> Attempt | None:
        """The answer that a look has chosen; none if its expert fails or says nothing.

        A stream has nothing left to wait for, and is not held back any longer.
        """
        if name in calls.answered:
            return calls.answered.pop(name)
        if not calls.context.parsed.is_stream:
            is_answered = await self._ask((name,), calls)
        else:
            attempt = await self._attempt((name,), calls, is_look=True)
            if attempt is None or not attempt.response.is_complete:
                return attempt
            calls.answered[name] = attempt
            is_answered = attempt.response.status < 300
            if is_answered:
                attempt.charge(calls.context.parsed)
        if not is_answered:
            return None
        if not (await asyncio.to_thread(_text_of, calls.answered[name])).strip():
            calls.silent.add(name)
            return None
        return calls.answered.pop(name)

    async def _first_answer(self, calls: _Calls) -> Attempt | None:
        """The best of what has come, else the answer of an expert that was not looked at."""
        answered, context = calls.answered, calls.context
        # A refusal of one expert is no answer while another has one.
        said = [name for name in answered if name not in calls.silent]
        if said:
            return answered.pop(min(said, key=lambda name: answered[name].response.status))
        failed = {failure.expert for failure in context.attempts.failures}
        # Those that have failed come last: they may be back when all others have failed, too.
        order = sorted(context.decision.order, key=failed.__contains__)
        attempt = await self._attempt([name for name in order if name not in answered], calls)
        if attempt is None and answered:
            return answered.popitem()[1]
        return attempt

    async def _hold(
        self, look: Coroutine[Any, Any, Attempt | None], context: RequestContext, request: Request
    ) -> Attempt | None:
        """Wait for a look at a stream.

        If it takes long the response begins before its expert is known, and comments keep it alive.
        """
        task = asyncio.create_task(look)
        try:
            while not (await asyncio.wait((task,), timeout=self._routing.stream_keep_alive))[0]:
                if not request.has_response and not request.is_disconnected:
                    # Of the calls not all have been made.
                    known = [each for each in context.headers() if each[0] != b"x-mildroute-calls"]
                    await request.start_stream(200, [*_EVENT_STREAM, *known])
                await self._send_chunk(_KEEP_ALIVE, context, request, is_last=False)
        except asyncio.CancelledError:
            # It charges its calls when it ends.
            task.cancel()
            task.add_done_callback(close_result)
            await asyncio.wait((task,))
            if request.has_response:
                await self._end_stream(shutting_down(), context, request)
            raise
        return task.result()

    async def _ask(
        self, names: Sequence[str], calls: _Calls, logprobs: Container[str] = ()
    ) -> bool:
        """Call experts that have not answered yet, at the same time; whether all have answers.

        Each is charged when it has answered, whatever becomes of its answer; a stream of which no
        more than the beginning was read, when it has ended or is given up. Log-probabilities are
        wanted of the experts that ``logprobs`` holds.
        """
        wanted = [name for name in names if name not in calls.answered]
        started = perf_counter()
        waited = calls.context.waited
        try:
            found = await asyncio.gather(
                *(self._answer(name, calls, logprobs=name in logprobs) for name in wanted)
            )
        finally:
            # Calls at the same time are waited for once.
            calls.context.waited = waited + perf_counter() - started
        calls.answered |= {
            name: attempt
            for name, attempt in zip(wanted, found, strict=True)
            if attempt is not None
        }
        return all(attempt is not None and attempt.response.status < 300 for attempt in found)

    async def _answer(self, name: str, calls: _Calls, *, logprobs: bool) -> Attempt | None:
        """Call an expert for its whole answer, and charge it; none if it has none."""
        # They are there as well if the client asks for them itself.
        is_added = logprobs and self._adds_logprobs(name, calls)
        attempt = await self._attempt((name,), calls, is_look=True, logprobs=is_added)
        if attempt is None:
            return None
        attempt.call.status = attempt.response.status
        if is_added and attempt.response.status in _REFUSED:
            attempt.call.end("logprobs")
            attempt.close()
            return await self._ask_without_logprobs(name, calls)
        try:
            if attempt.response.status < 300 and not attempt.response.is_complete:
                most = self._limits.max_response_bytes
                is_enough = partial(_has_text, calls.characters)
                await attempt.response.read_all(calls.deadline, most, is_enough)
            if logprobs and attempt.response.status < 300:
                await _read_logprob(attempt, calls, is_added=is_added)
        except UpstreamError as error:
            attempt.record_failure()
            calls.context.attempts.fail(name, error.reason)
            _discard(attempt, calls.context)
            return None
        except BaseException:
            _discard(attempt, calls.context)
            raise
        if attempt.response.is_complete and attempt.response.status < 400:
            attempt.charge(calls.context.parsed)
        return attempt

    def _adds_logprobs(self, name: str, calls: _Calls) -> bool:
        is_asked = calls.request.parsed.logprobs_option is None
        return self._pool.find(name).has_logprobs and not is_asked

    async def _ask_without_logprobs(self, name: str, calls: _Calls) -> Attempt | None:
        """Call an expert again that has refused a request, perhaps for the log-probabilities.

        If it takes it now, it is not asked for them again.
        """
        attempt = await self._answer(name, calls, logprobs=False)
        client = self._pool.find(name).client
        is_taken = attempt is not None and attempt.response.status < 300
        # One that refuses them beside tools or a schema may still give them to other requests.
        if is_taken and client is not None and not calls.request.parsed.needs:
            client.has_logprobs = False
            log_event(_LOG, logging.WARNING, "expert refuses logprobs", expert=name)
        return attempt

    async def _send_failure(self, context: RequestContext, request: Request) -> None:
        if request.is_disconnected:
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

    async def _forward(self, attempt: Attempt, context: RequestContext, request: Request) -> None:
        response, expert = attempt.response, attempt.expert
        context.served_by = expert.name
        context.first_byte = perf_counter()
        attempt.call.status = response.status
        if response.is_complete and response.status < 400:
            _count_usage(attempt, context)
        is_whole = response.is_complete and not response.has_events
        is_charged = is_whole and response.status < 300 and expert.has_price
        told = context.headers(expert.header, is_charged=is_charged)
        headers = [*response.forwarded_headers(), *told]
        if response.status < 300:
            self._decider.remember(context.parsed.conversation, expert.name)
        if request.has_response:
            # A stream that was held back: what its headers could not tell stands in comments.
            late = b"".join([b": %b: %b\n" % each for each in told])
            await self._send_chunk(late + b"\n", context, request, is_last=False)
        if response.is_complete:
            await self._send_whole(attempt, context, request, headers)
        else:
            await self._stream(attempt, context, request, headers)

    async def _send_whole(
        self, attempt: Attempt, context: RequestContext, request: Request, headers: list[Header]
    ) -> None:
        response = attempt.response
        context.keep(response.body)
        body_filter = self._filter(attempt, context, request)
        try:
            feed = partial(body_filter.feed, response.body, is_last=True)
            body = await parse_body(response.body, feed)
        except UpstreamError as broken:
            await self._send_broken(broken, attempt, context, request)
            return
        if _wants_details(request) and response.status < 300 and not response.has_events:
            body = _with_details(body, context.details(has_price=attempt.expert.has_price))
        if request.is_disconnected:
            return
        context.status = response.status
        context.bytes_out += len(body)
        if request.has_response:
            if not response.has_events:
                error = APIError(response.status, f"{attempt.expert.name} refused the request.")
                path = context.parsed.called_path
                body = _as_event(body or error.body(path), path)
            await request.send_chunk(body, self._idle_timeout, is_last=True)
        else:
            await request.send_response(response.status, headers, body)

    async def _send_broken(
        self, broken: UpstreamError, attempt: Attempt, context: RequestContext, request: Request
    ) -> None:
        """Tell the client that a stream which has come whole cannot be translated."""
        attempt.record_failure()
        attempt.call.reason = broken.reason
        cause = FAILURE_REASONS[broken.reason]
        failure = APIError(502, f"{attempt.expert.name} {cause}; ask again.")
        if request.has_response:
            await self._end_stream(failure, context, request)
        elif not request.is_disconnected:
            context.status = failure.status
            await request.send_error(failure, context.headers())

    async def _stream(
        self, attempt: Attempt, context: RequestContext, request: Request, headers: list[Header]
    ) -> None:
        response = attempt.response
        if not request.is_disconnected and not request.has_response:
            await request.start_stream(response.status, headers)
        chunk = response.body
        body_filter = self._filter(attempt, context, request)
        # Bytes that are still read for the bill of a client that has left.
        unread = self._limits.disconnect_max_bytes
        try:
            while unread >= 0:
                is_last = response.is_complete
                if request.is_disconnected:
                    unread -= len(chunk)
                context.keep(chunk)
                chunk = body_filter.feed(chunk, is_last=is_last)
                await self._send_chunk(chunk, context, request, is_last=is_last)
                if is_last:
                    break
                chunk = await attempt.read()
            if not request.is_disconnected:
                context.status = response.status
        except UpstreamError as error:
            attempt.record_failure()
            attempt.call.reason = error.reason
            cause = FAILURE_REASONS.get(error.reason, "failed")
            message = f"{attempt.expert.name} {cause} in the middle of its answer; ask again."
            failure = APIError(504 if isinstance(error, UpstreamTimeout) else 502, message)
            # An error that the expert reported itself has been passed on.
            is_told = isinstance(error, StreamError)
            await self._abort_stream(failure, attempt, context, request, is_told=is_told)
        except asyncio.CancelledError:
            await self._abort_stream(shutting_down(), attempt, context, request)
            raise
        finally:
            _count_usage(attempt, context)

    async def _send_chunk(
        self, chunk: bytes, context: RequestContext, request: Request, *, is_last: bool
    ) -> None:
        if request.is_disconnected:
            return
        context.bytes_out += len(chunk)
        try:
            await request.send_chunk(chunk, self._idle_timeout, is_last=is_last)
        except ClientDisconnect:
            request.disconnect()

    def _charge_lost(self, context: RequestContext) -> None:
        """Charge calls whose answers were not read to the end.

        Slower experts of a hedged request have read it; what they generated is not known. One that
        took too long may have generated all that it was allowed, or nothing: it is in no bill, but
        counts for the limits of keys, which could else spend without end on late answers.
        """
        tokens_in = context.parsed.tokens_in
        for call in context.attempts.calls:
            if call.reason == "hedged":
                cost = self._pool.find(call.expert).cost(tokens_in, 0)
                call.charge((tokens_in, 0), cost)
            elif call.reason == "timeout" and not (call.status or call.is_charged):
                most = self._pool.max_charge(context.parsed, (call.expert,))
                context.lost_dollars += most.dollars

    def _charge_unfinished(self, context: RequestContext) -> None:
        """Charge the most that calls can have cost which ended before they told."""
        if not context.served_by:
            for call in context.attempts.calls:
                if call.reason in _UNKNOWN and (call.reason or not call.is_charged):
                    dollars, tokens = self._pool.max_charge(context.parsed, (call.expert,))
                    tokens_in = context.parsed.tokens_in
                    call.charge((tokens_in, int(tokens) - tokens_in), dollars)

    async def _abort_stream(
        self,
        failure: APIError,
        attempt: Attempt,
        context: RequestContext,
        request: Request,
        *,
        is_told: bool = False,
    ) -> None:
        """Tell the client in the middle of its response.

        A response that is not made of events can only be cut off.
        """
        if not attempt.response.has_events and not request.is_disconnected:
            context.status = failure.status
            raise ClientDisconnect("an interrupted answer cannot be ended.")
        await self._end_stream(failure, context, request, is_told=is_told)

    async def _end_stream(
        self,
        failure: APIError,
        context: RequestContext,
        request: Request,
        *,
        is_told: bool = False,
    ) -> None:
        """End a stream that has begun by an error event, unless the client was told."""
        if request.is_disconnected:
            return
        context.status = failure.status
        event = b"" if is_told else failure.event(context.parsed.called_path)
        await request.send_chunk(event, self._idle_timeout, is_last=True)

    def _filter(
        self, attempt: Attempt, context: RequestContext, request: Request
    ) -> UsageFilter | ResponseIdFilter | MessageFilter:
        """What of a response the client gets otherwise than the expert sent it."""
        parsed, expert = context.parsed, attempt.expert.name
        if parsed.original is not None:
            details = partial(_details, attempt, context) if _wants_details(request) else None
            return MessageFilter(attempt.response, details)
        if parsed.path != "responses" or attempt.response.status >= 300:
            event = partial(_details_event, attempt, context)
            has_event = attempt.response.has_events and _wants_details(request)
            return UsageFilter(
                is_active=_hides_usage(attempt, context), last_event=event if has_event else None
            )
        encode = partial(encode_response_id, expert=expert)
        previous = None
        if parsed.previous_id is not None and parsed.owner is not None:
            # The expert repeats it as it knows it.
            _, _, response_id = parsed.previous_id
            sent = encode_response_id(response_id, parsed.owner)
            previous = (response_id, sent)
        return ResponseIdFilter(encode, previous)


class MessageFilter:
    """Gives Anthropic's clients a response in the form of the Messages API.

    That of an expert of kind ``anthropic`` stays as it came.

    Args:
        response: Of the expert.
        details: What an event at the end of a stream tells, or none.
    """

    __slots__ = ("_details", "_held", "_response", "_stream")

    def __init__(
        self, response: UpstreamResponse, details: Callable[[], dict[str, Any]] | None
    ) -> None:
        self._response = response
        self._details = details if response.has_events else None
        self._stream = MessageStream(self._details)
        self._held = b""

    def feed(self, chunk: bytes, *, is_last: bool) -> bytes:
        """The bytes to send after the next ones have come; an UpstreamProtocolError if none can."""
        response = self._response
        if isinstance(response, AnthropicResponse):
            event = b""
            if is_last and self._details is not None:
                event = b"event: mildroute\ndata: %b\n\n" % json.dumps(self._details()).encode()
            return response.take_original() + event
        try:
            if response.has_events:
                return self._stream.feed(chunk)
            self._held += chunk
            return self._translate() if is_last else b""
        except (ValueError, RecursionError):
            # A TranslationError is a ValueError, too.
            raise UpstreamProtocolError from None

    def _translate(self) -> bytes:
        status = self._response.status
        if status < 300:
            return self._response.message
        try:
            said = json.loads(self._held)["error"]["message"]
        except (ValueError, TypeError, LookupError, RecursionError):
            said = None
        message = said if type(said) is str else "the expert refused the request."
        return json.dumps(message_error(status, message)).encode()


def _with_owner(parsed: ParsedRequest) -> ParsedRequest:
    """Return the request with the expert that its previous response is of, which the id tells."""
    if parsed.previous_id is None:
        return parsed
    start, end, encoded = parsed.previous_id
    decoded = decode_response_id(encoded)
    if decoded is None:
        message = (
            "previous_response_id must be the id of a response of this gateway, got another one;"
            " send the whole conversation."
        )
        raise APIError(
            400, message, code="previous_response_not_found", param="previous_response_id"
        )
    response_id, owner = decoded
    return replace(parsed, previous_id=(start, end, response_id), owner=owner)


def _hides_usage(attempt: Attempt, context: RequestContext) -> bool:
    """Whether the gateway, and not the client, asked for the usage of a stream of events."""
    client = attempt.expert.client
    return (
        context.parsed.usage_option is not None
        and client is not None
        and client.includes_usage
        and attempt.response.has_events
    )


def _wants_details(request: Request) -> bool:
    return (request.header(DETAILS) or b"").strip().lower() == b"on"


def _with_details(body: bytes, details: bytes) -> bytes:
    """A JSON object with one more member; a body that is none, such as a packed one, as it is."""
    head = body.rstrip()
    if not (head.startswith(b"{") and head.endswith(b"}")):
        return body
    rest = head[:-1].rstrip()
    comma = b"" if rest == b"{" else b", "
    return b'%b%b"mildroute": %b}' % (rest, comma, details)


def _details(attempt: Attempt, context: RequestContext) -> dict[str, Any]:
    """An event for Anthropic's clients."""
    _count_usage(attempt, context)
    details = json.loads(context.details(has_price=attempt.expert.has_price))
    return {"type": "mildroute", "mildroute": details}


def _details_event(attempt: Attempt, context: RequestContext) -> bytes:
    """The last event of a stream: without choices, as that of the usage."""
    _count_usage(attempt, context)
    details = context.details(has_price=attempt.expert.has_price)
    return (
        b'data: {"object": "chat.completion.chunk", "choices": [], "mildroute": %b}\n\n' % details
    )


def _as_event(body: bytes, path: str) -> bytes:
    """A body that is not made of events, such as an error, in a stream of them."""
    name = b"event: error\n" if path == "messages" else b""
    return name + b"".join([b"data: %b\n" % line for line in body.splitlines()]) + b"\n"


def _count_usage(attempt: Attempt, context: RequestContext) -> None:
    """Count the tokens of the response that the client gets."""
    context.tokens, context.cached_tokens = attempt.charge(context.parsed)


async def _read_logprob(attempt: Attempt, calls: _Calls, *, is_added: bool) -> None:
    """Keep the log-probability of an answer, and remove what its client did not ask for."""
    response = attempt.response
    logprob = await asyncio.to_thread(answer_logprob, response.body)
    calls.logprobs[attempt.expert.name] = logprob
    if is_added:
        response.body = await asyncio.to_thread(without_logprobs, response.body)


def _step(predictor: Predictor, stage: int, row: Any, calls: _Calls) -> str | int | None:
    """What to do after a stage; none if an expert said nothing, which no router has learned from.

    A response without a text or a tool call would else count as an answer, and as a short one.
    """
    texts = {name: _text_of(attempt) for name, attempt in calls.answered.items()}
    calls.silent = {name for name, text in texts.items() if not text.strip()}
    return None if calls.silent else predictor.step(stage, row, texts, calls.logprobs)


def _text_of(attempt: Attempt) -> str:
    return answer_text(_without_rest(attempt.response.body))


def _without_rest(body: bytes | bytearray) -> bytes | bytearray:
    """Events that have come whole; other bodies as they are."""
    return body[: body.rfind(b"\n") + 1] if body.startswith((b"data:", b"event:", b":")) else body


def _has_text(characters: int | None, body: bytes | bytearray) -> bool:
    """Whether events that have come whole hold so much text."""
    if characters is None or len(body) < characters:
        return False
    # A tool call that is not complete ends with brackets that the whole one has later.
    return len(answer_text(_without_rest(body))) >= characters + _BRACKETS


def _discard(attempt: Attempt, context: RequestContext) -> None:
    """Charge a call for what has come, unless it has been, and be done with it."""
    if attempt.response.status < 400 and not attempt.call.is_charged:
        attempt.charge(context.parsed)
    attempt.close()


def _no_eligible_expert(context: RequestContext) -> APIError:
    """Why no expert can serve a request: it is too long, or needs what none can do."""
    causes = (
        "; ".join(f"{name}: {reason}" for name, reason in context.decision.excluded.items())
        or "there is none that can be called"
    )
    fields = ", ".join(context.parsed.untranslated)
    if fields:
        causes += f"; {fields} can be served by experts of kind anthropic only"
    if not fields and all(reason == "absent" for reason in context.decision.excluded.values()):
        return APIError(
            400,
            f"this gateway can call none of its experts ({causes}); ask /v1/route which of them to"
            " call.",
            code="no_expert",
        )
    return APIError(
        400,
        f"no expert can take this request ({causes}); shorten it, or ask for less.",
        code="no_expert",
    )
