"""Session affinity: the expert that each conversation stays with."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from mildroute.decision.settings import RoutingConfig

__all__ = ["SessionAffinity"]


class SessionAffinity:
    """A bounded memory of the expert of each conversation.

    Idle conversations expire. If there are too many, the one that has been idle longest is
    forgotten.

    Args:
        config: Maximum number of conversations, and seconds after which an idle one is forgotten.
        clock: Function that returns monotonic seconds.
    """

    __slots__ = ("_clock", "_max_sessions", "_sessions", "_ttl")

    def __init__(self, config: RoutingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_sessions = config.max_sessions
        self._ttl = config.session_ttl
        self._clock = clock
        # An entry moves to the end when it is renewed, so the oldest one is always first.
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of conversations in memory, some of which may have expired."""
        return len(self._sessions)

    def get(self, conversation: str | None) -> str | None:
        """Return the expert of a conversation, or ``None``."""
        session = self._sessions.get(conversation) if conversation is not None else None
        if session is None or self._is_expired(session):
            return None
        return session[0]

    def remember(self, conversation: str | None, expert: str) -> None:
        """Store or renew the expert of a conversation; ``None`` as conversation is ignored."""
        if conversation is None or self._max_sessions <= 0:
            return
        sessions = self._sessions
        sessions[conversation] = (expert, self._clock())
        sessions.move_to_end(conversation)
        if len(sessions) > self._max_sessions:
            sessions.popitem(last=False)
        # Dropping one expired conversation per call eventually removes all of them, at a constant
        # cost.
        oldest = next(iter(sessions))
        if self._is_expired(sessions[oldest]):
            del sessions[oldest]

    def _is_expired(self, session: tuple[str, float]) -> bool:
        return self._clock() - session[1] > self._ttl
