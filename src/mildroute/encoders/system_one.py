"""Text features that a decision model answers."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import needs_extra
from mildroute.encoders.base import Encoder
from mildroute.encoders.vector_cache import VectorCache
from mildroute.exceptions import ArgumentError, MildrouteError

__all__ = ["SystemOneFeatures"]

# Environment variables with the server's address and key, set on the machine that encodes.
_URL = "MILDROUTE_DECISION_MODEL"
_KEY = "MILDROUTE_DECISION_MODEL_KEY"

QUESTIONS: Mapping[str, Any] = {
    "task": {
        "type": "choice",
        "instructions": "Which kind of task is this?",
        "criteria": {
            "facts": "A question with a short answer that can be looked up.",
            "reasoning": "Mathematics, logic, or a plan of several steps.",
            "code": "Writing, explaining or repairing programs.",
            "writing": "Writing, rewriting, translating or summarizing text.",
            "chat": "Small talk, opinions or advice.",
        },
    },
    "difficulty": {
        "type": "score",
        "instructions": "How hard is this to answer well?",
        "criteria": ["A child could.", "An adult could.", "A student of the field.", "An expert."],
    },
    "context": {"type": "noul", "instructions": "Does a good answer need more than is given here?"},
}


class SystemOneFeatures(Encoder):
    """An encoder whose features are a decision model's answers to questions about a text.

    A server with ``POST /v1/systemone`` answers: a hosted decision model, or an open model served
    by vLLM, llama.cpp or Laya. A choice becomes one probability per label, a score one probability
    per level, and a true-or-false question one probability. Combine them with the text's words:
    ``UnionEncoder([TfidfEncoder(), SystemOneFeatures(...)])``. Every routing decision then
    waits for that server.

    An artifact holds the questions and the model, but neither the server's address nor its key, so
    an artifact cannot choose where texts are sent. The environment variables
    ``MILDROUTE_DECISION_MODEL`` and ``MILDROUTE_DECISION_MODEL_KEY`` provide them instead.

    Args:
        url: The server's base URL; ``None`` reads it from the environment. Not stored.
        model: Model name.
        questions: The questions in the format of System One; ``None`` asks for the kind of task,
            its difficulty, and whether context is missing.
        timeout: Seconds to wait for the answers about a text.
        concurrency: Maximum number of concurrent requests.
        cache: Folder that caches answers by content, or ``None``. Not stored.

    Attributes:
        questions_: The questions.
        names_: Name of each feature.

    Example:
        >>> SystemOneFeatures("http://127.0.0.1:9").fit(["a text"])
        Traceback (most recent call last):
        mildroute.exceptions.MildrouteError: the decision model at http://127.0.0.1:9 must ...
    """

    _transient: ClassVar[tuple[str, ...]] = ("_client", "_vectors")
    _machine_local: ClassVar[tuple[str, ...]] = ("url", "cache")
    learns_from_rows: ClassVar[bool] = False
    questions_: dict[str, Any]
    names_: list[str]

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str = "default",
        questions: Mapping[str, Any] | None = None,
        timeout: float = 5.0,
        concurrency: int = 8,
        cache: str | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.questions = questions
        self.timeout = timeout
        self.concurrency = concurrency
        self.cache = cache

    def _fit(self, rows: list[Any]) -> None:
        if self.timeout <= 0 or self.concurrency < 1:
            raise ArgumentError(
                "timeout must be positive and concurrency at least 1, got"
                f" {self.timeout} and {self.concurrency}."
            )
        self.questions_ = dict(QUESTIONS if self.questions is None else self.questions)
        if not self.questions_:
            raise ArgumentError("there must be at least one question, got none.")
        self.names_ = [
            f"{name}:{key}"
            for name, question in self.questions_.items()
            for key in _feature_names(name, question)
        ]
        self._features(rows[0])

    def _encode(self, rows: list[Any]) -> NDArray[np.float32]:
        texts = list(dict.fromkeys(rows))
        vectors = np.zeros((len(texts), len(self.names_)), dtype=np.float32)
        cached_rows = np.zeros(0, dtype=np.intp)
        if self.cache is not None:
            cached_rows, cached_vectors = self._answers().read(texts)
            if len(cached_rows):
                vectors[cached_rows] = cached_vectors
        missing = np.setdiff1d(np.arange(len(texts)), cached_rows)
        if len(missing):
            missing_texts = [texts[index] for index in missing]
            with ThreadPoolExecutor(min(self.concurrency, len(missing_texts))) as pool:
                vectors[missing] = np.array(
                    list(pool.map(self._features, missing_texts)), dtype=np.float32
                )
            if self.cache is not None:
                self._answers().write(missing_texts, vectors[missing])
        index_of = {text: index for index, text in enumerate(texts)}
        return vectors[[index_of[row] for row in rows]]

    def _features(self, text: str) -> list[float]:
        """Return the features of one text, computed by the server."""
        url = self._url()
        body = {"model": self.model, "state": text, "questions": self.questions_}
        try:
            response = self._http().post(f"{url}/v1/systemone", json=body)
            response.raise_for_status()
            answers = response.json()["answers"]
            values = [
                value
                for name, question in self.questions_.items()
                for value in _feature_values(question, answers[name])
            ]
        except (OSError, ValueError, KeyError, TypeError, self._http_error) as error:
            raise MildrouteError(
                f"the decision model at {url} must answer every question within {self.timeout:g}"
                f" seconds, got {type(error).__name__}; is it the right address?"
            ) from None
        if not np.isfinite(values).all():
            raise MildrouteError(f"the decision model at {url} must answer with finite numbers.")
        return values

    def _url(self) -> str:
        url = self.url or os.environ.get(_URL, "")
        if not url.startswith(("http://", "https://")):
            raise ArgumentError(
                f"url must be the address of a decision model, got {url!r}; give it, or set {_URL}."
            )
        return url.rstrip("/")

    @property
    def _http_error(self) -> type[Exception]:
        import httpx

        return httpx.HTTPError

    def _http(self) -> Any:
        if not hasattr(self, "_client"):
            with needs_extra("httpx", extra="collect", user="mildroute.encoders.SystemOneFeatures"):
                import httpx
            key = os.environ.get(_KEY)
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            limits = httpx.Limits(max_connections=self.concurrency)
            self._client = httpx.Client(timeout=self.timeout, headers=headers, limits=limits)
            weakref.finalize(self, self._client.close)
        return self._client

    def _answers(self) -> VectorCache:
        if not hasattr(self, "_vectors"):
            questions = json.dumps(self.questions_, sort_keys=True)
            self._vectors = VectorCache(str(self.cache), f"{self.model} {questions}")
        return self._vectors


def _feature_names(name: str, question: Any) -> list[str]:
    """Return the names of a question's features."""
    kind = question.get("type") if isinstance(question, Mapping) else None
    if kind == "noul":
        return ["true"]
    criteria = question.get("criteria") if isinstance(question, Mapping) else None
    if kind == "choice" and isinstance(criteria, Mapping) and criteria:
        return list(criteria)
    if kind == "score" and isinstance(criteria, (list, tuple)) and criteria:
        return [str(level) for level in range(len(criteria))]
    raise ArgumentError(
        f"the question {name!r} must have the type noul, or choice or score with criteria, got"
        f" {question!r:.100}."
    )


def _feature_values(question: Mapping[str, Any], answer: Mapping[str, Any]) -> list[float]:
    if question["type"] == "noul":
        return [float(answer["noul"])]
    probabilities = answer["probabilities"]
    return [float(probabilities[key]) for key in _feature_names("", question)]
