"""Hundreds of broken tables.

Each gives one clear line or a stated repair, never another error and never a wrong number.
"""

from __future__ import annotations

import copy
import csv
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, reject, settings, strategies as st

from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError
from tests.costs import slow_reader
from tests.costs.slow_reader import Columns, RefusedError

Draw = Callable[[st.SearchStrategy[Any]], Any]

SEPARATORS = ["a,b", "a:b", 'a"b', "a;b", "a|b", "a/b", "ä.β", "a b", "a'b", "{a}"]
BAD_NAMES = ["", " ", "a\nb", "a\tb", "a\r", " a", "a\x00b"]
BAD_SCORES = [float("nan"), None, float("inf"), float("-inf"), -0.1, 1.0000001, 7, 1e300]
BAD_PRICES = [float("nan"), None, float("inf"), -1e-9, -5]
WORDS = ["high", "1,5", "0.5.1", "--", "{}", "½"]


@st.composite
def tables(draw: Draw) -> Columns:
    """A sound table of a few rows."""
    rows, experts = (
        draw(st.integers(1, 5)),
        draw(
            st.lists(
                st.sampled_from(["a", "b", "c", *SEPARATORS]), min_size=2, max_size=4, unique=True
            )
        ),
    )
    score = st.floats(0, 1, allow_subnormal=False)
    columns: Columns = {
        "query_id": [f"q{row}" for row in range(rows)],
        "input": draw(st.lists(st.text('xyz é,"\n', min_size=1), min_size=rows, max_size=rows)),
    }
    columns |= {
        f"score:{name}": draw(st.lists(score, min_size=rows, max_size=rows)) for name in experts
    }
    if draw(st.booleans()):
        price = st.floats(0, 10, allow_subnormal=False)
        columns |= {
            f"cost:{name}": draw(st.lists(price, min_size=rows, max_size=rows)) for name in experts
        }
    return columns


def set_cell(columns: Columns, draw: Draw, prefix: str, values: list[Any]) -> None:
    names = [name for name in columns if name.startswith(prefix)]
    if names:
        column = columns[draw(st.sampled_from(names))]
        column[draw(st.integers(0, len(column) - 1))] = draw(st.sampled_from(values))


def bad_score(columns: Columns, draw: Draw) -> None:
    set_cell(columns, draw, "score:", BAD_SCORES)


def bad_price(columns: Columns, draw: Draw) -> None:
    set_cell(columns, draw, "cost:", BAD_PRICES)


def missing_scores(columns: Columns, draw: Draw) -> None:
    for _ in range(draw(st.integers(1, 4))):
        set_cell(columns, draw, "score:", [None, float("nan")])


def missing_answer(columns: Columns, draw: Draw) -> None:
    """Neither score nor price: the call failed."""
    expert = draw(
        st.sampled_from(
            [name.removeprefix("score:") for name in columns if name.startswith("score:")]
        )
    )
    row = draw(st.integers(0, len(columns["query_id"]) - 1))
    for name in (f"score:{expert}", f"cost:{expert}"):
        if name in columns:
            columns[name][row] = None


def words_for_scores(columns: Columns, draw: Draw) -> None:
    name = draw(st.sampled_from([name for name in columns if name.startswith("score:")]))
    columns[name] = [draw(st.sampled_from(WORDS)) for _ in columns[name]]


def words_for_prices(columns: Columns, draw: Draw) -> None:
    for name in [name for name in columns if name.startswith("cost:")]:
        columns[name] = [draw(st.sampled_from(WORDS)) for _ in columns[name]]


def nested_scores(columns: Columns, draw: Draw) -> None:
    name = draw(st.sampled_from([name for name in columns if name.startswith("score:")]))
    columns[name] = [[0.5] for _ in columns[name]]


def one_expert(columns: Columns, draw: Draw) -> None:
    _, *others = [name for name in columns if name.startswith("score:")]
    for name in others:
        del columns[name]
        columns.pop(name.replace("score:", "cost:", 1), None)


def no_expert(columns: Columns, draw: Draw) -> None:
    for name in [name for name in columns if ":" in name]:
        del columns[name]


def no_rows(columns: Columns, draw: Draw) -> None:
    for column in columns.values():
        column.clear()


def repeated_row(columns: Columns, draw: Draw) -> None:
    for column in columns.values():
        column.append(column[0])


