"""Encoders: scikit-learn transformers from texts, images or numbers to vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.encoders.base import Encoder
    from mildroute.encoders.image import ImageEncoder
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.text import HashingEncoder, NumberEncoder, ReducedEncoder, TfidfEncoder, UnionEncoder

__all__ = [
    "Encoder",
    "HashingEncoder",
    "ImageEncoder",
    "NumberEncoder",
    "ReducedEncoder",
    "SentenceEncoder",
    "TfidfEncoder",
    "UnionEncoder",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "base": ("Encoder",),
        "image": ("ImageEncoder",),
        "sentence": ("SentenceEncoder",),
        "text": (
            "HashingEncoder",
            "NumberEncoder",
            "ReducedEncoder",
            "TfidfEncoder",
            "UnionEncoder",
        ),
    },
)
