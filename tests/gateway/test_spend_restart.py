"""The day's dollars of keys after a restart, however the gateway ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mildroute.decision.days import DAY
from mildroute.decision.log import DecisionLog, dollars_of_today
from mildroute.exceptions import TableError
from mildroute.gateway.config import DecisionLogConfig
from tests.support.records import record

TODAY = 20_000 * DAY


def write(folder: Path, count: int, *, time: float = TODAY) -> Path:
    log = DecisionLog(DecisionLogConfig(folder, rows_per_file=30))
    for number in range(count):
        log.write(record(f"d{number}", time=time + number, key="ab"[number % 2], cost_usd=0.5))
    path = log._files.path
    log.close()
    return path


def test_the_dollars_of_today_are_summed_over_all_files(tmp_path: Path) -> None:
    write(tmp_path, 100)
    assert dollars_of_today(tmp_path, TODAY + 500) == {"a": 25.0, "b": 25.0}


def test_a_request_counts_for_the_day_in_which_it_ended(tmp_path: Path) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    log.write(record("yesterday", time=TODAY - 100, seconds=50.0, key="a", cost_usd=1.0))
    log.write(record("over midnight", time=TODAY - 10, seconds=50.0, key="a", cost_usd=2.0))
    log.close()
    assert dollars_of_today(tmp_path, TODAY + 60) == {"a": 2.0}


def test_files_of_earlier_days_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, 2, time=TODAY - DAY)
    path.write_text("not read\n" * 3)
    os.utime(path, (TODAY - 60, TODAY - 60))
    assert dollars_of_today(tmp_path, TODAY) == {}


def test_a_line_that_is_cut_off_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"cut')
    assert dollars_of_today(tmp_path, TODAY) == {"a": 0.5, "b": 0.5}
    path.write_bytes(b"{broken\n" + whole)
    with pytest.raises(TableError, match="put the file aside"):
        dollars_of_today(tmp_path, TODAY)


def test_a_log_that_is_not_there_has_spent_nothing(tmp_path: Path) -> None:
    assert dollars_of_today(tmp_path / "none", TODAY) == {}
