"""The OpenAPI document of a gateway: ``openapi.yaml``, adapted to its configuration."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mildroute import __version__
from mildroute._yaml import read_document
from mildroute.decision.openai_decisions import DecisionsRequest
from mildroute.decision.system_one import SystemOneRequest

__all__ = ["openapi_schema"]


def openapi_schema(
    presets: Collection[str] = (),
    paths: Collection[str] | None = None,
    *,
    with_metrics_key: bool = False,
) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a gateway.

    Args:
        presets: Names of presets.
        paths: Paths that the gateway serves; ``None`` includes all.
        with_metrics_key: Whether ``/metrics`` requires a key.
    """
    document = read_document(Path(__file__).with_name("openapi.yaml")).value
    document["info"]["version"] = __version__
    for prefix, model in (("SystemOne", SystemOneRequest), ("OpenAI", DecisionsRequest)):
        document["components"]["schemas"] |= _schemas_of(model, prefix)
    _set_presets(document, sorted(presets))
    if with_metrics_key:
        document["paths"]["/metrics"]["get"]["security"] = [{"operator": []}]
    if paths is not None:
        document["paths"] = {path: document["paths"][path] for path in paths}
    return document  # type: ignore[no-any-return]


def _schemas_of(model: type[BaseModel], prefix: str) -> dict[str, Any]:
    """Return the schemas of a body and of its parts, with prefixed names."""
    schema = model.model_json_schema(ref_template=f"#/components/schemas/{prefix}{{model}}")
    schema.pop("description", None)
    definitions = schema.pop("$defs", {})
    name = f"{prefix}{model.__name__.removeprefix(prefix)}"
    parts = {f"{prefix}{part}": definition for part, definition in definitions.items()}
    return {name: schema, **parts}


def _set_presets(document: dict[str, Any], presets: list[str]) -> None:
    """List the presets, or remove the header and the fields that name one."""
    components = document["components"]
    bodies = [
        body["properties"]
        for body in components["schemas"]["RouteRequest"]["oneOf"]
        if "preset" in body["properties"]
    ]
    if presets:
        for schema in (
            components["parameters"]["Preset"]["schema"],
            *(b["preset"] for b in bodies),
        ):
            schema["enum"] = presets
        return
    del components["parameters"]["Preset"]
    for body in bodies:
        del body["preset"]
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["parameters"] = [
                parameter
                for parameter in operation.get("parameters", [])
                if parameter.get("$ref") != "#/components/parameters/Preset"
            ]
