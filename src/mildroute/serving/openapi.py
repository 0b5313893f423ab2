"""The OpenAPI description of all paths."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mildroute import __version__
from mildroute.serving.routing.policy import LONGEST_ID

__all__ = ["openapi_schema"]


_Schema = dict[str, Any]


def openapi_schema(presets: Collection[str] = (), *, with_admin: bool = False, guards_metrics: bool = False) -> _Schema:
    """An OpenAPI 3.1 document.

    Args:
        presets: Names of targets.
        with_admin: Whether ``/admin`` is there.
        guards_metrics: Whether ``/metrics`` needs a key.

    Returns:
        The document, as JSON can hold it.

    Example:
        >>> sorted(openapi_schema()["paths"])[:3]
        ['/healthz', '/metrics', '/openapi.json']
    """
    wishes = _wishes(presets)
    paths = {**_answered(wishes), **_own(wishes), **_open()}
    if with_admin:
        paths["/admin/reload"] = {"post": _operation("Read the router's folder and the keys again", _json("Router")) | _OPERATOR}
    if guards_metrics:
        paths["/metrics"]["get"] |= _OPERATOR
    return {
        "openapi": "3.1.0",
        "info": {"title": "mildroute", "version": __version__, "description": "An OpenAI-compatible endpoint that chooses the expert."},
        "paths": paths,
        "components": {"schemas": _SCHEMAS | {"RouteRequest": _route_request(presets)}, "securitySchemes": _KEYS},
    }


def _wishes(presets: Collection[str]) -> list[_Schema]:
    """Headers that choose the operating point, of which a request may have one, and the one that seeds its coin."""
    numbers = [
        {"name": f"x-mildroute-{name.replace('_', '-')}", "in": "header", "schema": schema, "description": words}
        for name, (schema, words) in _TARGETS.items()
    ]
    preset = {
        "name": "x-mildroute-preset",
        "in": "header",
        "schema": _named(presets),
        "description": "A target of the gateway's, by name.",
    }
    return [*numbers, preset, _REQUEST_ID] if presets else [*numbers, _REQUEST_ID]


def _named(presets: Collection[str]) -> _Schema:
    return {"type": "string", "enum": sorted(presets)}


def _route_request(presets: Collection[str]) -> _Schema:
    wishes = {"model": _MODEL} | {name: schema for name, (schema, _) in _TARGETS.items()}
    wishes |= {"preset": _named(presets)} if presets else {}
    ids = {"type": "array", "items": _ID, "description": "An id for each input, which seeds its coin; by default the input does."}
    return {
        "oneOf": [
            _object(("input",), input=_TEXT, **wishes) | {"not": {"required": ["inputs"]}},
            _object(("inputs",), inputs=_NAMES | {"minItems": 1}, request_ids=ids, **wishes) | {"not": {"required": ["input"]}},
            _object(("messages",), messages=_MESSAGES, model=_MODEL),
        ]
    }


def _answered(wishes: list[_Schema]) -> _Schema:
    """What experts answer: the gateway reads a few fields and passes on the others."""
    words = {
        "/v1/chat/completions": ("Answer a chat", "ChatRequest"),
        "/v1/completions": ("Continue a text", "CompletionRequest"),
        "/v1/responses": ("Answer with a response", "ResponseRequest"),
        "/v1/embeddings": ("Vectors of texts, from the expert that is named", "EmbeddingRequest"),
    }
    answer = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}}
    found = {}
    for path, (summary, schema) in words.items():
        told = {f"x-mildroute-{name}": {"schema": {"type": "string"}} for name in ("expert", "reason", "decision-id")}
        operation = _operation(summary, answer, schema) | {"security": [{}, {"client": []}]}
        operation["responses"]["200"]["headers"] = told
        if path != "/v1/embeddings":
            operation["parameters"] = wishes
        found[path] = {"post": operation}
    return found


def _own(wishes: list[_Schema]) -> _Schema:
    keyed: _Schema = {"security": [{}, {"client": []}]}
    decided = {"application/json": {"schema": {"anyOf": [_ref("Decision"), _ref("Decisions")]}}}
    return {
        "/v1/route": {"post": _operation("Decide, and call nobody", decided, "RouteRequest") | keyed | {"parameters": wishes}},
        "/v1/feedback": {"post": _operation("Say how good an answer was", _json("FeedbackReceipt"), "FeedbackRequest") | keyed},
        "/v1/models": {"get": _operation("Routes and experts", _json("Models")) | keyed},
        "/v1/models/{model}": {"get": _operation("One route or expert", _json("Model")) | keyed | {"parameters": [_NAME]}},
    }


def _open() -> _Schema:
    state = {"application/json": {"schema": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}}}
    ready = _operation("Whether it should get requests", state)
    ready["responses"]["503"] = {"description": "Not now", "content": state}
    page = {"text/plain": {"schema": {"type": "string"}}}
    document = {"application/json": {"schema": {"type": "object"}}}
    return {
        "/healthz": {"get": _operation("Whether it is alive", state)},
        "/readyz": {"get": ready},
        "/metrics": {"get": _operation("Figures for Prometheus", page)},
        "/openapi.json": {"get": _operation("This document", document)},
    }


def _operation(summary: str, content: _Schema, request: str | None = None) -> _Schema:
    responses: _Schema = {
        "200": {"description": "Done", "content": content},
        "default": {"description": "An error", "content": _json("Error")},
    }
    if request is None:
        return {"summary": summary, "responses": responses}
    return {"summary": summary, "responses": responses, "requestBody": {"required": True, "content": _json(request)}}


def _json(schema: str) -> _Schema:
    return {"application/json": {"schema": _ref(schema)}}


def _ref(schema: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{schema}"}


def _object(required: tuple[str, ...] = (), **properties: _Schema) -> _Schema:
    return {"type": "object", "required": list(required), "properties": properties}


_KEYS = {name: {"type": "http", "scheme": "bearer"} for name in ("client", "operator")}
_OPERATOR: _Schema = {"security": [{"operator": []}]}
_TEXT: _Schema = {"type": "string"}
_NUMBER: _Schema = {"type": "number"}
_NAMES: _Schema = {"type": "array", "items": _TEXT}
_MODEL: _Schema = {"type": "string", "pattern": "^[ -~]{1,256}$", "description": "A route, such as mildroute, or an expert."}
_STREAM: _Schema = {"type": "boolean", "default": False}
_MESSAGES: _Schema = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_TEXT_OR_LIST: _Schema = {"anyOf": [_TEXT, {"type": "array"}]}
_NAME: _Schema = {"name": "model", "in": "path", "required": True, "schema": _MODEL}
_WEIGHT: _Schema = {"type": "number", "minimum": 0}
_TARGETS: dict[str, tuple[_Schema, str]] = {
    "price_weight": (_WEIGHT, "How much error one dollar is worth."),
    "quality": (_WEIGHT | {"maximum": 1.5}, "Share of the best single expert's score to keep, such as 0.95."),
    "budget": (_WEIGHT, "Dollars for 1,000 requests."),
}
_ID: _Schema = {"type": "string", "pattern": f"^[ -~]{{1,{LONGEST_ID}}}$"}
_REQUEST_ID: _Schema = {
    "name": "x-request-id",
    "in": "header",
    "schema": _ID,
    "description": "Seeds the coin of an operating point between two vertices: the same id has the same expert. Without it the text does.",
}
_MAYBE: _Schema = {"type": ["number", "null"]}

_SCHEMAS: _Schema = {
    "ChatRequest": _object(("model", "messages"), model=_MODEL, messages=_MESSAGES, stream=_STREAM),
    "CompletionRequest": _object(("model",), model=_MODEL, prompt=_TEXT_OR_LIST, stream=_STREAM),
    "ResponseRequest": _object(
        ("model",), model=_MODEL, input={"anyOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]}, stream=_STREAM
    ),
    "EmbeddingRequest": _object(("model", "input"), model=_MODEL, input=_TEXT_OR_LIST),
    "Decision": _object(
        ("decision_id", "expert", "reason", "probabilities", "ranking", "order", "excluded"),
        decision_id=_TEXT,
        expert={"type": ["string", "null"]},
        reason=_TEXT,
        probabilities={"type": "object", "additionalProperties": _NUMBER},
        ranking={
            "type": "array",
            "items": _object(
                ("expert", "posterior"),
                expert=_TEXT,
                posterior=_NUMBER,
                score=_MAYBE,
                dollars=_MAYBE,
            ),
        },
        order=_NAMES,
        excluded={"type": "object", "additionalProperties": _TEXT},
        price_weight=_MAYBE,
        operating_point={"anyOf": [_ref("OperatingPoint"), {"type": "null"}]},
        router=_TEXT,
    ),
    "OperatingPoint": _object(
        ("vertices", "score", "dollars_per_1000"),
        vertices={
            "type": "array",
            "items": _object(
                ("price_weight", "expert", "probability"), price_weight=_NUMBER, expert={"type": ["string", "null"]}, probability=_NUMBER
            ),
        },
        score=_MAYBE,
        dollars_per_1000=_MAYBE,
    ),
    "Decisions": _object(("data",), object=_TEXT, data={"type": "array", "items": _ref("Decision")}),
    "FeedbackRequest": _object(
        ("decision_id", "score"),
        decision_id={"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
        score={"type": "number", "minimum": 0, "maximum": 1},
        detail={"anyOf": [{"type": "string", "maxLength": 2000}, {"type": "null"}]},
    ),
    "FeedbackReceipt": _object(("decision_id",), object=_TEXT, decision_id=_TEXT),
    "Model": _object(("id",), id=_TEXT, object=_TEXT, created={"type": "integer"}, owned_by=_TEXT),
    "Models": _object(("data",), object=_TEXT, data={"type": "array", "items": _ref("Model")}),
    "Router": _object(("router",), object=_TEXT, router=_TEXT, clients={"type": "integer"}),
    "Error": _object(
        ("error",),
        error=_object(
            ("message", "type", "param", "code"),
            message=_TEXT,
            type=_TEXT,
            param={"type": ["string", "null"]},
            code={"type": ["string", "null"]},
        ),
    ),
}
