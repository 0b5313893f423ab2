"""What a gateway is put together from."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mildroute.evaluation.fitting import Target
from mildroute.experts.file import ExpertFile
from mildroute.routers.operating import OperatingPoint
from mildroute.serving.decision import Decision
from mildroute.serving.gatekeeper import Gatekeeper
from mildroute.serving.keys import KeyRing
from mildroute.serving.opinion import Opinion
from mildroute.serving.record import Record
from mildroute.serving.settings import Settings
from mildroute.serving.spans import Spans

__all__ = ["Minded", "Noted", "Observed", "Parts", "Quiet", "Scored", "Thinking"]


class Thinking(Protocol):
    """A router that gives opinions; :class:`~mildroute.serving.brain.Brain` is one.

    Example:
        >>> Thinking.__name__
        'Thinking'
    """

    digest: str
    default: str
    experts: tuple[str, ...]

    async def point(self, target: Target | None) -> OperatingPoint | None:
        """Where to decide, none where it knows no prices; an ArgumentError if it cannot, a BusyError if it cannot now."""

    async def opinion(self, text: str, point: OperatingPoint | None, request_id: str) -> Opinion | None:
        """In time, or none."""

    async def opinions(self, texts: Sequence[str], point: OperatingPoint | None, request_ids: Sequence[str]) -> list[Opinion]:
        """However long it takes."""


class Minded(Protocol):
    """Holds a router and replaces it; :class:`~mildroute.serving.holder.Holder` is one.

    Example:
        >>> Minded.__name__
        'Minded'
    """

    @property
    def brain(self) -> Thinking:
        """The one in use; an ArtifactError if there is none."""

    async def reload(self, folder: Any = None) -> str:
        """Replace it; an ArtifactError if the new one is bad."""

    async def try_reload(self) -> bool:
        """Replace it; false, and a line in the log, if the new one is bad."""

    async def watch(self, seconds: float) -> None:
        """Replace it whenever its folder has changed."""

    def close(self) -> None:
        """End."""


class Noted(Protocol):
    """Takes records; :class:`~mildroute.serving.decision_log.DecisionLog` is one.

    Example:
        >>> Noted.__name__
        'Noted'
    """

    def write(self, record: Record) -> None:
        """Write one down."""

    def close(self) -> None:
        """End."""


class Scored(Protocol):
    """Takes feedback; :class:`~mildroute.serving.feedback.Feedback` is one.

    Example:
        >>> Scored.__name__
        'Scored'
    """

    def write(self, decision_id: Any, score: Any, client: str, detail: Any = None) -> bool:
        """Write one down; an ArgumentError for what a client got wrong, false if it could not be kept."""

    def close(self) -> None:
        """End."""


class Observed(Protocol):
    """Counts what happens; :class:`~mildroute.serving.telemetry.Telemetry` is one.

    Example:
        >>> Observed.__name__
        'Observed'
    """

    def decided(self, decision: Decision, opinion: Opinion | None, seconds: float) -> None:
        """A decision."""

    def answered(self, record: Record, added: float | None = None) -> None:
        """The end of a request."""

    def fallback(self, expert: str, why: str) -> None:
        """An expert that failed."""

    def refused(self, status: int, code: str | None) -> None:
        """A request that was refused before a decision."""

    def watch(self, *, in_flight: Callable[[], float] | None = None, circuits: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Where to ask for the requests under way and the states of circuits."""

    def render(self) -> tuple[bytes, str]:
        """All figures, and the type of that content."""


class Quiet:
    """Counts nothing and keeps nothing: for a gateway without metrics or without a log.

    Example:
        >>> Quiet().render()
        (b'', 'text/plain; version=0.0.4; charset=utf-8')
    """

    def decided(self, decision: Decision, opinion: Opinion | None, seconds: float) -> None:
        """A decision."""

    def answered(self, record: Record, added: float | None = None) -> None:
        """The end of a request."""

    def fallback(self, expert: str, why: str) -> None:
        """An expert that failed."""

    def refused(self, status: int, code: str | None) -> None:
        """A request that was refused before a decision."""

    def watch(self, *, in_flight: Callable[[], float] | None = None, circuits: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Where to ask for the requests under way and the states of circuits."""

    def render(self) -> tuple[bytes, str]:
        """No figures."""
        return b"", "text/plain; version=0.0.4; charset=utf-8"

    def write(self, record: Record) -> None:
        """Write nothing down."""

    def close(self) -> None:
        """End."""


def _new_id() -> str:
    """A name that no other decision has."""
    return os.urandom(16).hex()


@dataclass(frozen=True)
class Parts:
    """All that :func:`~mildroute.serving.app.create_app` needs; whoever makes the parts also closes the holder.

    Args:
        settings: How the gateway behaves.
        experts: Who can be asked.
        holder: Has the router.
        keyring: Who may ask; everyone by default.
        gatekeeper: How much each may ask.
        log: Where decisions are written down, and nowhere by default.
        feedback: Where scores are written down; by default the gateway takes none.
        telemetry: Who counts; nobody by default.
        spans: Who traces; nobody by default.
        shadow: Has a second router, whose choice is only written down.
        clock: Seconds that only grow.
        now: Seconds since 1970.
        draw: A number from 0 to just below 1, evenly spread.
        new_id: A name for a decision that no other one has.

    Example:
        >>> from pathlib import Path
        >>> Parts(Settings(), ExpertFile(Path("experts.yaml"), ()), holder=None).keyring
        KeyRing(anyone)
    """

    settings: Settings
    experts: ExpertFile
    holder: Minded
    keyring: KeyRing = field(default_factory=KeyRing)
    gatekeeper: Gatekeeper = field(default_factory=Gatekeeper)
    log: Noted = field(default_factory=Quiet)
    feedback: Scored | None = None
    telemetry: Observed = field(default_factory=Quiet)
    spans: Spans = field(default_factory=Spans)
    shadow: Minded | None = None
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    draw: Callable[[], float] = random.random
    new_id: Callable[[], str] = _new_id
