"""Any scikit-learn classifier or function as an expert."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from mildroute._checks import validate_amount, validate_count
from mildroute._fingerprint import fingerprint
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query

__all__ = [
    "AnnotatorExpert",
    "ClassifierExpert",
    "Votes",
    "imported",
    "label_text",
    "validate_import_path",
]


# Objects that a user names by where Python finds them, as ``package.module:name``.


_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def validate_import_path(path: str) -> str:
    """Return the path if its form is valid; nothing is imported."""
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ArgumentError(
            f"an import path must be written as package.module:name, got {path!r:.80}."
        )
    return path


def imported(path: str) -> Any:
    """Return the object that the path names; this imports its module and runs its code."""
    module, _, name = validate_import_path(path).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(
            f"{path!r} cannot be imported: {error}; install its package or put its folder on"
            " PYTHONPATH."
        ) from error
    return found


# How a label is written out as text, so that a label of a model and one of a table compare equal.


def label_text(label: Any) -> str | None:
    """A label as text.

    Args:
        label: A text or a number, also one of NumPy's.

    Returns:
        The text, or none if this is not a single label. Whole numbers are written without a decimal
        point.
    """
    plain = label.item() if hasattr(label, "item") and getattr(label, "ndim", 0) == 0 else label
    if isinstance(plain, float):
        if plain != plain:
            return None
        return str(int(plain)) if plain.is_integer() else repr(plain)
    return str(plain) if isinstance(plain, (str, int, bool)) else None


# A fitted classifier, or any function from texts to labels, as an expert.


# What the code of others raises when an input does not suit it.
_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ClassifierExpert(Expert):
    """A scikit-learn classifier or pipeline, or a function ``texts -> labels``.

    Its answer is the label.

    It runs in a thread, one batch at a time unless ``concurrency`` allows more. Latency is the time
    of the batch divided by its number of queries. If a batch fails, its queries are run one by one,
    so that one bad input does not affect the other answers.

    Args:
        name: Its name in tables.
        model: An object with ``predict``, or a function.
        version: Text that you change whenever the model changes.
        field: Field of the query that holds a vector; without it the model gets the query's
            ``input``.
        dollars: Cost of an answer; an error costs nothing.
        batch_size: Queries in one batch.
        concurrency: Batches at the same time.

    Example:
        A pipeline of scikit-learn:

        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from sklearn.naive_bayes import MultinomialNB
        >>> from sklearn.pipeline import make_pipeline
        >>> model = make_pipeline(CountVectorizer(), MultinomialNB())
        >>> model = model.fit(["good film", "bad film"], ["up", "down"])
        >>> expert = ClassifierExpert("bayes", model, version="2026-11")
        >>> [answer.text for answer in asyncio.run(expert.answer([Query("q1", "a good one")]))]
        ['up']

        A pipeline of Hugging Face needs one line, since it returns a label and a score (``pipeline
        = transformers.pipeline("text-classification")``):

        >>> pipeline = lambda texts: [{"label": "POSITIVE", "score": 0.9} for _ in texts]
        >>> label = lambda texts: [found["label"] for found in pipeline(texts)]
        >>> expert = ClassifierExpert("bert", label, version="sst2")
        >>> asyncio.run(expert.answer([Query("q1", "a good one")]))[0].text
        'POSITIVE'
    """

    def __init__(
        self,
        name: str,
        model: Any,
        *,
        version: str,
        field: str | None = None,
        dollars: float = 0.0,
        batch_size: int = 64,
        concurrency: int = 1,
    ) -> None:
        predict: Callable[[Any], Any] = getattr(model, "predict", model)
        if not callable(predict):
            raise ArgumentError(
                f"a classifier must have predict or be a function, got {type(model).__name__}; fit"
                " a model first."
            )
        self.name, self.version = name, version
        self.batch_size, self.concurrency = (
            validate_count("batch_size", batch_size),
            validate_count("concurrency", concurrency),
        )
        self._predict, self._field, self._dollars = (
            predict,
            field,
            validate_amount("dollars of an answer", dollars),
        )

    @classmethod
    def from_path(
        cls,
        name: str,
        path: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        version: str = "",
        **settings: Any,
    ) -> ClassifierExpert:
        """Build a classifier with a function of yours, named as ``package.module:function``.

        Its module is imported.

        Args:
            name: Its name in tables.
            path: Import path of the function.
            arguments: Arguments that it is called with.
            version: Text that you change whenever the model changes.
            settings: Settings as for the constructor.

        Example:
            >>> path, arguments = "sklearn.dummy:DummyClassifier", {"strategy": "uniform"}
            >>> ClassifierExpert.from_path("none", path, arguments=arguments).name
            'none'
        """
        dollars, field = settings.get("dollars", 0.0), settings.get("field")
        parts = {"import": path, "arguments": arguments or {}, "field": field, "dollars": dollars}
        model = imported(path)(**(arguments or {}))
        return cls(
            name, model, version=fingerprint("classifier", parts, version=version), **settings
        )

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - every query costs the same
        """Price of an answer."""
        return self._dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order; failures are answers with an error."""
        return await asyncio.to_thread(self._answer, batch)

    def _answer(self, batch: Sequence[Query]) -> list[Answer]:
        answers: list[Answer] = [
            Answer(None, error=f"the query has no vector in its field {self._field!r}", attempts=0)
        ] * len(batch)
        inputs = {
            place: value
            for place, query in enumerate(batch)
            if (value := self._input(query)) is not None
        }
        started = time.perf_counter()
        labels = self._labels(list(inputs.values()))
        seconds = (time.perf_counter() - started) / max(len(labels), 1)
        for place, (text, error) in zip(inputs, labels, strict=True):
            answers[place] = Answer(
                text, dollars=0.0 if error else self._dollars, latency=seconds, error=error
            )
        return answers

    def _input(self, query: Query) -> Any:
        """The text or the vector, or none if the query has no vector."""
        if self._field is None:
            return query.input
        try:
            vector = np.asarray(query.fields.get(self._field), dtype=float)
        except (TypeError, ValueError):
            return None
        return vector if vector.ndim == 1 and vector.size else None

    def _labels(self, inputs: list[Any]) -> list[tuple[str | None, str]]:
        """Texts and errors."""
        if not inputs:
            return []
        try:
            found = self._predict(inputs if self._field is None else np.stack(inputs))
            texts = [label_text(label) for label in found]
            if len(texts) != len(inputs):
                raise ValueError(f"{len(texts)} labels for {len(inputs)} inputs")
        except _FAILURES as error:
            if len(inputs) > 1:
                return [pair for value in inputs for pair in self._labels([value])]
            return [
                (
                    None,
                    (
                        f"the classifier failed: {type(error).__name__}:"
                        f" {' '.join(str(error).split())[:200]}"
                    ),
                )
            ]
        return [
            (text, "" if text is not None else "the classifier gave no single label")
            for text in texts
        ]


