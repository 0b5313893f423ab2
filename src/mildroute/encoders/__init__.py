"""Encoders: scikit-learn transformers from texts or images to vectors, and the router over inputs that carries one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.encoders.base import Encoder
    from mildroute.encoders.hashing import HashingEncoder
    from mildroute.encoders.image import ImageEncoder
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.text_router import TextRouter
    from mildroute.encoders.tfidf import TfidfEncoder
    from mildroute.encoders.union import UnionEncoder

__all__ = [
    "Encoder",
    "HashingEncoder",
    "ImageEncoder",
    "NumberEncoder",
    "ReducedEncoder",
    "SentenceEncoder",
    "TextRouter",
    "TfidfEncoder",
    "UnionEncoder",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "base": ("Encoder",),
        "hashing": ("HashingEncoder",),
        "image": ("ImageEncoder",),
        "numbers": ("NumberEncoder",),
        "reduced": ("ReducedEncoder",),
        "sentence": ("SentenceEncoder",),
        "text_router": ("TextRouter",),
        "tfidf": ("TfidfEncoder",),
        "union": ("UnionEncoder",),
    },
)
