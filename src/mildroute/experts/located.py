"""YAML as plain values with the line of each, so that every message can name it. Bounded, without tags, without code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError, MissingExtraError

try:
    import yaml
    from yaml.constructor import SafeConstructor
except ImportError:
    raise MissingExtraError.for_package("pyyaml", extra="collect", user="experts.yaml") from None

__all__ = ["Document", "Place", "read_document"]

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value."""

_LARGEST = 2**19
_MOST_VALUES = 20_000
_CORE = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


@dataclass(frozen=True)
class Document:
    """A YAML file as plain values.

    Args:
        name: As messages show it.
        value: The whole.
        lines: Line of each value, by the keys and indices that lead to it.

    Example:
        >>> raise Document("experts.yaml", {"a": 1}, {(): 1, ("a",): 1}).error(("a", "b"), "a must be text.")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: experts.yaml:1: a must be text.
    """

    name: str
    value: Any
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Line of a value, or of the innermost one around it that has a line."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, place: Place, message: str) -> ArgumentError:
        """An error that names file and line."""
        return ArgumentError(f"{self.name}:{self.line(place)}: {message}")


def read_document(path: str | Path) -> Document:
    """Read a YAML file of at most 512 KiB.

    Dates stay text. Aliases are followed; one that would blow the file up, or that holds itself, is refused, and so are merge keys, tags,
    keys that are no text, and keys that are there twice.

    Example:
        >>> read_document("missing.yaml")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: 'missing.yaml' cannot be read: No such file or directory; check the path.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ArgumentError(f"{str(path)!r} cannot be read: {error.strerror or error}; check the path.") from error
    if len(content) > _LARGEST:
        raise ArgumentError(f"{path.name} must be at most {_LARGEST:,} bytes; put long prompts into fewer words or experts into two files.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArgumentError(f"{path.name}:{line}: the file must be UTF-8 text; save it as UTF-8.") from None
    return _Reader(path.name).document(_composed(text, path.name))


def _composed(text: str, name: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ArgumentError(f"{name}:{line}: a character that YAML does not allow, number {error.character}; remove it.") from None
    try:
        root: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise ArgumentError(f"{name}:{line}: not valid YAML: {error.problem or error.context}; check colons, quotes and indents.") from None
    except RecursionError:
        raise ArgumentError(f"{name}:{loader.line + 1}: brackets or indents are nested too deeply; write it flatter.") from None
    except (ValueError, OverflowError):
        raise ArgumentError(f"{name}:{loader.line + 1}: not valid YAML: an escape that names no character; remove it.") from None
    finally:
        loader.dispose()
    return root


class _Reader:
    """Turns nodes into values, once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[Place, int] = {}
        self._above: list[int] = []
        self._read = 0

    def document(self, root: yaml.Node | None) -> Document:
        value = None if root is None else self._value(root, ())
        return Document(self._name, value, self._lines)

    def _value(self, node: yaml.Node, place: Place) -> Any:
        # What stands behind an alias is reported where it is written.
        self._lines.setdefault(place, node.start_mark.line + 1)
        self._read += 1
        if self._read > _MOST_VALUES or id(node) in self._above:
            raise self._error(node, f"aliases must not hold themselves nor make more than {_MOST_VALUES:,} values; write it out")
        self._above.append(id(node))
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(node, place)
        elif isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq")
            value = [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
        else:
            value = self._scalar(node)
        self._above.pop()
        return value

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        self._check_tag(node, "map")
        found: dict[str, Any] = {}
        for key_node, inner in node.value:
            if key_node.tag == f"{_CORE}merge":
                raise self._error(
                    key_node, "merge keys (<<) are not read; write the keys out, or give one value an &anchor and use it as *anchor"
                )
            if key_node.tag != f"{_CORE}str":
                raise self._error(key_node, f"keys must be text, got {key_node.value!r:.60}; put it in quotes")
            key = key_node.value
            if key in found:
                raise self._error(key_node, f"the key {key!r:.60} is there twice, first in line {self._lines[(*place, key)]}; keep one")
            self._lines[(*place, key)] = key_node.start_mark.line + 1
            found[key] = self._value(inner, (*place, key))
        return found

    def _scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix(_CORE)
        if kind in {"str", "timestamp"}:
            # YAML 1.1 takes 1e-3 for a text, which nobody means.
            return float(node.value) if kind == "str" and node.style is None and _EXPONENT.fullmatch(node.value) else node.value
        if kind not in {"int", "float", "bool", "null"}:
            raise self._error(node, f"tags such as {node.tag!r:.60} are not read; leave it out")
        try:
            return getattr(SafeConstructor(), f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            raise self._error(node, f"{node.value!r:.60} is not of the type {kind}; put it in quotes") from None

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _CORE + kind:
            raise self._error(node, f"tags such as {node.tag!r:.60} are not read; leave it out")

    def _error(self, node: yaml.Node, message: str) -> ArgumentError:
        return ArgumentError(f"{self._name}:{node.start_mark.line + 1}: {message}.")
