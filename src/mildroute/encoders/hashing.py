"""Hashed n-grams: sparse vectors of a fixed width, without a vocabulary."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from mildroute.encoders.base import Encoder
from mildroute.encoders.words import LONG_WORDS, vectorizer_settings
from mildroute.exceptions import ArgumentError

__all__ = ["HashingEncoder"]

_MAX_COLUMNS = 2**24


class HashingEncoder(Encoder):
    """An encoder of texts as hashed n-gram counts, damped by a logarithm, of unit length.

    The encoder learns nothing from data, so it suits streams, and texts whose words must not be
    stored. It does not weight terms by rarity, so it is a little less accurate than
    :class:`~mildroute.encoders.tfidf.TfidfEncoder`.

    In scripts without spaces, such as Chinese, Japanese or Thai, each character counts as a word.

    Args:
        unit: ``"word"``, or ``"character"`` for n-grams of characters within words.
        ngrams: Lengths of the shortest and the longest n-gram.
        columns: Width of the vectors.

    Attributes:
        width_: Width of the vectors.

    Example:
        >>> HashingEncoder(columns=1024).fit_transform(["what is 2 + 2", ""]).shape
        (2, 1024)
    """

    _transient: ClassVar[tuple[str, ...]] = ("_vectorizer",)
    learns_from_rows: ClassVar[bool] = False

    def __init__(
        self,
        *,
        unit: Literal["word", "character"] = "word",
        ngrams: tuple[int, int] = (1, 2),
        columns: int = 2**16,
    ) -> None:
        self.unit = unit
        self.ngrams = ngrams
        self.columns = columns

    def _fit(self, rows: list[Any]) -> None:  # noqa: ARG002
        # Raises an error for invalid settings.
        self._new_vectorizer(1)
        if not 1 <= self.columns <= _MAX_COLUMNS:
            raise ArgumentError(f"columns must be from 1 to {_MAX_COLUMNS}, got {self.columns}.")
        self.width_ = int(self.columns)

    def _encode(self, rows: list[Any]) -> Any:
        if not hasattr(self, "_vectorizer"):
            self._vectorizer = self._new_vectorizer(self.width_)
        counts = self._vectorizer.transform(rows)
        counts.data = (np.sign(counts.data) * np.log1p(np.abs(counts.data))).astype(np.float32)
        return normalize(counts, copy=False)

    def _new_vectorizer(self, columns: int) -> HashingVectorizer:
        return HashingVectorizer(
            n_features=columns,
            norm=None,
            dtype=np.float32,
            **vectorizer_settings(self.unit, self.ngrams, LONG_WORDS),
        )