def repeated_id(columns: Columns, draw: Draw) -> None:
    repeated_row(columns, draw)
    columns["input"][-1] = f"{columns['input'][-1]}!"  # damaged before, it may be none


def bad_name(columns: Columns, draw: Draw) -> None:
    columns["score:" + draw(st.sampled_from(BAD_NAMES))] = [0.5] * len(columns["query_id"])


def stray_price(columns: Columns, draw: Draw) -> None:
    columns["cost:nobody"] = [0.5] * len(columns["query_id"])


def lost_price(columns: Columns, draw: Draw) -> None:
    prices = [name for name in columns if name.startswith("cost:")]
    if prices:
        del columns[prices[-1]]


def lost_id(columns: Columns, draw: Draw) -> None:
    columns["query_id"][draw(st.integers(0, len(columns["query_id"]) - 1))] = None


def lost_text(columns: Columns, draw: Draw) -> None:
    columns["input"][draw(st.integers(0, len(columns["input"]) - 1))] = None


def no_ids(columns: Columns, draw: Draw) -> None:
    del columns["query_id"]


def number_ids(columns: Columns, draw: Draw) -> None:
    columns["query_id"] = list(range(100, 100 + len(columns["query_id"])))


def truths(columns: Columns, draw: Draw) -> None:
    name = draw(st.sampled_from([name for name in columns if name.startswith("score:")]))
    columns[name] = [draw(st.booleans()) for _ in columns[name]]


DAMAGES = [
    bad_score, bad_price, missing_scores, missing_answer, words_for_scores, words_for_prices,
    nested_scores, one_expert, no_expert, no_rows, repeated_row, repeated_id, bad_name, stray_price,
    lost_price, lost_id, lost_text, no_ids, number_ids, truths,
]  # fmt: skip


def as_memory(columns: Columns, folder: Path) -> Any:
    return columns


def as_arrow(columns: Columns, folder: Path) -> Any:
    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
    ):  # two damages to one column, of two types: such a table can only be in memory
        reject()


def as_parquet(columns: Columns, folder: Path) -> Any:
    pq.write_table(as_arrow(columns, folder), folder / "t.parquet", row_group_size=2)
    return folder / "t.parquet"


def as_shards(columns: Columns, folder: Path) -> Any:
    table, shards = as_arrow(columns, folder), folder / "shards"
    shards.mkdir(exist_ok=True)
    for place, start in enumerate((0, 2)):
        pq.write_table(table.slice(start, 2 if place == 0 else None), shards / f"{place}.parquet")
    return shards


def as_csv(columns: Columns, folder: Path) -> Any:
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return folder / "t.csv"


def as_json(columns: Columns, folder: Path) -> Any:
    rows = (
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


FORMS = [as_memory, as_arrow, as_parquet, as_shards, as_csv, as_json]


def read(source: Any, missing: str) -> CostTable | TableError:
    try:
        return (
            CostTable.read(source, missing=missing)
            if isinstance(source, Path)
            else CostTable.from_data(source, missing=missing)
        )
    except TableError as error:
        return error


def expected(columns: Columns, missing: str, form: Any) -> dict[str, dict[str, float | str]] | None:
    """By the slow reading, or none where the table must be refused."""
    if form is as_csv:
        # a CSV file knows neither missing texts nor types: what is not a number is the word that
        # was written
        columns = {
            name: ["" if value is None else str(value) for value in values]
            for name, values in columns.items()
        }
    try:
        return slow_reader.read(columns, missing=missing, parse=form is as_csv)
    except RefusedError:
        return None


def check_same(table: CostTable, rows: dict[str, dict[str, float | str]]) -> None:
    assert table.query_ids == list(rows)
    for prefix, matrix in (("score:", table.scores), ("cost:", table.dollars)):
        if matrix is not None:
            want = [[row[prefix + name] for name in table.experts] for row in rows.values()]
            np.testing.assert_array_equal(matrix, np.array(want, dtype=float))


def one_line(error: TableError) -> None:
    assert str(error)
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)


