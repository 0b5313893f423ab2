from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges import unit_tests
from mildroute.judges.base import Verdict
from mildroute.judges.unit_tests import UnitTestJudge, plan_of, python_in
from tests.judges.tables import judge_of, label_of, query_of, table, verdict

CASES = table("unit_tests")
QUERY = Query("q", "Write f().", fields={"tests": "assert f() == 1"})
RIGHT = "def f():\n    return 1\n"


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """All cases at once: most of them wait for a process."""

    async def judged() -> list[Verdict]:
        return await asyncio.gather(*(judge_of("tests", case).judge(query_of(case), case["answer"]) for case in CASES))

    return asyncio.run(judged())


@pytest.fixture(scope="module")
def isolated() -> bool:
    return verdict(UnitTestJudge(require_isolation=True), QUERY, RIGHT).score == 1.0


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("index", range(len(CASES)), ids=[label_of(case) for case in CASES])
def test_code_passes_if_and_only_if_it_is_right(index: int, verdicts: list[Verdict]) -> None:
    assert verdicts[index].score == CASES[index]["score"], verdicts[index].reason
    assert verdicts[index].reason


def test_secrets_of_the_environment_do_not_reach_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    code = "import os, sys\nassert 'SOME_API_KEY' not in os.environ and '/nowhere' not in sys.path and 'mildroute' not in sys.modules\n"
    found = verdict(UnitTestJudge(), QUERY, code + RIGHT)
    assert found.score == 1.0, found.reason


def test_code_cannot_remove_or_change_files_outside_its_folder(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "file.txt"
    kept.parent.mkdir()
    kept.write_text("here")
    for attempt in (
        f"import shutil; shutil.rmtree({str(kept.parent)!r})",
        f"import os; os.remove({str(kept)!r})",
        f"import os, pathlib; os.remove(pathlib.Path({str(kept)!r}))",
        f"import os, pathlib; os.open(pathlib.Path({str(kept)!r}), os.O_RDWR)",
        f"import os; os.rename({str(kept)!r}, 'x')",
        f"open({str(kept)!r}, 'a').write('x')",
        f"import pathlib; pathlib.Path({str(kept)!r}).write_text('x')",
        f"import os; os.symlink({str(kept)!r}, 'link')",
        f"import os; os.close(os.open({str(kept)!r}, os.O_WRONLY | os.O_TRUNC))",
    ):
        found = verdict(UnitTestJudge(), QUERY, attempt + "\n" + RIGHT)
        assert found.score == 0.0
        assert "not allowed" in found.reason
    assert kept.read_text() == "here"


@pytest.mark.parametrize("path", ["/proc/self/environ", f"/proc/{os.getppid()}/environ", "/etc/passwd", __file__])
def test_code_cannot_open_files_that_are_none_of_its_business(path: str) -> None:
    found = verdict(UnitTestJudge(), QUERY, f"raise ValueError(open({path!r}, errors='replace').read())\n" + RIGHT)
    assert (found.score, found.reason) == (0.0, "PermissionError: open is not allowed outside the working folder")


def test_folders_that_are_too_deep_to_remove_do_not_break_the_judge() -> None:
    code = "import os\nfor _ in range(1500):\n    os.mkdir('a')\n    os.chdir('a')\n"
    assert verdict(UnitTestJudge(), QUERY, code + RIGHT).score in (0.0, 1.0)


@pytest.mark.parametrize(
    ("code", "score"),
    [
        (RIGHT, 1.0),
        (RIGHT.replace("1", "2"), 0.0),
        ("import os\nos._exit(0)", 0.0),
        ("import os\nos.fork()\n" + RIGHT, 0.0),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))\n" + RIGHT, 0.0),
        ("while True:\n    pass", 0.0),
        ("x = bytearray(8 * 1024**3)\n" + RIGHT, 0.0),
    ],
)
def test_all_but_the_namespaces_holds_where_the_kernel_allows_none(
    code: str, score: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    text = unit_tests._SCRIPT.read_text()
    assert "isolated = _isolate()" in text
    script.write_text(text.replace("isolated = _isolate()", "isolated = False"))
    monkeypatch.setattr(unit_tests, "_SCRIPT", script)
    assert verdict(UnitTestJudge(cpu_seconds=1), QUERY, code).score == score
    assert verdict(UnitTestJudge(require_isolation=True), QUERY, code).score is None


def test_nothing_is_left_behind_even_by_code_that_forks_past_python(isolated: bool, tmp_path: Path) -> None:
    if not isolated:
        pytest.skip("the kernel allows no namespaces here")
    mark = tmp_path / "mark"
    # opened before the fence stands in its way: a descriptor that the daemon writes to when it is still alive
    daemon = f"""
import ctypes, os, time
libc = ctypes.CDLL(None)
if libc.fork() == 0:
    libc.setsid()
    if libc.fork() == 0:
        time.sleep(0.4)
        fd = libc.open({str(mark)!r}.encode(), os.O_WRONLY | os.O_CREAT, 0o600)
        libc.write(fd, b"alive", 5)
    os._exit(0)
"""
    found = verdict(UnitTestJudge(), QUERY, daemon + RIGHT)
    assert found.score == 1.0
    time.sleep(0.05)
    assert not any("_sandbox_child" in command for command in _commands())
    assert not mark.exists()


def _commands() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_text())
    return found


