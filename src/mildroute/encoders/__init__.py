"""Encoders: scikit-learn transformers from texts or images to vectors, and the router over inputs that carries one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mildroute.encoders.hashing import HashingEncoder
    from mildroute.encoders.image import ImageEncoder
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.text_router import TextRouter
    from mildroute.encoders.tfidf import TfidfEncoder
    from mildroute.encoders.union import UnionEncoder

__all__ = [
    "HashingEncoder",
    "ImageEncoder",
    "NumberEncoder",
    "ReducedEncoder",
    "SentenceEncoder",
    "TextRouter",
    "TfidfEncoder",
    "UnionEncoder",
]

_HOMES = {
    "HashingEncoder": "hashing",
    "ImageEncoder": "image",
    "NumberEncoder": "numbers",
    "ReducedEncoder": "reduced",
    "SentenceEncoder": "sentence",
    "TextRouter": "text_router",
    "TfidfEncoder": "tfidf",
    "UnionEncoder": "union",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
