"""YAML files as plain values with line numbers.

A document is limited in size and contains neither tags nor code. Dates stay text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

# The keys and indices that lead to a value.
KeyPath = tuple[str | int, ...]

_MAX_BYTES = 2**19
_MAX_VALUES = 20_000
_CORE = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class YamlDocument:
    """A YAML file as plain values.

    Args:
        name: Name of the file, for messages.
        value: The content: mappings, lists, texts, numbers, booleans and ``None``.
        lines: Line number of each value.
    """

    name: str
    value: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a value, or of the innermost enclosing value that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def error(self, path: KeyPath, message: str) -> ArgumentError:
        """Return an error that names the file and the line."""
        return ArgumentError(f"{self.name}:{self.line(path)}: {message}")


def read_document(path: str | Path) -> YamlDocument:
    """Read a YAML file of at most 512 KiB.

    Aliases are resolved, unless an alias contains itself or expands to too many values. Merge keys,
    tags, keys that are not text and duplicate keys are errors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; check the path."
        ) from error
    if len(content) > _MAX_BYTES:
        raise ArgumentError(
            f"{path.name} must be at most {_MAX_BYTES:,} bytes; shorten its prompts or split it"
            " into two files."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArgumentError(
            f"{path.name}:{line}: the file must be UTF-8 text; save it as UTF-8."
        ) from None
    root = _compose(text, path.name)
    reader = _NodeReader(path.name)
    value = None if root is None else reader.read(root, ())
    return YamlDocument(path.name, value, reader.lines)


def _import_yaml() -> Any:
    """Return PyYAML, which settings created in Python do not need."""
    with needs_extra("pyyaml", extra="collect", user="experts.yaml"):
        import yaml
    return yaml


def _compose(text: str, name: str) -> Node | None:
    """Return the root node of a text."""
    yaml = _import_yaml()
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ArgumentError(
            f"{name}:{line}: a character that YAML does not allow, number {error.character};"
            " remove it."
        ) from None
    try:
        root: Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise ArgumentError(
            f"{name}:{line}: not valid YAML: {error.problem or error.context}; check colons, quotes"
            " and indents."
        ) from None
    except RecursionError:
        raise ArgumentError(
            f"{name}:{loader.line + 1}: brackets or indents are nested too deeply; flatten them."
        ) from None
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{name}:{loader.line + 1}: not valid YAML: an escape that names no character;"
            " remove it."
        ) from None
    finally:
        loader.dispose()
    return root


class _NodeReader:
    """A converter from YAML nodes to plain values.

    Attributes:
        lines: Line number of each value that has been read.
    """

    def __init__(self, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._name = name
        self._yaml = _import_yaml()
        self._ancestors: list[int] = []
        self._count = 0

    def read(self, node: Node, path: KeyPath) -> Any:
        """Return the value of a node."""
        # The target of an alias keeps the line where the alias is written.
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._count += 1
        if self._count > _MAX_VALUES or id(node) in self._ancestors:
            raise self._error(
                node,
                f"aliases must not contain themselves or expand to more than {_MAX_VALUES:,}"
                " values; write the values out",
            )
        self._ancestors.append(id(node))
        if isinstance(node, self._yaml.MappingNode):
            value: Any = self._read_mapping(node, path)
        elif isinstance(node, self._yaml.SequenceNode):
            self._check_tag(node, "seq")
            value = [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        else:
            value = self._read_scalar(node)
        self._ancestors.pop()
        return value

    def _read_mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        self._check_tag(node, "map")
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_CORE}merge":
                raise self._error(
                    key_node,
                    "merge keys (<<) are not supported; write the keys out, or give one value an"
                    " &anchor and use it as *anchor",
                )
            if key_node.tag != f"{_CORE}str":
                raise self._error(
                    key_node, f"keys must be text, got {key_node.value!r:.60}; put it in quotes"
                )
            key = key_node.value
            if key in mapping:
                raise self._error(
                    key_node,
                    f"duplicate key {key!r:.60}, first in line {self.lines[(*path, key)]}; keep"
                    " one",
                )
            self._check_characters(key_node)
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            mapping[key] = self.read(value_node, (*path, key))
        return mapping

    def _read_scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix(_CORE)
        if kind in {"str", "timestamp"}:
            self._check_characters(node)
            # YAML 1.1 reads a plain 1e-3 as text, which is never intended.
            is_number = kind == "str" and node.style is None and _EXPONENT.fullmatch(node.value)
            return float(node.value) if is_number else node.value
        constructor = self._yaml.constructor.SafeConstructor()
        constructors = {
            "int": constructor.construct_yaml_int,
            "float": constructor.construct_yaml_float,
            "bool": constructor.construct_yaml_bool,
            "null": constructor.construct_yaml_null,
        }
        self._check_tag(node, *constructors)
        try:
            return constructors[kind](node)
        except (ValueError, KeyError, IndexError, OverflowError):
            raise self._error(
                node, f"{node.value!r:.60} is not of the type {kind}; put it in quotes"
            ) from None

    def _check_tag(self, node: Node, *kinds: str) -> None:
        if node.tag.removeprefix(_CORE) not in kinds:
            raise self._error(node, f"tags such as {node.tag!r:.60} are not supported; remove it")

    def _check_characters(self, node: Node) -> None:
        if _SURROGATE.search(node.value):
            raise self._error(node, "not valid YAML: an escape that names no character; remove it")

    def _error(self, node: Node, message: str) -> ArgumentError:
        return ArgumentError(f"{self._name}:{node.start_mark.line + 1}: {message}.")
