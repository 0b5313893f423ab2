"""Small pools: experts that count how often they are asked, and queries on disk."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mildroute.collection.collector import collect
from mildroute.collection.job import CollectionJob
from mildroute.collection.queries import open_queries
from mildroute.collection.results import CollectionResult
from mildroute.experts.base import Answer, Expert, Query
from mildroute.judges.exact_match import ExactMatchJudge


class Counting(Expert):
    """Answers by a function, remembers what it was asked."""

    def __init__(
        self,
        name: str,
        says: Callable[[Query], Answer] = lambda query: Answer(query.reference),
        *,
        version: str = "1",
        batch_size: int = 1,
        concurrency: int = 4,
        worst: float = 0.0,
    ) -> None:
        self.name, self.version, self.batch_size, self.concurrency = (
            name,
            version,
            batch_size,
            concurrency,
        )
        self.says, self.worst, self.asked, self.is_closed = says, worst, Counter[str](), False
        self.at_once = self.most_at_once = 0

    def max_cost(self, _query: Query) -> float:
        return self.worst

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        self.asked.update(query.query_id for query in batch)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return [self.says(query) for query in batch]

    async def close(self) -> None:
        self.is_closed = True


def wrong(_query: Query) -> Answer:
    return Answer("something else", dollars=0.01)


def write_queries(
    folder: Path, count: int = 20, name: str = "queries.jsonl", **more: object
) -> Path:
    path = folder / name
    lines = [
        {"query_id": f"q{place}", "input": f"{place} + 1?", "answer": str(place + 1), **more}
        for place in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def run(
    folder: Path, experts: Sequence[Counting], *, queries: Path | None = None, **options: object
) -> CollectionResult:
    judge = options.pop("judge", ExactMatchJudge())
    path = queries if queries is not None else write_queries(folder)
    found = collect(CollectionJob(open_queries(path), experts, judge, folder / "costs", **options))  # type: ignore[arg-type]
    assert found is not None
    return found
