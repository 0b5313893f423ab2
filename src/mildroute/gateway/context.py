"""The context of one request, from its arrival to its record in the decision log."""

from __future__ import annotations

from time import perf_counter
from typing import Any
from urllib.parse import quote

from mildroute.decision.decision import Decision
from mildroute.decision.log import DecisionRecord
from mildroute.gateway.config import describe_target
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import CLIENT_CLOSED_REQUEST
from mildroute.gateway.http.headers import Header
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits.base import Reservation
from mildroute.gateway.observability.tracing import RequestSpan
from mildroute.gateway.routing.decider import RoutingResult
from mildroute.gateway.upstream.attempts import AttemptLog
from mildroute.gateway.upstream.pool import SAFE_IN_HEADER, UpstreamExpert

__all__ = ["DETAILS", "RequestContext"]


# Header of clients that want the decision and its dollars in the body, with the value "on".
DETAILS = "x-mildroute-details"
# Maximum bytes of a response that may be sampled.
_MAX_ANSWER = 1 << 20


class RequestContext:
    """The state of one parsed request.

    A request is received, authenticated, parsed, decided, attempted, answered and recorded, in
    this order. The results of the first three steps are arguments; each later step sets its own
    attributes.

    Args:
        decision_id: Unique id of the decision.
        time: Time at which the request arrived, in seconds since 1970.
        arrived: The same moment on the clock of ``time.perf_counter``.
        client: The client that sent the request.
        parsed: The parsed body.
        request_id: The client's own id of the request; empty if it sent none.

    Attributes:
        routing: The experts to call, and the reason.
        decided: Time of the decision; 0 before it is made.
        attempts: Calls and failures.
        served_by: The expert whose response the client gets; empty before one responds.
        first_byte: Time of the first byte of the response; 0 before it is sent.
        status: The status that the client saw; 499 until one is sent.
        tokens: Number of tokens of the request and of the response.
        cached_tokens: Number of the request's tokens that came from the expert's prompt cache.
        lost_dollars: Maximum cost of calls that were abandoned because they took too long. This
            amount counts against the budgets of keys, but is part of no bill.
        reservation: Dollars held in the client's budget until the request ends, or ``None``.
        span: The span of the request; ``None`` if it is not traced.
        trace_id: Id of the request's trace or of the client's; empty without a trace.
        answer: Bytes of the expert's response if the request may be sampled, else ``None``.
    """

    __slots__ = (
        "answer",
        "arrived",
        "attempts",
        "cached_tokens",
        "client",
        "decided",
        "decision_id",
        "first_byte",
        "lost_dollars",
        "parsed",
        "request_id",
        "reservation",
        "routing",
        "served_by",
        "span",
        "status",
        "time",
        "tokens",
        "trace_id",
    )

    def __init__(
        self,
        decision_id: str,
        time: float,
        arrived: float,
        client: APIClient,
        parsed: ParsedRequest,
        request_id: str = "",
    ) -> None:
        self.decision_id = decision_id
        self.time = time
        self.arrived = arrived
        self.client = client
        self.parsed = parsed
        self.request_id = request_id
        self.routing = RoutingResult(Decision((), ""))
        self.decided = 0.0
        self.attempts = AttemptLog()
        self.served_by = ""
        self.first_byte = 0.0
        self.status = CLIENT_CLOSED_REQUEST
        self.tokens = (parsed.tokens_in, 0)
        self.cached_tokens = 0
        self.lost_dollars = 0.0
        self.reservation: Reservation | None = None
        self.span: RequestSpan | None = None
        self.trace_id = ""
        self.answer: bytearray | None = None

    @property
    def decision(self) -> Decision:
        """Return the decision, which lists the experts to call."""
        return self.routing.decision

    @property
    def cost_usd(self) -> float:
        """Return the dollars of all calls."""
        return sum([call.charge.dollars for call in self.attempts.calls], 0.0)

    @property
    def charge(self) -> float:
        """Return the dollars of all calls, plus the maximum cost of abandoned ones."""
        return self.cost_usd + self.lost_dollars

    @property
    def coin_key(self) -> str:
        """Return the seed of the coin flip between two vertices.

        Without a request id, the text is the seed, as in the library and on the command line.
        """
        return self.request_id or self.parsed.text

    def keep(self, chunk: bytes) -> None:
        """Keep a part of a response for sampling; discard the response if it is too long."""
        if self.answer is not None:
            self.answer += chunk
            if len(self.answer) > _MAX_ANSWER:
                self.answer = None

    @property
    def reason(self) -> str:
        """Return the reason shown to the client: ``fallback`` if another expert served.

        The log always keeps the reason of the original choice.
        """
        decision = self.routing.decision
        is_fallback = self.served_by and (
            self.attempts.failures if decision.look else self.served_by != decision.expert
        )
        return "fallback" if is_fallback else decision.reason

    @property
    def has_estimated_cost(self) -> bool:
        """Return whether the cost includes an expert that reported no tokens."""
        return any(
            call.charge.dollars and not call.charge.is_reported for call in self.attempts.calls
        )

    def details(self, *, has_price: bool) -> dict[str, Any]:
        """Return the details that :data:`DETAILS` requests: decision, expert and dollars.

        The dollars of an expert without a price are ``None``.
        """
        return {
            "expert": self.served_by,
            "reason": self.reason,
            "cost_dollars": self.cost_usd if has_price else None,
            "cost_is_estimated": has_price and self.has_estimated_cost,
            "decision_id": self.decision_id,
        }

    def headers(self, expert: bytes | None = None, *, is_charged: bool = False) -> list[Header]:
        """Return the response headers about the decision and the expert that served it.

        The headers include the dollars if all calls have a price.
        """
        decision = self.routing.decision
        headers = [
            (b"x-mildroute-reason", self.reason.encode()),
            (b"x-mildroute-decision-id", self.decision_id.encode()),
        ]
        if is_charged:
            headers.append((b"x-mildroute-cost", b"%.10f" % self.cost_usd))
            if self.has_estimated_cost:
                headers.append((b"x-mildroute-cost-estimated", b"true"))
        if decision.look:
            calls = [quote(call.expert, safe=SAFE_IN_HEADER) for call in self.attempts.calls]
            headers.append((b"x-mildroute-calls", ", ".join(calls).encode()))
        return headers if expert is None else [(b"x-mildroute-expert", expert), *headers]

    def record(
        self, baseline: UpstreamExpert | None, shadow: str, *, log_prompts: bool = False
    ) -> DecisionRecord:
        """Return the log record of a request that has ended."""
        parsed, decision = self.parsed, self.decision
        prediction = decision.prediction
        ended = perf_counter()
        selected = decision.selected
        baseline_cost = (
            0.0
            if baseline is None or not self.served_by
            else baseline.cost(*self.tokens, self.cached_tokens)
        )
        return DecisionRecord(
            decision_id=self.decision_id,
            time=self.time,
            key=self.client.name,
            path=parsed.path,
            model=parsed.model,
            router=decision.router,
            experts=decision.experts,
            posterior=() if prediction is None else prediction.posterior,
            price_weight=None if prediction is None else prediction.price_weight,
            reason=decision.reason,
            selected=selected,
            propensity=decision.propensity,
            propensities=tuple(decision.propensities.get(name, 0.0) for name in decision.experts),
            served_by=self.served_by,
            attempts=tuple([call.entry() for call in self.attempts.calls]),
            status=self.status,
            tokens_in=self.tokens[0],
            tokens_out=self.tokens[1],
            cost_usd=self.cost_usd,
            baseline_cost_usd=baseline_cost,
            decision_seconds=self.decided - self.arrived,
            first_byte_seconds=(self.first_byte or ended) - self.arrived,
            seconds=ended - self.arrived,
            conversation=parsed.conversation or "",
            shadow=shadow,
            text=parsed.text if log_prompts else None,
            request_id=self.request_id,
            target=describe_target(decision.target),
            first_choice=decision.first_choice,
            trace_id=self.trace_id,
            look=decision.look,
        )
