"""An expert's answer on its way to the client, or the news that there is none."""

from __future__ import annotations

import asyncio
import re
from time import perf_counter

from mildroute.serving.attempts import Answer, Attempts, Failure
from mildroute.serving.caller import Caller, GoneError
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.connection import LostError
from mildroute.serving.conversations import Conversations, named_conversation
from mildroute.serving.course import Course
from mildroute.serving.settings import Settings
from mildroute.serving.usage import StreamUsage, usage_of

__all__ = ["Delivery", "complaint_of"]

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


class Delivery:
    """Brings a client the answer to its request; what is sent before the first byte of an answer can still come from another expert.

    Args:
        attempts: Asks the experts.
        settings: How long a client may take to read.
        conversations: Remembers who has answered.

    Example:
        >>> Delivery.__name__
        'Delivery'
    """

    def __init__(self, attempts: Attempts, settings: Settings, conversations: Conversations) -> None:
        self._attempts, self._idle, self._conversations = attempts, settings.failover.idle, conversations

    async def deliver(self, course: Course, caller: Caller) -> None:
        """Answer a request that has been decided, well or with an error; its course knows the rest."""
        before = perf_counter()
        found = await self._attempts.first_good(course, self._attempts.deadline(asyncio.get_running_loop().time()))
        course.waited = perf_counter() - before
        if not isinstance(found, Answer):
            complaint = complaint_of(found)
            course.status = complaint.status
            await caller.complain(complaint, course.headers())
            return
        try:
            await self._pass_on(found, course, caller)
        finally:
            found.release()

    async def _pass_on(self, answer: Answer, course: Course, caller: Caller) -> None:
        connection, candidate = answer.connection, answer.candidate
        course.answered, course.first_byte = candidate.name, perf_counter()
        headers = [*answer.headers(), *course.headers(candidate.header)]
        self._remember(answer, course)
        if not connection.is_done:
            await self._stream(answer, course, caller, headers)
            return
        course.status = connection.status
        if connection.status < 400:
            _count(course, answer)
        await caller.answer(connection.status, headers, answer.body)

    async def _stream(self, answer: Answer, course: Course, caller: Caller, headers: list[tuple[bytes, bytes]]) -> None:
        connection, usage = answer.connection, StreamUsage()
        await caller.start(connection.status, headers)
        data = answer.body
        try:
            while True:
                usage.feed(data)
                is_last = connection.is_done
                await caller.piece(data, self._idle, is_last=is_last)
                if is_last:
                    break
                data = await connection.more()
            course.status = connection.status
        except LostError as error:
            answer.candidate.failed(answer.started)
            await self._break_off(error, answer, course, caller)
        finally:
            _count_stream(course, answer, usage)

    async def _break_off(self, error: LostError, answer: Answer, course: Course, caller: Caller) -> None:
        """Tell the client in the middle of its answer; one that is not made of events can only be cut off."""
        name, status = answer.candidate.name, 504 if error.why == "timeout" else 502
        complaint = ComplaintError(status, f"{name} {_WORDS.get(error.why, 'failed')} in the middle of its answer; ask again.")
        course.status = status
        sent = dict(answer.connection.headers)
        if sent.get(b"content-type", b"").startswith(_EVENTS) and b"content-encoding" not in sent:
            await caller.piece(complaint.event(course.asked.path), self._idle, is_last=True)
        else:
            raise GoneError("an answer that broke off cannot be ended.")

    def _remember(self, answer: Answer, course: Course) -> None:
        asked, name = course.asked, answer.candidate.name
        if answer.connection.status >= 300:
            return
        self._conversations.keep(asked.conversation, name)
        if asked.path == "responses" and (found := _id_of_response(answer.body, 0, _HEAD)):
            # The next turn may name this answer alone, and only who gave it knows what it was.
            self._conversations.keep(named_conversation(found[1].decode("latin-1"), course.client.name), name)


def complaint_of(failures: list[Failure]) -> ComplaintError:
    """What a client is told if nobody answered: who was asked, and what came of it.

    Args:
        failures: In their order; none if there was no time to ask anyone.

    Example:
        >>> complaint = complaint_of([Failure("small", "connect"), Failure("large", "timeout")])
        >>> complaint.status, complaint.message
        (504, 'no expert answered: small could not be reached; large took too long.')
    """
    if not failures:
        return ComplaintError(504, "no expert answered: the time of the request was over before one could be asked; send it again.")
    last = failures[-1]
    said = "; ".join(f"{failure.expert} {_WORDS.get(failure.why, 'failed')}" for failure in failures)
    rests = [failure.retry_after for failure in failures if failure.retry_after is not None]
    return ComplaintError(_status_of(last), f"no expert answered: {said}.", retry_after=min(rests, default=None))


def _status_of(failure: Failure) -> int:
    if failure.why == "misconfigured" or failure.status is None or failure.status < 400:
        return {"timeout": 504, "down": 503, "busy": 503}.get(failure.why, 502)
    return failure.status if failure.status in (408, 429) or failure.status >= 500 else 502


def _count(course: Course, answer: Answer) -> None:
    if course.asked.is_stream:
        usage = StreamUsage()
        usage.feed(answer.body)
        _count_stream(course, answer, usage)
        return
    tokens = usage_of(answer.body)
    if tokens is None:
        guess = 0 if course.asked.path == "embeddings" else len(answer.body) // _BYTES_PER_TOKEN
        tokens = course.asked.tokens_in, guess
    course.tokens = tokens
    course.dollars = answer.candidate.dollars(*tokens)


def _count_stream(course: Course, answer: Answer, usage: StreamUsage) -> None:
    tokens_in, tokens_out = usage.tokens()
    course.tokens = course.asked.tokens_in if tokens_in is None else tokens_in, tokens_out
    course.dollars = answer.candidate.dollars(*course.tokens)
