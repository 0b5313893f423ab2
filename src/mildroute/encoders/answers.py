"""Features of answers: what a cascade sees of them before it decides again."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mildroute.encoders.base import Encoder
from mildroute.encoders.text import ReducedEncoder
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.cascade.features import SeenAnswers
from mildroute.text import drop_thinking, normalize_text

__all__ = ["AnswerFeatures", "Reading", "see_answers"]


Reading = Literal["auto", "choice", "number", "text", "none"]

# Answers state their results at the end, and a vector of all of a long answer says less.
_TAIL = 400
# Longer answers are prose, which says the same in many ways.
_SHORT = 120
_LETTERS = "ABCDEFGHIJ"
# Answers that are learned from, and those of them that are read for means and deviations.
_MOST_ROWS, _MOST_READ = 10_000, 1_000
# Answers on which the kind of reading is tried, and the share of them that it must read.
_SAMPLE = 300
_SHARE = 0.75
# Numbers beside vectors of length 1: a standard deviation of a tenth weighs about as much.
_SCALE = 0.1
_QUOTES = " \t\r\n.;\"'`$*"


class AnswerFeatures(Encoder):
    """Makes vectors of answers: what they say, how long they are, and how sure their expert was.

    Nothing of it knows a reference or a score, so that a gateway sees what was learned from.

    Args:
        encoder: Transformer of the ends of answers to vectors; by default a
            :class:`~mildroute.encoders.text.ReducedEncoder` of 128 columns.
        reading: How the result that an answer states is read, so that two answers can be compared:
            ``"choice"`` a letter from A to J, ``"number"``, ``"text"`` short answers and JSON as
            they stand, ``"none"`` not at all, or ``"auto"``, the one that reads most of the
            training answers.
        max_characters: Characters of an answer that are seen, from its beginning, as a gateway sees
            a stream that it does not wait for; ``None`` means the whole answer.

    Attributes:
        encoder_: The fitted encoder.
        reading_: The reading in use.
        means_: Of the numbers beside the vector, shape (k,).
        scales_: Their standard deviations, 1 where they never change, shape (k,).

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
        """Learn from n answers of all experts.

        Args:
            X: n texts.
            y: Ignored.
            logprobs: As for ``transform``.
        """
        if self.reading not in ("auto", *_READERS):
            raise ArgumentError(
                f"reading must be one of auto, {', '.join(_READERS)}, got {self.reading!r}."
            )
        if self.max_characters is not None and self.max_characters < 1:
            raise ArgumentError(f"max_characters must be at least 1, got {self.max_characters}.")
        rows = self._read(X)
        known = _logprobs(logprobs, len(rows))
        # More answers take time and tell no more.
        some = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.intp)
        rows, known = [rows[place] for place in some], known[some]
        encoder = ReducedEncoder(n_components=128) if self.encoder is None else clone(self.encoder)
        self.encoder_ = encoder.fit(_tails(rows))
        _dense_vectors(encoder, rows[:1])
        self.reading_ = _best_reading(rows) if self.reading == "auto" else self.reading
        step = max(len(rows) // _MOST_READ, 1)
        rows, known = rows[::step], known[::step]
        results = [_READERS[self.reading_](text) for text in rows]
        numbers = _numbers(rows, results, known)
        self.means_ = numbers.mean(axis=0)
        deviations = numbers.std(axis=0)
        self.scales_ = np.where(deviations > 0, deviations, 1.0)
        return self

    def transform(self, X: Any, logprobs: Any = None) -> NDArray[np.float32]:
        """Return vectors of n answers, float32, shape (n, d).

        Args:
            X: n texts.
            logprobs: Mean log-probability of the tokens of each answer, shape (n,), NaN where it is
                not known; or ``None``.
        """
        return self.see(X, logprobs)[0]

    def read(self, X: Any) -> list[str | None]:
        """Return the result that each answer states; ``None`` where there is no readable result."""
        check_is_fitted(self)
        return [_READERS[self.reading_](text) for text in self._read(X)]

    def see(self, X: Any, logprobs: Any = None) -> tuple[NDArray[np.float32], list[str | None]]:
        """Return the vectors of n answers, as ``transform`` does, and the results they state."""
        check_is_fitted(self)
        rows = self._read(X)
        results = self.read(rows)
        numbers = _numbers(rows, results, _logprobs(logprobs, len(rows)))
        standard = _SCALE * (numbers - self.means_) / self.scales_
        vectors = _dense_vectors(self.encoder_, rows)
        return np.hstack([vectors, standard.astype(np.float32)]), results

    def _read(self, X: Any) -> list[Any]:
        return [text[: self.max_characters] for text in super()._read(X)]

    def refit_vectors(
        self, answers: Sequence[Sequence[str]], seen: SeenAnswers, rows: NDArray[np.intp]
    ) -> SeenAnswers:
        """Return the answers' features, refitted on some rows only.

        Args:
            answers: n texts of each expert.
            seen: The same answers as these features see them.
            rows: Rows to learn from.
        """
        answers = [self._read(texts) for texts in answers]
        some = rows[:: max(len(rows) * len(answers) // _MOST_ROWS, 1)]
        encoder = clone(self.encoder_)
        encoder.fit(_tails([texts[row] for texts in answers for row in some]))
        numbers = seen.vectors[:, :, -len(self.means_) :]
        vectors = [
            np.hstack([_dense_vectors(encoder, list(texts)), numbers[:, place]])
            for place, texts in enumerate(answers)
        ]
        return SeenAnswers(np.stack(vectors, axis=1).astype(np.float32), seen.readings)


def _numbers(
    rows: list[str], results: list[str | None], logprobs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Length, whether a result can be read, and what the expert thought of it itself."""
    length = np.log1p([len(text) for text in rows])
    is_read = np.array([result is not None for result in results])
    is_known = ~np.isnan(logprobs)
    chance = np.where(is_known, np.exp(np.minimum(logprobs, 0.0)), 0.0)
    return np.stack([length, length**2, is_read, is_known, chance], axis=1)


def see_answers(
    features: AnswerFeatures,
    answers: Sequence[Sequence[str] | None],
    logprobs: Sequence[Any] | None = None,
) -> SeenAnswers:
    """Answers of p experts to n questions as a cascade sees them.

    Args:
        features: Fitted.
        answers: n texts of each expert; ``None`` for an expert that was not asked.
        logprobs: Mean log-probability of the tokens of each, shape (n,) of each expert, or
            ``None``.

    Example:
        >>> features = AnswerFeatures().fit(["The answer is (A).", "I say (B)."] * 20)
        >>> seen = see_answers(features, [["The answer is (A)."], ["It is (A)."], None])
        >>> seen.readings
        array([[ 0,  0, -1]])
    """
    known = [place for place, texts in enumerate(answers) if texts is not None]
    if not known:
        raise ArgumentError("answers must be of one expert or more, got none.")
    rows = len(answers[known[0]] or ())
    found: dict[int, NDArray[np.float32]] = {}
    readings = np.full((rows, len(answers)), -1, dtype=np.intp)
    codes: dict[str, int] = {}
    for place in known:
        texts = list(answers[place] or ())
        if len(texts) != rows:
            raise ShapeError(f"answers must be {rows} of each expert, got {len(texts)} of one.")
        given = None if logprobs is None else logprobs[place]
        found[place], results = features.see(texts, given)
        readings[:, place] = [
            -1 if result is None else codes.setdefault(result, len(codes)) for result in results
        ]
    width = found[known[0]].shape[1]
    vectors = np.zeros((rows, len(answers), width), dtype=np.float32)
    for place, vector in found.items():
        vectors[:, place] = vector
    return SeenAnswers(vectors, readings)


def _tails(rows: list[str]) -> list[str]:
    # An encoder may not take an empty text.
    return [text[-_TAIL:] or " " for text in rows]


def _dense_vectors(encoder: Any, rows: list[str]) -> NDArray[np.float32]:
    vectors = encoder.transform(_tails(rows))
    if issparse(vectors):
        raise ArgumentError(
            f"the encoder of answers must give dense vectors, got a sparse matrix of"
            f" {type(encoder).__name__}; wrap it in a ReducedEncoder."
        )
    return np.asarray(vectors, dtype=np.float32)


def _logprobs(given: Any, rows: int) -> NDArray[np.float64]:
    if given is None:
        return np.full(rows, np.nan)
    found = np.asarray(given, dtype=np.float64)
    if found.shape != (rows,):
        raise ShapeError(f"logprobs must be ({rows},), one per answer, got shape {found.shape}.")
    return found


# The judges' parsers are imported when a cascade reads its first answer: a router that decides by
# inputs alone, such as one in another gateway's plug-in, does not load them.


@functools.cache
def _letters() -> Any:
    from mildroute.judges.options import parse_options

    return parse_options(None, _LETTERS)


def _choice(text: str) -> str | None:
    from mildroute.judges.stated_choice import read_choice

    return read_choice(text[-_TAIL:], _letters())


def _number(text: str) -> str | None:
    from mildroute.judges.stated_number import read_number

    found = read_number(text[-_TAIL:])
    return None if found is None else f"{found.value}{'%' if found.percent else ''}"


def _short_text(text: str) -> str | None:
    """Return a normalized short answer, so that equal answers compare equal; else ``None``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, (dict, list)):
        return json.dumps(document, sort_keys=True).casefold()
    found = normalize_text(drop_thinking(text)).replace("\\", "").strip(_QUOTES).casefold()
    if not found or len(found) > _SHORT:
        return None
    try:
        return repr(float(found.replace(",", "")))
    except ValueError:
        return "".join(found.split())


def _nothing(_text: str) -> None:
    return None


_READERS: dict[str, Callable[[str], str | None]] = {
    "choice": _choice,
    "text": _short_text,
    "number": _number,
    "none": _nothing,
}


def _best_reading(rows: list[str]) -> str:
    sample = [text for text in rows if text.strip()]
    sample = sample[:: max(len(sample) // _SAMPLE, 1)]
    for name, read in _READERS.items():
        if sample and np.mean([read(text) is not None for text in sample]) >= _SHARE:
            return name
    return "none"
