"""What crosses between code and its tests, which run in two processes."""

from __future__ import annotations

import asyncio

import pytest

from mildroute.experts.base import Query
from mildroute.judges._sandbox import available_sandbox
from mildroute.judges.base import Verdict
from mildroute.judges.unit_tests import UnitTestJudge

pytestmark = pytest.mark.skipif(
    available_sandbox() == "none",
    reason="neither bubblewrap nor Landlock works here, so no isolation at all is possible",
)

VALUES = """
import collections, datetime, decimal, fractions
def same(value): return value
Point = collections.namedtuple("Point", "x y")
def point(): return Point(1, 2)
"""
# name: code, tests, score
CASES = {
    "values": (
        VALUES,
        "import collections, datetime, decimal, fractions, math\n"
        "for value in (None, True, 1, 10**5000, 1.5, 'a\\ud800', b'\\x00\\xff', (1, (2,)),"
        " [1, [2]],"
        " {'a': {1: (2,)}}, {1, 2}, frozenset({1}), 2j, range(3), bytearray(b'a'),"
        " collections.deque([1], 3), collections.Counter('aab'), collections.OrderedDict(a=1),"
        " decimal.Decimal('1.10'), fractions.Fraction(1, 3), datetime.date(2020, 1, 2),"
        " datetime.datetime(2020, 1, 2, 3, 4, tzinfo=datetime.timezone.utc),"
        " datetime.timedelta(1, 2, 3), float('inf')):\n"
        "    assert same(value) == value and type(same(value)) is type(value), value\n"
        "assert math.isnan(same(math.nan)) and same(None) is None\n"
        "assert point() == (1, 2) and point().x == 1",
        1.0,
    ),
    "arguments that change": (
        "def change(rows, table, seen):\n    rows.sort()\n    rows[0].append(9)\n"
        "    table['a'] = 1\n    seen.add(3)\n",
        "inner = [1]\nrows, table, seen = [[2], inner], {}, set()\nchange(rows, table, seen=seen)\n"
        "assert rows == [[1, 9], [2]] and table == {'a': 1} and seen == {3}",
        1.0,
    ),
    "errors": (
        "class Own(ValueError):\n    pass\nclass Deeper(Own):\n    pass\n"
        "def fail(kind):\n    raise Deeper('why', 3) if kind else KeyError('k')",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        with self.assertRaises(Own) as caught:\n            fail(1)\n"
        "        assert caught.exception.args == ('why', 3) and 'why' in str(caught.exception)\n"
        "        with self.assertRaisesRegex(ValueError, 'why'):\n            fail(1)\n"
        "        with self.assertRaises(KeyError):\n            fail(0)\n",
        1.0,
    ),
    "callbacks": (
        "def twice(f, x):\n    return f(f(x))\ndef total(rows):\n    return sum(rows)\n"
        "def guarded(f):\n    try:\n        f()\n    except ZeroDivisionError:\n        return 'z'",
        "calls = []\ndef f(x):\n    calls.append(x)\n    return x + 1\n"
        "assert twice(f, 1) == 3 and calls == [1, 2]\nassert twice(abs, -1) == 1\n"
        "assert total(n for n in range(4)) == 6\nassert guarded(lambda: 1 / 0) == 'z'",
        1.0,
    ),
    "objects of the tests": (
        "def last(node):\n    while node.next:\n        node = node.next\n    node.seen = True\n"
        "    return node.value",
        "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n"
        "        self.next = next\nend = Node(2)\nassert last(Node(1, end)) == 2 and end.seen",
        1.0,
    ),
    "inner workings of the tests": (
        "def f(node):\n    try:\n        return str(node.method.__globals__)\n"
        "    except TypeError:\n        return 'refused'",
        "class Node:\n    def method(self):\n        pass\nassert f(Node()) == 'refused'",
        1.0,
    ),
    "classes": (
        "import dataclasses, enum\n@dataclasses.dataclass(order=True)\nclass Vector:\n    x: int\n"
        "    y: int = 0\n    def __add__(self, o):\n"
        "        return Vector(self.x + o.x, self.y + o.y)\n"
        "    def __mul__(self, n):\n        return Vector(self.x * n, self.y * n)\n"
        "    def __len__(self):\n        return 2\n    def __getitem__(self, i):\n"
        "        return (self.x, self.y)[i]\n    def __abs__(self):\n        return self.x\n"
        "class Color(enum.Enum):\n    RED = 1\n",
        "v = Vector(1, 2)\nassert v + Vector(2, y=3) == Vector(3, 5) and (v * 3).y == 6\n"
        "assert isinstance(v, Vector) and not isinstance(1, Vector) and v < Vector(2)\n"
        "assert len(v) == 2 and list(v) == [1, 2] and v[1] == 2 and 2 in v and abs(v) == 1\n"
        "v.x = 7\nassert v.x == 7 and repr(v) == 'Vector(x=7, y=2)' and v == v\n"
        "assert Color.RED == Color.RED and Color.RED.value == 1 and Color(1) is not None",
        1.0,
    ),
    "an object is no plain value": (
        "class X:\n    pass\ndef f():\n    return X()",
        "assert f() != 1 and not f() == 'x' and f() is not None",
        1.0,
    ),
    "generators and contexts": (
        "import contextlib\ndef count():\n    n = 0\n"
        "    while True:\n        yield n\n        n += 1\n"
        "@contextlib.contextmanager\ndef opened():\n    yield 5",
        "import itertools\nassert list(itertools.islice(count(), 3)) == [0, 1, 2]\n"
        "g = count()\nassert next(g) == 0 and next(g) == 1\nwith opened() as x:\n    assert x == 5",
        1.0,
    ),
    "printing and reading": (
        "def greet():\n    name = input('Who? ')\n    print('Hello', name)\n"
        "def lines():\n    import sys\n    return [line.strip() for line in sys.stdin]",
        "import contextlib, io, sys, unittest.mock as m\nout = io.StringIO()\n"
        "with m.patch('builtins.input', return_value='Ann'), contextlib.redirect_stdout(out):\n"
        "    greet()\nassert out.getvalue() == 'Hello Ann\\n'\n"
        "sys.stdin = io.StringIO('a\\nb\\n')\nassert lines() == ['a', 'b']",
        1.0,
    ),
    "numpy": (
        "import numpy as np\ndef f(a):\n    a[0] = 9\n    return a * 2\n"
        "def m(a):\n    return a.mean()",
        "import numpy as np\nassert np.array_equal(f(np.array([1, 2])), [18, 4])\n"
        "assert m(np.ones(3)) == 1.0 and f(np.zeros((2, 2))).shape == (2, 2)",
        1.0,
    ),
    "names that the answer imported": (
        "import math\nfrom collections import Counter\ndef f():\n    return Counter('aab')",
        "assert f() == Counter('aab') and math.isclose(1, 1)",
        1.0,
    ),
    "a built-in name that is asked for": (
        "def sum(a, b):\n    return a * b",
        "assert sum(3, 4) == 12",
        1.0,
    ),
    "patches of the answer": (
        "def load():\n    return 1\ndef f():\n    return load() + 1",
        "import unittest.mock as m\nwith m.patch('answer.load', lambda: 5):\n    assert f() == 6",
        1.0,
    ),
    "coroutines": (
        "async def add(a, b):\n    return a + b",
        "import asyncio\nasync def test_add():\n"
        "    assert await asyncio.gather(add(1, 2), add(3, 4))"
        " == [3, 7]",
        1.0,
    ),
    "a subclass of the answer's class": (
        "class Base:\n    pass",
        "class Mine(Base):\n    pass\nassert Mine()",
        None,
    ),
    "its own equality": (
        "class Money:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __eq__(self, other):\n        return True",
        "assert Money(5) == 7",
        None,
    ),
    "its own arithmetic": (
        "class add:\n    def __init__(self, *a):\n        pass\n    def __sub__(self, other):\n"
        "        return self\n    def __abs__(self):\n        return 0",
        "assert abs(add(1, 2) - 3) < 1e-9",
        None,
    ),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """All cases at once: most of them wait for a process."""

    async def judged() -> list[Verdict]:
        return await asyncio.gather(
            *(
                UnitTestJudge().judge(Query("q", "?", fields={"tests": tests}), code)
                for code, tests, _ in CASES.values()
            )
        )

    return dict(zip(CASES, asyncio.run(judged()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_values_cross_and_verdicts_do_not(name: str, verdicts: dict[str, Verdict]) -> None:
    assert verdicts[name].score == CASES[name][2], verdicts[name].reason
