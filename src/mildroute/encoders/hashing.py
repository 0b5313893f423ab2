"""Hashed n-grams: sparse vectors of a fixed width, with no vocabulary to learn, keep or leak."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from mildroute.encoders.base import Encoder
from mildroute.errors import ArgumentError

__all__ = ["HashingEncoder"]

_ANALYSERS = {"word": "word", "character": "char_wb"}
_WIDEST = 2**24


class HashingEncoder(Encoder):
    """Unit vectors of n-gram counts, damped by a logarithm; the hash of an n-gram is its column.

    It learns nothing from data, so it suits streams and texts whose words must not be stored. Without the weights of rare terms it is a
    little less exact than :class:`~mildroute.encoders.tfidf.TfidfEncoder`.

    Args:
        unit: N-grams of ``"word"`` or of ``"character"`` within words.
        ngrams: Shortest and longest n-gram.
        columns: Width of the vectors.

    Attributes:
        width_: Width of the vectors.

    Example:
        >>> HashingEncoder(columns=1024).fit_transform(["what is 2 + 2", ""]).shape
        (2, 1024)
    """

    _scratch: ClassVar[tuple[str, ...]] = ("_vectoriser",)
    learns_from_rows: ClassVar[bool] = False

    def __init__(self, *, unit: Literal["word", "character"] = "word", ngrams: tuple[int, int] = (1, 2), columns: int = 2**16) -> None:
        self.unit = unit
        self.ngrams = ngrams
        self.columns = columns

    def _fit(self, rows: list[Any]) -> None:  # noqa: ARG002
        if self.unit not in _ANALYSERS:
            raise ArgumentError(f"unit must be one of {', '.join(_ANALYSERS)}, got {self.unit!r}.")
        if len(self.ngrams) != 2 or not 1 <= self.ngrams[0] <= self.ngrams[1]:
            raise ArgumentError(f"ngrams must be the shortest and the longest, at least 1, got {self.ngrams!r}; take (1, 2).")
        if not 1 <= self.columns <= _WIDEST:
            raise ArgumentError(f"columns must be between 1 and {_WIDEST}, got {self.columns}.")
        self.width_ = int(self.columns)

    def _encode(self, rows: list[Any]) -> Any:
        if not hasattr(self, "_vectoriser"):
            self._vectoriser = self._new_vectoriser()
        counts = self._vectoriser.transform(rows)
        counts.data = (np.sign(counts.data) * np.log1p(np.abs(counts.data))).astype(np.float32)
        return normalize(counts, copy=False)

    def _new_vectoriser(self) -> HashingVectorizer:
        return HashingVectorizer(
            analyzer=_ANALYSERS[self.unit], ngram_range=tuple(self.ngrams), n_features=self.width_, norm=None, dtype=np.float32
        )
