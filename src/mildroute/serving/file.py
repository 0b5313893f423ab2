"""gateway.yaml: how a gateway behaves, read and checked as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from mildroute.errors import ArgumentError
from mildroute.experts.literal_secrets import refuse_literal_secrets
from mildroute.experts.located import read_document
from mildroute.experts.secret import checked_variable
from mildroute.experts.shape import Check, Shape, check_shape, text
from mildroute.serving.settings import Settings
from mildroute.serving.targets import target_of_setting

__all__ = ["read_settings"]

_MAY_BE_ZERO = {"drain", "notice", "explore", "leave_gain", "remembered"}
_SHARES = {"explore", "share", "leave_gain"}
"""Settings that must be at most 1."""


def read_settings(path: str | Path) -> Settings:
    r"""Read a file of settings; what it does not name keeps its default. Paths are relative to the file.

    Args:
        path: The YAML file.

    Returns:
        The settings.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "gateway.yaml")
        >>> _ = path.write_text("policy: {explore: 0.05}\nfailover: {attempts: 2}\n")
        >>> read_settings(path).policy.explore
        0.05
        >>> _ = path.write_text("policy:\n  explore: 5\n")
        >>> read_settings(path)
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: gateway.yaml:2: 'explore': it must be at most 1, got 5.
    """
    path = Path(path)
    document = read_document(path)
    if document.value is None:
        return Settings()
    refuse_literal_secrets(document)
    check_shape(document, (), document.value, _shape_of(Settings))
    made: Settings = _made(Settings, document.value, path.parent)
    return made


def _shape_of(kind: type[Any]) -> Shape:
    hints = get_type_hints(kind)
    return Shape({field.name: _rule_of(field.name, hints[field.name]) for field in dataclasses.fields(kind)})


def _rule_of(name: str, hint: Any) -> Check | Shape:
    if dataclasses.is_dataclass(hint):
        return _shape_of(hint)  # type: ignore[arg-type]
    if name.endswith("_key_env"):
        return checked_variable
    if "Mapping" in str(hint):
        return _targets
    if hint is bool:
        return _truth
    if "Path" in str(hint) or "str" in str(hint):
        return text
    return _number(name, whole="float" not in str(hint))


def _number(name: str, *, whole: bool) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
            raise ArgumentError(f"it must be a {'whole ' if whole else ''}number, got {value!r:.60}.")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            raise ArgumentError(f"it must be {'at least' if name in _MAY_BE_ZERO else 'more than'} 0, got {value}.")
        if name in _SHARES and value > 1:
            raise ArgumentError(f"it must be at most 1, got {value}.")

    return check


def _truth(value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"it must be true or false, got {value!r:.60}.")


def _targets(value: Any) -> None:
    """Names and targets."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"it must be a mapping from names to targets, got {value!r:.60}; write  cheap: {{quality: 0.95}}  below it.")
    for name, target in value.items():
        text(name)
        if target is None:
            continue
        try:
            target_of_setting(target)
        except ArgumentError as error:
            raise ArgumentError(f"{name!r:.60}: {error}") from None


def _made(kind: type[Any], values: Mapping[str, Any], folder: Path) -> Any:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            given[name] = _made(hint, value, folder)  # type: ignore[arg-type]
        elif "Path" in str(hint):
            given[name] = folder / value
        else:
            given[name] = value
    return kind(**given)
