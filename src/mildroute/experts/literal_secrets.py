"""A check that a file contains no keys."""

from __future__ import annotations

import re
from typing import Any

from mildroute._yaml import KeyPath, YamlDocument

__all__ = ["refuse_literal_secrets"]

_SECRET_NAMES = {
    "apikey",
    "apitoken",
    "accesstoken",
    "accesskey",
    "authorization",
    "bearer",
    "password",
    "secret",
    "secretkey",
    "token",
    "xapikey",
}
_SECRET_FORMS = re.compile(
    r"\b(?:sk|rk|pk|xai|pplx|nvapi|r8)[-_](?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"
    r"|\b(?:gsk|hf|ghp|gho|glpat|xoxb)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bAKIA[A-Z0-9]{16}\b|\bBearer\s+(?=\S*[0-9])\S{12,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\."
)
_ADVICE = (
    "export it as an environment variable and write the variable's name: api_key_env: SMALL_KEY."
    " Replace a key that was shared."
)


def refuse_literal_secrets(document: YamlDocument) -> None:
    """Raise at the first key, or text that looks like one; the message does not repeat it."""
    _search(document, document.value, ())


def _search(document: YamlDocument, value: Any, path: KeyPath) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_text(document, name, (*path, name))
            if (
                re.sub(r"[-_ ]", "", name).lower() in _SECRET_NAMES
                and isinstance(inner, (str, int, float))
                and "prompt" not in path
            ):
                raise document.error(
                    (*path, name),
                    f"a file must not contain keys, got one under {name!r:.60}; {_ADVICE}",
                )
            _search(document, inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _search(document, inner, (*path, index))
    elif isinstance(value, str):
        _refuse_text(document, value, path)


def _refuse_text(document: YamlDocument, text: str, path: KeyPath) -> None:
    if _SECRET_FORMS.search(text):
        raise document.error(
            path, f"a file must not contain keys, got a text that looks like one; {_ADVICE}"
        )
