"""``POST /v1/route``: the decision alone, for one input or many; nobody is called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from mildroute.routers.operating import OperatingPoint
from mildroute.serving.asked import Asked
from mildroute.serving.caller import Caller
from mildroute.serving.closing import Closing
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.course import Course
from mildroute.serving.deciding import Deciding
from mildroute.serving.documents import read_document, send_document
from mildroute.serving.entrance import Entrance
from mildroute.serving.keys import Client
from mildroute.serving.parts import Parts
from mildroute.serving.reading import read_request
from mildroute.serving.roster import CHOOSE
from mildroute.serving.wishes import checked_id, request_id_of, target_of, wishes_of

__all__ = ["Routing"]

_PATH = "route"


class Routing:
    """Tells decisions.

    Args:
        parts: Of the gateway.
        entrance: Knows clients.
        deciding: Chooses experts.
        closing: Writes decisions down, so that feedback can refer to them.

    Example:
        >>> Routing.__name__
        'Routing'
    """

    def __init__(self, parts: Parts, entrance: Entrance, deciding: Deciding, closing: Closing) -> None:
        self._parts, self._entrance, self._deciding, self._closing = parts, entrance, deciding, closing

    async def route(self, caller: Caller) -> None:
        """Answer one request."""
        client = self._entrance.client_of(caller)
        self._entrance.admit(client)
        try:
            limits = self._parts.settings.limits
            body = await caller.body(limits.body, limits.body_seconds)
            arrived, now = perf_counter(), self._parts.now()
            document = read_document(body)
            all_asked = _all_asked(document, body, client, limits.batch)
            courses = [Course(self._parts.new_id(), now, arrived, client, asked) for asked in all_asked]
            for course, request_id in zip(courses, _request_ids(document, caller, len(courses)), strict=True):
                course.request_id = request_id
            await self._decide(courses, document, caller)
        finally:
            self._entrance.charge(client, 0.0)
        told = [_told(course) for course in courses]
        answer = {"object": "list", "data": told} if "inputs" in document else told[0]
        await send_document(caller, answer)

    async def _decide(self, courses: list[Course], document: Mapping[str, Any], caller: Caller) -> None:
        model = courses[0].asked.model if courses else CHOOSE
        if not self._deciding.leaves_choice(model):
            raise ComplaintError(
                400, f"model must be a route here, such as {CHOOSE!r}: an expert that is named needs no decision.", param="model"
            )
        wishes: Mapping[str, Any] = wishes_of(caller.scope["headers"])
        if not wishes and "messages" not in document:
            wishes = document
        await self._deciding.choose_all(courses, target_of(wishes, model, self._parts.settings.policy))
        for course in courses:
            course.status = 200
            self._closing.write(course)


def _all_asked(document: Mapping[str, Any], body: bytes, client: Client, most: int) -> list[Asked]:
    if sum(name in document for name in ("input", "inputs", "messages")) != 1:
        raise ComplaintError(
            400, "give one of input (a text), inputs (a list of texts) and messages (as for chat completions).", param="input"
        )
    if "messages" in document:
        return [_of_chat(document, body, client)]
    model = document.get("model", CHOOSE)
    if not isinstance(model, str):
        raise ComplaintError(400, "model must be a text: a route.", param="model")
    texts = document["inputs"] if "inputs" in document else [document["input"]]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ComplaintError(
            400, "an input must be a text, and inputs a list of texts.", param="input" if "input" in document else "inputs"
        )
    if not 1 <= len(texts) <= most:
        raise ComplaintError(400, f"inputs must be 1 to {most:,} texts, got {len(texts):,}; send them in several requests.", param="inputs")
    return [Asked(_PATH, model, text.encode("utf-8", "replace").decode(), b"", (0, 0), is_first_turn=True) for text in texts]


def _request_ids(document: Mapping[str, Any], caller: Caller, count: int) -> list[str]:
    """Id of each request, empty where the text stands for it; one header cannot tell many inputs apart."""
    if "inputs" not in document:
        return [request_id_of(caller.scope["headers"])]
    given = document.get("request_ids")
    if given is None:
        return [""] * count
    if not isinstance(given, list) or len(given) != count:
        got = f"{len(given):,}" if isinstance(given, list) else f"{given!r:.60}"
        raise ComplaintError(400, f"request_ids must be a list of {count:,} texts, one for each input, got {got}.", param="request_ids")
    return [checked_id(request_id, "request_ids") for request_id in given]


def _of_chat(document: Mapping[str, Any], body: bytes, client: Client) -> Asked:
    """What routing has to know of a chat; its model may be left out, unlike in a request that is to be answered."""
    if "model" not in document:
        start = body.index(b"{") + 1
        body = body[:start] + b'"model": "%b", ' % CHOOSE.encode() + body[start:]
    return read_request("chat/completions", body, client.name)


def _told(course: Course) -> dict[str, Any]:
    """A decision as the client sees it."""
    opinion, decision = course.opinion, course.decision
    experts = () if opinion is None else opinion.experts
    places = {name: place for place, name in enumerate(experts)}
    ranking = [
        {
            "expert": name,
            "posterior": opinion.posterior[places[name]],
            "score": None if opinion.scores is None else opinion.scores[places[name]],
            "dollars": None if opinion.dollars is None else opinion.dollars[places[name]],
        }
        for name in (opinion.ranking if opinion is not None else ())
        if opinion is not None
    ]
    return {
        "object": "mildroute.decision",
        "decision_id": course.decision_id,
        "expert": decision.expert,
        "reason": decision.reason,
        "probabilities": dict(decision.propensities),
        "ranking": ranking,
        "order": list(decision.order),
        "excluded": dict(decision.excluded),
        "price_weight": None if opinion is None else opinion.price_weight,
        "operating_point": None if opinion is None or opinion.point is None else _shown(opinion.point, experts),
        "router": course.router,
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