def test_there_is_no_network_even_past_python(isolated: bool) -> None:
    if not isolated:
        pytest.skip("the kernel allows no namespaces here")
    code = "import os\nassert [name for _, name in __import__('socket').if_nameindex()] in ([], ['lo']), 'there are interfaces'\n"
    found = verdict(UnitTestJudge(), QUERY, code + RIGHT)
    assert found.score == 1.0, found.reason


def test_a_folder_full_of_files_is_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "for i in range(20):\n    open(f'{i}.txt', 'w').write('x')\n"
    assert verdict(UnitTestJudge(), QUERY, code + RIGHT).score == 1.0
    assert list(tmp_path.iterdir()) == []


def test_a_file_cannot_grow_without_end() -> None:
    code = "with open('big', 'wb') as file:\n    for _ in range(100):\n        file.write(b'x' * 10**6)\n"
    assert verdict(UnitTestJudge(), QUERY, code + RIGHT).score == 0.0


def test_too_little_memory_to_start_is_no_wrong_answer() -> None:
    found = verdict(UnitTestJudge(memory_mb=1), QUERY, RIGHT)
    assert found.score in (None, 0.0)
    assert found.score is None or "Memory" in found.reason


def test_many_answers_are_judged_at_once() -> None:
    async def judged() -> list[float | None]:
        judge = UnitTestJudge()
        texts = [RIGHT if number % 2 else RIGHT.replace("1", "2") for number in range(8)]
        return [found.score for found in await asyncio.gather(*(judge.judge(QUERY, text) for text in texts))]

    assert asyncio.run(judged()) == [0.0, 1.0] * 4


@pytest.mark.parametrize(
    "settings", [{"cpu_seconds": 0}, {"wall_seconds": 0}, {"wall_seconds": float("inf")}, {"memory_mb": 0}, {"preamble": "import"}]
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        UnitTestJudge(**settings)


@pytest.mark.parametrize(
    "tests",
    [
        "if __name__ == '__main__':\n    assert f() == 1",
        "def helper():\n    assert f() == 1",
        "class Helper:\n    def run(self):\n        assert f() == 1",
        "f()",
        "class TestF:\n    def setup_method(self):\n        pass\n    def test_f(self):\n        assert f()",
        "class TestF:\n    def test_f(self, tmp_path):\n        assert f()",
    ],
)
def test_tests_that_would_pass_whatever_the_code_does_are_refused(tests: str) -> None:
    with pytest.raises(ArgumentError, match=r"tests must|must take no arguments|must be plain"):
        plan_of(tests)


@pytest.mark.parametrize(
    ("tests", "code", "score"),
    [
        ("class TestF:\n    def test_f(self):\n        assert f() == 1", RIGHT, 1.0),
        ("class TestF:\n    def test_f(self):\n        assert f() == 2", RIGHT, 0.0),
        ("async def test_f():\n    assert f() == 1", RIGHT, 1.0),
        ("async def test_f():\n    assert f() == 2", RIGHT, 0.0),
        ("def helper():\n    assert f() == 2\nhelper()", RIGHT, 0.0),
        ("import unittest\nclass TestF(unittest.TestCase):\n    @unittest.skip('no')\n    def test_f(self):\n        pass", RIGHT, 0.0),
        ("from unittest import *\nclass TestF(IsolatedAsyncioTestCase):\n    async def test_f(self):\n        assert f() == 1", RIGHT, 1.0),
        ("from unittest import *\nclass TestF(IsolatedAsyncioTestCase):\n    async def test_f(self):\n        assert f() == 2", RIGHT, 0.0),
        ("import math\nassert math.isclose(f(), 1)\nassert isinstance(f(), int)", RIGHT, 1.0),
    ],
)
def test_all_usual_forms_of_tests_are_run(tests: str, code: str, score: float) -> None:
    found = verdict(UnitTestJudge(), Query("q", "?", fields={"tests": tests}), code)
    assert found.score == score, found.reason


def test_blocks_after_the_last_definition_that_is_needed_are_left_out() -> None:
    text = "```python\ndef f():\n    return 1\n```\n\nTry it:\n\n```python\nprint(f(input()))\n```"
    assert python_in(text, ["f"]) == ["def f():\n    return 1\n"]
    assert len(python_in(text)[0].splitlines()) == 4


def test_the_current_folder_stays_as_it_is() -> None:
    before = sorted(Path.cwd().iterdir())
    verdict(UnitTestJudge(), QUERY, "open('left.txt', 'w').close()\n" + RIGHT)
    assert sorted(Path.cwd().iterdir()) == before
