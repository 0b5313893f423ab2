"""Decisions for parsed requests, with the decision layer's errors as HTTP errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mildroute.decision.async_decider import AsyncDecider
from mildroute.decision.async_predictor import AsyncPredictor, TooManyTargetsError
from mildroute.decision.decider import Decider
from mildroute.decision.decision import Decision
from mildroute.decision.prediction import Prediction
from mildroute.decision.reload import PredictorManager
from mildroute.decision.request import AnswersRead, DecisionRequest, ExpertStatus
from mildroute.decision.settings import AUTO_MODEL, RoutingConfig
from mildroute.decision.targets import TARGETS
from mildroute.exceptions import ArgumentError
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.headers import Header
from mildroute.gateway.routing.targets import resolve_target, target_headers
from mildroute.gateway.upstream.pool import CALLABLE_KINDS, ExpertPool
from mildroute.routers.frontier.target import Target

__all__ = ["RequestDecider", "RoutingResult"]

_LOG = logging.getLogger(__name__)
_COUNT_TOKENS = "messages/count_tokens"
_FIELD_OF_TARGET = {kind: name for name, kind in TARGETS.items()}
# Paths on which a cascade can read answers; the last one only requests a decision.
_LOOK_PATHS = ("chat/completions", "completions", "route")
# The part of a stream's answer that a cascade can read, by the setting ``stream_looks``.
_STREAM_ANSWERS: dict[str, AnswersRead] = {"route": "none", "hold": "complete"}


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """A decision, and everything the gateway needs to carry it out.

    Args:
        decision: The decision: which experts to call.
        predictor: The router, which continues a cascade; ``None`` if no router was consulted.
        shadow: Returns the choice of the shadow router; ``None`` without one.
    """

    decision: Decision
    predictor: AsyncPredictor | None = None
    shadow: asyncio.Task[str] | None = None


class RequestDecider:
    """An adapter between client requests and the decision layer.

    Args:
        decider: The decision layer's decider.
        manager: Holds the router; without a router, requests go to the default expert.
        pool: The experts.
        config: Routes, and the treatment of streams in cascades.
        shadow: Holds a second router whose choices are only logged, or ``None``.
    """

    def __init__(
        self,
        decider: Decider,
        manager: PredictorManager,
        pool: ExpertPool,
        config: RoutingConfig,
        *,
        shadow: PredictorManager | None = None,
    ) -> None:
        self._decider = decider
        self._async_decider = AsyncDecider(decider, manager)
        self._manager = manager
        self._pool = pool
        self._config = config
        self._shadow = shadow
        # Experts that the latest warning about missing log-probabilities named.
        self._without_logprobs: list[str] = []
        self._routes = frozenset((AUTO_MODEL, *config.routes))

    def is_route(self, model: str) -> bool:
        """Return whether ``model`` is a route, which leaves the choice to the gateway.

        Raises:
            APIError: No route and no expert has that name.
        """
        if model in self._routes:
            return True
        if model not in self._pool.experts:
            names = ", ".join((*sorted(self._routes), *self._pool.experts))
            message = f"model must be a route or an expert of this gateway: {names:.2000}."
            raise APIError(404, message, code="model_not_found", param="model")
        return False

    async def route(
        self,
        parsed: ParsedRequest,
        headers: Iterable[Header],
        coin_key: str,
        decision_id: str,
    ) -> RoutingResult:
        """Return the expert that the client names, or a decision for the route that it names.

        Args:
            parsed: The request.
            headers: The client's headers, which may set a target.
            coin_key: Seed of the coin flip between two vertices.
            decision_id: Id of the decision.

        Raises:
            APIError: The client must name an expert, or names something that does not exist.
        """
        if not self.is_route(parsed.model):
            return self.pin_expert(parsed, decision_id)
        if parsed.path == "embeddings":
            message = (
                "model must name an expert here: vectors of different experts cannot be compared,"
                " so the gateway does not choose."
            )
            raise APIError(400, message, code="model_not_chosen", param="model")
        if parsed.path == _COUNT_TOKENS and (counter := self._token_counter()) is not None:
            return self.pin_expert(replace(parsed, model=counter), decision_id)
        if parsed.owner is not None and parsed.owner not in self._pool.callable:
            message = (
                "previous_response_id must belong to an expert that this gateway can call, got one"
                f" of {parsed.owner}, which was removed; send the whole conversation."
            )
            raise APIError(
                400, message, code="previous_response_not_found", param="previous_response_id"
            )
        target = resolve_target(target_headers(headers), parsed.model, self._config)
        return await self.decide(parsed, target, coin_key, decision_id)

    def _token_counter(self) -> str | None:
        """Return an available expert that can count tokens; ``None`` if there is none."""
        for name, status in self._pool.statuses().items():
            if status.is_available and _COUNT_TOKENS not in status.unserved_paths:
                return name
        return None

    async def decide(
        self, parsed: ParsedRequest, target: Target | None, coin_key: str, decision_id: str = ""
    ) -> RoutingResult:
        """Decide for one request within the router's time limit.

        Args:
            parsed: The request.
            target: The target of the request; ``None`` means the router's own operating point.
            coin_key: Seed of the coin flip between two vertices.
            decision_id: Id of the decision.

        Raises:
            APIError: The target is out of reach, or too many new targets are pending.
        """
        request = self._request(parsed, target, coin_key, decision_id)
        with _as_api_errors(target):
            decision, predictor = await self._async_decider.decide(request, self._pool.statuses)
        return RoutingResult(decision, predictor, self._start_shadow(request))

    async def decide_batch(
        self,
        requests: Sequence[ParsedRequest],
        target: Target | None,
        coin_keys: Sequence[str],
        decision_ids: Sequence[str],
        experts: Collection[str] | None = None,
    ) -> list[RoutingResult]:
        """Decide for a batch of requests, without a time limit.

        The decisions may choose experts that the gateway cannot call, but only among ``experts`` if
        these are given.
        """
        members = [
            self._request(parsed, target, coin_key, decision_id)
            for parsed, coin_key, decision_id in zip(requests, coin_keys, decision_ids, strict=True)
        ]

        def statuses() -> dict[str, ExpertStatus]:
            all_statuses = self._pool.all_statuses()
            if experts is None:
                return all_statuses
            return {name: status for name, status in all_statuses.items() if name in experts}

        with _as_api_errors(target):
            decisions = await self._async_decider.decide_batch(members, statuses)
        return [RoutingResult(decision, predictor) for decision, predictor in decisions]

    async def predict(
        self, parsed: ParsedRequest, target: Target | None, coin_key: str
    ) -> Prediction | None:
        """Return the router's prediction without deciding; ``None`` if it is not ready in time.

        Raises:
            APIError: The target is out of reach, or too many new targets are pending.
        """
        with _as_api_errors(target):
            return await self._async_decider.predict(self._request(parsed, target, coin_key, ""))

    def pin_expert(self, parsed: ParsedRequest, decision_id: str = "") -> RoutingResult:
        """Return a decision for the expert that the client named.

        Raises:
            APIError: The gateway cannot call it.
        """
        name = parsed.model
        if name not in self._pool.callable:
            message = (
                f"{name} cannot be called through the gateway, which only calls experts of kind"
                f" {' and '.join(CALLABLE_KINDS)}; use /v1/route."
            )
            raise APIError(400, message, code="expert_not_callable", param="model")
        request = self._request(parsed, None, "", decision_id)
        return RoutingResult(self._decider.pin(name, request, self._pool.statuses()))

    def remember(self, conversation: str | None, expert: str) -> None:
        """Remember which expert served a conversation."""
        self._decider.remember(conversation, expert)

    def _request(
        self, parsed: ParsedRequest, target: Target | None, coin_key: str, decision_id: str
    ) -> DecisionRequest:
        answers = self._answers_read(parsed)
        return DecisionRequest(
            text=parsed.text,
            target=target,
            request_id=coin_key,
            decision_id=decision_id,
            conversation=parsed.conversation,
            is_first_turn=parsed.is_first_turn,
            is_tool_result=parsed.is_tool_result,
            owner=parsed.owner,
            path=parsed.path,
            needs=parsed.needs,
            tokens=parsed.tokens_in + (parsed.tokens_out or 0),
            answers=answers,
            without_logprobs=self._experts_without_logprobs(parsed.path, answers),
        )

    def _answers_read(self, parsed: ParsedRequest) -> AnswersRead:
        if parsed.path not in _LOOK_PATHS:
            return "none"
        return _STREAM_ANSWERS[self._config.stream_looks] if parsed.is_stream else "complete"

    def _experts_without_logprobs(self, path: str, answers: AnswersRead) -> frozenset[str]:
        """Return the router's experts whose log-probabilities are unavailable."""
        predictor = self._manager.predictor
        if predictor is None or not predictor.logprob_experts or answers == "none":
            return frozenset()
        experts = predictor.logprob_experts & frozenset(self._pool.experts)
        if path == "completions":
            return predictor.logprob_experts
        unsupported = sorted(name for name in experts if not self._pool.find(name).has_logprobs)
        if unsupported and unsupported != self._without_logprobs:
            names = ", ".join(unsupported)
            _LOG.warning("no looks: the router needs log-probabilities (logprobs) from %s", names)
        self._without_logprobs = unsupported
        return frozenset(unsupported)

    def _start_shadow(self, request: DecisionRequest) -> asyncio.Task[str] | None:
        predictor = None if self._shadow is None else self._shadow.predictor
        if predictor is None:
            return None
        return asyncio.get_running_loop().create_task(self._shadow_choice(predictor, request))

    async def _shadow_choice(self, predictor: AsyncPredictor, request: DecisionRequest) -> str:
        """Return the choice of the shadow router; empty if it is not ready in time."""
        try:
            point = await predictor.apoint(request.target)
        except (ArgumentError, TooManyTargetsError):
            return ""
        prediction = await predictor.apredict(request.text, point, request.coin_key)
        return "" if prediction is None else self._decider.first_choice(prediction)


@contextlib.contextmanager
def _as_api_errors(target: Target | None) -> Iterator[None]:
    """Turn errors of the decision layer into API errors."""
    try:
        yield
    except ArgumentError as error:
        param = None if target is None else _FIELD_OF_TARGET.get(target.kind)
        raise APIError(400, str(error), param=param) from None
    except TooManyTargetsError:
        message = (
            "the gateway is still computing operating points for other new qualities and budgets;"
            " retry later, or use a preset."
        )
        raise APIError(429, message, code="too_many_targets", retry_after=1.0) from None
