from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError, TableError
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability.decision_log import DecisionLog, read_log, spent_since
from serving.records import record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [record(f"d{number}", conversation="c", shadow="large", price_weight=2.5) for number in range(5)]
    log = DecisionLog(DecisionLogConfig(tmp_path, rows=2))
    for each in written:
        log.write(each)
    log.close()
    assert list(read_log(tmp_path)) == written


def test_one_line_is_one_json_object_of_all_fields(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    log.write(record())
    (path,) = (tmp_path / "decisions").iterdir()
    assert json.loads(path.read_bytes()) == json.loads(json.dumps(asdict(record())))
    assert path.read_bytes().count(b"\n") == 1
    log.close()


@pytest.mark.parametrize("keep_text", [False, True])
def test_texts_are_written_only_if_that_is_switched_on(tmp_path: Path, keep_text: bool) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path, keep_text=keep_text))
    log.write(record(text="a private word"))
    log.close()
    content = b"".join(path.read_bytes() for path in (tmp_path / "decisions").iterdir())
    assert (b"private" in content) is keep_text
    assert next(read_log(tmp_path)).text == ("a private word" if keep_text else None)


def test_texts_with_line_breaks_and_halves_of_characters_stay_one_line(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path, keep_text=True))
    log.write(record(text="a\nb\u2028c\0d\ud800e 🙂", model="\udfff"))
    log.close()
    (found,) = read_log(tmp_path)
    assert (found.text, found.model) == ("a\nb\u2028c\0d?e 🙂", "?")


def test_numbers_that_json_does_not_know_do_not_cost_the_line(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    log.write(record(posterior=(math.nan, 0.5), dollars=math.inf))
    log.close()
    (row,) = (tmp_path / "decisions").iterdir()
    assert json.loads(row.read_bytes(), parse_constant=lambda _: pytest.fail("not JSON"))["posterior"] == [None, 0.5]
    assert spent_since(tmp_path, 0.0) == {}


def test_fields_of_another_version_do_not_hinder_reading(tmp_path: Path) -> None:
    row = asdict(record())
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "1-1.jsonl").write_text(
        json.dumps({name: value for name, value in row.items() if name != "shadow"} | {"new": 1}) + "\n"
    )
    assert list(read_log(tmp_path)) == [record()]


def test_another_kind_of_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "1-1.jsonl").write_text('{"a":1}\n')
    with pytest.raises(TableError, match="needs 'decision_id'"):
        list(read_log(tmp_path))


def test_dollars_of_today_are_those_of_answers_that_ended_today(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    for when, key, dollars in ((98.0, "a", 1.0), (99.8, "a", 2.0), (101.0, "a", 4.0), (102.0, "b", 8.0), (103.0, "b", 0.0)):
        log.write(record(time=when, key=key, dollars=dollars))
    log.close()
    assert spent_since(tmp_path, 100.0) == {"a": 6.0, "b": 8.0}


def test_a_log_needs_a_folder() -> None:
    with pytest.raises(ArgumentError, match="needs a folder"):
        DecisionLog(DecisionLogConfig())


def test_a_record_takes_some_tens_of_microseconds(tmp_path: Path) -> None:
    """The bound is far above the 17 microseconds measured on an idle core, for busy machines."""
    log = DecisionLog(DecisionLogConfig(tmp_path))
    start = time.thread_time()
    for _ in range(2000):
        log.write(_RECORD)
    seconds = (time.thread_time() - start) / 2000
    log.close()
    assert seconds < 150e-6


_RECORD = record()
