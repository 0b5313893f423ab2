"""People whose labels are in the table already, as an expert with a price per answer."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from mildroute._fingerprint import fingerprint
from mildroute._yaml import validate_amount
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.classifier import label_text

__all__ = ["AnnotatorExpert", "Votes"]


Votes = Literal["majority", "single"]
_MOST_VOTES = 100_000


class AnnotatorExpert(Expert):
    """One label, or several people's votes, in a field of the query.

    A field holds one label, a list of labels (one a person; missing ones are left out), or a
    mapping from label to number of votes.

    Args:
        name: Its name in tables.
        field: The field.
        votes: 'majority' for what most say, with ties broken at random; 'single' for one person
            drawn at random, as one annotator would answer.
        dollars: What an answer costs, however many votes it took.
        seed: Of the lots; a query's lot depends on it and the query_id alone.
        version: What you call this version, if anything.

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

        No label, or none that can be read, is an error.
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
