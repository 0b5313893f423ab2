"""What is known of one request while it is under way, and what is written down of it."""

from __future__ import annotations

import asyncio
from time import perf_counter

from mildroute.serving.asked import Asked
from mildroute.serving.decision import Decision
from mildroute.serving.keys import Client
from mildroute.serving.opinion import Opinion
from mildroute.serving.passing import Header
from mildroute.serving.record import Record
from mildroute.serving.roster import Roster
from mildroute.serving.spans import Trace

__all__ = ["Course"]

GONE = 499


class Course:
    """One request from its decision to the end of its answer.

    Args:
        decision_id: Its name.
        time: When it had arrived as a whole, in seconds since 1970.
        arrived: The same moment on the clock of ``time.perf_counter``.
        client: Who asks.
        asked: What is asked.

    Attributes:
        answered: Who answered, or empty.
        attempts: Experts that were asked.
        status: That the client saw; until it has seen one, 499.
        tokens: Of the request and of the answer.
        dollars: Of the answer.
        first_byte: When the answer began, or 0.
        waited: Seconds of waiting for experts until then.
        request_id: The client's id of the request, or empty.
        target: What the operating point was chosen by, in words; empty for the router's own.
        first_choice: What the router alone would choose, or empty.

    Example:
        >>> Course("d1", 0.0, 0.0, Client(""), Asked("route", "mildroute", "Hi", b"", (0, 0))).status
        499
    """

    __slots__ = (
        "answered",
        "arrived",
        "asked",
        "attempts",
        "client",
        "decided",
        "decision",
        "decision_id",
        "dollars",
        "experts",
        "first_byte",
        "first_choice",
        "opinion",
        "passed_on",
        "request_id",
        "router",
        "shadow",
        "status",
        "target",
        "time",
        "tokens",
        "trace",
        "waited",
    )

    def __init__(self, decision_id: str, time: float, arrived: float, client: Client, asked: Asked) -> None:
        self.decision_id, self.time, self.arrived, self.client, self.asked = decision_id, time, arrived, client, asked
        self.opinion: Opinion | None = None
        self.decision = Decision((), "")
        self.experts: tuple[str, ...] = ()
        self.router = ""
        self.decided = self.first_byte = self.waited = 0.0
        self.answered, self.attempts, self.status = "", 0, GONE
        self.tokens, self.dollars = (asked.tokens_in, 0), 0.0
        self.shadow: asyncio.Task[str] | None = None
        self.trace, self.passed_on = Trace(), b""
        self.request_id = self.target = self.first_choice = ""

    @property
    def coin_key(self) -> str:
        """What seeds the coin between two vertices: without an id the text, as in the library and on the command line."""
        return self.request_id or self.asked.text

    def headers(self, expert: bytes | None = None) -> list[Header]:
        """What the client is told of the decision, and of who answered."""
        # The log keeps the reason of the choice; the client wants to know why it hears from someone else.
        reason = "fallback" if self.answered and self.answered != self.decision.expert else self.decision.reason
        told = [(b"x-mildroute-reason", reason.encode()), (b"x-mildroute-decision-id", self.decision_id.encode())]
        return told if expert is None else [(b"x-mildroute-expert", expert), *told]

    @property
    def added(self) -> float | None:
        """Seconds that the gateway itself took until the first byte, or none if there was none."""
        return max(0.0, self.first_byte - self.arrived - self.waited) if self.first_byte else None

    def record(self, roster: Roster, shadow: str, *, keep_text: bool = False) -> Record:
        """What is written down."""
        opinion, decision, asked = self.opinion, self.decision, self.asked
        ended, chosen = perf_counter(), decision.expert or ""
        baseline = 0.0 if roster.baseline is None or not self.answered else roster.baseline.dollars(*self.tokens)
        return Record(
            decision_id=self.decision_id,
            time=self.time,
            key=self.client.name,
            path=asked.path,
            model=asked.model,
            router=self.router,
            experts=self.experts,
            posterior=() if opinion is None else opinion.posterior,
            price_weight=None if opinion is None else opinion.price_weight,
            reason=decision.reason,
            chosen=chosen,
            propensity=decision.propensities.get(chosen, 0.0),
            propensities=tuple(decision.propensities.get(name, 0.0) for name in self.experts),
            answered=self.answered,
            attempts=self.attempts,
            status=self.status,
            tokens_in=self.tokens[0],
            tokens_out=self.tokens[1],
            dollars=self.dollars,
            baseline_dollars=baseline,
            decision_seconds=self.decided - self.arrived,
            first_byte_seconds=(self.first_byte or ended) - self.arrived,
            seconds=ended - self.arrived,
            conversation=asked.conversation or "",
            shadow=shadow,
            text=asked.text if keep_text else None,
            request_id=self.request_id,
            target=self.target,
            first_choice=self.first_choice,
        )
