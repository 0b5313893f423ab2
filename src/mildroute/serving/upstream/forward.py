"""Forward the response of an expert to the client, or the error that there is none."""

from __future__ import annotations

import asyncio
import re
from time import perf_counter

from mildroute.serving.config import GatewayConfig
from mildroute.serving.context import RequestContext
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import ClientDisconnectError, Request
from mildroute.serving.routing.affinity import SessionAffinity, named_conversation
from mildroute.serving.upstream._http1 import UpstreamError
from mildroute.serving.upstream.failover import AttemptFailure, Failover, UpstreamResponse
from mildroute.serving.upstream.usage import StreamUsageParser, parse_usage

__all__ = ["ResponseForwarder", "error_from_failures"]


_EVENTS = b"text/event-stream"
_BYTES_PER_TOKEN = 4
_id_of_response = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{1,200})"').search
_HEAD = 4096
_WORDS = {
    "busy": "had no room for another call",
    "connect": "could not be reached",
    "down": "is left alone after failures",
    "lost": "broke the connection",
    "malformed": "sent what is no answer",
    "misconfigured": "refused the gateway's own key, address or model",
    "oversize": "sent too much",
    "rate": "is over its rate",
    "redirect": "sent the gateway elsewhere",
    "timeout": "took too long",
    "5xx": "had an error",
}


class ResponseForwarder:
    """Brings a client the answer to its request; what is sent before the first byte of an answer can still come from another expert.

    Args:
        attempts: Asks the experts.
        settings: How long a client may take to read.
        affinity: Remembers who has answered.
    """

    def __init__(self, attempts: Failover, settings: GatewayConfig, affinity: SessionAffinity) -> None:
        self._attempts, self._idle, self._affinity = attempts, settings.failover.idle, affinity

    async def deliver(self, context: RequestContext, request: Request) -> None:
        """Answer a request that has been decided, well or with an error; its context has the rest."""
        before = perf_counter()
        found = await self._attempts.call_first_available(context, self._attempts.deadline(asyncio.get_running_loop().time()))
        context.waited = perf_counter() - before
        if not isinstance(found, UpstreamResponse):
            error_response = error_from_failures(found)
            context.status = error_response.status
            await request.send_error(error_response, context.headers())
            return
        try:
            await self._pass_on(found, context, request)
        finally:
            found.release()

    async def _pass_on(self, answer: UpstreamResponse, context: RequestContext, request: Request) -> None:
        connection, candidate = answer.connection, answer.candidate
        context.answered, context.first_byte = candidate.name, perf_counter()
        headers = [*answer.headers(), *context.headers(candidate.header)]
        self._remember(answer, context)
        if not connection.is_done:
            await self._stream(answer, context, request, headers)
            return
        context.status = connection.status
        if connection.status < 400:
            _count(context, answer)
        await request.answer(connection.status, headers, answer.body)

    async def _stream(
        self, answer: UpstreamResponse, context: RequestContext, request: Request, headers: list[tuple[bytes, bytes]]
    ) -> None:
        connection, usage = answer.connection, StreamUsageParser()
        await request.start(connection.status, headers)
        data = answer.body
        try:
            while True:
                usage.feed(data)
                is_last = connection.is_done
                await request.piece(data, self._idle, is_last=is_last)
                if is_last:
                    break
                data = await connection.more()
            context.status = connection.status
        except UpstreamError as error:
            answer.candidate.failed(answer.started)
            await self._break_off(error, answer, context, request)
        finally:
            _count_stream(context, answer, usage)

    async def _break_off(self, error: UpstreamError, answer: UpstreamResponse, context: RequestContext, request: Request) -> None:
        """Tell the client in the middle of its answer; one that is not made of events can only be cut off."""
        name, status = answer.candidate.name, 504 if error.why == "timeout" else 502
        error_response = APIError(status, f"{name} {_WORDS.get(error.why, 'failed')} in the middle of its answer; ask again.")
        context.status = status
        sent = dict(answer.connection.headers)
        if sent.get(b"content-type", b"").startswith(_EVENTS) and b"content-encoding" not in sent:
            await request.piece(error_response.event(context.parsed.path), self._idle, is_last=True)
        else:
            raise ClientDisconnectError("an answer that broke off cannot be ended.")

    def _remember(self, answer: UpstreamResponse, context: RequestContext) -> None:
        parsed, name = context.parsed, answer.candidate.name
        if answer.connection.status >= 300:
            return
        self._affinity.keep(parsed.conversation, name)
        if parsed.path == "responses" and (found := _id_of_response(answer.body, 0, _HEAD)):
            # The next turn may name this answer alone, and only who gave it knows what it was.
            self._affinity.keep(named_conversation(found[1].decode("latin-1"), context.client.name), name)


def error_from_failures(failures: list[AttemptFailure]) -> APIError:
    """What a client is told if nobody answered: who was asked, and what came of it.

    Args:
        failures: In their order; none if there was no time to ask anyone.

    Example:
        >>> error_response = error_from_failures([AttemptFailure("small", "connect"), AttemptFailure("large", "timeout")])
        >>> error_response.status, error_response.message
        (504, 'no expert answered: small could not be reached; large took too long.')
    """
    if not failures:
        return APIError(504, "no expert answered: the time of the request was over before one could be asked; send it again.")
    last = failures[-1]
    said = "; ".join(f"{failure.expert} {_WORDS.get(failure.why, 'failed')}" for failure in failures)
    rests = [failure.retry_after for failure in failures if failure.retry_after is not None]
    return APIError(_status_of(last), f"no expert answered: {said}.", retry_after=min(rests, default=None))


def _status_of(failure: AttemptFailure) -> int:
    if failure.why == "misconfigured" or failure.status is None or failure.status < 400:
        return {"timeout": 504, "down": 503, "busy": 503}.get(failure.why, 502)
    return failure.status if failure.status in (408, 429) or failure.status >= 500 else 502


def _count(context: RequestContext, answer: UpstreamResponse) -> None:
    if context.parsed.is_stream:
        usage = StreamUsageParser()
        usage.feed(answer.body)
        _count_stream(context, answer, usage)
        return
    tokens = parse_usage(answer.body)
    if tokens is None:
        guess = 0 if context.parsed.path == "embeddings" else len(answer.body) // _BYTES_PER_TOKEN
        tokens = context.parsed.tokens_in, guess
    context.tokens = tokens
    context.dollars = answer.candidate.dollars(*tokens)


def _count_stream(context: RequestContext, answer: UpstreamResponse, usage: StreamUsageParser) -> None:
    tokens_in, tokens_out = usage.tokens()
    context.tokens = context.parsed.tokens_in if tokens_in is None else tokens_in, tokens_out
    context.dollars = answer.candidate.dollars(*context.tokens)
