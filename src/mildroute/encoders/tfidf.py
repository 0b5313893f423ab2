"""TF-IDF: sparse counts of words or characters, weighted by rarity."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

from mildroute.encoders.base import Encoder
from mildroute.encoders.words import WORDS_AND_SIGNS, vectorizer_settings
from mildroute.exceptions import ArgumentError

__all__ = ["TfidfEncoder"]


class TfidfEncoder(Encoder):
    """An encoder of texts as n-gram counts, damped by a logarithm and weighted by rarity.

    Vectors have unit length. Fitting a router on so many columns is slow;
    :class:`~mildroute.encoders.reduced.ReducedEncoder` reduces them to a few hundred.

    Signs count as words, and in scripts without spaces, such as Chinese, Japanese or Thai, so does
    each character.

    Args:
        unit: ``"word"``, or ``"character"`` for n-grams of characters within words.
        ngrams: Lengths of the shortest and the longest n-gram.
        min_df: Minimum number of inputs in which a term must occur; 1 if that leaves no terms.
        max_features: Maximum number of terms, by frequency; None keeps all.

    Attributes:
        terms_: The n-grams, shape (d,).
        weights_: Weight of each n-gram, shape (d,).

    Example:
        >>> encoder = TfidfEncoder().fit(["what is 2 + 2", "what is the capital of France"])
        >>> encoder.transform(["what is 3 + 3"]).shape == (1, len(encoder.terms_))
        True
    """

    _transient: ClassVar[tuple[str, ...]] = ("_vectorizer",)
    terms_: NDArray[np.object_]
    weights_: NDArray[np.float32]

    def __init__(
        self,
        *,
        unit: Literal["word", "character"] = "word",
        ngrams: tuple[int, int] = (1, 2),
        min_df: int = 2,
        max_features: int | None = 20_000,
    ) -> None:
        self.unit = unit
        self.ngrams = ngrams
        self.min_df = min_df
        self.max_features = max_features

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002
        """Fit the encoder on n inputs and encode them in the same pass, shape (n, d)."""
        self._forget()
        return self._learn(self._read(X))

    def _fit(self, rows: list[Any]) -> None:
        self._learn(rows)

    def _learn(self, rows: list[Any]) -> Any:
        self._check_parameters()
        vectorizer, vectors = self._fit_vectorizer(rows)
        self.terms_ = np.array(vectorizer.get_feature_names_out(), dtype=object)
        self.weights_ = np.asarray(vectorizer.idf_, dtype=np.float32)
        # Use the order of ``transform``, because another order rounds products differently.
        vectors.sort_indices()
        return vectors

    def _fit_vectorizer(self, rows: list[str]) -> tuple[TfidfVectorizer, Any]:
        for min_df in dict.fromkeys((min(self.min_df, len(rows)), 1)):
            vectorizer = self._new_vectorizer(min_df=min_df, max_features=self.max_features)
            with contextlib.suppress(ValueError):  # No terms remain.
                return vectorizer, vectorizer.fit_transform(rows)
        raise ArgumentError(
            f"inputs must have at least one {self.unit} n-gram of {self.ngrams}, got none; are they"
            " all empty?"
        )

    def _encode(self, rows: list[Any]) -> Any:
        if not hasattr(self, "_vectorizer"):
            self._vectorizer = self._new_vectorizer(vocabulary=self.terms_.tolist())
        # TfidfVectorizer.transform without its checks: a text takes 0.15 ms instead of 0.79 ms,
        # and a gateway encodes questions and answers one by one.
        vectors = CountVectorizer.transform(self._vectorizer, rows)
        np.log(vectors.data, out=vectors.data)
        vectors.data += 1.0
        vectors.data *= self.weights_[vectors.indices]
        inplace_csr_row_normalize_l2(vectors)
        return vectors

    def _new_vectorizer(self, **settings: Any) -> TfidfVectorizer:
        return TfidfVectorizer(
            sublinear_tf=True,
            dtype=np.float32,
            **vectorizer_settings(self.unit, self.ngrams, WORDS_AND_SIGNS),
            **settings,
        )

    def _check_parameters(self) -> None:
        if self.min_df < 1 or (self.max_features is not None and self.max_features < 1):
            raise ArgumentError(
                f"min_df and max_features must be at least 1, got {self.min_df} and"
                f" {self.max_features}."
            )
