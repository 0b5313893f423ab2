from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.collection.queries import open_queries
from mildroute.exceptions import TableError


def test_csv_files_are_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "queries.csv").write_text(
        'id,input,answer,ann\n01,7,007,007\n02,"two\nlines",0.50,\n03,true,NA,1e5\n'
    )
    read = list(open_queries(tmp_path / "queries.csv"))
    assert [(query.query_id, query.input, query.reference) for query in read] == [
        ("01", "7", "007"),
        ("02", "two\nlines", "0.50"),
        ("03", "true", "NA"),
    ]
    assert [query.fields["ann"] for query in read] == ["007", None, "1e5"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("queries.csv", "id;input;answer\n01;2,5 or 3?;2,5\n02;why;\n".encode("utf-8-sig")),
        ("queries.tsv", b"id\tinput\tanswer\n01\t2,5 or 3?\t2,5\n02\twhy\t\n"),
        ("queries.csv", "sep=;\nid;input;answer\n01;2,5 or 3?;2,5\n02;why;\n".encode("utf-16")),
    ],
)
def test_spreadsheets_as_they_are_exported(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    read = list(open_queries(tmp_path / name))
    assert [(query.query_id, query.input, query.reference) for query in read] == [
        ("01", "2,5 or 3?", "2,5"),
        ("02", "why", None),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "input,input\na,b\n": r"column names must be unique, got 'input' twice; rename or drop",
        "query_id,input\n": r"queries\.csv must have at least one query, got none",
    }.items(),
)
def test_queries_that_are_not_plain_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "queries.csv").write_text(text)
    with pytest.raises(TableError, match=sentence):
        open_queries(tmp_path / "queries.csv")


def test_the_rows_of_the_caller_are_left_as_they_are() -> None:
    rows = [{"id": f"q{index}", "prompt": "?", "topic": "sums"} for index in range(20)]
    before = [dict(row) for row in rows]
    assert [query.fields for query in open_queries(rows)] == [{"topic": "sums"}] * 20
    assert rows == before
