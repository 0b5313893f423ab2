"""People whose labels are already in the queries, as an expert with a price per answer."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from mildroute._checks import validate_amount
from mildroute._fingerprint import fingerprint
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.labels import label_text

__all__ = ["AnnotatorExpert", "Votes"]

Votes = Literal["majority", "single"]

_MAX_VOTES = 100_000


class AnnotatorExpert(Expert):
    """An expert that stands for people whose labels are in a field of the query.

    The field holds one label, a list of labels (one per person; missing ones are left out), or a
    mapping from label to number of votes.

    Args:
        name: The expert's name in tables.
        field: Name of the field.
        votes: ``"majority"`` for the most frequent label, with ties broken at random; ``"single"``
            for the label of one person drawn at random.
        dollars: Cost of an answer, regardless of the number of votes.
        seed: Seed of the draws; a query's draw depends only on the seed and the query_id.
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
        self.name = name
        self._field = field
        self._votes = votes
        self._seed = seed
        self._dollars = validate_amount("dollars of an answer", dollars)
        parts = {"field": field, "votes": votes, "dollars": dollars, "seed": seed}
        self.version: str = fingerprint("people", parts, version=version)

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - every query costs the same
        """Return the price of an answer."""
        return self._dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Return one answer for each query, in their order.

        A missing or malformed label is an error.
        """
        return [self._answer_query(query) for query in batch]

    def _answer_query(self, query: Query) -> Answer:
        votes = _count_votes(query.fields.get(self._field))
        if votes is None:
            error = (
                f"the field {self._field!r} holds no label, list of labels or mapping from label to"
                " votes"
            )
            return Answer(None, error=error, attempts=0)
        if not votes:
            error = f"the query has no label in its field {self._field!r}"
            return Answer(None, error=error, attempts=0)
        if self._votes == "majority":
            highest = max(votes.values())
            votes = Counter({label: 1 for label, count in votes.items() if count == highest})
        labels = sorted(votes.elements())
        seed = f"{self._seed} {query.query_id}".encode(errors="surrogatepass")
        draw = int.from_bytes(hashlib.sha256(seed).digest()[:16], "big")
        return Answer(labels[draw % len(labels)], dollars=self._dollars)


def _count_votes(field: Any) -> Counter[str] | None:
    """Return the number of votes for each label, or ``None`` if the field is malformed."""
    if field is None:
        return Counter()
    if isinstance(field, Mapping):
        pairs = [(label_text(label), count) for label, count in field.items() if count is not None]
    else:
        is_list = isinstance(field, (list, tuple)) or getattr(field, "ndim", 0) == 1
        pairs = [
            (label_text(label), 1)
            for label in (field if is_list else [field])
            if label is not None and not (isinstance(label, float) and math.isnan(label))
        ]
    votes: Counter[str] = Counter()
    for label, count in pairs:
        is_count = isinstance(count, int) and not isinstance(count, bool)
        if label is None or not is_count or not 0 <= count <= _MAX_VOTES:
            return None
        votes[label] += count
    return +votes
