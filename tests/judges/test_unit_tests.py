from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_code import find_python
from mildroute.judges._sandbox import sandbox_works
from mildroute.judges._test_plan import plan_tests
from mildroute.judges.base import Verdict
from mildroute.judges.unit_tests import UnitTestJudge
from tests.judges.tables import judge_of, label_of, query_of, table, verdict

CASES = table("unit_tests")
QUERY = Query("q", "Write f().", fields={"tests": "assert f() == 1"})
RIGHT = "def f():\n    return 1\n"
pytestmark = pytest.mark.skipif(
    not sandbox_works(), reason="bubblewrap is not installed, or the kernel refuses namespaces"
)


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """All cases at once: most of them wait for a process."""

    async def judged() -> list[Verdict]:
        return await asyncio.gather(
            *(judge_of("tests", case).judge(query_of(case), case["answer"]) for case in CASES)
        )

    return asyncio.run(judged())


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
    code = (
        "import os, sys\nassert 'SOME_API_KEY' not in os.environ and '/nowhere' not in sys.path and"
        " sys.modules.get('mildroute') is None\n"
    )
    found = verdict(UnitTestJudge(), QUERY, code + RIGHT)
    assert found.score == 1.0, found.reason


def test_folders_that_are_too_deep_to_remove_do_not_break_the_judge() -> None:
    code = "import os\nfor _ in range(1500):\n    os.mkdir('a')\n    os.chdir('a')\n"
    assert verdict(UnitTestJudge(), QUERY, code + RIGHT).score in (0.0, 1.0)


def test_too_little_memory_is_told() -> None:
    code = "data = [str(number) for number in range(100_000)]\n"
    found = verdict(UnitTestJudge(memory_mb=1), QUERY, code + RIGHT)
    assert found.score in (None, 0.0)
    assert "emory" in found.reason


def test_many_answers_are_judged_at_once() -> None:
    async def judged() -> list[float | None]:
        judge = UnitTestJudge()
        texts = [RIGHT if number % 2 else RIGHT.replace("1", "2") for number in range(8)]
        return [
            found.score
            for found in await asyncio.gather(*(judge.judge(QUERY, text) for text in texts))
        ]

    assert asyncio.run(judged()) == [0.0, 1.0] * 4


@pytest.mark.parametrize(
    "settings",
    [
        {"cpu_seconds": 0},
        {"wall_seconds": 0},
        {"wall_seconds": float("inf")},
        {"memory_mb": 0},
        {"preamble": "import"},
    ],
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
        (
            "class TestF:\n    def setup_method(self):\n        pass\n    def test_f(self):\n      "
            "  assert f()"
        ),
        "class TestF:\n    def test_f(self, tmp_path):\n        assert f()",
    ],
)
def test_tests_that_would_pass_whatever_the_code_does_are_refused(tests: str) -> None:
    with pytest.raises(ArgumentError, match=r"tests must|must take no arguments|must be plain"):
        plan_tests(tests)


@pytest.mark.parametrize(
    ("tests", "code", "score"),
    [
        ("class TestF:\n    def test_f(self):\n        assert f() == 1", RIGHT, 1.0),
        ("class TestF:\n    def test_f(self):\n        assert f() == 2", RIGHT, 0.0),
        ("async def test_f():\n    assert f() == 1", RIGHT, 1.0),
        ("async def test_f():\n    assert f() == 2", RIGHT, 0.0),
        ("def helper():\n    assert f() == 2\nhelper()", RIGHT, 0.0),
        (
            (
                "import unittest\nclass TestF(unittest.TestCase):\n    @unittest.skip('no')\n   "
                " def test_f(self):\n        pass"
            ),
            RIGHT,
            0.0,
        ),
        (
            (
                "from unittest import *\nclass TestF(IsolatedAsyncioTestCase):\n    async def"
                " test_f(self):\n        assert f() == 1"
            ),
            RIGHT,
            1.0,
        ),
        (
            (
                "from unittest import *\nclass TestF(IsolatedAsyncioTestCase):\n    async def"
                " test_f(self):\n        assert f() == 2"
            ),
            RIGHT,
            0.0,
        ),
        ("import math\nassert math.isclose(f(), 1)\nassert isinstance(f(), int)", RIGHT, 1.0),
    ],
)
def test_all_usual_forms_of_tests_are_run(tests: str, code: str, score: float) -> None:
    found = verdict(UnitTestJudge(), Query("q", "?", fields={"tests": tests}), code)
    assert found.score == score, found.reason


def test_blocks_after_the_last_definition_that_is_needed_are_left_out() -> None:
    text = "```python\ndef f():\n    return 1\n```\n\nTry it:\n\n```python\nprint(f(input()))\n```"
    assert find_python(text, ["f"]) == ["def f():\n    return 1\n"]
    assert len(find_python(text)[0].splitlines()) == 4


def test_the_current_folder_stays_as_it_is() -> None:
    before = sorted(Path.cwd().iterdir())
    verdict(UnitTestJudge(), QUERY, "open('left.txt', 'w').close()\n" + RIGHT)
    assert sorted(Path.cwd().iterdir()) == before


def test_the_process_knows_this_package_by_no_name() -> None:
    assert verdict(UnitTestJudge(), QUERY, "import mildroute\n" + RIGHT).score == 0.0


MONEY = """class Money:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return True
"""
VECTOR = """import dataclasses
@dataclasses.dataclass(order=True)
class Vector:
    x: int
    y: int = 0
    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, n):
        return Vector(self.x * n, self.y * n)
    def __abs__(self):
        return self.x
"""


@pytest.mark.parametrize(
    ("code", "tests", "score"),
    [
        (MONEY, "assert Money(5) == 7", None),
        (
            "class add:\n    def __init__(self, *a):\n        pass\n    def __sub__(self, other):\n"
            "        return self\n    def __abs__(self):\n        return 0",
            "assert abs(add(1, 2) - 3) < 1e-9",
            None,
        ),
        (
            VECTOR,
            "v = Vector(1, 2)\nassert v + Vector(2, y=3) == Vector(3, 5) and (v * 3).y == 6\n"
            "assert isinstance(v, Vector) and v < Vector(2) and abs(v) == 1 and v != 1",
            1.0,
        ),
        ("class Base:\n    pass", "class Mine(Base):\n    pass\nassert Mine()", 1.0),
        ("def sum(a, b):\n    return a * b", "assert sum(3, 4) == 12", 1.0),
        (
            "def load():\n    return 1\ndef f():\n    return load() + 1",
            "from unittest.mock import patch\nwith patch('answer.load', lambda: 5):\n"
            "    assert f() == 6",
            1.0,
        ),
        (
            "def greet():\n    print('Hello', input('Who? '))",
            "import contextlib, io, unittest.mock as m\nout = io.StringIO()\n"
            "with m.patch('builtins.input', return_value='Ann'), contextlib.redirect_stdout(out):\n"
            "    greet()\nassert out.getvalue() == 'Hello Ann\\n'",
            1.0,
        ),
        (
            "import numpy as np\ndef f(a):\n    a[0] = 9\n    return a * 2",
            "import numpy as np\nassert np.array_equal(f(np.array([1, 2])), [18, 4])",
            1.0,
        ),
    ],
)
def test_objects_of_the_answer_do_not_decide_comparisons_with_plain_values(
    code: str, tests: str, score: float | None
) -> None:
    found = verdict(UnitTestJudge(), Query("q", "?", fields={"tests": tests}), code)
    assert found.score == score, found.reason
