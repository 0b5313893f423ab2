from __future__ import annotations

import os
import stat
from dataclasses import fields
from pathlib import Path

import pytest

from mildroute.exceptions import TableError
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability import compaction as tidying
from mildroute.serving.observability.compaction import CompactionResult, compact_log, ship_log
from mildroute.serving.observability.decision_log import (
    DecisionLog,
    DecisionRecord,
    SpendLedger,
    read_log,
)
from mildroute.serving.observability.feedback import FeedbackLog, read_feedback
from serving.records import record


def filled(folder: Path) -> list[DecisionRecord]:
    written = [
        record(f"d{number}", text=None if number % 2 else "words", price_weight=None)
        for number in range(5)
    ]
    log, feedback = (
        DecisionLog(DecisionLogConfig(folder, log_prompts=True, rows_per_file=2)),
        FeedbackLog(DecisionLogConfig(folder)),
    )
    for each in written:
        log.write(each)
        feedback.write(each.decision_id, 0.5, "a")
    log.close()
    feedback.close()
    return written


def suffixes(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.rglob("[!.]*") if path.is_file())


def test_every_field_of_a_record_has_its_column() -> None:
    assert set(tidying._DECISIONS) == {field.name for field in fields(DecisionRecord)}


def test_tidied_files_read_as_before(tmp_path: Path) -> None:
    written = filled(tmp_path)
    spent, scores = SpendLedger.resume(tmp_path, 0.0).dollars, read_feedback(tmp_path)
    assert compact_log(tmp_path) == CompactionResult(files=4, rows=10, growing=0)
    assert suffixes(tmp_path) == [".parquet"] * 4
    assert list(read_log(tmp_path)) == written
    assert (SpendLedger.resume(tmp_path, 0.0).dollars, read_feedback(tmp_path)) == (spent, scores)
    assert compact_log(tmp_path) == CompactionResult(0, 0, 0)


def test_tables_and_sums_are_read_by_those_who_may_read_the_lines(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "decisions").chmod(0o755)
    lines = sorted((tmp_path / "decisions").glob("*.jsonl"))
    lines[0].chmod(0o600)
    compact_log(tmp_path)
    tables = sorted((tmp_path / "decisions").glob("*.parquet"))
    assert [stat.S_IMODE(table.stat().st_mode) for table in tables] == [0o600, 0o640, 0o640]
    ship_log(tmp_path, str(tmp_path / "shipped"))
    SpendLedger.resume(tmp_path, 0.0).save()
    for path in [*(tmp_path / "shipped").rglob("*.parquet"), *tmp_path.rglob("spend.json")]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640, path
    assert list(tmp_path.rglob("spend.json"))


def test_a_growing_file_is_left_alone_and_read_beside_tidied_ones(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path, rows_per_file=2))
    for number in range(3):
        log.write(record(f"d{number}"))
    assert compact_log(tmp_path) == CompactionResult(files=1, rows=2, growing=1)
    log.write(record("d3"))
    assert [each.decision_id for each in read_log(tmp_path)] == ["d0", "d1", "d2", "d3"]
    log.close()


def test_a_job_that_was_killed_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = filled(tmp_path)

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, kill)
            with pytest.raises(Killed):
                compact_log(tmp_path)
        assert list(read_log(tmp_path)) == written, name
    compact_log(tmp_path)
    assert list(read_log(tmp_path)) == written
    assert suffixes(tmp_path) == [".parquet"] * 4


def test_a_file_that_is_tidied_while_the_log_is_read_is_read_once(tmp_path: Path) -> None:
    written, found = filled(tmp_path), []
    for each in read_log(tmp_path):
        if not found:
            compact_log(tmp_path)
        found.append(each)
    assert found == written


def test_a_line_that_was_cut_off_is_not_carried_over(tmp_path: Path) -> None:
    written = filled(tmp_path)
    last = sorted((tmp_path / "decisions").iterdir())[-1]
    with last.open("ab") as file:
        file.write(b'{"decision_id":"half')
    compact_log(tmp_path)
    assert list(read_log(tmp_path)) == written


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    compact_log(tmp_path)
    path = sorted((tmp_path / "decisions").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TableError, match=f"{path.name} is not a readable Parquet file"):
        list(read_log(tmp_path))


def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is not a folder"):
        compact_log(tmp_path / "absent")
