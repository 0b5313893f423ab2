from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.decision.export import costs_from_log
from mildroute.decision.log import DecisionLog, dollars_of_today, read_log
from mildroute.exceptions import ArgumentError, TableError
from mildroute.gateway.config import DecisionLogConfig
from tests.support.records import record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [
        record(f"d{number}", conversation="c", shadow="large", price_weight=2.5)
        for number in range(5)
    ]
    log = DecisionLog(DecisionLogConfig(tmp_path, rows_per_file=2))
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


@pytest.mark.parametrize("log_prompts", [False, True])
def test_texts_are_written_only_if_that_is_switched_on(tmp_path: Path, log_prompts: bool) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path, log_prompts=log_prompts))
    log.write(record(text="a private word"))
    log.close()
    content = b"".join(path.read_bytes() for path in (tmp_path / "decisions").iterdir())
    assert (b"private" in content) is log_prompts
    assert next(read_log(tmp_path)).text == ("a private word" if log_prompts else None)


def test_texts_with_line_breaks_and_halves_of_characters_stay_one_line(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path, log_prompts=True))
    log.write(record(text="a\nb\u2028c\0d\ud800e 🙂", model="\udfff"))
    log.close()
    (found,) = read_log(tmp_path)
    assert (found.text, found.model) == ("a\nb\u2028c\0d?e 🙂", "?")


def test_numbers_that_json_does_not_know_do_not_cost_the_line(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    log.write(record(posterior=(math.nan, 0.5), cost_usd=math.inf))
    log.close()
    (row,) = (tmp_path / "decisions").iterdir()
    assert json.loads(row.read_bytes(), parse_constant=lambda _: pytest.fail("not JSON"))[
        "posterior"
    ] == [None, 0.5]


def test_fields_of_another_version_do_not_hinder_reading(tmp_path: Path) -> None:
    row = asdict(record())
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "1-1.jsonl").write_text(
        json.dumps({name: value for name, value in row.items() if name != "shadow"} | {"new": 1})
        + "\n"
    )
    assert list(read_log(tmp_path)) == [record()]


def test_another_kind_of_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "1-1.jsonl").write_text('{"a":1}\n')
    with pytest.raises(TableError, match="needs 'decision_id'"):
        list(read_log(tmp_path))


OLD_NAMES = {"served_by": "answered", "selected": "chosen", "cost_usd": "dollars"}


@pytest.mark.parametrize("as_parquet", [False, True])
def test_a_log_of_an_earlier_version_is_refused(tmp_path: Path, as_parquet: bool) -> None:
    row = {OLD_NAMES.get(name, name): value for name, value in asdict(record()).items()}
    (tmp_path / "decisions").mkdir()
    if as_parquet:
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "decisions" / "1-1.parquet")
    else:
        (tmp_path / "decisions" / "1-1.jsonl").write_text(json.dumps(row) + "\n")
    for read in (
        lambda: list(read_log(tmp_path)),
        lambda: dollars_of_today(tmp_path, 0.0),
        lambda: costs_from_log(tmp_path),
    ):
        with pytest.raises(TableError, match="of an earlier version, whose logs cannot be read"):
            read()
    assert len(list((tmp_path / "decisions").iterdir())) == 1


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
