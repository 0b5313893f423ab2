"""Actors of Ray write the same bytes as one process.

The death of a worker or of the whole run costs the shards under way and no more.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute import TextRouter
from mildroute.distributed.cluster import connected
from mildroute.distributed.shards import ShardMaker, on_ray
from mildroute.embedding.job import EmbeddingJob, EmbeddingProgress, embed, embed_local
from mildroute.embedding.shards import RowRange, ShardResult, ShardTask
from mildroute.encoders.text import ReducedEncoder
from mildroute.exceptions import MildrouteError
from mildroute.persistence import save_router
from mildroute.routers.regression import RegressionRouter
from tests.embedding.tables import columns, hashing, in_the_open, stored, write
from tests.support.processes import kill_a_worker

pytest.importorskip("ray")
# Ray warns of settings of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with connected(2, store_bytes=200 << 20):
        yield


@pytest.mark.usefixtures("cluster")
def test_actors_write_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    source = write(tmp_path / "costs.parquet", 300)
    texts, costs = columns(300)["input"], [[0.0, 1.0], [1.0, 0.0]] * 150
    router = TextRouter(encoder=ReducedEncoder(n_components=12), router=RegressionRouter()).fit(
        texts, costs
    )
    save_router(router, tmp_path / "router")
    alone = embed(EmbeddingJob(source, router.encoder_, tmp_path / "here", rows_per_shard=70))
    told: list[int] = []
    there = embed(
        EmbeddingJob(
            source, router.encoder_, tmp_path / "there", rows_per_shard=70, workers=2, threads=1
        ),
        run=on_ray(2),
        progress=lambda done, *_: told.append(done),
    )
    assert there.shards == alone.shards
    assert there.manifest == alone.manifest
    for name in alone.shards:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert (there.encoded, told[-1], len(told)) == (300, 300, 5)


def test_a_part_that_is_given_to_another_actor_again_is_found_and_not_made_twice(
    tmp_path: Path,
) -> None:
    def twice(
        work: ShardTask, parts: Sequence[RowRange], pace: EmbeddingProgress
    ) -> Iterator[ShardResult]:
        batch = {"start": [part.start for part in parts], "stop": [part.stop for part in parts]}
        first, again = (ShardMaker(work)(batch) for _ in range(2))
        assert (first["is_new"], again["is_new"]) == ([True] * 3, [False] * 3)
        assert first["name"] == again["name"]
        return (
            ShardResult(part, name, is_new=True)
            for part, name in zip(parts, first["name"], strict=True)
        )

    embed(
        EmbeddingJob(
            write(tmp_path / "costs.parquet"), hashing(), tmp_path / "vectors", rows_per_shard=20
        ),
        run=twice,
    )
    assert stored(tmp_path / "vectors").column("input").to_pylist() == columns(50)["input"]


def test_an_actor_returns_errors_that_are_meant_for_people(tmp_path: Path) -> None:
    def one(
        work: ShardTask, parts: Sequence[RowRange], pace: EmbeddingProgress
    ) -> Iterator[ShardResult]:
        (error,) = ShardMaker(work)({"start": [0], "stop": [3]})["error"]
        assert "column 'text', row 2: a text is needed" in error
        return embed_local(work, parts, pace)

    pq.write_table(
        pa.table({"text": ["a", "b", None, "c"]}), tmp_path / "t.parquet", row_group_size=2
    )
    with pytest.raises(MildrouteError, match="row 2: a text is needed"):
        embed(
            EmbeddingJob(tmp_path / "t.parquet", hashing(), tmp_path / "vectors", rows_per_shard=2),
            run=one,
        )


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_row_that_cannot_be_embedded_is_named_as_in_one_process(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"] * 90 + [None]}), tmp_path / "t.parquet")
    with pytest.raises(MildrouteError, match="column 'text', row 90: a text is needed, got none"):
        embed(
            EmbeddingJob(
                tmp_path / "t.parquet", hashing(), tmp_path / "vectors", rows_per_shard=20
            ),
            run=on_ray(2),
        )
    assert in_the_open(tmp_path / "vectors") == set()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_is_replaced_and_no_row_is_lost(tmp_path: Path) -> None:
    source, out, killed = write(tmp_path / "costs.parquet", 6000), tmp_path / "vectors", []
    wanted = (out, "*.parquet", b"ray::MapWorker", killed)
    watcher = threading.Thread(target=kill_a_worker, args=wanted, daemon=True)
    watcher.start()
    found = embed(
        EmbeddingJob(source, hashing(unit="character", ngrams=(1, 9)), out, rows_per_shard=100),
        run=on_ray(2),
    )
    watcher.join()
    assert len(killed) == 1
    assert found.rows == stored(out).num_rows == 6000
    assert stored(out).column("input").to_pylist() == columns(6000)["input"]


@pytest.mark.slow
def test_a_killed_run_leaves_whole_shards_and_goes_on_anywhere(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet", 500), tmp_path / "vectors"
    code = (
        "import os, signal\nfrom mildroute.embedding.job import EmbeddingJob, embed\nfrom"
        " mildroute.distributed.shards import on_ray\nfrom tests.embedding.tables import"
        f" hashing\njob = EmbeddingJob({str(source)!r}, hashing(), {str(out)!r},"
        " rows_per_shard=50)\nembed(job, run=on_ray(1), progress=lambda done, *_: done >= 200 and"
        " os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=ROOT)
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()
    assert in_the_open(out) == set()
    found = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=50))
    assert found.encoded <= 300
    assert stored(out).column("input").to_pylist() == columns(500)["input"]
