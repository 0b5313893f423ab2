"""``POST /v1/route``: the decision alone, for one input or many; no expert is called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from mildroute.routers.operating_point import OperatingPoint
from mildroute.serving.auth.keys import APIClient
from mildroute.serving.auth.limits import Authenticator
from mildroute.serving.context import RequestContext, RequestRecorder
from mildroute.serving.http.body import ParsedRequest, read_request
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Request, read_document, send_document
from mildroute.serving.routing.decider import Decider
from mildroute.serving.routing.policy import checked_id, request_id_of, target_headers, target_of
from mildroute.serving.services import GatewayServices
from mildroute.serving.upstream.pool import AUTO_MODEL

__all__ = ["RouteEndpoint"]


_PATH = "route"


class RouteEndpoint:
    """Tells decisions.

    Args:
        services: Of the gateway.
        authenticator: Knows clients.
        decider: Chooses experts.
        recorder: Writes decisions down, so that feedback can refer to them.
    """

    def __init__(self, services: GatewayServices, authenticator: Authenticator, decider: Decider, recorder: RequestRecorder) -> None:
        self._services, self._authenticator, self._decider, self._recorder = services, authenticator, decider, recorder

    async def route(self, request: Request) -> None:
        """Answer one request."""
        client = self._authenticator.client_of(request)
        self._authenticator.admit(client)
        try:
            limits = self._services.settings.limits
            body = await request.body(limits.body, limits.body_seconds)
            arrived, now = perf_counter(), self._services.now()
            document = read_document(body)
            all_parsed = _parse_all(document, body, client, limits.batch)
            contexts = [RequestContext(self._services.new_id(), now, arrived, client, parsed) for parsed in all_parsed]
            for context, request_id in zip(contexts, _request_ids(document, request, len(contexts)), strict=True):
                context.request_id = request_id
            await self._decide(contexts, document, request)
        finally:
            self._authenticator.charge(client, 0.0)
        told = [_response_body(context) for context in contexts]
        answer = {"object": "list", "data": told} if "inputs" in document else told[0]
        await send_document(request, answer)

    async def _decide(self, contexts: list[RequestContext], document: Mapping[str, Any], request: Request) -> None:
        model = contexts[0].parsed.model if contexts else AUTO_MODEL
        if not self._decider.is_route(model):
            raise APIError(
                400, f"model must be a route here, such as {AUTO_MODEL!r}: an expert that is named needs no decision.", param="model"
            )
        wishes: Mapping[str, Any] = target_headers(request.scope["headers"])
        if not wishes:
            wishes = document
        await self._decider.choose_all(contexts, target_of(wishes, model, self._services.settings.policy))
        for context in contexts:
            context.status = 200
            self._recorder.write(context)


def _parse_all(document: Mapping[str, Any], body: bytes, client: APIClient, most: int) -> list[ParsedRequest]:
    if sum(name in document for name in ("input", "inputs", "messages")) != 1:
        raise APIError(400, "give one of input (a text), inputs (a list of texts) and messages (as for chat completions).", param="input")
    if "messages" in document:
        return [_parse_chat(document, body, client)]
    model = document.get("model", AUTO_MODEL)
    if not isinstance(model, str):
        raise APIError(400, "model must be a text: a route.", param="model")
    texts = document["inputs"] if "inputs" in document else [document["input"]]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise APIError(400, "an input must be a text, and inputs a list of texts.", param="input" if "input" in document else "inputs")
    if not 1 <= len(texts) <= most:
        raise APIError(400, f"inputs must be 1 to {most:,} texts, got {len(texts):,}; send them in several requests.", param="inputs")
    return [ParsedRequest(_PATH, model, text.encode("utf-8", "replace").decode(), b"", (0, 0), is_first_turn=True) for text in texts]


def _request_ids(document: Mapping[str, Any], request: Request, count: int) -> list[str]:
    """Id of each request, empty where the text stands for it; one header cannot tell many inputs apart."""
    if "inputs" not in document:
        return [request_id_of(request.scope["headers"])]
    given = document.get("request_ids")
    if given is None:
        return [""] * count
    if not isinstance(given, list) or len(given) != count:
        got = f"{len(given):,}" if isinstance(given, list) else f"{given!r:.60}"
        raise APIError(400, f"request_ids must be a list of {count:,} texts, one for each input, got {got}.", param="request_ids")
    return [checked_id(request_id, "request_ids") for request_id in given]


def _parse_chat(document: Mapping[str, Any], body: bytes, client: APIClient) -> ParsedRequest:
    """What routing has to know of a chat; its model may be left out, unlike in a request that is to be answered."""
    if "model" not in document:
        start = body.index(b"{") + 1
        body = body[:start] + b'"model": "%b", ' % AUTO_MODEL.encode() + body[start:]
    return read_request("chat/completions", body, client.name)


def _response_body(context: RequestContext) -> dict[str, Any]:
    """A decision as the client sees it."""
    prediction, decision = context.prediction, context.decision
    experts = () if prediction is None else prediction.experts
    places = {name: place for place, name in enumerate(experts)}
    ranking = [
        {
            "expert": name,
            "posterior": prediction.posterior[places[name]],
            "score": None if prediction.scores is None else prediction.scores[places[name]],
            "dollars": None if prediction.dollars is None else prediction.dollars[places[name]],
        }
        for name in (prediction.ranking if prediction is not None else ())
        if prediction is not None
    ]
    return {
        "object": "mildroute.decision",
        "decision_id": context.decision_id,
        "expert": decision.expert,
        "reason": decision.reason,
        "probabilities": dict(decision.propensities),
        "ranking": ranking,
        "order": list(decision.order),
        "excluded": dict(decision.excluded),
        "price_weight": None if prediction is None else prediction.price_weight,
        "operating_point": None if prediction is None or prediction.point is None else _shown(prediction.point, experts),
        "router": context.router,
    }


def _shown(point: OperatingPoint, experts: Sequence[str]) -> dict[str, Any]:
    """An operating point as the client sees it: where it lies, and what to expect of further requests there."""
    vertices = [
        {
            "price_weight": vertex.price_weight,
            "expert": None if vertex.expert is None else experts[vertex.expert],
            "probability": vertex.probability,
        }
        for vertex in point.vertices
    ]
    return {"vertices": vertices, "score": _finite(point.score), "dollars_per_1000": _finite(point.dollars_per_1000)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
