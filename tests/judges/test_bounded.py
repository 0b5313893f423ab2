from __future__ import annotations

import time
from pathlib import Path

import pytest

from mildroute.judges._sandbox import run_script


def script(folder: Path, code: str) -> Path:
    path = folder / "script.py"
    path.write_text(code)
    return path


def test_what_a_script_writes_is_cut_off(tmp_path: Path) -> None:
    finished = run_script(script(tmp_path, "print('x' * 10**6)"), {}, 30.0, folder=str(tmp_path))
    assert finished.code == 0
    assert finished.output == b"x" * (1 << 16)


def test_a_script_that_sleeps_is_ended_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\ntime.sleep(60)"
    start = time.monotonic()
    finished = run_script(script(tmp_path, code), {}, 1.0, folder=str(tmp_path))
    assert finished.timed_out
    assert finished.code == -9
    assert time.monotonic() - start < 20


def test_a_child_that_keeps_the_output_open_keeps_nobody_waiting(tmp_path: Path) -> None:
    code = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\nprint('done')"
    start = time.monotonic()
    finished = run_script(script(tmp_path, code), {}, 30.0, folder=str(tmp_path))
    assert (finished.output, finished.timed_out) == (b"done\n", False)
    assert time.monotonic() - start < 20


def test_a_script_sees_nothing_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    finished = run_script(script(tmp_path, "import os\nprint('SOME_API_KEY' in os.environ)"), {}, 30.0, folder=str(tmp_path))
    assert finished.output == b"False\n"


def test_lone_surrogates_reach_the_script(tmp_path: Path) -> None:
    code = "import json, sys\nprint(ascii(json.load(sys.stdin)['text']))"
    assert run_script(script(tmp_path, code), {"text": "\ud800"}, 30.0, folder=str(tmp_path)).output == b"'\\ud800'\n"
