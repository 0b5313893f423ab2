from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mildroute import _jsonl
from mildroute._files import lock_now
from mildroute._jsonl import JsonlWriter, check_log, log_part, read_rows
from mildroute.exceptions import ArgumentError, TableError


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def test_a_line_is_there_as_soon_as_append_returns(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path, rows=10)
    assert lines.append(b'{"a":1}')
    assert list(read_rows(tmp_path)) == [{"a": 1}]
    lines.close()


def test_a_new_file_begins_after_the_rows_and_the_order_is_kept(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path, rows=3)
    for number in range(8):
        lines.append(b'{"a":%d}' % number)
    lines.close()
    assert [path.read_bytes().count(b"\n") for path in files(tmp_path)] == [3, 3, 2]
    assert [row["a"] for row in read_rows(tmp_path)] == list(range(8))


def test_a_file_without_a_line_is_not_left_behind(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path, rows=1)
    lines.append(b"{}")
    lines.close()
    assert len(files(tmp_path)) == 1


def test_names_that_are_taken_are_passed_over(tmp_path: Path) -> None:
    one, other = (JsonlWriter(tmp_path, rows=10, clock=lambda: 5) for _ in range(2))
    one.append(b'{"a":1}')
    other.append(b'{"a":2}')
    assert sorted(row["a"] for row in read_rows(tmp_path)) == [1, 2]
    one.close()
    other.close()


@pytest.mark.parametrize("how", ["removed", "moved", "folder"])
def test_a_file_that_someone_takes_away_is_followed_by_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    folder = tmp_path / "log"
    lines = JsonlWriter(folder, rows=1000)
    lines.append(b'{"a":0}')
    old = lines.path
    if how == "removed":
        old.unlink()
    elif how == "moved":
        old.rename(folder / "old")
    else:
        shutil.rmtree(folder)
    number, end = 0, time.monotonic() + 10
    while lines.path == old:
        assert time.monotonic() < end
        number += 1
        assert lines.append(b'{"a":%d}' % number)
        time.sleep(0.05)
    lines.append(b'{"a":-1}')
    lines.close()
    assert [row["a"] for row in read_rows(folder)] == [number, -1]
    assert f"{old.name} was moved or removed" in caplog.text
    if how == "moved":
        assert (folder / "old").read_bytes().count(b"\n") == number


@pytest.mark.parametrize("tail", [b'{"a":', b'{"a":2}', b"\0\0\0\0", b"garbage\n", b"[1]\n"])
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "1-1.jsonl").write_bytes(b'{"a":1}\n' + tail)
    assert list(read_rows(tmp_path)) == [{"a": 1}]


def test_a_broken_line_before_others_is_an_error_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "1-1.jsonl").write_bytes(b'{"a":1}\nbroken\n{"a":2}\n')
    with pytest.raises(TableError, match=r"1-1\.jsonl:2: a line must be one JSON object"):
        list(read_rows(tmp_path))


def test_a_full_disk_loses_whole_lines_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, write = JsonlWriter(tmp_path, rows=100), os.write
    lines.append(b'{"a":1}')
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:4]))
    assert not lines.append(b'{"a":2}')

    def fail(file: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    assert not lines.append(b'{"a":3}')
    monkeypatch.setattr(os, "write", write)
    assert lines.append(b'{"a":4}')
    assert lines.lost == 2
    assert list(read_rows(tmp_path)) == [{"a": 1}, {"a": 4}]
    lines.close()


def test_a_warning_is_given_when_lines_begin_to_be_lost_and_not_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, write = JsonlWriter(tmp_path, rows=100), os.write

    def fail(file: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_jsonl, "_WARN_INTERVAL", 0.0)
    for told in (1, 2):
        monkeypatch.setattr(os, "write", fail)
        assert not any(lines.append(b"{}") for _ in range(3))
        assert [record.getMessage() for record in caplog.records] == [
            f"nothing can be written into {tmp_path}: No space left on device; lines are lost until"
            " it can"
        ] * told
        monkeypatch.setattr(os, "write", write)
        assert lines.append(b"{}")
    lines.close()


def test_a_piece_that_cannot_be_taken_back_ends_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, write = JsonlWriter(tmp_path, rows=100), os.write

    def fail(file: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:4]))
    monkeypatch.setattr(os, "ftruncate", fail)
    lines.append(b'{"a":2}')
    monkeypatch.setattr(os, "write", write)
    lines.append(b'{"a":3}')
    assert list(read_rows(tmp_path)) == [{"a": 3}]
    lines.close()


def test_what_is_appended_after_the_end_is_lost_and_reaches_no_other_file(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path / "log", rows=10)
    lines.append(b"{}")
    lines.close()
    lines.close()
    with (tmp_path / "other").open("wb") as other:
        assert not lines.append(b"{}")
        other.flush()
    assert (tmp_path / "other").read_bytes() == b""
    assert lines.lost == 1