@settings(
    max_examples=600,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_damaged_table_gives_one_clear_line_or_the_numbers_of_a_slow_reading(
    data: st.DataObject, tmp_path: Path
) -> None:
    columns = copy.deepcopy(data.draw(tables()))
    for damage in data.draw(
        st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=2, unique=True)
    ):
        if (
            "query_id" in columns
            and columns["query_id"]
            and any(name.startswith("score:") for name in columns)
        ):
            damage(columns, data.draw)
    missing, form = (
        data.draw(st.sampled_from(["raise", "zero", "drop"])),
        data.draw(st.sampled_from(FORMS)),
    )
    want = expected(columns, missing, form)
    table = read(form(columns, tmp_path), missing)
    event(f"{'refused' if want is None else 'read'} as {form.__name__}")
    if isinstance(table, TableError):
        one_line(table)
        assert want is None, f"a sound table was refused: {table}"
        return
    assert want is not None, "a broken table was read"
    check_same(table, want)
    if len(want) < len(next(iter(columns.values()))) or "query_id" not in columns:
        assert table.repairs


SOUND = {
    "query_id": ["p", "q", "r"],
    "input": ["x", "y", "z"],
    "score:a": [0.25, 1.0, 0.5],
    "score:b": [1.0, 0.0, 0.125],
}


def sound_bytes(folder: Path) -> bytes:
    path = CostTable.from_data(SOUND).save(folder / "sound.parquet")
    return Path(path).read_bytes()


@pytest.mark.parametrize("share", [place / 40 for place in range(40)])
def test_a_truncated_parquet_file_is_refused(share: float, tmp_path: Path) -> None:
    whole = sound_bytes(tmp_path)
    (tmp_path / "cut.parquet").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(TableError) as caught:
        CostTable.read(tmp_path / "cut.parquet")
    one_line(caught.value)


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_in_the_pages_is_noticed_or_harmless(seed: int, tmp_path: Path) -> None:
    whole = bytearray(sound_bytes(tmp_path))
    footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    rng = np.random.default_rng(seed)
    whole[rng.integers(0, footer)] ^= 1 << int(rng.integers(0, 8))
    (tmp_path / "flipped.parquet").write_bytes(whole)
    try:
        table = CostTable.read(tmp_path / "flipped.parquet")
    except TableError as error:
        one_line(error)
    else:
        assert table.content_hash == CostTable.from_data(SOUND).content_hash


BROKEN_TEXTS = {
    "empty.csv": "",
    "newlines.csv": "\n\n",
    "header_only.csv": "query_id,score:a,score:b\n",
    "short_row.csv": "query_id,score:a,score:b\np,1,0\nq,1\n",
    "long_row.csv": "query_id,score:a,score:b\np,1,0\nq,1,0,1\n",
    "open_quote.csv": 'query_id,score:a,score:b\np,1,0\n"q,1,0\n',
    "twice.csv": "query_id,score:a,score:a\np,1,0\n",
    "no_header.csv": "p,1,0\nq,0,1\n",
    "decimal_comma.csv": 'query_id,score:a,score:b\np,"0,5",0\n',
    "percent_cost.csv": "query_id,score:a,score:b,cost:a,cost:b\np,1,0,50%,1\n",
    "empty.jsonl": "",
    "blank.jsonl": "\n \n",
    "cut.jsonl": '{"query_id": "p", "score:a": 1, "score:b": 0}\n{"query_id": "q", "sco',
    "list.jsonl": '{"query_id": "p", "score:a": 1, "score:b": 0}\n[1, 2]\n',
    "number.jsonl": "7\n",
    "twice.jsonl": '{"query_id": "p", "score:a": 1, "score:a": 0, "score:b": 0}\n',
    "key_lost.jsonl": '{"query_id": "p", "score:a": 1, "score:b": 0}\n'
    '{"query_id": "q", "score:a": 1}\n',
    "mixed.jsonl": '{"query_id": "p", "score:a": 1, "score:b": 0}\n'
    '{"query_id": "q", "score:a": "high", "score:b": 0}\n',
    "surrogate.jsonl": '{"query_id": "\\ud800", "score:a": 1, "score:b": 0}\n',
    "huge.jsonl": '{"query_id": "p", "score:a": 1' + "0" * 400 + ', "score:b": 0}\n',
    "deep.jsonl": "[" * 100_000,
    "array_cut.json": '[{"query_id": "p", "score:a": 1, "score:b": 0},',
    "object.json": '{"query_id": {"nested": 1}, "score:a": 1, "score:b": 0}',
    "null.json": "null",
    "words.parquet": "this is no parquet file",
    "magic.parquet": "PAR1PAR1",
    "table.xlsx": "PK",
    "table": "query_id",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_TEXTS)
