"""The inputs of one run of a collection, and its empty cells."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mildroute.collection.budget import Budget
from mildroute.collection.progress import ExpertProgress
from mildroute.collection.queries import query_digest
from mildroute.collection.store import AnswerStore, StoredState
from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge

__all__ = ["Cell", "CollectionRun", "assign_all", "empty_cells"]


def assign_all(_expert: str, _query_id: str) -> bool:
    """Assign every query to every expert."""
    return True


@dataclass(frozen=True)
class CollectionRun:
    """The inputs of one run.

    Args:
        queries: The queries in the order in which experts get them; iterated once per expert.
        experts: Experts that answer.
        judge: The judge that scores.
        store: The store to which answers and verdicts are written.
        stored: Answers and verdicts of earlier runs.
        budget: The dollars that may be spent.
        is_assigned: Function that returns whether an expert gets a query, by their names.
        tallies: Progress of each expert.
        complete_queries: Whether paid experts stay near each other in the order of the queries, so
            that few queries are answered by only some of them if the cap ends the run.
    """

    queries: Iterable[Query]
    experts: Sequence[Expert]
    judge: Judge
    store: AnswerStore
    stored: StoredState
    budget: Budget
    is_assigned: Callable[[str, str], bool] = assign_all
    tallies: dict[str, ExpertProgress] = field(default_factory=dict)
    complete_queries: bool = False

    @functools.cached_property
    def judge_version(self) -> str:
        """The version of the judge, a hash of its settings, computed once for all cells."""
        return self.judge.version

    async def close(self) -> None:
        """Close all experts, including those that only the judge calls."""
        await asyncio.gather(*(expert.close() for expert in (*self.experts, *self.judge.experts())))


@dataclass(frozen=True)
class Cell:
    """A cell of the table: a query for one expert.

    Args:
        query: The query.
        digest: Digest of the query.
        text: The stored answer if only the verdict is missing; ``None`` otherwise.
        rank: Index of the query in the order of the run.
    """

    query: Query
    digest: str
    text: str | None = None
    rank: int = 0


def empty_cells(run: CollectionRun, expert: Expert) -> Iterator[Cell]:
    """Yield an expert's assigned cells without a verdict, in the order of the queries."""
    answered = run.stored.answered[expert.name]
    judged = run.stored.judged[expert.name]
    for rank, query in enumerate(run.queries):
        if not run.is_assigned(expert.name, query.query_id):
            continue
        digest = query_digest(query)
        if digest not in judged:
            text = run.stored.texts.get((expert.name, digest)) if digest in answered else None
            yield Cell(query, digest, text, rank)
