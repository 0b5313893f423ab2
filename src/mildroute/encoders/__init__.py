"""Encoders: scikit-learn transformers that turn texts, images or numbers into vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.encoders.answers import (
        AnswerFeatures as AnswerFeatures,
        see_answers as see_answers,
    )
    from mildroute.encoders.base import Encoder as Encoder
    from mildroute.encoders.hashing import HashingEncoder as HashingEncoder
    from mildroute.encoders.image import ImageEncoder as ImageEncoder
    from mildroute.encoders.numbers import NumberEncoder as NumberEncoder
    from mildroute.encoders.reduced import ReducedEncoder as ReducedEncoder
    from mildroute.encoders.sentence import SentenceEncoder as SentenceEncoder
    from mildroute.encoders.system_one import SystemOneFeatures as SystemOneFeatures
    from mildroute.encoders.tfidf import TfidfEncoder as TfidfEncoder
    from mildroute.encoders.union import UnionEncoder as UnionEncoder

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.encoders.answers": ("AnswerFeatures", "see_answers"),
        "mildroute.encoders.base": ("Encoder",),
        "mildroute.encoders.hashing": ("HashingEncoder",),
        "mildroute.encoders.image": ("ImageEncoder",),
        "mildroute.encoders.numbers": ("NumberEncoder",),
        "mildroute.encoders.reduced": ("ReducedEncoder",),
        "mildroute.encoders.sentence": ("SentenceEncoder",),
        "mildroute.encoders.system_one": ("SystemOneFeatures",),
        "mildroute.encoders.tfidf": ("TfidfEncoder",),
        "mildroute.encoders.union": ("UnionEncoder",),
    },
)