# People whose labels are in the table already, as an expert with a price per answer.


Votes = Literal["majority", "single"]
_MOST_VOTES = 100_000


class AnnotatorExpert(Expert):
    """One label, or several people's votes, in a field of the query.

    A field holds one label, a list of labels (one per person; missing ones are left out), or a
    mapping from label to number of votes.

    Args:
        name: Its name in tables.
        field: The field.
        votes: 'majority' for the most frequent label, with ties broken at random; 'single' for one
            person drawn at random, as one annotator would answer.
        dollars: Cost of an answer, regardless of the number of votes.
        seed: Seed of the draws; a query's draw depends only on it and the query_id.
        version: Your own name for this version, if any.

    Example:
        >>> import asyncio
        >>> crowd = AnnotatorExpert("crowd", "labels", dollars=0.08)
        >>> query = Query("q1", "a photo", fields={"labels": ["cat", "dog", "cat"]})
        >>> asyncio.run(crowd.answer([query]))[0].text
        'cat'
    """

    batch_size = 256

    def __init__(
        self,
        name: str,
        field: str,
        *,
        votes: Votes = "majority",
        dollars: float = 0.0,
        seed: int = 0,
        version: str = "",
    ) -> None:
        if votes not in get_args(Votes):
            raise ArgumentError(f"votes must be 'majority' or 'single', got {votes!r}.")
        self.name, self._field, self._votes, self._seed = name, field, votes, seed
        self._dollars = validate_amount("dollars of an answer", dollars)
        parts = {"field": field, "votes": votes, "dollars": dollars, "seed": seed}
        self.version: str = fingerprint("people", parts, version=version)

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - every query costs the same
        """Price of an answer."""
        return self._dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order.

        A missing or unreadable label is an error.
        """
        return [self._answer(query) for query in batch]

    def _answer(self, query: Query) -> Answer:
        counts = _counts(query.fields.get(self._field))
        if counts is None:
            return Answer(
                None,
                error=(
                    f"the field {self._field!r} holds no label, list of labels or mapping from"
                    " label to votes"
                ),
                attempts=0,
            )
        if not counts:
            return Answer(
                None, error=f"the query has no label in its field {self._field!r}", attempts=0
            )
        if self._votes == "majority":
            most = max(counts.values())
            counts = Counter({label: 1 for label, votes in counts.items() if votes == most})
        drawn = sorted(counts.elements())
        return Answer(drawn[self._lot(query) % len(drawn)], dollars=self._dollars)

    def _lot(self, query: Query) -> int:
        return int.from_bytes(
            hashlib.sha256(
                f"{self._seed} {query.query_id}".encode(errors="surrogatepass")
            ).digest()[:16],
            "big",
        )


def _counts(held: Any) -> Counter[str] | None:
    """Votes for each label, or none for what cannot be read."""
    if held is None:
        return Counter()
    if isinstance(held, Mapping):
        pairs = [(label_text(label), votes) for label, votes in held.items() if votes is not None]
    else:
        several = isinstance(held, (list, tuple)) or getattr(held, "ndim", 0) == 1
        pairs = [
            (label_text(label), 1)
            for label in (held if several else [held])
            if label is not None and not (isinstance(label, float) and math.isnan(label))
        ]
    counts: Counter[str] = Counter()
    for label, votes in pairs:
        if (
            label is None
            or isinstance(votes, bool)
            or not isinstance(votes, int)
            or not 0 <= votes <= _MOST_VOTES
        ):
            return None
        counts[label] += votes
    return +counts
