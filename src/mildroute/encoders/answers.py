"""Features of answers, which a cascade reads before it decides again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mildroute.encoders.answer_readings import LAST_CHARACTERS, READERS, Reading, best_reading
from mildroute.encoders.base import Encoder
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.cascade.features import SeenAnswers

__all__ = ["AnswerFeatures", "see_answers"]

# Maximum number of answers that an encoder is fitted on.
_MAX_ROWS = 10_000
# Maximum number of answers from which means and standard deviations are computed.
_MAX_READ_ROWS = 1_000
# Standard deviation of the numeric features, so that they weigh about as much as the unit vector.
_SCALE = 0.1


class AnswerFeatures(Encoder):
    """An encoder of answers: their text, their length and their log-probability.

    The features need no reference and no score, so a gateway can compute them as training does.

    Args:
        encoder: Encoder of the last part of an answer; defaults to a
            :class:`~mildroute.encoders.reduced.ReducedEncoder` of 128 columns.
        reading: How to read the result that an answer states, so that answers can be compared:
            ``"choice"`` reads a letter from A to J, ``"number"`` a number, ``"text"`` short
            answers and JSON unchanged, and ``"none"`` nothing. ``"auto"`` chooses the first
            one that can read most of the training answers.
        max_characters: Number of leading characters of an answer to use, as a gateway does for a
            stream that it does not buffer; None uses the whole answer.

    Attributes:
        encoder_: The fitted encoder.
        reading_: The chosen reading.
        means_: Mean of each numeric feature, shape (k,).
        scales_: Standard deviation of each numeric feature, or 1 if it is constant, shape (k,).

    Example:
        >>> features = AnswerFeatures().fit(["The answer is (A).", "I say (B)."] * 20)
        >>> features.reading_, features.read(["So the answer is (C).", "No idea."])
        ('choice', ['C', None])
    """

    encoder_: Any
    means_: NDArray[np.float64]
    scales_: NDArray[np.float64]

    def __init__(
        self, *, encoder: Any = None, reading: Reading = "auto", max_characters: int | None = None
    ) -> None:
        self.encoder = encoder
        self.reading = reading
        self.max_characters = max_characters

    def fit(self, X: Any, y: Any = None, logprobs: Any = None) -> AnswerFeatures:  # noqa: ARG002
        """Fit the encoder on n answers from any experts.

        Args:
            X: n texts.
            y: Ignored.
            logprobs: As for ``transform``.
        """
        if self.reading not in ("auto", *READERS):
            raise ArgumentError(
                f"reading must be one of auto, {', '.join(READERS)}, got {self.reading!r}."
            )
        if self.max_characters is not None and self.max_characters < 1:
            raise ArgumentError(f"max_characters must be at least 1, got {self.max_characters}.")
        rows = self._read(X)
        row_logprobs = _to_logprobs(logprobs, len(rows))
        # More answers take time and change little.
        sample = np.linspace(0, len(rows) - 1, min(len(rows), _MAX_ROWS)).astype(np.intp)
        rows = [rows[index] for index in sample]
        row_logprobs = row_logprobs[sample]
        encoder = ReducedEncoder(n_components=128) if self.encoder is None else clone(self.encoder)
        self.encoder_ = encoder.fit(_last_parts(rows))
        _encode_dense(encoder, rows[:1])
        self.reading_ = best_reading(rows) if self.reading == "auto" else self.reading
        step = max(len(rows) // _MAX_READ_ROWS, 1)
        rows = rows[::step]
        results = [READERS[self.reading_](text) for text in rows]
        numbers = _describe(rows, results, row_logprobs[::step])
        self.means_ = numbers.mean(axis=0)
        deviations = numbers.std(axis=0)
        self.scales_ = np.where(deviations > 0, deviations, 1.0)
        return self

    def transform(self, X: Any, logprobs: Any = None) -> NDArray[np.float32]:
        """Return vectors of n answers, float32, shape (n, d).

        Args:
            X: n texts.
            logprobs: Mean log-probability of the tokens of each answer, shape (n,), NaN if unknown;
                or None.
        """
        return self.see(X, logprobs)[0]

    def read(self, X: Any) -> list[str | None]:
        """Return the result that each answer states, or None if it states no readable result."""
        check_is_fitted(self)
        return [READERS[self.reading_](text) for text in self._read(X)]

    def see(self, X: Any, logprobs: Any = None) -> tuple[NDArray[np.float32], list[str | None]]:
        """Return the vectors of n answers, as ``transform`` does, and the results they state."""
        check_is_fitted(self)
        rows = self._read(X)
        results = self.read(rows)
        numbers = _describe(rows, results, _to_logprobs(logprobs, len(rows)))
        standardized = _SCALE * (numbers - self.means_) / self.scales_
        vectors = _encode_dense(self.encoder_, rows)
        return np.hstack([vectors, standardized.astype(np.float32)]), results

    def _read(self, X: Any) -> list[Any]:
        return [text[: self.max_characters] for text in super()._read(X)]

    def refit_vectors(
        self, answers: Sequence[Sequence[str]], seen: SeenAnswers, rows: NDArray[np.intp]
    ) -> SeenAnswers:
        """Return the answers' features, refitted on some rows only.

        Args:
            answers: n texts from each expert.
            seen: Features of the same answers.
            rows: Rows to fit on.
        """
        answers = [self._read(texts) for texts in answers]
        sample = rows[:: max(len(rows) * len(answers) // _MAX_ROWS, 1)]
        encoder = clone(self.encoder_)
        encoder.fit(_last_parts([texts[row] for texts in answers for row in sample]))
        numbers = seen.vectors[:, :, -len(self.means_) :]
        vectors = [
            np.hstack([_encode_dense(encoder, list(texts)), numbers[:, index]])
            for index, texts in enumerate(answers)
        ]
        return SeenAnswers(np.stack(vectors, axis=1).astype(np.float32), seen.readings)


def see_answers(
    features: AnswerFeatures,
    answers: Sequence[Sequence[str] | None],
    logprobs: Sequence[Any] | None = None,
) -> SeenAnswers:
    """Return the features of p experts' answers to n questions, as a cascade uses them.

    Args:
        features: Fitted features.
        answers: n texts from each expert; None for an expert that was not called.
        logprobs: Mean log-probability of the tokens of each answer, shape (n,) for each expert, or
            None.

    Example:
        >>> features = AnswerFeatures().fit(["The answer is (A).", "I say (B)."] * 20)
        >>> seen = see_answers(features, [["The answer is (A)."], ["It is (A)."], None])
        >>> seen.readings
        array([[ 0,  0, -1]])
    """
    called = [expert for expert, texts in enumerate(answers) if texts is not None]
    if not called:
        raise ArgumentError("answers must come from at least one expert, got none.")
    rows = len(answers[called[0]] or ())
    vectors_of: dict[int, NDArray[np.float32]] = {}
    readings = np.full((rows, len(answers)), -1, dtype=np.intp)
    codes: dict[str, int] = {}
    for expert in called:
        texts = list(answers[expert] or ())
        if len(texts) != rows:
            raise ShapeError(
                f"every expert must have {rows} answers, got {len(texts)} from one expert."
            )
        vectors_of[expert], results = features.see(
            texts, None if logprobs is None else logprobs[expert]
        )
        readings[:, expert] = [
            -1 if result is None else codes.setdefault(result, len(codes)) for result in results
        ]
    width = vectors_of[called[0]].shape[1]
    vectors = np.zeros((rows, len(answers), width), dtype=np.float32)
    for expert, vectors_of_expert in vectors_of.items():
        vectors[:, expert] = vectors_of_expert
    return SeenAnswers(vectors, readings)


def _describe(
    rows: list[str], results: list[str | None], logprobs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return numeric features: length, whether a result was read, and probability."""
    length = np.log1p([len(text) for text in rows])
    is_read = np.array([result is not None for result in results])
    is_known = ~np.isnan(logprobs)
    probability = np.where(is_known, np.exp(np.minimum(logprobs, 0.0)), 0.0)
    return np.stack([length, length**2, is_read, is_known, probability], axis=1)


def _last_parts(rows: list[str]) -> list[str]:
    # Not every encoder accepts an empty text.
    return [text[-LAST_CHARACTERS:] or " " for text in rows]


def _encode_dense(encoder: Any, rows: list[str]) -> NDArray[np.float32]:
    vectors = encoder.transform(_last_parts(rows))
    if issparse(vectors):
        raise ArgumentError(
            f"the encoder of answers must return dense vectors, got a sparse matrix from"
            f" {type(encoder).__name__}; wrap it in a ReducedEncoder."
        )
    return np.asarray(vectors, dtype=np.float32)


def _to_logprobs(logprobs: Any, rows: int) -> NDArray[np.float64]:
    """Return log-probabilities as an array, NaN if unknown."""
    if logprobs is None:
        return np.full(rows, np.nan)
    array = np.asarray(logprobs, dtype=np.float64)
    if array.shape != (rows,):
        raise ShapeError(f"logprobs must be ({rows},), one per answer, got shape {array.shape}.")
    return array
