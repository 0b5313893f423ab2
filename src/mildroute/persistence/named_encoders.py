"""Encoders by the short names that the command line accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mildroute._plugins import plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.persistence.registry import GROUP, list_plugins, resolve_class

__all__ = ["get_encoder"]

_NAMES = (
    "auto",
    "tfidf",
    "tfidf-sparse",
    "characters",
    "hashing",
    "numbers",
    "minilm",
    "minilm-int8",
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def get_encoder(name: str) -> Any:
    """Return an unfitted encoder.

    Args:
        name: ``"auto"`` (the default of ``mildroute fit``), ``"tfidf"``, ``"characters"`` and
            ``"hashing"`` (all three reduced to few columns), ``"tfidf-sparse"``, ``"numbers"``,
            ``"minilm"``, ``"minilm-int8"``, the name of a plug-in, the folder or hub name of a
            sentence model, or several of these joined by ``+``.

    Returns:
        The encoder, or ``None`` for ``"auto"``.
    """
    from mildroute.encoders.hashing import HashingEncoder
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.tfidf import TfidfEncoder
    from mildroute.encoders.union import UnionEncoder

    factories: dict[str, Any] = {
        "auto": lambda: None,
        "tfidf": ReducedEncoder,
        "tfidf-sparse": TfidfEncoder,
        "characters": lambda: ReducedEncoder(TfidfEncoder(unit="character", ngrams=(2, 4))),
        "hashing": lambda: ReducedEncoder(HashingEncoder()),
        "numbers": NumberEncoder,
        "minilm": lambda: SentenceEncoder(precision="fp32"),
        "minilm-int8": lambda: SentenceEncoder(precision="int8"),
    }
    if name in factories:
        return factories[name]()
    if name in plugin_names(GROUP):
        return _make_plugin_encoder(name)
    if name and ((Path(name) / "config.json").is_file() or _HUB_NAME.fullmatch(name)):
        return SentenceEncoder(model=name, precision="int8")
    if "+" in name:
        return UnionEncoder([get_encoder(part) or ReducedEncoder() for part in name.split("+")])
    names = ", ".join((*_NAMES, *list_plugins("transform")))
    raise ArgumentError(
        f"encoder must be {names}, a model's folder or hub name, or several joined by +, got"
        f" {name!r}."
    )


def _make_plugin_encoder(name: str) -> Any:
    """Return an encoder that an artifact can contain, with its default settings."""
    cls = resolve_class(name)
    if not hasattr(cls, "transform"):
        raise ArgumentError(
            f"encoder {name!r} must have transform, but {cls.__name__} has none; is it a router?"
            " Then give it as --router."
        )
    try:
        return cls()
    except TypeError as wrong:
        raise ArgumentError(
            f"encoder {name!r} must be made without arguments, got: {wrong}; give its parameters"
            " defaults."
        ) from wrong
