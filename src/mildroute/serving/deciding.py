"""From a request to a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

from mildroute.errors import ArgumentError, ArtifactError
from mildroute.evaluation.fitting import Target
from mildroute.routers.operating import OperatingPoint
from mildroute.serving.asked import Asked
from mildroute.serving.brain import BusyError
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.conversations import Conversations
from mildroute.serving.course import Course
from mildroute.serving.decision import Decision
from mildroute.serving.opinion import Opinion
from mildroute.serving.parts import Minded, Parts, Thinking
from mildroute.serving.policy import decide, decide_named
from mildroute.serving.roster import CHOOSE, Roster
from mildroute.serving.targets import TARGETS, words_of

__all__ = ["Deciding"]

_KEYS = {kind: name for name, kind in TARGETS.items()}


class Deciding:
    """Whom to ask.

    Args:
        parts: Of the gateway.
        roster: Who there is.
        conversations: Who is with whom.

    Example:
        >>> Deciding.__name__
        'Deciding'
    """

    def __init__(self, parts: Parts, roster: Roster, conversations: Conversations) -> None:
        self._parts, self._roster, self._conversations = parts, roster, conversations
        self._routes = frozenset((CHOOSE, *parts.settings.policy.routes))

    def leaves_choice(self, model: str) -> bool:
        """Whether what stands under ``model`` means "choose"; a ComplaintError if nobody has that name."""
        if model in self._routes:
            return True
        if model not in self._roster.candidates:
            known = ", ".join((*sorted(self._routes), *self._roster.candidates))
            message = f"model must be a route or an expert of this gateway, which has: {known:.2000}."
            raise ComplaintError(404, message, code="model_not_found", param="model")
        return False

    async def choose(self, course: Course, target: Target | None) -> None:
        """Decide in time."""
        brain, asked = self._brain(), course.asked
        point = await _point(brain, target)
        course.target = words_of(target)
        opinion = await brain.opinion(asked.text, point, course.coin_key)
        if self._parts.shadow is not None:
            course.shadow = asyncio.get_running_loop().create_task(self._silently(self._parts.shadow, course, target))
        standings, owner = self._roster.standings(), self._conversations.held(asked.follows)
        if owner is None:
            decision = self._decided(asked, opinion, brain, standings, self._conversations.held(asked.conversation))
        else:
            # Nobody else knows the response that this one goes on from: an error is better than an answer that has lost its past.
            decision = decide_named(owner, asked, standings, "kept")
        self._settle(course, decision, opinion, brain)

    async def choose_all(self, courses: Sequence[Course], target: Target | None) -> None:
        """Decide for many at once, however long it takes, and for experts that the gateway cannot call, too."""
        brain, standings = self._brain(), self._roster.standings_of_all()
        point = await _point(brain, target)
        opinions = await brain.opinions([course.asked.text for course in courses], point, [course.coin_key for course in courses])
        for course, opinion in zip(courses, opinions, strict=True):
            course.target = words_of(target)
            held = self._conversations.held(course.asked.conversation)
            self._settle(course, self._decided(course.asked, opinion, brain, standings, held), opinion, brain)

    def take_named(self, course: Course) -> None:
        """Decide for the expert that the client named; a ComplaintError if it is none that can be called."""
        name = course.asked.model
        if name not in self._roster.callable:
            message = f"{name} cannot be asked through the gateway, which only speaks to experts of the kind 'openai'; use /v1/route."
            raise ComplaintError(400, message, code="expert_not_callable", param="model")
        self._settle(course, decide_named(name, course.asked, self._roster.standings()), None, None)

    def _brain(self) -> Thinking:
        try:
            return self._parts.holder.brain
        except ArtifactError:
            raise ComplaintError(503, "no router has been loaded yet; come again.", retry_after=1.0) from None

    def _decided(self, asked: Asked, opinion: Opinion | None, brain: Thinking, standings: dict, held: str | None) -> Decision:  # type: ignore[type-arg]
        rules = self._parts.settings.policy
        default = rules.default or (opinion.default if opinion is not None else "") or brain.default
        return decide(opinion, asked, standings, rules, default, held, self._parts.draw)

    def _settle(self, course: Course, decision: Decision, opinion: Opinion | None, brain: Thinking | None) -> None:
        course.opinion, course.decision, course.decided = opinion, decision, perf_counter()
        if opinion is not None:
            course.first_choice = self._first_choice(opinion)
        if brain is not None:
            course.experts, course.router = brain.experts, brain.digest
        self._parts.telemetry.decided(decision, opinion, course.decided - course.arrived)
        course.trace.decided(decision)

    def _first_choice(self, opinion: Opinion) -> str:
        """What a router alone would choose."""
        default = self._parts.settings.policy.default
        return default if default is not None and opinion.is_far else opinion.expert

    async def _silently(self, shadow: Minded, course: Course, target: Target | None) -> str:
        """What the second router would choose; empty if it could not say."""
        try:
            brain = shadow.brain
            point = await brain.point(target)
        except (ArtifactError, ArgumentError, BusyError):
            return ""
        opinion = await brain.opinion(course.asked.text, point, course.coin_key)
        return "" if opinion is None else self._first_choice(opinion)


async def _point(brain: Thinking, target: Target | None) -> OperatingPoint | None:
    """Where to decide; a ComplaintError if the router cannot decide there."""
    try:
        return await brain.point(target)
    except ArgumentError as error:
        raise ComplaintError(400, str(error), param=_KEYS.get(target.kind) if target is not None else None) from None
    except BusyError:
        message = "too many qualities and budgets that are new to the gateway are being looked up; come again, or ask for a preset."
        raise ComplaintError(429, message, code="too_many_targets", retry_after=1.0) from None
