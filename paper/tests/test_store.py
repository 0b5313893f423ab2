"""The store only grows, gives back what was put in, and stands several writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from paper.results import Store
from paper.tests.toys import made_up, toy_cell


def test_a_result_comes_back_to_the_bit_with_time_and_versions(tmp_path: Path) -> None:
    result = replace(made_up(toy_cell(), paid=(0.1 + 0.2, 1 / 3, 1e-300)), seconds=0.1)
    Store(tmp_path).append([result])
    (found,) = Store(tmp_path).read().values()
    assert found == result
    assert (found.seconds, found.finished, found.versions) == (
        result.seconds,
        result.finished,
        result.versions,
    )


def test_an_empty_or_missing_folder_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "nowhere")
    store.append([])
    assert store.keys() == set()
    assert store.read() == {}
    assert not store.folder.exists()


def test_the_union_of_all_files_is_read_and_a_key_counts_once(tmp_path: Path) -> None:
    one, two = made_up(toy_cell(seed=1)), made_up(toy_cell(seed=2))
    Store(tmp_path).append([one])
    Store(tmp_path).append([one, two])
    assert Store(tmp_path).read() == {each.cell.key: each for each in (one, two)}
    assert Store(tmp_path).keys() == {one.cell.key, two.cell.key}


def test_only_the_results_asked_for_are_read(tmp_path: Path) -> None:
    one, two = made_up(toy_cell(seed=1)), made_up(toy_cell(seed=2))
    Store(tmp_path).append([one, two])
    assert list(Store(tmp_path).read([two.cell.key, "unknown"]).values()) == [two]


def test_duplicates_are_settled_by_content_and_not_by_the_order_of_writing(tmp_path: Path) -> None:
    slow, fast = (replace(made_up(toy_cell()), seconds=seconds) for seconds in (9.0, 1.0))
    for folder, order in (("a", (slow, fast)), ("b", (fast, slow))):
        for each in order:
            Store(tmp_path / folder).append([each])
    taken = [next(iter(Store(tmp_path / folder).read().values())).seconds for folder in ("a", "b")]
    assert taken[0] == taken[1]


def test_many_writers_at_once_lose_nothing_and_leave_no_half_files(tmp_path: Path) -> None:
    results = [made_up(toy_cell(seed=seed)) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: Store(tmp_path).append([each]), results))
    assert Store(tmp_path).keys() == {each.cell.key for each in results}
    assert list(tmp_path.glob("*.partial")) == []


def test_a_half_written_file_of_a_killed_writer_is_not_read(tmp_path: Path) -> None:
    Store(tmp_path).append([made_up(toy_cell())])
    (tmp_path / "killed.partial").write_bytes(b"PAR1 and then nothing")
    assert len(Store(tmp_path).read()) == 1


def test_merging_keeps_every_result_in_one_file_that_names_its_origin(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in range(3):
        store.append([made_up(toy_cell(seed=seed))])
    before = store.read()
    for _ in range(2):
        store.merge()
        (file,) = tmp_path.iterdir()
        assert store.read() == before
    assert {b"command", b"date", b"commit"} <= pq.read_schema(file).metadata.keys()
