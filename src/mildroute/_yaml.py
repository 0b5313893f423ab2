"""Settings in YAML: plain values with their line numbers, and the rules that check them."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError, MildrouteError

# Numbers in settings: seconds, dollars and counts, checked where they are passed.


_MOST = 2**63 - 1


def is_finite(value: float) -> bool:
    """Return whether a number is finite as a float; ``math.isfinite`` raises for huge integers."""
    return abs(value) <= sys.float_info.max


def validate_amount(name: str, value: Any, *, positive: bool = False) -> float:
    """Return a finite number that is not negative; raise for other values.

    Args:
        name: Name of the number, with its unit, for the error message.
        value: The number.
        positive: Whether zero is an error, too.
    """
    rule = "positive" if positive else "not negative"
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
    if not good or value < 0 or (positive and value == 0):
        raise ArgumentError(f"{name} must be a finite number, {rule}, got {value!r:.80}.")
    return float(value)


def validate_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of at least ``least``; raise for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ArgumentError(
            f"{name} must be a whole number of at least {least}, got {value!r:.80}."
        )
    return value


# YAML as plain values with the line of each, so that every error message can name it. Documents are
# bounded in size and contain neither tags nor code.


# Keys and indices that lead to a value.
Place = tuple[str | int, ...]

_LARGEST = 2**19
_MOST_VALUES = 20_000
_CORE = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


@dataclass(frozen=True)
class YamlDocument:
    """A YAML file as plain values.

    Args:
        lines: Line number of each value, by the keys and indices that lead to it.
    """

    name: str
    value: Any
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of a value, or of the innermost enclosing value that has a line."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, place: Place, message: str) -> ArgumentError:
        """Return an error that names file and line."""
        return ArgumentError(f"{self.name}:{self.line(place)}: {message}")


def read_document(path: str | Path) -> YamlDocument:
    """Read a YAML file of at most 512 KiB.

    Dates stay text. Aliases are followed, but one that would blow up the file or that contains
    itself is an error, and so are merge keys, tags, keys that are not text, and duplicate keys.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; check the path."
        ) from error
    if len(content) > _LARGEST:
        raise ArgumentError(
            f"{path.name} must be at most {_LARGEST:,} bytes; put long prompts into fewer words or"
            " experts into two files."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArgumentError(
            f"{path.name}:{line}: the file must be UTF-8 text; save it as UTF-8."
        ) from None
    return _Reader(path.name).document(_composed(text, path.name))


def _import_yaml() -> Any:
    """Return PyYAML; not imported at the top, because settings can be created without files."""
    with needs_extra("pyyaml", extra="collect", user="experts.yaml"):
        import yaml
    return yaml


def _composed(text: str, name: str) -> Any:
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
        root: Any = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise ArgumentError(
            f"{name}:{line}: not valid YAML: {error.problem or error.context}; check colons, quotes"
            " and indents."
        ) from None
    except RecursionError:
        raise ArgumentError(
            f"{name}:{loader.line + 1}: brackets or indents are nested too deeply; write it"
            " flatter."
        ) from None
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{name}:{loader.line + 1}: not valid YAML: an escape that names no character;"
            " remove it."
        ) from None
    finally:
        loader.dispose()
    return root


