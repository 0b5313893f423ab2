"""Any scikit-learn classifier or function as an expert."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mildroute._checks import validate_amount, validate_count
from mildroute._fingerprint import fingerprint
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.import_path import import_object
from mildroute.experts.labels import label_text

__all__ = ["ClassifierExpert"]

# Errors that a classifier may raise for an input that does not suit it.
_INPUT_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ClassifierExpert(Expert):
    """An expert that answers with the label of a classifier.

    The classifier is a scikit-learn classifier or pipeline, or a function ``texts -> labels``.

    The model runs in a thread, one batch at a time unless ``concurrency`` allows more. Latency is
    the time of the batch divided by its number of queries. If a batch fails, its queries are run
    one by one, so that one bad input does not affect the other answers.

    Args:
        name: The expert's name in tables.
        model: An object with ``predict``, or a function.
        version: Text that you change whenever the model changes.
        field: Field of the query that holds a vector; if ``None``, the model gets ``input``.
        dollars: Cost of an answer; an error costs nothing.
        batch_size: Number of queries in one batch.
        concurrency: Maximum number of concurrent batches.

    Example:
        A scikit-learn pipeline:

        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from sklearn.naive_bayes import MultinomialNB
        >>> from sklearn.pipeline import make_pipeline
        >>> model = make_pipeline(CountVectorizer(), MultinomialNB())
        >>> model = model.fit(["good film", "bad film"], ["up", "down"])
        >>> expert = ClassifierExpert("bayes", model, version="2026-11")
        >>> [answer.text for answer in asyncio.run(expert.answer([Query("q1", "a good one")]))]
        ['up']

        A Hugging Face pipeline (``pipeline = transformers.pipeline("text-classification")``) needs
        one more line, because it returns a label and a score:

        >>> pipeline = lambda texts: [{"label": "POSITIVE", "score": 0.9} for _ in texts]
        >>> label = lambda texts: [prediction["label"] for prediction in pipeline(texts)]
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
        self.name = name
        self.version = version
        self.batch_size = validate_count("batch_size", batch_size)
        self.concurrency = validate_count("concurrency", concurrency)
        self._predict = predict
        self._field = field
        self._dollars = validate_amount("dollars of an answer", dollars)

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
        """Build a classifier by importing and calling a function that returns the model.

        Args:
            name: The expert's name in tables.
            path: Import path of the function, such as ``package.module:function``.
            arguments: Keyword arguments of the function.
            version: Text that you change whenever the model changes.
            settings: Other arguments of the constructor.

        Example:
            >>> path, arguments = "sklearn.dummy:DummyClassifier", {"strategy": "uniform"}
            >>> ClassifierExpert.from_path("none", path, arguments=arguments).name
            'none'
        """
        dollars, field = settings.get("dollars", 0.0), settings.get("field")
        parts = {"import": path, "arguments": arguments or {}, "field": field, "dollars": dollars}
        model = import_object(path)(**(arguments or {}))
        return cls(
            name, model, version=fingerprint("classifier", parts, version=version), **settings
        )

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - every query costs the same
        """Return the price of an answer."""
        return self._dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Return one answer for each query, in their order; failures are answers with an error."""
        return await asyncio.to_thread(self._answer_batch, batch)

    def _answer_batch(self, batch: Sequence[Query]) -> list[Answer]:
        answers: list[Answer] = [
            Answer(None, error=f"the query has no vector in its field {self._field!r}", attempts=0)
        ] * len(batch)
        inputs = {
            index: value
            for index, query in enumerate(batch)
            if (value := self._model_input(query)) is not None
        }
        started = time.perf_counter()
        labels = self._predict_labels(list(inputs.values()))
        latency = (time.perf_counter() - started) / max(len(labels), 1)
        for index, (text, error) in zip(inputs, labels, strict=True):
            dollars = 0.0 if error else self._dollars
            answers[index] = Answer(text, dollars=dollars, latency=latency, error=error)
        return answers

    def _model_input(self, query: Query) -> Any:
        """Return the text or the vector of a query, or ``None`` if the vector is missing."""
        if self._field is None:
            return query.input
        try:
            vector = np.asarray(query.fields.get(self._field), dtype=float)
        except (TypeError, ValueError):
            return None
        return vector if vector.ndim == 1 and vector.size else None

    def _predict_labels(self, inputs: list[Any]) -> list[tuple[str | None, str]]:
        """Return a label or an error for each input."""
        if not inputs:
            return []
        try:
            labels = self._predict(inputs if self._field is None else np.stack(inputs))
            texts = [label_text(label) for label in labels]
            if len(texts) != len(inputs):
                raise ValueError(f"{len(texts)} labels for {len(inputs)} inputs")
        except _INPUT_ERRORS as error:
            if len(inputs) > 1:
                return [pair for value in inputs for pair in self._predict_labels([value])]
            message = " ".join(str(error).split())[:200]
            return [(None, f"the classifier failed: {type(error).__name__}: {message}")]
        return [
            (text, "" if text is not None else "the classifier returned no single label")
            for text in texts
        ]
