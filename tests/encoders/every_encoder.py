"""All encoders of the package, found by looking, with settings that fit in a moment.

And inputs to give them.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

import mildroute.encoders
from encoders.decision_model import shared_model
from encoders.models import tiny_bert, tiny_resnet
from mildroute.encoders.base import Encoder
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.image import ImageEncoder
from mildroute.encoders.numbers import NumberEncoder
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.system_one import SystemOneFeatures
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.encoders.union import UnionEncoder

TEXTS = [
    "what is 2+2?",
    "write a poem",
    "",
    "une idée 你好 🙂 \ud800",
    "is this long " * 400,
    "what is 2+2?",
    "x",
    "write a letter",
]
NUMBERS = ["1 2.5", "[3, -4e3]", "0;0", "1 2.5", "7, 8", "-1 1", "2 2", "9 9"]

# Encoders that need settings, or deserve a second look; one that is not here is tested as it comes.
CASES: dict[str, Callable[[], Any]] = {
    "HashingEncoder characters": lambda: HashingEncoder(
        unit="character", ngrams=(2, 3), columns=64
    ),
    "ImageEncoder ResNet": lambda: ImageEncoder(tiny_resnet(), threads=1),
    "ReducedEncoder dense": lambda: ReducedEncoder(
        SentenceEncoder(tiny_bert(), max_tokens=32, threads=1), n_components=4
    ),
    "SentenceEncoder": lambda: SentenceEncoder(tiny_bert(), max_tokens=32, threads=1),
    "SentenceEncoder int8": lambda: SentenceEncoder(
        tiny_bert(), precision="int8", max_tokens=32, threads=1
    ),
    "SystemOneFeatures": lambda: _system_one(),
    "TfidfEncoder characters": lambda: TfidfEncoder(unit="character", ngrams=(2, 4)),
    "UnionEncoder": lambda: UnionEncoder(
        [TfidfEncoder(), SentenceEncoder(tiny_bert(), max_tokens=32)], weights=(1.0, 0.5)
    ),
    "UnionEncoder dense": lambda: UnionEncoder(
        [
            SentenceEncoder(tiny_bert(), max_tokens=16),
            SentenceEncoder(tiny_bert(), precision="int8", max_tokens=32),
        ]
    ),
}


def _system_one() -> SystemOneFeatures:
    # A stored router finds the model's address in the environment.
    os.environ["MILDROUTE_DECISION_MODEL"] = shared_model().url
    return SystemOneFeatures()


def every_encoder() -> dict[str, Callable[[], Any]]:
    """What makes each concrete public encoder, by name."""
    names = [
        found.name
        for found in pkgutil.walk_packages(mildroute.encoders.__path__, "mildroute.encoders.")
    ]
    public = {
        name: getattr(module, name)
        for module in map(importlib.import_module, names)
        for name in getattr(module, "__all__", ())
    }
    kinds = {
        name: value
        for name, value in public.items()
        if is_encoder(value) and value.__name__ == name
    }
    return dict(sorted((kinds | CASES).items()))


def is_encoder(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Encoder) and value is not Encoder


def inputs_of(encoder: Any) -> list[Any]:
    if isinstance(encoder, ImageEncoder):
        random = np.random.default_rng(0)
        return [
            random.integers(0, 256, size=(height, 24, 3), dtype=np.uint8)
            for height in (9, 24, 40, 24, 31, 24, 24, 24)
        ]
    return NUMBERS if isinstance(encoder, NumberEncoder) else TEXTS