class _Reader:
    """A converter from nodes to values that visits each node once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[Place, int] = {}
        self._above: list[int] = []
        self._read = 0

    def document(self, root: Any) -> YamlDocument:
        value = None if root is None else self._value(root, ())
        return YamlDocument(self._name, value, self._lines)

    def _value(self, node: Any, place: Place) -> Any:
        # The target of an alias is reported at the line where it is written.
        self._lines.setdefault(place, node.start_mark.line + 1)
        self._read += 1
        if self._read > _MOST_VALUES or id(node) in self._above:
            raise self._error(
                node,
                f"aliases must not hold themselves nor make more than {_MOST_VALUES:,} values;"
                " write it out",
            )
        self._above.append(id(node))
        if node.id == "mapping":
            value: Any = self._mapping(node, place)
        elif node.id == "sequence":
            self._check_tag(node, "seq")
            value = [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
        else:
            value = self._scalar(node)
        self._above.pop()
        return value

    def _mapping(self, node: Any, place: Place) -> dict[str, Any]:
        self._check_tag(node, "map")
        found: dict[str, Any] = {}
        for key_node, inner in node.value:
            if key_node.tag == f"{_CORE}merge":
                raise self._error(
                    key_node,
                    "merge keys (<<) are not read; write the keys out, or give one value an &anchor"
                    " and use it as *anchor",
                )
            if key_node.tag != f"{_CORE}str":
                raise self._error(
                    key_node, f"keys must be text, got {key_node.value!r:.60}; put it in quotes"
                )
            key = key_node.value
            if key in found:
                raise self._error(
                    key_node,
                    f"the key {key!r:.60} is there twice, first in line"
                    f" {self._lines[(*place, key)]}; keep one",
                )
            self._lines[(*place, key)] = key_node.start_mark.line + 1
            found[key] = self._value(inner, (*place, key))
        return found

    def _scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix(_CORE)
        if kind in {"str", "timestamp"}:
            # YAML 1.1 reads 1e-3 as text, which is never intended.
            return (
                float(node.value)
                if kind == "str" and node.style is None and _EXPONENT.fullmatch(node.value)
                else node.value
            )
        if kind not in {"int", "float", "bool", "null"}:
            raise self._error(node, f"tags such as {node.tag!r:.60} are not read; leave it out")
        try:
            return getattr(_import_yaml().constructor.SafeConstructor(), f"construct_yaml_{kind}")(
                node
            )
        except (ValueError, KeyError, IndexError, OverflowError):
            raise self._error(
                node, f"{node.value!r:.60} is not of the type {kind}; put it in quotes"
            ) from None

    def _check_tag(self, node: Any, kind: str) -> None:
        if node.tag != _CORE + kind:
            raise self._error(node, f"tags such as {node.tag!r:.60} are not read; leave it out")

    def _error(self, node: Any, message: str) -> ArgumentError:
        return ArgumentError(f"{self._name}:{node.start_mark.line + 1}: {message}.")


# The shape of a mapping in a file: its allowed keys, and the allowed values of each.
#
# Written by hand instead of with msgspec, whose errors (0.22) name a place as
# `$[...][...].concurrency`, without the names of experts and clients that lead to it, so that no
# line can be found, and show neither the value nor the way out ("Expected `int` >= 1").


# Raises one of our errors if a value breaks a rule.
Check = Callable[[Any], object]


@dataclass(frozen=True)
class Shape:
    """The keys of a mapping.

    Args:
        checks: Allowed values of each key: a check, the shape of a mapping, or both if either is
            allowed.
        whole: A check of the whole mapping, run after all its keys have passed.
    """

    checks: Mapping[str, Check | Shape | tuple[Check, Shape]]
    required: tuple[str, ...] = ()
    whole: Check | None = None


def check_shape(document: YamlDocument, place: Place, value: Any, shape: Shape) -> None:
    """Raise, with file and line, at the first key that is unknown, missing or wrong."""
    if not isinstance(value, dict):
        raise document.error(
            place,
            f"{_named(place)} must be a mapping, got {_kind(value)}; write its keys below it,"
            " indented.",
        )
    for key in value:
        if key not in shape.checks:
            raise document.error(
                (*place, key), f"unknown key {key!r:.60}; {nearest(key, shape.checks)}"
            )
    missing = [key for key in shape.required if key not in value]
    if missing:
        raise document.error(place, f"{_named(place)} needs the key {missing[0]!r}; add it.")
    for key, inner in value.items():
        _check(document, (*place, key), inner, shape.checks[key])
    if shape.whole is not None:
        _call(document, place, value, shape.whole)


def _check(
    document: YamlDocument, place: Place, value: Any, check: Check | Shape | tuple[Check, Shape]
) -> None:
    if isinstance(check, tuple):
        check = check[1] if isinstance(value, dict) else check[0]
    if isinstance(check, Shape):
        check_shape(document, place, value, check)
    else:
        _call(document, place, value, check)


def _call(document: YamlDocument, place: Place, value: Any, check: Check) -> None:
    try:
        check(value)
    except MildrouteError as error:
        raise document.error(place, f"{_named(place)}: {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return what may have been meant, and all known words."""
    names = sorted(known)
    close = difflib.get_close_matches(word[:80], names, n=1, cutoff=0.6)
    return (f"did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(names)}."


def boolean(value: Any) -> None:
    """Raise an error for a value that is neither true nor false."""
    if not isinstance(value, bool):
        raise ArgumentError(f"it must be true or false, got {value!r:.60}.")


def text(value: Any) -> str:
    """Return the value if it is a text that is not empty; raise for other values."""
    if not isinstance(value, str):
        raise ArgumentError(f"it must be text, got {_kind(value)}; put it in quotes.")
    if not value.strip():
        raise ArgumentError("it must not be empty; write something or leave the key out.")
    return value


def listed(check: Check) -> Check:
    """Return a check that applies to each item of a list."""

    def check_items(value: Any) -> None:
        if not isinstance(value, list):
            raise ArgumentError(f"it must be a list, got {_kind(value)}; write it in [ ].")
        for item in value:
            check(item)

    return check_items


def _named(place: Place) -> str:
    return repr(place[-1]) if place else "the file"


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else f"{value!r:.60}"