def test_no_room_for_a_new_file_lets_the_old_one_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = JsonlWriter(tmp_path, rows=1)
    lines.append(b'{"a":1}')
    monkeypatch.setattr(
        JsonlWriter, "_open_file", lambda _: (_ for _ in ()).throw(OSError(28, "full"))
    )
    assert all(lines.append(b'{"a":%d}' % number) for number in (2, 3))
    monkeypatch.undo()
    assert [row["a"] for row in read_rows(tmp_path)] == [1, 2, 3]
    lines.close()


def can_lock(path: Path) -> bool:
    with path.open("rb") as file:
        return lock_now(file.fileno()) is True


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks")
def test_a_file_is_locked_while_its_writer_lives_and_free_after_its_death(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom mildroute._jsonl import JsonlWriter\nlines = JsonlWriter(sys.argv[1],"
        " rows=10)\nlines.append(b'{\"a\":1}')\nprint(lines.path,"
        " flush=True)\nsys.stdin.read()\nos.abort()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    path = Path(run.stdout.readline().strip())
    assert not can_lock(path)
    run.kill()
    run.communicate()
    assert list(read_rows(tmp_path)) == [{"a": 1}]
    assert can_lock(path)


def test_files_that_nobody_touched_since_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1-1.jsonl").write_bytes(b'{"a":1}\n')
    (tmp_path / "2-1.jsonl").write_bytes(b'{"a":2}\n')
    os.utime(tmp_path / "1-1.jsonl", (100, 100))
    assert list(read_rows(tmp_path, since=200.0)) == [{"a": 2}]


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="nothing can be written into"):
        JsonlWriter(tmp_path / "file", rows=10)
    with pytest.raises(ArgumentError, match="at least one line, got rows=0"):
        JsonlWriter(tmp_path, rows=0)


def test_a_disk_that_takes_some_lines_and_not_others_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, write = JsonlWriter(tmp_path, rows=100), os.write

    def fail_if_long(file: int, line: bytes) -> int:
        if len(line) > 10:
            raise OSError(28, "No space left on device")
        return write(file, line)

    monkeypatch.setattr(os, "write", fail_if_long)
    for _ in range(5):
        assert lines.append(b"{}")
        assert not lines.append(b'{"a":"long"}')
    monkeypatch.undo()
    assert lines.lost == 5
    assert len(caplog.records) == 1
    lines.close()


@pytest.mark.parametrize("how", ["moved", "removed", "hidden"])
def test_where_no_new_file_can_be_made_the_old_one_grows_on_if_it_is_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    lines = JsonlWriter(tmp_path, rows=100)
    lines.append(b'{"a":0}')
    old = lines.path
    if how == "moved":
        old = old.rename(tmp_path / "old")
    elif how == "removed":
        old.unlink()
    else:  # as in a folder whose permissions were changed

        def hide(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "stat", hide)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    lines._next_check = 0.0
    opened: list[float] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *_, **__: opened.append(0.0) or refuse())
    written = [lines.append(b'{"a":1}') is not None for _ in range(20)]
    monkeypatch.setattr(os, "open", real)
    monkeypatch.undo()
    assert len(opened) <= 2  # not for each line
    if how == "removed":
        assert not any(written)
        assert lines.lost == 20
    else:
        assert all(written)
        assert old.read_bytes().count(b"\n") == 21
    lines.close()


def test_a_line_is_booked_on_the_file_that_has_it(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path, rows=2)
    assert lines.append(b"{}") == (lines.path.stem, 3)
    full = lines.path
    assert lines.append(b"{}") == (full.stem, 6)  # a new one has begun since
    assert lines.path != full
    gone = lines.path
    gone.unlink()
    lines._next_check = 0.0
    assert lines.append(b"{}") == (lines.path.stem, 3)
    assert lines.path != gone
    lines.close()


def test_lines_of_a_folder_that_became_a_file_are_counted_as_lost(tmp_path: Path) -> None:
    lines = JsonlWriter(tmp_path / "log", rows=100)
    assert lines.append(b"{}")
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "log").write_text("")
    lines._next_check = 0.0
    assert not lines.append(b"{}")
    assert not lines.append(b"{}")
    assert lines.lost == 2
    lines.close()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_pattern_reads_the_folders_of_several_processes_oldest_file_first(
    tmp_path: Path, scheme: str
) -> None:
    for folder, name in [("a", "2"), ("b", "1"), ("b", "3"), ("other", "0")]:
        (tmp_path / folder / "decisions").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "decisions" / f"{name}.jsonl").write_text(f'{{"file": {name}}}\n')
    rows = read_rows(log_part(f"{scheme}{tmp_path}/[ab]*", "decisions"))
    assert [row["file"] for row in rows] == [1, 2, 3]


def test_a_pattern_that_matches_no_folder_is_refused(tmp_path: Path) -> None:
    check_log(tmp_path)
    with pytest.raises(TableError, match="is not a folder"):
        check_log(tmp_path / "no*")