def test_a_broken_text_file_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(BROKEN_TEXTS[name])
    for reading in (CostTable.read, describe):
        with pytest.raises(TableError) as caught:
            reading(tmp_path / name)
        one_line(caught.value)


@pytest.mark.parametrize("name", ["late.csv", "latin.jsonl"])
def test_text_that_is_not_utf8_is_refused(name: str, tmp_path: Path) -> None:
    """In a CSV file, if its first megabyte is UTF-8."""
    row = (
        b'{"query_id": "\xe9", "score:a": 1, "score:b": 0}\n'
        if name.endswith("jsonl")
        else b"query_id,score:a,score:b\n" + b"p" * 2**20 + b"\xe9,1,0\n"
    )
    (tmp_path / name).write_bytes(row)
    with pytest.raises(TableError):
        CostTable.read(tmp_path / name)


def invalid_utf8() -> pa.Array:
    return pa.array([b"p", b"\xff\xfe"]).cast(pa.binary()).view(pa.string())


BROKEN_TYPES: dict[str, Callable[[], Any]] = {
    "binary ids": lambda: pa.array([b"p", b"q"]),
    "fractional ids": lambda: pa.array([0.5, 1.5]),
    "infinite ids": lambda: pa.array([0.5, float("inf")]),
    "list ids": lambda: pa.array([["p"], ["q"]]),
    "struct ids": lambda: pa.array([{"p": 1}, {"p": 2}]),
    "null ids": lambda: pa.nulls(2),
    "ids that are not UTF-8": invalid_utf8,
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN_TYPES)
@pytest.mark.parametrize("column", ["query_id", "input", "group", "split"])
def test_names_of_a_wrong_type_are_refused(kind: str, column: str) -> None:
    columns = {"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]} | {
        column: BROKEN_TYPES[kind]()
    }
    with pytest.raises(TableError) as caught:
        CostTable.from_data(columns)
    one_line(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"1", b"0"]),
        pa.array(["1", "0"]),
        pa.array([[1], [0]]),
        pa.array([1, 2], pa.timestamp("us")),
        pa.array([1, 0], pa.duration("s")),
    ],
)
@pytest.mark.parametrize("column", ["score:a", "cost:a", "latency:b", "outchars:a"])
def test_numbers_of_a_wrong_type_are_refused(values: pa.Array, column: str) -> None:
    columns: dict[str, Any] = {"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]}
    columns |= {f"{column.split(':')[0]}:{expert}": [1, 1] for expert in "ab"} | {column: values}
    with pytest.raises(TableError, match=column):
        CostTable.from_data(columns)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "no/such/file.parquet",
        "no/such/*.parquet",
        "a\0b.parquet",
        [],
        7,
        None,
        "nowhere://a/b.parquet",
    ],
)
def test_what_names_no_table_is_refused(source: Any) -> None:
    with pytest.raises(TableError) as caught:
        CostTable.read(source)
    one_line(caught.value)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(TableError, match="no shards"):
        CostTable.read(tmp_path)


def test_shards_of_different_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"query_id": ["p"], "score:a": [1], "score:b": [0]}), tmp_path / "0.parquet"
    )
    pq.write_table(
        pa.table({"query_id": ["q"], "score:a": [1], "score:c": [0]}), tmp_path / "1.parquet"
    )
    with pytest.raises(TableError, match="same columns"):
        CostTable.read(tmp_path)


def test_shards_of_different_formats_are_refused(tmp_path: Path) -> None:
    for name in ("0.parquet", "1.csv"):
        CostTable.from_data(SOUND).save(tmp_path / name)
    with pytest.raises(TableError, match="one format"):
        CostTable.read(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = Path(CostTable.from_data(SOUND).save(tmp_path / "t.parquet"))
    path.chmod(0)
    with pytest.raises(TableError, match="cannot be"):
        CostTable.read(path)


@pytest.mark.parametrize("missing", ["raise", "zero", "drop"])
def test_a_message_names_column_row_query_value_and_way_out(missing: str) -> None:
    with pytest.raises(
        TableError,
        match=(
            r"column 'score:b', row 1 \(query_id 'q'\): a score must lie in \[0, 1\], got 7;"
            r" divide by"
        ),
    ):
        CostTable.from_data(
            {"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 7]}, missing=missing
        )
