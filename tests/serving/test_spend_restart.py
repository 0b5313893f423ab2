"""The day's dollars of keys after a restart, however the gateway ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mildroute.exceptions import TableError
from mildroute.serving.auth.limits import DAY
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability import decision_log
from mildroute.serving.observability.compaction import compact_log
from mildroute.serving.observability.decision_log import DecisionLog, SpendLedger
from tests.serving.records import record

TODAY = 20_000 * DAY
KILLED = """
import os, signal, sys
from pathlib import Path
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability import decision_log
from mildroute.serving.observability.decision_log import DecisionLog, SpendLedger
from tests.serving.records import record
decision_log._CHECKPOINT_SECONDS = 0.0
folder, today = Path(sys.argv[1]), float(sys.argv[2])
log = DecisionLog(DecisionLogConfig(folder, rows_per_file=30), SpendLedger.resume(folder, today))
for number in range(100):
    if number == 75:
        decision_log._CHECKPOINT_SECONDS = 1e9
    key = "a" if number % 4 else "b"
    log.write(record(f"d{number}", time=today + number, key=key, cost_usd=0.1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def write(folder: Path, count: int, *, time: float = TODAY, rows: int = 100_000) -> DecisionLog:
    config = DecisionLogConfig(folder, rows_per_file=rows)
    log = DecisionLog(config, SpendLedger.resume(folder, time // DAY * DAY))
    for number in range(count):
        log.write(record(f"d{number}", time=time, key="a", cost_usd=0.5))
    return log


def test_after_a_kill_the_sum_is_found_exactly_and_only_the_tail_is_read(tmp_path: Path) -> None:
    """100 lines in 4 files, a checkpoint at the 75th, kill -9.

    Before, the whole day's log was read. Now: 25 lines, and the sums are those of the 100.
    """
    dead = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(TODAY)], check=False)
    assert dead.returncode == -9
    saved = json.loads((tmp_path / "spend.json").read_text())
    assert sum(lines for _, lines in saved["counted"].values()) == 75
    # What the checkpoint has counted is not looked at again.
    for path in (tmp_path / "decisions").glob("*.jsonl"):
        end, _ = saved["counted"].get(path.stem, (0, 0))
        path.write_bytes(b"x" * end + path.read_bytes()[end:])
    found = SpendLedger.resume(tmp_path, TODAY)
    assert found.dollars == pytest.approx({"a": 7.5, "b": 2.5}, abs=1e-12)


def test_a_log_that_was_closed_needs_no_line(tmp_path: Path) -> None:
    write(tmp_path, 5).close()
    for path in (tmp_path / "decisions").iterdir():
        path.write_bytes(b"x" * path.stat().st_size)
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 2.5}


def test_files_that_were_tidied_meanwhile_count_once(tmp_path: Path) -> None:
    write(tmp_path, 5, rows=2).close()
    other = write(tmp_path, 3, rows=2)
    compact_log(tmp_path)
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 4.0}
    other.close()
    compact_log(tmp_path)
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 4.0}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"day": 1}', '{"day": 1728000000.0}'])
def test_without_a_sound_checkpoint_the_day_is_read(tmp_path: Path, content: str) -> None:
    write(tmp_path, 5).close()
    (tmp_path / "spend.json").write_text(content)
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 2.5}


def test_a_new_day_begins_at_zero_and_what_ends_late_belongs_to_its_own(tmp_path: Path) -> None:
    log = write(tmp_path, 5)
    log.write(record("d9", time=TODAY + DAY - 1, seconds=2.0, key="a", cost_usd=4.0))
    log.write(record("d10", time=TODAY, key="a", cost_usd=0.5))
    log.close()
    assert SpendLedger.resume(tmp_path, TODAY + DAY).dollars == {"a": 4.0}


def test_a_line_that_is_cut_off_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    log = write(tmp_path, 2)
    path = next((tmp_path / "decisions").iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 0.5}
    path.write_bytes(b"x\n" + content)
    with pytest.raises(TableError, match="a line must be one JSON object"):
        SpendLedger.resume(tmp_path, TODAY)
    log.close()


def test_a_checkpoint_is_written_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(tmp_path, 5)
    assert not (tmp_path / "spend.json").exists()
    monkeypatch.setattr(decision_log, "_CHECKPOINT_SECONDS", 0.0)
    log.write(record("d5", time=TODAY, key="b", cost_usd=1.0))
    assert json.loads((tmp_path / "spend.json").read_text())["dollars"] == {"a": 2.5, "b": 1.0}
    log.close()


def test_the_month_goes_on_over_days_and_restarts_and_ends(tmp_path: Path) -> None:
    """20,000 days after 1970 is the 4th of October 2024."""
    for day in range(3):
        write(tmp_path, 2, time=TODAY + day * DAY).close()
    found = SpendLedger.resume(tmp_path, TODAY + 3 * DAY)
    assert (found.dollars, found.month_dollars) == ({}, {"a": 3.0})
    (tmp_path / "spend.json").unlink()
    again = SpendLedger.resume(tmp_path, TODAY + 2 * DAY)
    assert (again.dollars, again.month_dollars) == ({"a": 1.0}, {"a": 3.0})
    later = SpendLedger.resume(tmp_path, TODAY + 40 * DAY)
    assert (later.dollars, later.month_dollars) == ({}, {})


def test_a_checkpoint_of_a_clock_that_was_fast_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path, 5).close()
    document = json.loads((tmp_path / "spend.json").read_text())
    (tmp_path / "spend.json").write_text(json.dumps(document | {"day": TODAY + DAY}))
    assert SpendLedger.resume(tmp_path, TODAY).dollars == {"a": 2.5}
