"""Experts behind a loopback server, described so that workers can make them, and what came of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mildroute.collecting.job import Collected, Job, collect
from mildroute.collecting.queries import open_queries
from mildroute.engine.collecting.makers import Makers
from mildroute.engine.collecting.on_ray import collect_on_ray
from mildroute.experts.kinds import build
from mildroute.experts.spec import ExpertSpec
from mildroute.judges.exact import ExactJudge
from tests.collecting.pools import write_queries
from tests.experts.hostile_server import Behaviour, Call, HostileServer, says

CONCURRENCY = 4


def right(call: Call) -> Behaviour:
    """The right answer, not quite at once."""
    return says(str(int(call.prompt.split()[0]) + 1), delay=0.02)


def specs(server: HostileServer, *names: str, **settings: Any) -> list[ExpertSpec]:
    own = {"base_url": server.url, "concurrency": CONCURRENCY, "request": {"max_tokens": 10}, "retries": 0, **settings}
    return [ExpertSpec(name, "openai", {"model": name, **own}) for name in names or ("first", "second")]


def job(folder: Path, experts: list[ExpertSpec], count: int = 40, **options: Any) -> Job:
    folder.mkdir(exist_ok=True)
    queries = open_queries(write_queries(folder, count))
    return Job(queries, [build(spec) for spec in experts], ExactJudge(), folder / "costs", **options)


def run(folder: Path, experts: list[ExpertSpec], count: int = 40, *, workers: int | None = 1, **options: Any) -> Collected:
    """On Ray, or here without workers."""
    todo = job(folder, experts, count, **options)
    found = collect(todo) if workers is None else collect_on_ray(todo, Makers.of(experts, "exact"), workers=workers)
    assert found is not None
    return found


def table_of(folder: Path) -> list[dict[str, object]]:
    """All but the seconds, which differ from run to run."""
    table = pq.read_table(folder / "costs" / "costs.parquet")
    return table.drop_columns([name for name in table.column_names if name.startswith("latency")]).to_pylist()


def asked(server: HostileServer) -> Counter[tuple[str, str]]:
    return Counter((call.json["model"], call.prompt) for call in server.calls)
