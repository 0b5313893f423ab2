"""Encoders by the short names that the command line uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["encoder_named"]

_NAMES = ("auto", "tfidf", "tfidf-sparse", "hashing", "numbers", "minilm", "minilm-int8")


def encoder_named(name: str) -> Any:
    """An unfitted encoder.

    Args:
        name: ``"auto"`` (none: the default of :mod:`mildroute.encoders.text_router`), ``"tfidf"`` (reduced to few columns),
            ``"tfidf-sparse"``, ``"hashing"``, ``"numbers"``, ``"minilm"``, ``"minilm-int8"``, or the folder of a sentence model.

    Returns:
        The encoder, or none for the default.

    Example:
        >>> encoder_named("tfidf")
        ReducedEncoder()
        >>> encoder_named("word2vec")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: encoder must be auto, tfidf, ... or a model's folder, got 'word2vec'.
    """
    from mildroute.encoders.hashing import HashingEncoder
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.tfidf import TfidfEncoder

    makers: dict[str, Any] = {
        "auto": lambda: None,
        "tfidf": ReducedEncoder,
        "tfidf-sparse": TfidfEncoder,
        "hashing": HashingEncoder,
        "numbers": NumberEncoder,
        "minilm": lambda: SentenceEncoder(precision="fp32"),
        "minilm-int8": lambda: SentenceEncoder(precision="int8"),
    }
    if name in makers:
        return makers[name]()
    if Path(name).is_dir():
        return SentenceEncoder(model=name, precision="int8")
    raise ArgumentError(f"encoder must be {', '.join(_NAMES)} or a model's folder, got {name!r}.")
