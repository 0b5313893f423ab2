"""Code that attacks the unit-test judge, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mildroute
from mildroute.experts.base import Query
from mildroute.judges import unit_tests
from mildroute.judges._sandbox import sandbox_works
from mildroute.judges.unit_tests import UnitTestJudge
from tests.judges.attacks import BREAKOUTS, breakout
from tests.judges.tables import verdict

ROOT = Path(__file__).parents[2]
QUERY = Query("q", "Write f().", fields={"tests": "assert f() == 1"})
RIGHT = "def f():\n    return 1\n"
# Not shown to work unconfined: they would hit this very process.
VIOLENT = ("kills the collector", "limits of the collector", "200 forks by ctypes")
NEEDING_ROOT = ("is root", "memory of the collector", "new namespaces")

pytestmark = pytest.mark.skipif(
    not sandbox_works(), reason="bubblewrap is not installed, or the kernel refuses namespaces"
)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that every user may read and write, if nothing but its mode decides."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    (folder / "secret").write_text("the secret")
    (folder / "secret").chmod(0o666)
    yield folder
    shutil.rmtree(folder)


class Listener:
    """A port of this machine that counts who connects."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.hits = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                self.server.accept()[0].close()
            except OSError:
                return
            self.hits += 1


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.server.close()


def as_ordinary_user(command: list[str]) -> list[str]:
    """The command as user 65534, who finds Python and this package even below ``/root``."""
    if os.geteuid() != 0:
        return command
    needed = [sys.prefix, sys.base_prefix, str(Path(mildroute.__file__).parents[1]), str(ROOT)]
    shown = [path for path in dict.fromkeys(needed) if not reachable_by_all(path)]
    tops = {"/" + Path(path).parts[1] for path in shown}
    steps = ["set -e", "kept=$(mktemp -d)"]
    for number, path in enumerate(shown):
        steps += [f"mkdir $kept/{number}", f"mount --bind {shlex.quote(path)} $kept/{number}"]
    steps += [f"mount -t tmpfs -o mode=755 tmpfs {top}" for top in tops]
    for number, path in enumerate(shown):
        steps += [f"mkdir -p {shlex.quote(path)}"]
        steps += [f"mount --bind $kept/{number} {shlex.quote(path)}"]
    user = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    steps.append(f"exec {user} {shlex.join(command)}")
    return ["unshare", "--mount", "sh", "-c", "\n".join(steps)]


def reachable_by_all(path: str) -> bool:
    return all(folder.stat().st_mode & 1 for folder in (Path(path), *Path(path).parents))


def attacked(user: str, options: list[str], folder: Path, port: int) -> dict[str, Any]:
    script = str(Path(__file__).with_name("attacks.py"))
    command = [sys.executable, script, str(folder), str(port), *options]
    source = Path(mildroute.__file__).parents[1]
    done = subprocess.run(
        as_ordinary_user(command) if user == "ordinary" else command,
        capture_output=True,
        text=True,
        timeout=500,
        cwd="/",
        env={
            "SOME_API_KEY": "KEY of the experts",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no mount namespace to show Python to another user in: {done.stderr[:200]}")
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_no_attack_succeeds(user: str, outside: Path, listener: Listener) -> None:
    if user == "root" and os.geteuid() != 0:
        pytest.skip("needs root, and the other user is the one that runs these tests")
    # Who runs it matters little to a fake.
    with_fakes = user == "ordinary"
    found = attacked(user, ["--with-fakes"] if with_fakes else [], outside, listener.port)
    broken = {name: said for name, said in found.items() if name in BREAKOUTS and said[0] != 1.0}
    assert broken == {}
    fakes = {name: said for name, said in found.items() if name not in BREAKOUTS}
    assert len(fakes) > 20 or not with_fakes
    assert {name: said for name, said in fakes.items() if said[0] == 1.0} == {}
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "the secret"
    assert listener.hits == 0


@pytest.mark.parametrize("name", [name for name in BREAKOUTS if name not in VIOLENT])
def test_the_attacks_work_where_nothing_stops_them(
    name: str, outside: Path, listener: Listener, tmp_path: Path
) -> None:
    if name in NEEDING_ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    code = breakout(BREAKOUTS[name], str(outside), listener.port)
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        lines = code.split("\n")
        lines[0] = f"OUTSIDE, PORT, PARENT = {str(outside)!r}, {listener.port}, {victim.pid}"
        command = [sys.executable, "-c", "\n".join(lines) + "\nprint(f())"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    finally:
        victim.kill()
        victim.communicate()
    assert done.stdout.strip() not in ("", "None"), done.stderr


FILES = """
for number in range(20):
    with open(f"{number}", "wb") as file:
        file.write(bytes(10_000_000))
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (FILES, ""),
        ("x = bytearray(3 << 30)", "MemoryError"),
        ("open('big', 'wb').write(bytes(20_000_000))", ""),
        ("files = [open(str(number), 'w') for number in range(100)]", "Too many open files"),
        ("while True:\n    pass", "ended before"),
    ],
)
def test_what_code_uses_is_limited(code: str, reason: str) -> None:
    found = verdict(UnitTestJudge(cpu_seconds=1), QUERY, f"{code}\n{RIGHT}")
    assert found.score == 0.0
    assert reason in found.reason


def test_a_right_answer_passes_and_a_wrong_one_does_not() -> None:
    assert verdict(UnitTestJudge(), QUERY, RIGHT).score == 1.0
    assert verdict(UnitTestJudge(), QUERY, RIGHT.replace("1", "2")).score == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "import sqlite3\nsqlite3.connect('own.db').execute('create table t (x)')",
        "import tempfile, shutil\nshutil.rmtree(tempfile.mkdtemp())",
        "import os\nos.mkdir('a'); os.rename('a', 'b'); os.rmdir('b')",
        "import threading\nt = threading.Thread(target=print); t.start(); t.join()",
        "import asyncio\nasyncio.run(asyncio.sleep(0.01))",
        "import numpy\nassert numpy.linalg.inv(numpy.eye(3)).sum() == 3",
        "import uuid, random, secrets, decimal, zoneinfo\nuuid.uuid4(), secrets.token_hex()",
        "import concurrent.futures as c\nassert c.ThreadPoolExecutor(2).submit(len, 'a').result()",
    ],
)
def test_honest_code_has_what_it_needs(code: str) -> None:
    found = verdict(UnitTestJudge(), QUERY, f"{code}\n{RIGHT}")
    assert found.score == 1.0, found.reason


def test_without_a_sandbox_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_tests, "sandbox_works", lambda: False)
    judge = UnitTestJudge()
    found = verdict(judge, QUERY, RIGHT)
    assert found.score is None
    assert "install bubblewrap" in found.reason
    assert judge.missing_fields(QUERY) == found.reason
    assert verdict(UnitTestJudge(allow_unsandboxed=True), QUERY, RIGHT).score == 1.0


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, threading, time\nthreading.Thread(target=lambda: time.sleep(99)).start()\n"
        "for i in range(20):\n    open(f'{i}.txt', 'w').write('x')\n"
    )
    found = verdict(UnitTestJudge(), QUERY, code + RIGHT)
    assert found.score == 1.0, found.reason
    assert list(tmp_path.iterdir()) == []
    commands = [
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_ours(path)
    ]
    assert not any(b"_test_runner" in command for command in commands)


def _is_ours(cmdline: Path) -> bool:
    """Whether a process is a descendant of this one, which may run beside other tests."""
    try:
        status = (cmdline.parent / "stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[1] == str(os.getpid())
