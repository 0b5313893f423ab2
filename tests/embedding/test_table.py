"""Any range of rows of any files comes in the same runs, with one type for each column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.costs.files import resolve_files
from mildroute.costs.prices import PriceList
from mildroute.costs.table import CostTable
from mildroute.embedding.job import EmbeddingJob, embed
from mildroute.embedding.texts import open_table, runs
from mildroute.exceptions import TableError
from tests.embedding.tables import columns, hashing, stored


def texts_of(folder: Path, start: int, stop: int, size: int) -> list[list[str]]:
    return [
        run["text"].to_pylist()
        for run in runs(open_table(resolve_files(folder)), start, stop, size=size)
    ]


def test_runs_do_not_see_files_row_groups_or_empty_files(tmp_path: Path) -> None:
    letters = [list("abcde"), [], list("fg"), [], list("hijklmn")]
    for place, part in enumerate(letters):
        pq.write_table(
            pa.table({"text": pa.array(part, pa.string())}),
            tmp_path / f"{place}.parquet",
            row_group_size=3,
        )
    whole = "abcdefghijklmn"
    for start in range(len(whole)):
        for stop in range(start + 1, len(whole) + 1):
            wanted = whole[start:stop]
            assert texts_of(tmp_path, start, stop, 4) == [
                list(wanted[at : at + 4]) for at in range(0, len(wanted), 4)
            ]


def test_files_of_different_types_are_read_as_one(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"text": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]}),
        tmp_path / "0.parquet",
    )
    pq.write_table(
        pa.table({"text": pa.array(["c"], pa.large_string()), "n": [0.5], "more": [True]}),
        tmp_path / "1.parquet",
    )
    (run,) = runs(open_table(resolve_files(tmp_path)), 0, 3, size=10)
    assert run.to_pydict() == {
        "text": ["a", "b", "c"],
        "n": [1.0, 2.0, 0.5],
        "more": [None, None, True],
    }


def test_files_that_do_not_fit_together_or_are_broken_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"text": ["c"], "n": [[1]]}), tmp_path / "1.parquet")
    with pytest.raises(TableError, match="one type in all files"):
        open_table(resolve_files(tmp_path))
    (tmp_path / "1.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(TableError, match=r"1\.parquet' cannot be read as Parquet"):
        open_table(resolve_files(tmp_path))
    pq.write_table(
        pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]),
        tmp_path / "1.parquet",
    )
    with pytest.raises(TableError, match="'text' twice"):
        open_table(resolve_files(tmp_path / "1.parquet"))


def test_prices_stay_with_the_rows(tmp_path: Path) -> None:
    table = CostTable.from_data(columns(10)).with_prices(
        PriceList.of({"small": 1.0, "large": 10.0}), output_tokens=5
    )
    source = table.save(tmp_path / "costs.parquet")
    embed(EmbeddingJob(source, hashing(), tmp_path / "vectors"))
    found = CostTable.read(tmp_path / "vectors")
    assert found.prices == table.prices
    assert found.content_hash == table.content_hash
    assert b"ARROW:schema" not in (stored(tmp_path / "vectors").schema.metadata or {})
