"""Experts behind a loopback server, described so that workers can make them, and what came of a
run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mildroute.collection.job import CollectionJob, CollectionResult, collect
from mildroute.collection.queries import open_queries
from mildroute.distributed.collect import Factories, collect_on_ray
from mildroute.experts.config import ExpertSpec, build_expert
from mildroute.judges.exact_match import ExactMatchJudge
from tests.collection.pools import write_queries
from tests.experts.hostile_server import Behavior, Call, HostileServer, says

CONCURRENCY = 4


def right(call: Call) -> Behavior:
    """The right answer, not quite at once."""
    return says(str(int(call.prompt.split()[0]) + 1), delay=0.02)


def specs(server: HostileServer, *names: str, **settings: Any) -> list[ExpertSpec]:
    own = {
        "base_url": server.url,
        "concurrency": CONCURRENCY,
        "request": {"max_tokens": 10},
        "retries": 0,
        **settings,
    }
    return [
        ExpertSpec(name, "openai", {"model": name, **own}) for name in names or ("first", "second")
    ]


def job(folder: Path, experts: list[ExpertSpec], count: int = 40, **options: Any) -> CollectionJob:
    folder.mkdir(exist_ok=True)
    queries = open_queries(write_queries(folder, count))
    return CollectionJob(
        queries,
        [build_expert(spec) for spec in experts],
        ExactMatchJudge(),
        folder / "costs",
        **options,
    )


def run(
    folder: Path,
    experts: list[ExpertSpec],
    count: int = 40,
    *,
    workers: int | None = 1,
    **options: Any,
) -> CollectionResult:
    """On Ray, or here without workers."""
    todo = job(folder, experts, count, **options)
    found = (
        collect(todo)
        if workers is None
        else collect_on_ray(todo, Factories.of(experts, "exact"), workers=workers)
    )
    assert found is not None
    return found


def table_of(folder: Path) -> list[dict[str, object]]:
    """All but the seconds, which differ from run to run."""
    table = pq.read_table(folder / "costs" / "costs.parquet")
    return table.drop_columns(
        [name for name in table.column_names if name.startswith("latency")]
    ).to_pylist()


def asked(server: HostileServer) -> Counter[tuple[str, str]]:
    return Counter((call.json["model"], call.prompt) for call in server.calls)
