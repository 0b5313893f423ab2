"""Encoders by the short names that the command line uses."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.routers.storage.registry import GROUP, class_named, plug_ins

__all__ = ["encoder_named"]

_NAMES = ("auto", "tfidf", "tfidf-sparse", "hashing", "numbers", "minilm", "minilm-int8")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def encoder_named(name: str) -> Any:
    """An unfitted encoder.

    Args:
        name: ``"auto"`` (none: the default of :mod:`mildroute.encoders.text_router`), ``"tfidf"`` and
            ``"hashing"`` (both reduced to few columns), ``"tfidf-sparse"``, ``"numbers"``, ``"minilm"``, ``"minilm-int8"``, the name of a
            plug-in, the folder or hub name of a sentence model, or several of them with ``+`` between.

    Returns:
        The encoder, or none for the default.

    Example:
        >>> encoder_named("tfidf")
        ReducedEncoder()
        >>> encoder_named("word2vec")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: encoder must be auto, ... or several with + between, got 'word2vec'.
    """
    from mildroute.encoders.hashing import HashingEncoder
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.text_router import DEFAULT_ENCODER
    from mildroute.encoders.tfidf import TfidfEncoder
    from mildroute.encoders.union import UnionEncoder

    makers: dict[str, Any] = {
        "auto": lambda: None,
        "tfidf": ReducedEncoder,
        "tfidf-sparse": TfidfEncoder,
        "hashing": lambda: ReducedEncoder(HashingEncoder()),
        "numbers": NumberEncoder,
        "minilm": lambda: SentenceEncoder(precision="fp32"),
        "minilm-int8": lambda: SentenceEncoder(precision="int8"),
    }
    if name in makers:
        return makers[name]()
    if any(importlib.metadata.entry_points(group=GROUP, name=name)):
        return _of_plug_in(name)
    if name and ((Path(name) / "config.json").is_file() or _HUB_NAME.fullmatch(name)):
        return SentenceEncoder(model=name, precision="int8")
    if "+" in name:
        return UnionEncoder([encoder_named(part) or DEFAULT_ENCODER() for part in name.split("+")])
    known = ", ".join((*_NAMES, *plug_ins("transform")))
    raise ArgumentError(f"encoder must be {known}, a model's folder or hub name, or several with + between, got {name!r}.")


def _of_plug_in(name: str) -> Any:
    """An encoder that an artifact may hold, with its default settings."""
    cls = class_named(name)
    if not hasattr(cls, "transform"):
        raise ArgumentError(f"encoder {name!r} must have transform, but {cls.__name__} has none; is it a router? Then give it as --router.")
    try:
        return cls()
    except TypeError as wrong:
        raise ArgumentError(f"encoder {name!r} must be made without arguments, got: {wrong}; give its parameters defaults.") from wrong
