"""Finds keys that were written into a file in which they do not belong."""

from __future__ import annotations

import re
from typing import Any

from mildroute.experts.located import Document, Place

__all__ = ["refuse_literal_secrets"]

_NAMES = {"apikey", "apitoken", "accesstoken", "accesskey", "authorization", "bearer", "password", "secret", "secretkey", "token"}
_SHAPES = re.compile(
    r"\b(?:sk|rk|pk|xai|pplx|nvapi|r8)[-_](?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"
    r"|\b(?:gsk|hf|ghp|gho|glpat|xoxb)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bAKIA[A-Z0-9]{16}\b|\bBearer\s+(?=\S*[0-9])\S{12,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\."
)
_WAY_OUT = "export it as an environment variable and write the variable's name: api_key_env: SMALL_KEY. Replace a key that was shared."


def refuse_literal_secrets(document: Document) -> None:
    """Raise at the first key, or text that looks like one; it is not repeated in the message.

    Args:
        document: The file.

    Example:
        >>> refuse_literal_secrets(Document("experts.yaml", {"api_key": "abc"}, {("api_key",): 7}))
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: experts.yaml:7: a file must not hold keys, got one under 'api_key'; export it as an ...
    """
    _search(document, document.value, ())


def _search(document: Document, value: Any, place: Place) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_text(document, name, (*place, name))
            if _is_name_of_key(name) and isinstance(inner, (str, int, float)) and "prompt" not in place:
                raise document.error((*place, name), f"a file must not hold keys, got one under {name!r:.60}; {_WAY_OUT}")
            _search(document, inner, (*place, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _search(document, inner, (*place, index))
    elif isinstance(value, str):
        _refuse_text(document, value, place)


def _is_name_of_key(name: str) -> bool:
    return re.sub(r"[-_ ]", "", name).lower() in _NAMES


def _refuse_text(document: Document, text: str, place: Place) -> None:
    if _SHAPES.search(text):
        raise document.error(place, f"a file must not hold keys, got what looks like one; {_WAY_OUT}")
