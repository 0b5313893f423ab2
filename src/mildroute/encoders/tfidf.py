"""TF-IDF: sparse counts of words or characters, weighted by rarity. No download, no model."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from mildroute.encoders.base import Encoder
from mildroute.errors import ArgumentError

__all__ = ["TfidfEncoder"]

_ANALYSERS = {"word": "word", "character": "char_wb"}
_WORDS_AND_SIGNS = r"\w+|[^\w\s]"
"""Signs count as words: formulas, code and quotes say much about which expert should answer."""


class TfidfEncoder(Encoder):
    """Unit vectors of n-gram counts, damped by a logarithm and weighted by how rare the n-gram is.

    A router takes long to fit on that many columns; :class:`~mildroute.encoders.reduced.ReducedEncoder` brings them to a few hundred.

    Args:
        unit: N-grams of ``"word"`` or of ``"character"`` within words.
        ngrams: Shortest and longest n-gram.
        min_df: Inputs in which a term must occur; 1 is taken where that would leave no term.
        max_features: Terms that are kept, the most frequent ones.

    Attributes:
        terms_: The n-grams, shape (d,).
        weights_: Weight of each, shape (d,).

    Example:
        >>> encoder = TfidfEncoder().fit(["what is 2 + 2", "what is the capital of France"])
        >>> encoder.transform(["what is 3 + 3"]).shape == (1, len(encoder.terms_))
        True
    """

    _scratch: ClassVar[tuple[str, ...]] = ("_vectoriser",)
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
        """Learn from n inputs and encode them in the same pass, shape (n, d)."""
        self._forget()
        return self._learn(self._read(X))

    def _fit(self, rows: list[Any]) -> None:
        self._learn(rows)

    def _learn(self, rows: list[Any]) -> Any:
        self._check_parameters()
        vectoriser, vectors = self._fitted_vectoriser(rows)
        self.terms_ = np.array(vectoriser.get_feature_names_out(), dtype=object)
        self.weights_ = np.asarray(vectoriser.idf_, dtype=np.float32)
        vectors.sort_indices()  # as ``transform`` has them: another order rounds products with them in another way
        return vectors

    def _fitted_vectoriser(self, rows: list[str]) -> tuple[TfidfVectorizer, Any]:
        for least in dict.fromkeys((min(self.min_df, len(rows)), 1)):
            vectoriser = self._new_vectoriser(min_df=least, max_features=self.max_features)
            with contextlib.suppress(ValueError):  # where no term is left
                return vectoriser, vectoriser.fit_transform(rows)
        raise ArgumentError(f"inputs must have at least one {self.unit} n-gram of {self.ngrams}, got none; are all of them empty?")

    def _encode(self, rows: list[Any]) -> Any:
        if not hasattr(self, "_vectoriser"):
            vectoriser = self._new_vectoriser(vocabulary=self.terms_.tolist())
            vectoriser.idf_ = self.weights_
            self._vectoriser = vectoriser
        return self._vectoriser.transform(rows)

    def _new_vectoriser(self, **settings: Any) -> TfidfVectorizer:
        # A pattern is for words only, and scikit-learn warns where it is not used.
        pattern = {"token_pattern": _WORDS_AND_SIGNS} if self.unit == "word" else {}
        return TfidfVectorizer(
            analyzer=_ANALYSERS[self.unit], ngram_range=tuple(self.ngrams), sublinear_tf=True, dtype=np.float32, **pattern, **settings
        )

    def _check_parameters(self) -> None:
        if self.unit not in _ANALYSERS:
            raise ArgumentError(f"unit must be one of {', '.join(_ANALYSERS)}, got {self.unit!r}.")
        if len(self.ngrams) != 2 or not 1 <= self.ngrams[0] <= self.ngrams[1]:
            raise ArgumentError(f"ngrams must be the shortest and the longest, at least 1, got {self.ngrams!r}; take (1, 2).")
        if self.min_df < 1 or (self.max_features is not None and self.max_features < 1):
            raise ArgumentError(f"min_df and max_features must be at least 1, got {self.min_df} and {self.max_features}.")
