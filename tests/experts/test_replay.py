from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.exceptions import TableError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.replay import ReplayExpert

ROWS: list[dict[str, Any]] = [
    {
        "query_id": "q1",
        "text": "4",
        "tokens_in": 7,
        "tokens_out": 1,
        "dollars": 0.5,
        "latency": 1.5,
        "error": None,
    },
    {
        "query_id": "q2",
        "text": None,
        "tokens_in": None,
        "tokens_out": None,
        "dollars": 0.0,
        "latency": 0.0,
        "error": "timeout",
    },
]
ANSWERS = [Answer("4", 7, 1, dollars=0.5, latency=1.5), Answer(None, error="timeout")]
QUERIES = [Query("q1", "?"), Query("q2", "?")]


def ask(expert: Expert, *ids: str) -> list[Answer]:
    return asyncio.run(expert.answer([Query(query_id, "?") for query_id in ids]))


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_answers_come_back_from_both_formats(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", lines(tmp_path / "a.jsonl", *ROWS)):
        expert = ReplayExpert.read("large", path)
        assert ask(expert, "q2", "q1") == ANSWERS[::-1]
        assert isinstance(expert, Expert)
        assert expert.max_cost(QUERIES[0]) == 0.5


def test_a_query_that_was_not_recorded_is_an_error() -> None:
    expert = ReplayExpert("large", {"q1": Answer("4")})
    (answer,) = ask(expert, "q9")
    assert (answer.text, answer.error, answer.attempts) == (
        None,
        "no answer to query 'q9' was recorded",
        0,
    )
    assert expert.max_cost(Query("q9", "?")) == 0


def test_the_last_answer_to_a_query_counts(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", ROWS[1], {"query_id": "q2", "text": "6"})
    assert ask(ReplayExpert.read("large", path), "q2")[0].text == "6"


def test_a_last_line_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", ROWS[0])
    path.write_text(path.read_text() + '{"query_id": "q2", "te')
    assert [answer.text for answer in ask(ReplayExpert.read("large", path), "q1", "q2")] == [
        "4",
        None,
    ]


@pytest.mark.parametrize(
    "row",
    [
        7, [], {}, {"text": "x"}, {"query_id": 1, "text": "x"}, {"query_id": "a", "text": 4},
        {"query_id": "a", "text": "x", "error": 3},
        {"query_id": "a", "text": "x", "dollars": -1},
        {"query_id": "a", "text": "x", "dollars": "1"},
        {"query_id": "a", "text": "x", "dollars": math.nan},
        {"query_id": "a", "text": "x", "latency": math.inf},
        {"query_id": "a", "text": "x", "tokens_in": 1.5},
        {"query_id": "a", "text": "x", "tokens_out": True},
    ],
)  # fmt: skip
def test_a_row_that_makes_no_sense_is_refused_with_its_line(row: Any, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="line 2"):
        ReplayExpert.read("large", lines(tmp_path / "a.jsonl", ROWS[0], row))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but no table")
    (tmp_path / "broken.jsonl").write_bytes(b'{"query_id": "q1", "text": "\xff"}\n')
    (tmp_path / "folder.jsonl").mkdir()
    for name in (
        "broken.parquet",
        "broken.jsonl",
        "missing.parquet",
        "missing.jsonl",
        "folder.jsonl",
        "a.csv",
    ):
        with pytest.raises(TableError):
            ReplayExpert.read("large", tmp_path / name)


def test_an_error_beats_a_text_and_neither_is_an_error(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl", {"query_id": "q1", "text": "half", "error": "cut"}, {"query_id": "q2"}
    )
    assert ask(ReplayExpert.read("large", path), "q1", "q2") == [
        Answer(None, error="cut"),
        Answer(None, error="recorded without text"),
    ]


def test_the_version_changes_with_the_answers(tmp_path: Path) -> None:
    first = ReplayExpert.read("large", lines(tmp_path / "a.jsonl", ROWS[0])).version
    assert ReplayExpert.read("large", lines(tmp_path / "b.jsonl", ROWS[0])).version == first
    assert ReplayExpert.read("large", lines(tmp_path / "a.jsonl", *ROWS)).version != first
    memory = [
        ReplayExpert("large", answers).version
        for answers in ({"q1": ANSWERS[0]}, {"q1": ANSWERS[1]}, {"q2": ANSWERS[0]})
    ]
    assert len(set(memory)) == 3
    assert ReplayExpert("large", {"q1": ANSWERS[0]}).version == memory[0]


def test_log_probabilities_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"query_id": "q1", "text": "4", "logprob": -0.5}))
    expert = ReplayExpert.read("a", path)
    assert asyncio.run(expert.answer([Query("q1", "2 + 2?")]))[0].logprob == -0.5
    for wrong in (0.5, True, "-1", float("-inf")):
        path.write_text(json.dumps({"query_id": "q1", "text": "4", "logprob": wrong}))
        with pytest.raises(TableError, match="logprob must be a number of at most 0 or missing"):
            ReplayExpert.read("a", path)
