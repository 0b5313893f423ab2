"""Validate YAML files with pydantic models, and publish the models as JSON Schemas.

Every message names the file, the line and the setting:
``gateway.yaml:12: limits.max_in_fligth is not a setting; did you mean 'max_in_flight'?``
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from mildroute._checks import nearest
from mildroute._optional import needs_extra
from mildroute._yaml import KeyPath, YamlDocument
from mildroute.exceptions import ArgumentError

with needs_extra("pydantic", extra="collect", user="mildroute.configuration"):
    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["MODEL", "check_document", "json_schema"]

T = TypeVar("T")

# The pydantic configuration of a file's dataclasses and models.
MODEL = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
# The rule for a value, and advice on writing it, by pydantic's error type.
_RULES = {
    "bool_type": ("true or false", ""),
    "int_type": ("a whole number", ""),
    "int_from_float": ("a whole number", ""),
    "float_type": ("a number", ""),
    "finite_number": ("a finite number", ""),
    "string_type": ("text", "put it in quotes"),
    "string_too_short": ("text that is not empty", "write something, or leave the key out"),
    "literal_error": ("one of {expected}", ""),
    "greater_than": ("more than {gt:g}", ""),
    "greater_than_equal": ("at least {ge:g}", ""),
    "less_than_equal": ("at most {le:g}", ""),
    "too_short": ("a list that is not empty", "leave the key out"),
    **dict.fromkeys(("list_type", "tuple_type", "frozen_set_type"), ("a list", "write it in [ ]")),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "dataclass_type"),
        ("a mapping", "write its keys below it, indented"),
    ),
}


def check_document(document: YamlDocument, model: type[T]) -> T:
    """Return a file's content as a model.

    Raises:
        ArgumentError: A setting is unknown, missing or wrong; the message names file and line.
    """
    content = {} if document.value is None else document.value
    adapter: TypeAdapter[T] = TypeAdapter(model)
    try:
        # Strict validation of JSON accepts a list as a tuple and a text as a path, which strict
        # validation of Python values does not.
        return adapter.validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise _first_error(document, adapter, error.errors()) from None


def _first_error(
    document: YamlDocument, adapter: TypeAdapter[Any], errors: list[ErrorDetails]
) -> ArgumentError:
    """Return a file's first error; unknown settings come first, because they explain others."""
    located = [(_path_in(document.value, error), error) for error in errors]
    located.sort(
        key=lambda pair: (pair[1]["type"] not in _UNKNOWN, document.line(pair[0]), -len(pair[0]))
    )
    path, error = located[0]
    if error["type"] in _UNKNOWN:
        *section, name = path
        schema = json_schema(adapter)
        options = {key for node in _schemas_at(schema, document.value, section) for key in node}
        return document.error(
            path, f"{_dotted(path)} is not a setting; {nearest(str(name), options)}"
        )
    if error["type"] == "missing":
        section_name = _dotted(path[:-1]) if path[1:] else "the file"
        return document.error(path[:-1], f"{section_name} needs {_dotted(path[-1:])}; add it.")
    name = _dotted(path) if path else "the file"
    if error["type"] == "value_error":
        return document.error(path, f"{name}: {error['ctx']['error']}")
    # A union reports one error per type.
    same_path_errors = [other for other_path, other in located if other_path == path]
    rules = [_RULES.get(each["type"], (each["msg"], "")) for each in same_path_errors]
    expected = " or ".join(
        dict.fromkeys(
            rule.format(**each.get("ctx", {}))
            for (rule, _), each in zip(rules, same_path_errors, strict=True)
        )
    )
    advice = "".join(f"; {advice}" for _, advice in rules[:1] if advice)
    return document.error(
        path, f"{name} must be {expected}, got {_describe_value(error['input'])}{advice}."
    )


def _path_in(content: Any, error: ErrorDetails) -> KeyPath:
    """Return the path of an error in the file, without union tags."""
    path: list[str | int] = []
    value = content
    for part in error["loc"]:
        if isinstance(value, dict) and part in value:
            path.append(part)
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int):
            path.append(part)
            value = value[part]
    if error["type"] == "missing":
        path.append(error["loc"][-1])
    return tuple(path)


def _dotted(path: KeyPath) -> str:
    """Return a path in a user's notation, such as ``experts.small.prompt``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            is_plain = re.fullmatch(r"[\w+-]{1,60}", part)
            text += ("." if text else "") + (part if is_plain else f"{part!r:.60}")
    return text


def _describe_value(value: Any) -> str:
    if value in ({}, []):
        return "an empty one"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else f"{value!r:.60}"


def json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return a model's JSON Schema, with each description as one paragraph of Markdown."""
    schema = adapter.json_schema()
    for node in _nodes(schema):
        if isinstance(node.get("title"), str):
            del node["title"]  # titles only repeat the names
        if isinstance(node.get("description"), str):
            text = re.split(r"\n *(?:Args|Example):", node["description"])[0]
            node["description"] = " ".join(text.replace("``", "`").split())
    return schema


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    children = schema.values() if isinstance(schema, dict) else schema
    for child in children:
        if isinstance(child, (dict, list)):
            yield from _nodes(child)


def _schemas_at(
    schema: Mapping[str, Any], content: Any, path: list[str | int]
) -> Iterator[Mapping[str, Any]]:
    """Yield the properties of every schema that describes the section at a path."""
    nodes = list(_alternatives(schema, schema, content))
    for part in path:
        content = content[part]
        children = [
            node.get("properties", {}).get(part) or node.get("additionalProperties")
            if isinstance(part, str)
            else node.get("items")
            for node in nodes
        ]
        nodes = [
            node
            for child in children
            if isinstance(child, dict)
            for node in _alternatives(schema, child, content)
        ]
    for node in nodes:
        yield node.get("properties", {})


def _alternatives(
    schema: Mapping[str, Any], node: Mapping[str, Any], content: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that a node refers to, except for kinds that do not match the content."""
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        yield from _alternatives(schema, schema["$defs"][name], content)
    for child in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
        yield from _alternatives(schema, child, content)
    rule = node.get("properties", {}).get("kind", {})
    kind = content.get("kind") if isinstance(content, dict) else None
    if rule.get("const", kind) == kind and kind not in rule.get("not", {}).get("enum", ()):
        yield node
