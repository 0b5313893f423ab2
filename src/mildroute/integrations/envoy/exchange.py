"""One request and its response, as Envoy sends them to a processor."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from mildroute.decision.async_predictor import TooManyTargetsError
from mildroute.decision.decision import Decision
from mildroute.decision.outcomes import Outcome
from mildroute.decision.prompt import RoutingInput
from mildroute.decision.request import DecisionRequest
from mildroute.decision.service import Caller, DecisionService
from mildroute.decision.settings import AUTO_MODEL
from mildroute.decision.targets import TARGETS, parse_target
from mildroute.exceptions import ArgumentError
from mildroute.integrations.envoy.answer import AnswerReader
from mildroute.integrations.envoy.body import RoutableBody, read_body
from mildroute.integrations.envoy.messages import (
    continue_reply,
    open_reply,
    routed_reply,
)
from mildroute.routers.frontier.target import Target

__all__ = ["EXPERT_HEADER", "Exchange"]

# Header that selects the Envoy cluster.
EXPERT_HEADER = "x-mildroute-expert"
_TARGET_HEADERS = {f"x-mildroute-{name.replace('_', '-')}": name for name in TARGETS}
# The usage of a compressed answer cannot be read.
_REMOVED_HEADERS = ("accept-encoding",)
_CALLER = Caller("envoy", AUTO_MODEL)
_CONNECTION_LOST = "connection_lost"


class Exchange:
    """One request and its response.

    A request whose ``model`` is ``"mildroute"`` gets the chosen expert's model and header. All
    other requests, and unreadable ones, pass through unchanged.

    Args:
        service: The service, which makes decisions, and logs decisions and bills.
        routed: The part of a conversation that the router reads.
        models: The ``model`` field for each expert whose name differs.

    Example:
        >>> import asyncio, tempfile
        >>> from pathlib import Path
        >>> from mildroute.decision import DecisionService
        >>> from mildroute.integrations.envoy.messages import ProcessingRequest
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router")
        >>> message = ProcessingRequest()
        >>> message.request_body.end_of_stream = True
        >>> message.request_body.body = b'{"model": "mildroute", "input": "sing a song"}'
        >>> with DecisionService.load(folder) as service:
        ...     reply = asyncio.run(Exchange(service).reply(message))
        >>> b'{"model":"expert_1","input":"sing a song"}' in reply
        True
    """

    def __init__(
        self,
        service: DecisionService,
        routed: RoutingInput | None = None,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self._service = service
        self._routed = routed or RoutingInput()
        self._models = models or {}
        self._headers: dict[str, str] = {}
        self._decision: Decision | None = None
        self._tokens_in = 0
        self._status = 0
        self._answer: AnswerReader | None = None
        self._decided_at = 0.0
        self._first_byte: float | None = None

    async def reply(self, message: Any) -> bytes:
        """Return the reply to a message from Envoy.

        Args:
            message: A :data:`~mildroute.integrations.envoy.messages.ProcessingRequest`.
        """
        for each in message.attributes:
            self._read_attributes(each.values.fields)
        if message.HasField("response_body"):
            self._read_answer(message.response_body)
            return continue_reply("response_body")
        if message.HasField("request_body"):
            return await self._route(message.request_body)
        if message.HasField("request_headers"):
            self._read_headers(message.request_headers)
            return continue_reply("request_headers")
        if message.HasField("response_headers"):
            self._read_headers(message.response_headers)
            if message.response_headers.end_of_stream:
                self._report()
            return continue_reply("response_headers")
        is_request = message.HasField("request_trailers")
        return continue_reply("request_trailers" if is_request else "response_trailers")

    def end(self) -> None:
        """Report an interrupted answer's bill, based on the part that arrived."""
        if self._answer is not None:
            self._report(_CONNECTION_LOST)

    async def _route(self, body: Any) -> bytes:
        # A buffered body arrives in one message, which is not the last message if trailers follow.
        if self._headers.get("content-encoding", "identity") != "identity":
            return open_reply({"reason": "compressed"})
        try:
            routable = read_body(body.body, self._routed)
        except ArgumentError as error:
            return open_reply({"reason": "malformed", "detail": str(error)})
        if routable is None:
            return continue_reply("request_body")
        try:
            return await self._decide(routable)
        except ArgumentError as error:
            return open_reply({"reason": "unreachable_target", "detail": str(error)})
        except TooManyTargetsError:
            return open_reply({"reason": "too_many_targets"})

    async def _decide(self, routable: RoutableBody) -> bytes:
        request = DecisionRequest(
            routable.text,
            target=self._target(),
            is_first_turn=routable.is_first_turn,
            needs=routable.needs,
            tokens=routable.tokens_in + routable.tokens_out,
        )
        decision = await self._service.adecide(request, caller=_CALLER)
        expert = decision.expert
        if expert is None:
            return open_reply({"reason": "no_expert", "decision_id": decision.decision_id})
        self._decision = decision
        self._tokens_in = routable.tokens_in
        self._decided_at = perf_counter()
        body = routable.body_for(self._models.get(expert, expert))
        return routed_reply(body, {EXPERT_HEADER: expert}, _REMOVED_HEADERS, metadata_of(decision))

    def _target(self) -> Target | None:
        for header, name in _TARGET_HEADERS.items():
            if header in self._headers:
                return parse_target(name, self._headers[header])
        return None

    def _read_attributes(self, fields: Any) -> None:
        for name, value in fields.items():
            if name == "response.code":
                self._status = int(value.number_value)
            elif value.HasField("string_value"):
                # request.headers['x-mildroute-quality']
                self._headers[name.partition("['")[2].removesuffix("']")] = value.string_value

    def _read_headers(self, headers: Any) -> None:
        for header in headers.headers.headers:
            value = header.raw_value.decode("utf-8", "replace") or header.value
            if header.key == ":status":
                self._status = int(value)
            else:
                self._headers[header.key] = value

    def _read_answer(self, body: Any) -> None:
        if self._decision is None:
            return
        if self._answer is None:
            self._answer = AnswerReader()
            self._first_byte = perf_counter() - self._decided_at
        self._answer.feed(body.body)
        if body.end_of_stream:
            self._report()

    def _report(self, reason: str = "") -> None:
        """Report the outcome; later calls do nothing."""
        decision = self._decision
        if decision is None or decision.expert is None:
            return
        self._decision = None
        usage = (self._answer or AnswerReader()).usage()
        self._answer = None
        status = self._status or 200
        is_error = status >= 400
        outcome = Outcome(
            decision.expert,
            status,
            reason or (f"status {status}" if is_error else ""),
            0 if is_error else self._tokens_in if usage.tokens_in is None else usage.tokens_in,
            0 if is_error else usage.tokens_out or 0,
            usage.cached_tokens,
            seconds=perf_counter() - self._decided_at,
            first_byte_seconds=self._first_byte,
        )
        self._service.report_outcome(decision.decision_id, outcome)


def metadata_of(decision: Decision) -> dict[str, str | float]:
    """Return a decision's metadata for Envoy's access log."""
    metadata: dict[str, str | float] = {
        "expert": decision.expert or "",
        "reason": decision.reason,
        "propensity": decision.propensity,
        "decision_id": decision.decision_id,
        "router": decision.router,
    }
    if decision.expected_dollars is not None:
        metadata["expected_cost_usd"] = decision.expected_dollars
    if decision.expected_score is not None:
        metadata["expected_score"] = decision.expected_score
    return metadata
