"""``POST /v1/route``: decisions for one or more inputs, without calling an expert."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from mildroute.decision.async_predictor import ROWS_PER_TURN
from mildroute.decision.prompt import RoutingInput
from mildroute.gateway.authentication import Authenticator, check_model
from mildroute.gateway.config import AUTO_MODEL, GatewayConfig
from mildroute.gateway.context import RequestContext
from mildroute.gateway.http.body import ParsedRequest, parse_request, read_object
from mildroute.gateway.http.decoder import BodyDecoder
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import Request
from mildroute.gateway.keys import APIClient
from mildroute.gateway.recorder import RequestRecorder
from mildroute.gateway.routing.decider import RequestDecider
from mildroute.gateway.routing.targets import (
    get_request_id,
    resolve_target,
    target_headers,
    validate_id,
)
from mildroute.routers.frontier.operating_point import OperatingPoint

__all__ = ["RouteEndpoint"]

_PATH = "route"


class RouteEndpoint:
    """The endpoint that returns decisions and records them, so that feedback can refer to them."""

    def __init__(
        self,
        authenticator: Authenticator,
        decoder: BodyDecoder,
        decider: RequestDecider,
        recorder: RequestRecorder,
        config: GatewayConfig,
    ) -> None:
        self._authenticator = authenticator
        self._decider = decider
        self._recorder = recorder
        self._limits = config.limits
        self._routing = config.routing
        self._routed = RoutingInput(config.routing.input, config.routing.input_characters)
        self._decoder = decoder

    async def handle(self, request: Request) -> None:
        """Serve one request."""
        client = self._authenticator.authenticate(request)
        self._authenticator.admit(client, request)
        body = await request.read_body(self._limits)
        arrived = perf_counter()
        parse = partial(_parse, body, client, self._limits.max_route_inputs, self._routed)
        document, inputs = await self._decoder.decode(client.name, len(body), parse)
        ids = _request_ids(document, request, len(inputs))
        check_model(client, inputs[0].model)
        await self._authenticator.reserve(client, requests=len(inputs))
        contexts = [
            self._recorder.start(client, parsed, arrived, request_id)
            for parsed, request_id in zip(inputs, ids, strict=True)
        ]
        await self._decide(contexts, document, request)
        decisions = [_decision_body(context) for context in contexts]
        is_batch = "inputs" in document
        await request.send_json({"object": "list", "data": decisions} if is_batch else decisions[0])

    async def _decide(
        self, contexts: list[RequestContext], document: Mapping[str, Any], request: Request
    ) -> None:
        model = contexts[0].parsed.model if contexts else AUTO_MODEL
        if not self._decider.is_route(model):
            raise APIError(
                400,
                f"model must be a route here, such as {AUTO_MODEL!r}; naming an expert leaves"
                " nothing to decide.",
                param="model",
            )
        fields: Mapping[str, Any] = target_headers(request.headers.raw) or document
        results = await self._decider.decide_batch(
            [context.parsed for context in contexts],
            resolve_target(fields, model, self._routing),
            [context.coin_key for context in contexts],
            [context.decision_id for context in contexts],
        )
        for count, (context, result) in enumerate(zip(contexts, results, strict=True), 1):
            self._recorder.record_decision(context, result)
            context.status = 200
            self._recorder.record(context)
            if count % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)


def _parse(
    body: bytes | bytearray, client: APIClient, max_inputs: int, routed: RoutingInput
) -> tuple[dict[str, Any], list[ParsedRequest]]:
    document = read_object(body)
    if "messages" in document and not document.keys() & {"input", "inputs"}:
        # Unlike in a chat completion, the model is optional here.
        fields = {"model": AUTO_MODEL, **document}
        parsed = parse_request("chat/completions", fields, client.name, routed, size=len(body))
        return document, [parsed]
    return document, _parse_inputs(document, max_inputs)


def _parse_inputs(document: Mapping[str, Any], max_inputs: int) -> list[ParsedRequest]:
    if sum(name in document for name in ("input", "inputs", "messages")) != 1:
        raise APIError(
            400,
            "give exactly one of input (a string), inputs (a list of strings) and messages (as for"
            " chat completions).",
            param="input",
        )
    model = document.get("model", AUTO_MODEL)
    if not isinstance(model, str):
        raise APIError(400, "model must be a string: the name of a route.", param="model")
    texts = document["inputs"] if "inputs" in document else [document["input"]]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise APIError(
            400,
            "input must be a string, and inputs a list of strings.",
            param="input" if "input" in document else "inputs",
        )
    if not 1 <= len(texts) <= max_inputs:
        raise APIError(
            400,
            f"inputs must be 1 to {max_inputs:,} strings, got {len(texts):,}; send them in several"
            " requests.",
            param="inputs",
        )
    return [ParsedRequest(_PATH, model, text, is_first_turn=True) for text in texts]


def _request_ids(document: Mapping[str, Any], request: Request, count: int) -> list[str]:
    """Return the id of each request; an empty id means that the text seeds the coin.

    A list of inputs ignores the header, because one header cannot distinguish several inputs.
    """
    if "inputs" not in document:
        return [get_request_id(request.headers.raw)]
    ids = document.get("request_ids")
    if ids is None:
        return [""] * count
    if not isinstance(ids, list) or len(ids) != count:
        got = f"{len(ids):,}" if isinstance(ids, list) else f"{ids!r:.60}"
        raise APIError(
            400,
            f"request_ids must be a list of {count:,} strings, one per input, got {got}.",
            param="request_ids",
        )
    return [validate_id(request_id, "request_ids") for request_id in ids]


def _decision_body(context: RequestContext) -> dict[str, Any]:
    """Return the JSON body that describes a decision."""
    decision = context.decision
    prediction = decision.prediction
    experts = () if prediction is None else prediction.experts
    index_of = {name: index for index, name in enumerate(experts)}
    ranking = [
        {
            "expert": name,
            "posterior": prediction.posterior[index_of[name]],
            "score": None if prediction.scores is None else prediction.scores[index_of[name]],
            "dollars": None if prediction.dollars is None else prediction.dollars[index_of[name]],
        }
        for name in (prediction.ranking if prediction is not None else ())
        if prediction is not None
    ]
    return {
        "object": "mildroute.decision",
        "decision_id": context.decision_id,
        "expert": decision.expert,
        "reason": decision.reason,
        "look": _look_body(context),
        "probabilities": dict(decision.propensities),
        "ranking": ranking,
        "order": list(decision.order),
        "excluded": dict(decision.excluded),
        "price_weight": None if prediction is None else prediction.price_weight,
        "operating_point": (
            None
            if prediction is None or prediction.point is None
            else _point_body(prediction.point, experts)
        ),
        "router": decision.router,
    }


def _look_body(context: RequestContext) -> dict[str, Any] | None:
    """Return the cascade's first look: the experts to call, and how often a second call follows."""
    look, predictor = context.decision.look, context.routing.predictor
    if not look or predictor is None:
        return None
    return {
        "name": look,
        "ask": list(predictor.looks[look]),
        "second_call_rate": predictor.second_call_rate(look),
    }


def _point_body(point: OperatingPoint, experts: Sequence[str]) -> dict[str, Any]:
    """Return the JSON of an operating point: its vertices, expected score and expected dollars."""
    vertices = [
        {
            "price_weight": vertex.price_weight,
            "expert": None if vertex.expert is None else experts[vertex.expert],
            "probability": vertex.probability,
        }
        for vertex in point.vertices
    ]
    return {
        "vertices": vertices,
        "score": _finite(point.score),
        "dollars_per_1000": _finite(point.dollars_per_1000),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
