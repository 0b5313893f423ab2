"""``POST /v1/chat/completions`` and its kin: read, decide, deliver, write down."""

from __future__ import annotations

import asyncio
from time import perf_counter

from mildroute.serving.caller import Caller, GoneError
from mildroute.serving.closing import Closing
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.course import Course
from mildroute.serving.deciding import Deciding
from mildroute.serving.delivery import Delivery
from mildroute.serving.entrance import Entrance
from mildroute.serving.parts import Parts
from mildroute.serving.passing import passed_on
from mildroute.serving.reading import read_request
from mildroute.serving.time_limit import uncancel
from mildroute.serving.wishes import request_id_of, target_of, wishes_of

__all__ = ["Answering"]

_UNEXPECTED, _STOPPED = 500, 503
_TRACED = (b"traceparent", b"tracestate")


class Answering:
    """Answers requests with an expert's answer.

    Args:
        parts: Of the gateway.
        entrance: Knows clients.
        deciding: Chooses experts.
        delivery: Brings their answers.
        closing: Writes down what came of it.

    Example:
        >>> Answering.__name__
        'Answering'
    """

    def __init__(self, parts: Parts, entrance: Entrance, deciding: Deciding, delivery: Delivery, closing: Closing) -> None:
        self._parts, self._entrance, self._deciding, self._delivery, self._closing = parts, entrance, deciding, delivery, closing
        self._limits = parts.settings.limits

    async def answer(self, path: str, caller: Caller) -> None:
        """Answer one request.

        Args:
            path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
            caller: The client's side.
        """
        client = self._entrance.client_of(caller)
        self._entrance.admit(client)
        course = None
        try:
            body = await caller.body(self._limits.body, self._limits.body_seconds)
            arrived, now = perf_counter(), self._parts.now()
            course = Course(self._parts.new_id(), now, arrived, client, read_request(path, body, client.name))
            await self._serve(course, caller)
        finally:
            self._entrance.charge(client, 0.0 if course is None else course.dollars)

    async def _serve(self, course: Course, caller: Caller) -> None:
        caller.watch()
        try:
            await self._decide(course, caller)
            await self._deliver(course, caller)
        except asyncio.CancelledError:
            if not caller.is_gone:
                course.status = _STOPPED
                raise
            uncancel(asyncio.current_task())
        except GoneError:
            pass
        except ComplaintError as complaint:
            course.status = complaint.status
            raise
        except BaseException:
            course.status = _UNEXPECTED
            raise
        finally:
            caller.unwatch()
            if course.decided:
                caller.is_counted = True
                await self._closing.close(course)

    async def _decide(self, course: Course, caller: Caller) -> None:
        self._trace(course, caller)
        asked = course.asked
        if not self._deciding.leaves_choice(asked.model):
            self._deciding.take_named(course)
        elif asked.path == "embeddings":
            message = "model must name an expert here: vectors of different experts cannot be compared, so the gateway does not choose."
            raise ComplaintError(400, message, code="model_not_chosen", param="model")
        else:
            headers = caller.scope["headers"]
            course.request_id = request_id_of(headers)
            await self._deciding.choose(course, target_of(wishes_of(headers), asked.model, self._parts.settings.policy))

    async def _deliver(self, course: Course, caller: Caller) -> None:
        if not course.decision.order:
            complaint = _nobody(course)
            course.status = complaint.status
            await caller.complain(complaint, course.headers())
            return
        await self._delivery.deliver(course, caller)

    def _trace(self, course: Course, caller: Caller) -> None:
        headers, spans = caller.scope["headers"], self._parts.spans
        if spans.is_on:
            course.trace = spans.begin(course.asked.path, {name.decode("latin-1"): value.decode("latin-1") for name, value in headers})
            headers = [header for header in headers if header[0] not in _TRACED]
        course.passed_on = passed_on(headers)


def _nobody(course: Course) -> ComplaintError:
    """Why nobody can take a request: it is too long, or needs what no expert can do."""
    said = "; ".join(f"{name}: {why}" for name, why in course.decision.excluded.items()) or "there is none that can be called"
    return ComplaintError(400, f"no expert can take this request ({said}); shorten it, or ask for less.", code="no_expert")
