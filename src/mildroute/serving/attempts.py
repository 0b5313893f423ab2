"""Experts are asked one after the other, or one besides the other, until one answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mildroute.experts.backoff import retry_after
from mildroute.serving.candidate import Candidate
from mildroute.serving.connection import Connection, LostError, Patience
from mildroute.serving.course import Course
from mildroute.serving.passing import Header
from mildroute.serving.roster import Roster
from mildroute.serving.settings import Settings
from mildroute.serving.spans import Attempt
from mildroute.serving.upstream import Upstream
from mildroute.serving.verdicts import REFUSED, flaw_of

__all__ = ["Answer", "Attempts", "Failure"]

_OF_THE_REQUEST = ("busy", "oversize")
_PERHAPS_OF_THE_REQUEST = (403, 404, 405)


@dataclass(frozen=True)
class Failure:
    """An expert that did not answer.

    Args:
        expert: Its name.
        why: One of few words.
        status: Of its error, or none if there was none.
        retry_after: Seconds for which it wants to be left alone, or none.

    Example:
        >>> Failure("small", "timeout").status is None
        True
    """

    expert: str
    why: str
    status: int | None = None
    retry_after: float | None = None


class Answer:
    """An answer that is worth passing on; whole, or from its first bytes on.

    Args:
        upstream: From where it comes.
        candidate: Who answers.
        connection: Over which it comes; :meth:`release` it in any case.
        started: When the expert was asked, on its circuit's clock.

    Attributes:
        body: What is there of it, without our key if it is an error.

    Example:
        >>> Answer.__slots__
        ('_upstream', 'body', 'candidate', 'connection', 'started')
    """

    __slots__ = ("_upstream", "body", "candidate", "connection", "started")

    def __init__(self, upstream: Upstream, candidate: Candidate, connection: Connection, started: float) -> None:
        self._upstream, self.candidate, self.connection, self.started = upstream, candidate, connection, started
        self.body = b""

    def flaw(self) -> str:
        """Take what is there of it, and say why it is not worth passing on; empty if it is."""
        connection, body = self.connection, self.connection.take()
        self.body = body if connection.status < 400 else self._upstream.scrubbed(body)
        return flaw_of(connection.status, connection.headers, body, is_whole=connection.is_whole)

    def headers(self) -> list[Header]:
        """What the client is told of its headers."""
        return self._upstream.passed_back(self.connection.headers)

    def release(self) -> None:
        """Be done with it."""
        self._upstream.release(self.connection)


class Attempts:
    """Asks the experts of a decision.

    Args:
        roster: Who there is.
        settings: How long and how often to try.
        told: Called with the name of an expert that failed before its first byte, and why.
        clock: That of the circuits.
        now: Seconds since 1970, for dates in Retry-After.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.file import ExpertFile
        >>> Attempts(Roster(ExpertFile(Path("experts.yaml"), ()), Settings()), Settings()).deadline(100.0)
        220.0
    """

    def __init__(
        self,
        roster: Roster,
        settings: Settings,
        told: Callable[[str, str], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._roster, self._rules, self._limit = roster, settings.failover, settings.limits.answer
        self._told, self._clock, self._now = told, clock, now

    def deadline(self, now: float) -> float:
        """When a request that has just arrived must be answered."""
        return now + self._rules.deadline

    async def first_good(self, course: Course, deadline: float) -> Answer | list[Failure]:
        """Ask until one answers; the failures of all who were asked if none does.

        Args:
            course: The request; its attempts are counted.
            deadline: On the clock of the loop.
        """
        names = course.decision.order[: self._rules.attempts]
        if self._rules.hedge_after is not None and len(names) > 1:
            return await self._besides(names, course, deadline)
        failures: list[Failure] = []
        for name in names:
            if asyncio.get_running_loop().time() >= deadline:
                break
            found = await self._try(name, course, deadline, is_last=name == names[-1])
            if isinstance(found, Answer):
                return found
            failures.append(found)
        return failures

    async def _besides(self, names: Sequence[str], course: Course, deadline: float) -> Answer | list[Failure]:
        """Ask the next one besides whenever nobody has answered for a while, or at once when all who were asked have failed."""
        left, failures = list(names), []
        running: dict[asyncio.Task[Answer | Failure], str] = {}
        loop = asyncio.get_running_loop()
        try:
            while (left and loop.time() < deadline) or running:
                if left and loop.time() < deadline:
                    name = left.pop(0)
                    running[loop.create_task(self._try(name, course, deadline, is_last=not left))] = name
                done, _ = await asyncio.wait(
                    running, timeout=self._rules.hedge_after if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in sorted(done, key=lambda task: names.index(running[task])):
                    found = task.result()
                    if isinstance(found, Answer):
                        del running[task]
                        return found
                    failures.append(found)
                    del running[task]
        finally:
            self._call_off(running)
        return failures

    def _call_off(self, running: dict[asyncio.Task[Answer | Failure], str]) -> None:
        """Nothing is awaited here: a client that goes away meanwhile would take the answer that was found with it."""
        for task, name in running.items():
            self._told(name, "hedged")
            task.cancel()
            task.add_done_callback(_let_go)

    async def _try(self, name: str, course: Course, deadline: float, *, is_last: bool) -> Answer | Failure:
        candidate = self._roster.candidates[name]
        # Who was down when it was chosen was chosen because nobody else is left.
        if not candidate.breaker.try_enter() and not is_last and name not in course.decision.excluded:
            return self._failure(name, "down")
        course.attempts += 1
        started, span = self._clock(), course.trace.attempt(name)
        try:
            return await self._asked(candidate, course, deadline, started, span)
        except LostError as error:
            self._count(candidate, error.why, None, started)
            span.end(why=error.why)
            return self._failure(name, error.why)
        except BaseException:
            candidate.given_up(started)
            span.end(why="cancelled")
            raise

    async def _asked(self, candidate: Candidate, course: Course, deadline: float, started: float, span: Attempt) -> Answer | Failure:
        upstream, rules = candidate.upstream, self._rules
        if upstream is None:
            return self._failure(candidate.name, "misconfigured")
        first_by = min(asyncio.get_running_loop().time() + rules.first_byte, deadline)
        passed_on = course.passed_on
        if span.headers:
            passed_on += "".join(f"{name}: {value}\r\n" for name, value in span.headers.items()).encode("latin-1", "replace")
        connection = await upstream.ask(course.asked, passed_on, Patience(first_by, rules.idle, deadline, self._limit))
        answer = Answer(upstream, candidate, connection, started)
        try:
            flaw = answer.flaw()
            span.end(status=connection.status, why=flaw or None)
            if not flaw:
                candidate.succeeded(started)
                return answer
        except BaseException:
            answer.release()
            raise
        answer.release()
        return self._flawed(candidate, connection, flaw, started)

    def _flawed(self, candidate: Candidate, connection: Connection, flaw: str, started: float) -> Failure:
        if flaw != REFUSED:
            self._count(candidate, flaw, connection.status, started)
            return self._failure(candidate.name, flaw, connection.status)
        wanted = next((value for name, value in connection.headers if name == b"retry-after"), None)
        seconds = None if wanted is None else retry_after(wanted.decode("latin-1"), self._now())
        return self._failure(candidate.name, flaw, connection.status, candidate.refused(started, seconds))

    def _count(self, candidate: Candidate, why: str, status: int | None, started: float) -> None:
        """A failure that a client can bring about by what it asks must not close the expert to the others."""
        if why in _OF_THE_REQUEST or status in _PERHAPS_OF_THE_REQUEST:
            candidate.given_up(started)
        else:
            candidate.failed(started)

    def _failure(self, expert: str, why: str, status: int | None = None, seconds: float | None = None) -> Failure:
        self._told(expert, why)
        return Failure(expert, why, status, seconds)


def _let_go(task: asyncio.Task[Answer | Failure]) -> None:
    """An answer may have come before the task could be cancelled."""
    if not task.cancelled() and task.exception() is None:
        found = task.result()
        if isinstance(found, Answer):
            found.release()
