"""Shards are looked at before they are read, and what does not fit is said with the file and the
column.
"""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.distributed.shards import open_shards, read_piece, rows_of, vector_column
from mildroute.distributed.statistics import LinearConfig
from mildroute.distributed.training import train
from mildroute.exceptions import TableError
from tests.distributed.training.problems import EXPERTS, rows, write


def read_all(uri: str) -> tuple[np.ndarray, np.ndarray]:
    shards = open_shards(uri)
    parts = [part for piece in shards.pieces for part in rows_of(read_piece(shards, piece), shards)]
    return np.concatenate([part.vectors for part in parts]), np.concatenate(
        [part.costs for part in parts]
    )


def test_every_row_comes_once_in_its_order(tmp_path: Path) -> None:
    vectors, costs = rows(1003)
    found, paid = read_all(write(tmp_path, vectors, costs, files=4, group=77))
    np.testing.assert_array_equal(found, vectors)
    np.testing.assert_array_equal(paid, costs)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_lists_of_floats_are_read_like_binary(tmp_path: Path, kind: pa.DataType) -> None:
    vectors, costs = rows(40)
    flat = pa.array(vectors.ravel().astype(kind.to_pandas_dtype()), kind)
    scores = {f"score:{name}": 1 - costs[:, place] for place, name in enumerate(EXPERTS)}
    pq.write_table(
        pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, 8), **scores}),
        tmp_path / "a.parquet",
    )
    found, _ = read_all(str(tmp_path))
    np.testing.assert_array_equal(found.astype(np.float16), vectors)


def test_relative_paths_mean_the_same_place_wherever_a_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "shards", *rows(40))
    monkeypatch.chdir(tmp_path)
    found = open_shards("shards")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sum(read_piece(found, piece).num_rows for piece in found.pieces) == 40


def test_shards_in_any_file_system_of_fsspec_are_trained_on(tmp_path: Path) -> None:
    vectors, costs = rows(500)
    system = fsspec.filesystem("memory")
    system.put(write(tmp_path, vectors, costs) + "/", "/shards/", recursive=True)
    assert (
        train("memory://shards", LinearConfig()).objective
        == train(str(tmp_path), LinearConfig()).objective
    )


def test_money_counts_by_its_weight(tmp_path: Path) -> None:
    table = pa.table(
        {
            "vector": vector_column(np.eye(2)),
            "score:a": [1.0, 0.5],
            "score:b": [1, 0],
            "cost:a": [0.1, 0.2],
            "cost:b": [0.0, 1.0],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    shards = open_shards(str(tmp_path), price_weight=2.0)
    (part,) = rows_of(read_piece(shards, shards.pieces[0]), shards)
    np.testing.assert_allclose(part.costs, [[0.2, 0.0], [0.9, 3.0]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score:a": [1.0], "score:b": [1.0]}, "need a column 'vector'"),
        ({"vector": vector_column(np.eye(1)), "score:a": [1.0]}, "at least two experts"),
        (
            {"vector": [[1.0]], "score:a": [1.0], "score:b": [1.0]},
            "must be a fixed-size list of floats",
        ),
        (
            {"vector": vector_column(np.eye(1)), "score:a": [None], "score:b": [1.0]},
            "got nulls or NaN for 'a'",
        ),
        (
            {"vector": pa.array([None], pa.binary(2)), "score:a": [1.0], "score:b": [1.0]},
            "got 1 nulls in 'vector'",
        ),
        (
            {"vector": vector_column(np.full((1, 1), np.nan)), "score:a": [1.0], "score:b": [1.0]},
            "vectors must be finite",
        ),
        (
            {
                "vector": vector_column(np.empty((0, 1))),
                "score:a": pa.array([], pa.float64()),
                "score:b": pa.array([], pa.float64()),
            },
            "one row",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    tmp_path: Path, columns: dict[str, object], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(TableError, match=message):
        train(str(tmp_path), LinearConfig())


def test_a_missing_folder_an_empty_one_and_a_shard_of_another_kind_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(TableError, match="exists"):
        open_shards(str(tmp_path / "nowhere"))
    with pytest.raises(TableError, match="none in"):
        open_shards(str(tmp_path))
    vectors, costs = rows(20)
    write(tmp_path, vectors, costs, files=1)
    pq.write_table(pa.table({"vector": vector_column(np.eye(2))}), tmp_path / "z.parquet")
    with pytest.raises(TableError, match=r"the same columns, got another 'vector' in .*z.parquet"):
        open_shards(str(tmp_path))
    (tmp_path / "z.parquet").unlink()
    with pytest.raises(TableError, match="needs the columns cost:small"):
        open_shards(str(tmp_path), price_weight=1.0)
