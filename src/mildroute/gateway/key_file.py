"""The YAML file of client keys: a hash and limits for each client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from mildroute._optional import needs_extra
from mildroute._yaml import KeyPath, YamlDocument, read_document
from mildroute.configuration import MODEL, check_document
from mildroute.exceptions import ArgumentError

with needs_extra("pydantic", extra="serve", user="mildroute.gateway"):
    from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
    from pydantic.dataclasses import dataclass

__all__ = ["ClientSettings", "KeyFile", "read_key_file", "validate_name"]

_KEY = re.compile(r"mr-[A-Za-z0-9_-]{20,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def validate_name(name: Any) -> str:
    """Return the name if it is valid for a client; raise an ArgumentError otherwise."""
    looks_like_key = isinstance(name, str) and _KEY.match(name)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or looks_like_key:
        got = "what looks like a key" if looks_like_key else f"{name!r:.60}"
        raise ArgumentError(
            "a client's name must be at most 64 letters, digits, dots, dashes and underscores and"
            f" begin with a letter or digit, got {got}."
        )
    return name


def _validate_hash(value: Any) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ArgumentError(
            "it must be 'sha256:' and 64 digits of 0-9a-f (the value is not shown); run 'mildroute"
            " keys new'."
        )
    return value


# Sums of a limit must stay exact enough in a float.
Limit = Annotated[float, Field(gt=0, le=1e15)]
Hash = Annotated[
    str,
    BeforeValidator(_validate_hash),
    WithJsonSchema({"type": "string", "pattern": f"^{_HASH.pattern}$"}),
]
Model = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, config=MODEL)
class ClientSettings:
    """One client of a gateway."""

    hash: Hash
    """Hash of the client's key, as ``mildroute keys new`` writes it."""

    requests_per_minute: Limit | None = None
    """Maximum requests per minute; each input of ``/v1/route`` counts as one. If unset, there is no
    limit."""

    dollars_per_day: Limit | None = None
    """Maximum dollars per UTC day; if unset, there is no limit."""

    models: Annotated[tuple[Model, ...], Field(min_length=1)] | None = None
    """Experts and routes that the client may name as ``model``; if unset, all are allowed."""


# The settings of each client, by its name.
KeyFile = dict[Annotated[str, AfterValidator(validate_name)], ClientSettings]


def read_key_file(path: str | Path) -> dict[str, ClientSettings]:
    """Return the settings of each client; errors name the file and line, and never show a key."""
    document = read_document(path)
    _refuse_keys(document, document.value, ())
    clients = check_document(document, KeyFile)
    owners: dict[str, str] = {}
    for name, client in clients.items():
        owner = owners.setdefault(client.hash, name)
        if owner != name:
            raise document.error(
                (name, "hash"),
                f"{name!r} has the hash of {owner!r}; each client needs its own key: create a new"
                " one.",
            )
    return clients


def _refuse_keys(document: YamlDocument, value: Any, path: KeyPath) -> None:
    """Reject a key in place of its hash, before any other message could show it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_keys(document, name, (*path, name))
            _refuse_keys(document, inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_keys(document, inner, (*path, index))
    elif isinstance(value, str) and _KEY.search(value):
        raise document.error(
            path,
            "the file must contain hashes and no keys, got what looks like a key (not shown); run"
            " 'mildroute keys new' for a fresh one.",
        )
