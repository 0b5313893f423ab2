"""The context of one request, from its arrival to its line in the decision log."""

from __future__ import annotations

import asyncio
from time import perf_counter

from mildroute.serving.auth.keys import APIClient
from mildroute.serving.http.body import ParsedRequest
from mildroute.serving.http.request import Header
from mildroute.serving.observability.decision_log import DecisionRecord
from mildroute.serving.observability.tracing import RequestSpan
from mildroute.serving.routing.policy import Decision
from mildroute.serving.routing.predictor import Prediction
from mildroute.serving.services import GatewayServices
from mildroute.serving.upstream.pool import ExpertPool

__all__ = ["RequestContext", "RequestRecorder"]


# What is known of one request while it is under way, and what is written down of it.


GONE = 499


class RequestContext:
    """One request from its decision to the end of its answer.

    Args:
        decision_id: Its name.
        time: When it had arrived as a whole, in seconds since 1970.
        arrived: The same moment on the clock of ``time.perf_counter``.
        client: Who asks.
        parsed: What is asked.

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
    """

    __slots__ = (
        "answered",
        "arrived",
        "attempts",
        "client",
        "decided",
        "decision",
        "decision_id",
        "dollars",
        "experts",
        "first_byte",
        "first_choice",
        "forwarded_headers",
        "parsed",
        "prediction",
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

    def __init__(self, decision_id: str, time: float, arrived: float, client: APIClient, parsed: ParsedRequest) -> None:
        self.decision_id, self.time, self.arrived, self.client, self.parsed = decision_id, time, arrived, client, parsed
        self.prediction: Prediction | None = None
        self.decision = Decision((), "")
        self.experts: tuple[str, ...] = ()
        self.router = ""
        self.decided = self.first_byte = self.waited = 0.0
        self.answered, self.attempts, self.status = "", 0, GONE
        self.tokens, self.dollars = (parsed.tokens_in, 0), 0.0
        self.shadow: asyncio.Task[str] | None = None
        self.trace, self.forwarded_headers = RequestSpan(), b""
        self.request_id = self.target = self.first_choice = ""

    @property
    def coin_key(self) -> str:
        """What seeds the coin between two vertices: without an id the text, as in the library and on the command line."""
        return self.request_id or self.parsed.text

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

    def record(self, pool: ExpertPool, shadow: str, *, keep_text: bool = False) -> DecisionRecord:
        """What is written down."""
        prediction, decision, parsed = self.prediction, self.decision, self.parsed
        ended, chosen = perf_counter(), decision.expert or ""
        baseline = 0.0 if pool.baseline is None or not self.answered else pool.baseline.dollars(*self.tokens)
        return DecisionRecord(
            decision_id=self.decision_id,
            time=self.time,
            key=self.client.name,
            path=parsed.path,
            model=parsed.model,
            router=self.router,
            experts=self.experts,
            posterior=() if prediction is None else prediction.posterior,
            price_weight=None if prediction is None else prediction.price_weight,
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
            conversation=parsed.conversation or "",
            shadow=shadow,
            text=parsed.text if keep_text else None,
            request_id=self.request_id,
            target=self.target,
            first_choice=self.first_choice,
        )


# The end of a request: its record, its bill, its figures; once each, whatever happened.


_PATIENCE = 1.0


class RequestRecorder:
    """Writes down what came of requests.

    Args:
        services: Of the gateway.
        pool: Who there is.
    """

    def __init__(self, services: GatewayServices, pool: ExpertPool) -> None:
        self._services, self._pool = services, pool

    def write(self, context: RequestContext, shadow: str = "") -> None:
        """Write down a request that was decided; at once, so that nothing can come between."""
        record = context.record(self._pool, shadow, keep_text=self._services.settings.log.keep_text)
        self._services.log.write(record)
        self._services.metrics.answered(record, context.added)
        context.trace.end(record)

    async def close(self, context: RequestContext) -> None:
        """The same, but wait for the second router if it is still thinking; the answer is with its client already."""
        shadow = ""
        try:
            if context.shadow is not None:
                async with asyncio.timeout(_PATIENCE):
                    shadow = await context.shadow
        except TimeoutError:
            pass
        finally:
            self.write(context, shadow)
