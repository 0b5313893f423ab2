"""``POST /v1/systemone`` and ``/v1/decisions``: responses in the formats of decision models."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from time import perf_counter

from pydantic import ValidationError

from mildroute.decision.decision import Decision
from mildroute.decision.openai_decisions import DecisionsRequest, error_body
from mildroute.decision.prediction import Prediction
from mildroute.decision.prompt import RoutingInput
from mildroute.decision.questions import (
    ChoiceQuestion,
    ExpertLabels,
    QuestionError,
    answer_questions,
)
from mildroute.decision.reload import PredictorManager
from mildroute.decision.system_one import SystemOneRequest, body_of_errors
from mildroute.gateway.authentication import Authenticator, check_model
from mildroute.gateway.config import AUTO_MODEL, GatewayConfig
from mildroute.gateway.http.body import ParsedRequest, read_object
from mildroute.gateway.http.decoder import BodyDecoder
from mildroute.gateway.http.request import Request
from mildroute.gateway.keys import APIClient
from mildroute.gateway.recorder import RequestRecorder
from mildroute.gateway.routing.decider import RequestDecider
from mildroute.gateway.routing.targets import get_request_id, resolve_target, target_headers
from mildroute.gateway.upstream.pool import ExpertPool
from mildroute.routers.frontier.target import Target

__all__ = ["DecisionModelEndpoint"]

_JSON = [(b"content-type", b"application/json")]


class DecisionModelEndpoint:
    """The endpoint that responds like a decision model and records its decisions."""

    def __init__(
        self,
        authenticator: Authenticator,
        decoder: BodyDecoder,
        decider: RequestDecider,
        recorder: RequestRecorder,
        pool: ExpertPool,
        manager: PredictorManager,
        config: GatewayConfig,
    ) -> None:
        self._authenticator = authenticator
        self._decider = decider
        self._recorder = recorder
        self._pool = pool
        self._manager = manager
        self._limits = config.limits
        self._routing = config.routing
        self._routed = RoutingInput(config.routing.input, config.routing.input_characters)
        self._decoder = decoder

    async def handle(self, path: str, request: Request) -> None:
        """Serve one request to the path ``"systemone"`` or ``"decisions"``."""
        client = self._authenticator.authenticate(request)
        self._authenticator.admit(client, request)
        body = await request.read_body(self._limits)
        arrived = perf_counter()
        try:
            document = await self._decoder.decode(
                client.name, len(body), partial(_parse, path, body)
            )
            answers = await self._answer(path, document, request, client, arrived)
        except (ValidationError, QuestionError) as error:
            if path == "decisions":
                await request.send_response(400, _JSON, error_body(error))
            else:
                await request.send_response(422, _JSON, body_of_errors(error))
            return
        await request.send_response(200, _JSON, answers)

    async def _answer(
        self,
        path: str,
        document: SystemOneRequest | DecisionsRequest,
        request: Request,
        client: APIClient,
        arrived: float,
    ) -> bytes:
        # Clients may name another vendor's decision model; the only one here is the router.
        is_route = document.model in self._routing.routes
        model = document.model if is_route else AUTO_MODEL
        check_model(client, model)
        questions = document.resolve(ExpertLabels(self._experts()))
        decisions = sum(isinstance(each, ChoiceQuestion) for each in questions.values())
        await self._authenticator.reserve(client, requests=max(decisions, 1))
        parsed = ParsedRequest(path, model, document.text(self._routed), is_first_turn=True)
        router = _RequestRouter(
            self._decider,
            self._recorder,
            client,
            parsed,
            resolve_target(target_headers(request.headers.raw), model, self._routing),
            get_request_id(request.headers.raw),
            arrived,
        )
        return document.render(await answer_questions(questions, router), len(parsed.text))

    def _experts(self) -> list[str]:
        """Return the router's experts that are in the pool; without a router, the whole pool."""
        predictor = self._manager.predictor
        if predictor is None:
            return list(self._pool.experts)
        router_experts = predictor.experts[: predictor.n_experts]
        return [name for name in self._pool.experts if name in router_experts]


class _RequestRouter:
    """An adapter that answers the questions of one request with the gateway's router."""

    def __init__(
        self,
        decider: RequestDecider,
        recorder: RequestRecorder,
        client: APIClient,
        parsed: ParsedRequest,
        target: Target | None,
        request_id: str,
        arrived: float,
    ) -> None:
        self._decider = decider
        self._recorder = recorder
        self._client = client
        self._parsed = parsed
        self._target = target
        self._request_id = request_id
        self._arrived = arrived

    async def decide(self, experts: Collection[str]) -> Decision:
        """Choose one of the given experts and record the decision."""
        context = self._recorder.start(self._client, self._parsed, self._arrived, self._request_id)
        (result,) = await self._decider.decide_batch(
            [self._parsed], self._target, [context.coin_key], [context.decision_id], experts
        )
        self._recorder.record_decision(context, result)
        context.status = 200
        self._recorder.record(context)
        return result.decision

    async def predict(self) -> Prediction | None:
        """Return the router's prediction for the input."""
        coin_key = self._request_id or self._parsed.text
        return await self._decider.predict(self._parsed, self._target, coin_key)


def _parse(path: str, body: bytes | bytearray) -> SystemOneRequest | DecisionsRequest:
    document = read_object(body)
    if path == "decisions" and "state" not in document:
        return DecisionsRequest.read(document)
    return SystemOneRequest.read(document)
