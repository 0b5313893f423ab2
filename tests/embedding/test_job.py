"""Vectors are those of the encoder, in the rows of the source.

Nothing is computed twice, and no folder holds two versions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.costs.table import CostTable
from mildroute.distributed.shards import open_shards, vector_column
from mildroute.distributed.statistics import LinearConfig
from mildroute.distributed.training import train
from mildroute.embedding.job import EmbeddingEstimate, EmbeddingJob, embed
from mildroute.embedding.shards import ShardFolder
from mildroute.encoders.text import HashingEncoder, NumberEncoder, TfidfEncoder
from mildroute.exceptions import ArgumentError, TableError
from tests.embedding.tables import (
    WIDTH,
    columns,
    hashing,
    in_the_open,
    is_whole_or_silent,
    stored,
    vectors_of,
    write,
)


def test_every_row_gets_the_vector_of_its_text_and_keeps_its_columns(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    found = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    rows = stored(out)
    assert (found.rows, found.dimension, found.encoded, len(found.shards)) == (50, WIDTH, 50, 3)
    assert rows.drop_columns(["vector"]).to_pydict() == pa.table(columns(50)).to_pydict()
    assert rows.column("vector").combine_chunks() == vector_column(
        hashing().transform(columns(50)["input"]).toarray()
    )


def test_a_router_is_trained_on_the_folder_and_the_folder_is_still_a_cost_table(
    tmp_path: Path,
) -> None:
    source, out = write(tmp_path / "costs.parquet", 200), tmp_path / "vectors"
    encoder = hashing(64)
    embed(EmbeddingJob(source, encoder, out, rows_per_shard=90))
    shards = open_shards(str(out))
    assert (shards.experts, shards.width, shards.rows) == (("small", "large"), 64, 200)
    router = train(str(out), LinearConfig(alpha=1e-3)).router
    texts = ["sing 1001", "what is the sum of 1002"]
    assert router.experts_[router.predict(encoder.transform(texts).toarray())].tolist() == [
        "large",
        "small",
    ]
    assert CostTable.read(out).costs().tolist() == CostTable.read(source).costs().tolist()


def test_what_is_there_is_not_encoded_again_and_nothing_is_written(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    first = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    before = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()}
    estimates: list[EmbeddingEstimate] = []
    again = embed(
        EmbeddingJob(source, hashing(), out, rows_per_shard=20), estimated=estimates.append
    )
    assert (again.encoded, again.shards, again.manifest) == (0, first.shards, first.manifest)
    assert (estimates[0].missing, estimates[0].seconds) == (0, 0.0)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()} == before


def test_only_shards_whose_rows_changed_are_made_again(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    old = in_the_open_after(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    write(source, 70, changed=25)
    found = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    # rows 0 to 19 are as before; 20 to 39 have the change, 40 to 49 have become 40 to 59, and 60 to
    # 69 are new
    assert found.encoded == 50
    assert len(old & in_the_open(out)) == 1
    assert in_the_open(out) == set(found.shards)
    assert stored(out).column("input").to_pylist() == columns(70, changed=25)["input"]


def test_other_row_groups_and_files_with_the_same_rows_are_the_same_source(tmp_path: Path) -> None:
    out, folder = tmp_path / "vectors", tmp_path / "parts"
    embed(EmbeddingJob(write(tmp_path / "costs.parquet"), hashing(), out, rows_per_shard=20))
    folder.mkdir()
    for place, start in enumerate(range(0, 50, 13)):
        pq.write_table(
            pa.table(columns(50)).slice(start, 13), folder / f"{place}.parquet", row_group_size=5
        )
    assert embed(EmbeddingJob(folder, hashing(), out, rows_per_shard=20)).encoded == 0


def test_another_encoder_replaces_all_vectors_once_it_is_done(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    old = in_the_open_after(EmbeddingJob(source, hashing(), out, rows_per_shard=20))

    def look(done: int, _total: int, _rate: float) -> None:
        assert done == 50 or in_the_open(out) == old

    found = embed(
        EmbeddingJob(source, hashing(unit="character"), out, rows_per_shard=20), progress=look
    )
    assert found.encoded == 50
    assert in_the_open(out) == set(found.shards)
    assert not old & in_the_open(out)


@pytest.mark.parametrize("steps", range(9))
def test_a_stop_while_a_version_replaces_another_leaves_no_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    source, out, left = write(tmp_path / "costs.parquet"), tmp_path / "vectors", steps
    old = in_the_open_after(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    job = EmbeddingJob(source, hashing(unit="character"), out, rows_per_shard=20)
    publish = ShardFolder.publish

    def stopped(folder: ShardFolder, *arguments: Any) -> None:
        for name in ("_move", "_delete"):
            monkeypatch.setattr(ShardFolder, name, counted(getattr(ShardFolder, name)))
        publish(folder, *arguments)

    def counted(step: Any) -> Any:
        def one(*arguments: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            step(*arguments)

        return one

    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "publish", stopped)
        if steps < 8:  # the manifest, three old shards, three new ones and the new manifest
            with pytest.raises(KeyboardInterrupt):
                embed(job)
    assert is_whole_or_silent(out)
    monkeypatch.undo()
    assert in_the_open(out) <= old or not in_the_open(out) & old
    found = embed(job)
    assert found.encoded == (50 if steps == 8 else 0)
    assert in_the_open(out) == set(found.shards)


def in_the_open_after(job: EmbeddingJob) -> set[str]:
    embed(job)
    return in_the_open(Path(job.out))


def test_a_kill_leaves_whole_shards_out_of_sight_and_the_next_run_goes_on(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    code = (
        "import os, signal\nfrom mildroute.embedding.job import EmbeddingJob, embed\nfrom"
        f" tests.embedding.tables import hashing\njob = EmbeddingJob({str(source)!r}, hashing(),"
        f" {str(out)!r}, rows_per_shard=20)\nembed(job, progress=lambda done, *_: done >= 50 and"
        " os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()
    assert in_the_open(out) == set()
    assert len(list((out / "_unfinished").glob("*.parquet"))) == 2
    found = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    assert found.encoded == 10
    assert stored(out).column("input").to_pylist() == columns(50)["input"]
    assert not (out / "_unfinished").exists()


def test_a_shard_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    source, out = write(tmp_path / "costs.parquet"), tmp_path / "vectors"
    found = embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20))
    broken = out / found.shards[1]
    broken.write_bytes(broken.read_bytes()[:-30])
    assert embed(EmbeddingJob(source, hashing(), out, rows_per_shard=20)).encoded == 20
    assert stored(out).num_rows == 50


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_text_files_become_the_same_rows_as_parquet(tmp_path: Path, suffix: str) -> None:
    whole = embed(
        EmbeddingJob(
            write(tmp_path / "costs.parquet"), hashing(), tmp_path / "one", rows_per_shard=20
        )
    )
    source = Path(CostTable.from_data(columns(50)).save(tmp_path / f"costs{suffix}"))
    found = embed(EmbeddingJob(source, hashing(), tmp_path / "two", rows_per_shard=20))
    one, two = stored(tmp_path / "one"), stored(tmp_path / "two")
    assert found.rows == whole.rows
    assert np.array_equal(vectors_of(one), vectors_of(two))
    for name in ("input", "score:small", "cost:large"):
        assert one.column(name).to_pylist() == two.column(name).to_pylist()
    assert open_shards(str(tmp_path / "two")).experts == ("small", "large")
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        *found.shards,
        "_manifest.json",
        "_lock",
    }


def test_lines_whose_types_change_get_one_type(tmp_path: Path) -> None:
    lines = [{"text": "one", "n": 1}] * 9000 + [{"text": "two", "n": 0.5, "late": "here"}] * 3
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    embed(EmbeddingJob(tmp_path / "t.jsonl", hashing(), tmp_path / "vectors", rows_per_shard=4000))
    rows = stored(tmp_path / "vectors")
    assert rows.column("n").to_pylist() == [1.0] * 9000 + [0.5] * 3
    assert rows.column("late").to_pylist() == [None] * 9000 + ["here"] * 3


def test_the_manifest_says_what_the_vectors_are_of(tmp_path: Path) -> None:
    source = write(tmp_path / "costs.parquet")
    embed(EmbeddingJob(source, hashing(), tmp_path / "vectors"))
    said = json.loads((tmp_path / "vectors" / "_manifest.json").read_text())
    assert said["encoder"]["class"] == "HashingEncoder"
    assert (said["rows"], said["dimension"], said["source"]["text"]) == (50, WIDTH, "input")
    assert said["source"]["files"] == [str(source)]
    assert said["vector"] == {"column": "vector", "type": "float16"}


def test_a_folder_in_another_file_system_works_too(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    uri = f"memory://{tmp_path.name}/vectors"
    source = write(tmp_path / "costs.parquet")
    embed(EmbeddingJob(source, hashing(), uri, rows_per_shard=20))
    assert open_shards(uri).rows == 50
    assert embed(EmbeddingJob(source, hashing(), uri, rows_per_shard=20)).encoded == 0
    embed(EmbeddingJob(source, hashing(unit="character"), uri, rows_per_shard=30))
    assert open_shards(uri).rows == 50
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


def test_the_estimate_counts_what_is_missing_and_comes_first(tmp_path: Path) -> None:
    estimates: list[EmbeddingEstimate] = []
    told: list[int] = []

    def first(estimate: EmbeddingEstimate) -> None:
        assert told == []
        estimates.append(estimate)

    job = EmbeddingJob(
        write(tmp_path / "costs.parquet"),
        hashing(),
        tmp_path / "vectors",
        rows_per_shard=20,
        workers=4,
    )
    embed(job, estimated=first, progress=lambda done, *_: told.append(done))
    assert (estimates[0].rows, estimates[0].shards, estimates[0].missing) == (50, 3, 50)
    assert estimates[0].rate > 0
    assert estimates[0].seconds == pytest.approx(50 / estimates[0].rate / 4)
    assert told == [20, 40, 50]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"question": ["a"]}, "must have a column input or text, got question"),
        ({"text": [1, 2]}, "'text' must hold text, got type int64"),
        ({"text": ["a", None]}, "column 'text', row 1: a text is needed"),
        ({"text": ["a"], "vector": [1]}, "'vector', which the source has"),
        ({"text": pa.array([], pa.string())}, "at least one row"),
        ({"text": ["a"], "score:a": ["high"], "score:b": ["low"]}, "'score:a' must hold numbers"),
    ],
)
def test_tables_that_cannot_be_embedded_are_refused(
    tmp_path: Path, content: dict[str, Any], message: str
) -> None:
    pq.write_table(pa.table(content), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=message):
        embed(EmbeddingJob(tmp_path / "t.parquet", hashing(), tmp_path / "vectors"))


def test_jobs_that_cannot_be_done_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "costs.parquet")
    for job, message in [
        (
            EmbeddingJob(source, HashingEncoder(), tmp_path / "v"),
            r"HashingEncoder that is not; fit it",
        ),
        (EmbeddingJob(source, TfidfEncoder(), tmp_path / "v"), r"TfidfEncoder that is not; fit it"),
        (EmbeddingJob(source, "minilm", tmp_path / "v"), "must be fitted, got a str"),
        (EmbeddingJob(source, hashing(), tmp_path / "v", rows_per_shard=0), "at least 1, got 0"),
        (
            EmbeddingJob(source, hashing(2**16), tmp_path / "v"),
            "may have 8,192 numbers, got 65,536",
        ),
        (EmbeddingJob(source, hashing(), tmp_path), "must not go to the folder of their source"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            embed(job)


def test_a_folder_with_other_things_or_another_writer_is_left_alone(tmp_path: Path) -> None:
    source = write(tmp_path / "costs.parquet")
    (tmp_path / "full").mkdir()
    write(tmp_path / "full" / "mine.parquet")
    with pytest.raises(TableError, match=r"a folder of their own.*mine\.parquet"):
        embed(EmbeddingJob(source, hashing(), tmp_path / "full"))
    with (
        ShardFolder(str(tmp_path / "busy")).lock(),
        pytest.raises(TableError, match="one process at a time"),
    ):
        embed(EmbeddingJob(source, hashing(), tmp_path / "busy"))


def test_numbers_that_half_precision_cannot_hold_are_refused_by_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["0 1", "2 1", "3 1e9"]}), tmp_path / "t.parquet")
    encoder = NumberEncoder().fit(["0 1", "2 1"])
    with pytest.raises(TableError, match=r"below 65,504, got 1e\+09 in row 2"):
        embed(EmbeddingJob(tmp_path / "t.parquet", encoder, tmp_path / "vectors"))
    pq.write_table(pa.table({"text": ["0 1", "no number"]}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match="rows 0 to 1 cannot be encoded"):
        embed(EmbeddingJob(tmp_path / "t.parquet", encoder, tmp_path / "vectors"))
