"""Reports on requests to the log, metrics and traces."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from time import perf_counter

from mildroute.decision.feedback import DecisionIds
from mildroute.decision.log import DecisionLog
from mildroute.gateway.context import RequestContext
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import CLIENT_CLOSED_REQUEST
from mildroute.gateway.http.request import Request
from mildroute.gateway.keys import APIClient
from mildroute.gateway.observability.logs import LogThrottle, log_event
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.observability.tracing import Tracing
from mildroute.gateway.routing.decider import RoutingResult
from mildroute.gateway.upstream.pool import UpstreamExpert

__all__ = ["RequestRecorder"]

_LOG = logging.getLogger(__name__)
# Causes of streams that ended early without a failure of the expert, by status.
_CUT_BY = {CLIENT_CLOSED_REQUEST: "client_disconnect", 503: "shutdown"}
# Seconds between two log lines about the same failure of the same expert.
_FAILURE_INTERVAL = 60.0
_SHADOW_TIMEOUT = 1.0
_parse_traceparent = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}").match


class RequestRecorder:
    """A recorder that reports the steps of a request to the log, metrics and traces.

    Args:
        log: The decision log; if ``None``, no decisions are logged.
        baseline: Returns the expert that savings are measured against, or ``None``.
        log_prompts: Whether texts are logged.
        now: Returns seconds since 1970.
        ids: Creates the ids of decisions.
    """

    def __init__(
        self,
        log: DecisionLog | None,
        metrics: GatewayMetrics,
        tracing: Tracing,
        *,
        baseline: Callable[[], UpstreamExpert | None],
        log_prompts: bool = False,
        now: Callable[[], float] = time.time,
        ids: DecisionIds | None = None,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._tracing = tracing
        self._baseline = baseline
        self._log_prompts = log_prompts
        self._now = now
        self._new_id = (ids or DecisionIds(os.urandom(16))).new
        self._failures = LogThrottle(_FAILURE_INTERVAL)

    def start(
        self, client: APIClient, parsed: ParsedRequest, arrived: float, request_id: str = ""
    ) -> RequestContext:
        """Return the context of a parsed request.

        ``arrived`` is the time at which its body was complete, on the clock of
        ``time.perf_counter``.
        """
        return RequestContext(self._new_id(), self._now(), arrived, client, parsed, request_id)

    def trace(self, context: RequestContext, request: Request) -> None:
        """Start the trace of a request, or continue the trace in the client's headers."""
        if self._tracing.is_enabled:
            context.span = self._tracing.start(
                context.parsed.path, dict(request.headers), context.client.name
            )
        if context.span is not None:
            context.trace_id = context.span.trace_id
        elif (match := _parse_traceparent(request.headers.get("traceparent", ""))) is not None:
            context.trace_id = match[1]
        if context.trace_id:
            request.scope["mildroute.trace_id"] = context.trace_id  # for the access log

    def record_decision(self, context: RequestContext, routing: RoutingResult) -> None:
        """Record a decision in the metrics and the trace."""
        context.routing = routing
        context.decided = perf_counter()
        decision = routing.decision
        prediction = decision.prediction
        self._metrics.record_decision(
            decision.expert, decision.reason, context.decided - context.arrived
        )
        if decision.reason == "exploration":
            self._metrics.record_exploration(decision.exploration_usd)
        if prediction is not None:
            self._metrics.record_prediction(
                prediction.router,
                prediction.posterior,
                None if prediction.point is None else prediction.point.vertices,
                prediction.experts.index(prediction.ranking[0]),
            )
        if context.span is not None:
            context.span.decided(decision.expert or "", decision.reason)

    def record_failures(self, context: RequestContext) -> None:
        """Record the failed calls of a request, once all its calls have ended."""
        for failure in context.attempts.failures:
            self._metrics.record_fallback(failure.expert, failure.reason)
            # An open circuit is logged separately.
            if failure.reason != "circuit_open":
                self._log_failure(context, failure.expert, failure.reason, failure.status)

    def _log_failure(
        self, context: RequestContext, expert: str, reason: str, status: int | None
    ) -> None:
        suppressed = self._failures.admit((expert, reason))
        if suppressed is not None:
            log_event(
                _LOG,
                logging.WARNING,
                "expert failed",
                expert=expert,
                error__type=reason,
                http__response__status_code=status or None,
                suppressed=suppressed or None,
                request_id=context.request_id,
                decision_id=context.decision_id,
                trace_id=context.trace_id,
            )

    def record(self, context: RequestContext, shadow: str = "") -> None:
        """Record a request at once, without yielding to other tasks."""
        record = context.record(self._baseline(), shadow, log_prompts=self._log_prompts)
        if self._log is not None:
            self._log.write(record)
        span = context.span
        self._metrics.record_request(record)
        for call in context.attempts.calls:
            self._metrics.record_attempt(call.expert, call.error_type)
        if context.parsed.is_stream and context.first_byte:
            self._record_cut(context)
        if span is not None:
            span.end(record)

    def _record_cut(self, context: RequestContext) -> None:
        """Count a stream that ended early."""
        calls = reversed(context.attempts.calls)
        reason = next(call.reason for call in calls if call.expert == context.served_by)
        if reason:
            self._log_failure(context, context.served_by, reason, None)
        cause = reason or _CUT_BY.get(context.status, "")
        if cause:
            self._metrics.record_cut(context.served_by, cause)

    async def record_end(self, context: RequestContext) -> None:
        """Wait for the shadow router and record a decided request, after the client is served."""
        if not context.decided:
            return
        shadow = ""
        try:
            if context.routing.shadow is not None:
                async with asyncio.timeout(_SHADOW_TIMEOUT):
                    shadow = await context.routing.shadow
        except TimeoutError:
            pass
        finally:
            self.record(context, shadow)
