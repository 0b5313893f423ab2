"""Answers that attack the judge which runs them; a process of its own runs all of them.

``python attacks.py <folder> <port>`` prints, as JSON, the verdict on each. With ``--with-fakes`` it
also judges answers that fake a pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mildroute.experts.base import Query
from mildroute.judges.unit_tests import UnitTestJudge

# Each is the body of a function that returns what it got hold of; an error, or none, is harmless.
BREAKOUTS = {
    "sqlite3 writes outside": """
        import sqlite3
        base = sqlite3.connect(OUTSIDE + "/written.db")
        base.execute("create table t (x)")
        base.commit()
        return "written"
    """,
    "fork_exec runs a shell": """
        import _posixsubprocess, os, sys
        reading, writing = os.pipe()
        command = f"cat {OUTSIDE}/secret; echo x > {OUTSIDE}/written"
        arguments = [[b"/bin/sh", b"-c", command.encode()], [b"/bin/sh"], True, (), None, None]
        arguments += [-1, -1, -1, writing, -1, -1, *os.pipe(), False, False]
        # the arguments that Python 3.11 and later take
        arguments += [-1, None, None, None, -1, None, False]
        _posixsubprocess.fork_exec(*arguments)
        os.close(writing)
        return os.read(reading, 100).decode()
    """,
    "ctypes reads a file": """
        import ctypes
        libc = ctypes.CDLL(None)
        buffer = ctypes.create_string_buffer(100)
        if libc.read(libc.open((OUTSIDE + "/secret").encode(), 0), buffer, 99) > 0:
            return buffer.value.decode()
    """,
    "ctypes writes a file": """
        import ctypes
        file = ctypes.CDLL(None).open((OUTSIDE + "/written").encode(), 0o1101, 0o666)
        return "written" if file >= 0 else None
    """,
    "ctypes runs a shell": """
        import ctypes
        if ctypes.CDLL(None).system(f"echo x > {OUTSIDE}/written".encode()) == 0:
            return "ran"
    """,
    "key of the collector": """
        import os
        for process in (PARENT, os.getppid(), *range(max(PARENT - 20, 1), PARENT + 20)):
            for name in ("environ", "cmdline", "mem", "maps"):
                try:
                    with open(f"/proc/{process}/{name}", "rb") as file:
                        found = file.read(10000)
                except OSError:
                    continue
                if b"KEY" in found or (found and process == PARENT):
                    return "read " + name
        if "SOME_API_KEY" in os.environ:
            return "environment"
    """,
    "memory of the collector": """
        import ctypes
        libc = ctypes.CDLL(None)
        if libc.ptrace(16, PARENT, 0, 0) == 0:
            return "attached"
        number = 310 if __import__("platform").machine() == "x86_64" else 270
        space = ctypes.create_string_buffer(64)
        vector = (ctypes.c_size_t * 2)(ctypes.addressof(space), 8)
        if libc.syscall(number, PARENT, vector, 1, vector, 1, 0) > 0:
            return "read"
    """,
    "network by ctypes": """
        import ctypes, struct
        libc = ctypes.CDLL(None)
        address = struct.pack("<H", 2) + struct.pack(">H", PORT) + bytes([127, 0, 0, 1]) + bytes(8)
        if libc.connect(libc.socket(2, 1, 0), address, 16) == 0:
            return "connected"
    """,
    "network by Python": """
        import socket
        socket.create_connection(("127.0.0.1", PORT), 2)
        return "connected"
    """,
    "a datagram": """
        import socket
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.connect(("127.0.0.1", PORT))
            return "opened"
    """,
    "lists a folder": """
        import os
        return str(os.listdir(OUTSIDE))
    """,
    "lists the root": """
        import os
        if {"home", "root", "etc", "var"} <= set(os.listdir("/")):
            return "listed"
    """,
    "lists processes": """
        import os
        return str([name for name in os.listdir("/proc") if name.isdigit()])
    """,
    "200 forks by ctypes": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        children = 0
        for _ in range(200):
            child = libc.fork()
            if child == 0:
                __import__("time").sleep(30)
                os._exit(0)
            children += child > 0
        return str(children) if children else None
    """,
    "open /etc/passwd": "return open('/etc/passwd').read()",
    "open a secret": "return open(OUTSIDE + '/secret').read()",
    "symbolic link": """
        import os
        os.symlink(OUTSIDE + "/secret", "link")
        return open("link").read()
    """,
    "hard link": """
        import os
        os.link(OUTSIDE + "/secret", "link")
        return open("link").read()
    """,
    "rename": """
        import os
        os.rename(OUTSIDE + "/secret", OUTSIDE + "/written")
        return "renamed"
    """,
    "remove": """
        import os
        os.remove(OUTSIDE + "/secret")
        return "removed"
    """,
    "truncate": """
        import os
        os.truncate(OUTSIDE + "/secret", 0)
        return "truncated"
    """,
    "change permissions": """
        import os
        os.chmod(OUTSIDE + "/secret", 0o777)
        return "changed"
    """,
    "folder descriptor": """
        import os
        return str(os.open("secret", os.O_RDONLY, dir_fd=os.open(OUTSIDE, os.O_RDONLY)))
    """,
    "change of folder": """
        import os
        os.chdir(OUTSIDE)
        return open("secret").read()
    """,
    "out of its folder": """
        import os
        return str(os.listdir("../..")) if "secret" in os.listdir(OUTSIDE) else None
    """,
    "kills the collector": """
        import ctypes
        return "killed" if ctypes.CDLL(None).kill(PARENT, 9) == 0 else None
    """,
    "limits of the collector": """
        import resource
        resource.prlimit(PARENT, resource.RLIMIT_CPU, (1, 1))
        return "limited"
    """,
    "new namespaces": """
        import ctypes
        return "unshared" if ctypes.CDLL(None).unshare(0x10000000) == 0 else None
    """,
    "is root": """
        import os
        return "root" if 0 in os.getresuid() + os.getresgid() else None
    """,
}
# Each defines f, which should return 1 and does not know it.
FAKES = {
    "walks frames": """
        import gc, os, sys
        def f():
            frame = sys._getframe()
            while frame:
                for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
                    if callable(value) and getattr(value, "__name__", "") in ("say", "report"):
                        value(passed=True)
                    if isinstance(value, dict) and "tests" in value:
                        return 1
                frame = frame.f_back
            for value in gc.get_objects():
                if isinstance(value, str) and "assert f() ==" in value:
                    return 1
            for number in range(100):
                try:
                    os.write(number, b'\\n{"passed": true}\\n')
                except OSError:
                    pass
            os._exit(0)
    """,
    "forges a message": """
        import gc, json, os
        def f():
            tokens = [""]
            for value in gc.get_objects():
                if isinstance(value, dict) and isinstance(value.get("token"), str):
                    tokens.append(value["token"])
            for token in tokens:
                for number in range(100):
                    try:
                        os.write(number, json.dumps({"token": token, "passed": True}).encode())
                    except OSError:
                        pass
            os._exit(0)
    """,
    "equals everything": """
        class f:
            __eq__ = lambda self, other: True
            __hash__ = None
    """,
    "equals everything, from a function": """
        class X:
            __eq__ = __lt__ = __le__ = __ge__ = lambda self, other: True
            __ne__ = lambda self, other: False
            __sub__ = __rsub__ = lambda self, other: 0
            __hash__ = None
        f = lambda: X()
    """,
    "brings its own built-ins": """
        import builtins
        abs = lambda value: 0
        builtins.abs = abs
        f = lambda: 5
    """,
    "skips the test": """
        import unittest
        def f():
            raise unittest.SkipTest("no")
    """,
    "ends before its tests": """
        import os
        def f():
            os._exit(0)
    """,
    "a value that is a global name": """
        import gc
        def f():
            return [exec, eval, gc.get_objects][0]
    """,
}
ENDING = ("walks frames", "forges a message", "ends before its tests")
TESTS = {
    "statement": "assert f() == 1",
    "difference": "assert abs(f() - 1) < 1e-9",
    # tests that forgive every error do not forgive the end of the process
    "bare except": "try:\n    f()\nexcept:\n    pass\nassert True",
    "unittest": (
        "import unittest\nclass Tests(unittest.TestCase):\n    def test_f(self):\n       "
        " self.assertEqual(f(), 1)\n    def test_g(self):\n        pass"
    ),
}


def breakout(body: str, folder: str, port: int) -> str:
    lines = [line.removeprefix("    ") for line in body.strip("\n").split("\n")]
    inside = "\n".join(f"    {line}" for line in lines)
    return (
        f"OUTSIDE, PORT, PARENT = {folder!r}, {port}, {os.getpid()}\ndef attack():\n{inside}\n"
        "def f():\n    try:\n        return attack()\n    except (OSError, AttributeError) as e:\n"
        "        return None\n    except Exception as error:\n"
        "        return None if 'unable to open' in str(error) else repr(error)\n"
    )


async def main(folder: str, port: int, *, with_fakes: bool) -> dict[str, object]:
    judge, places = UnitTestJudge(wall_seconds=60), asyncio.Semaphore(2)

    async def judged(tests: str, text: str) -> list[object]:
        async with places:
            found = await judge.judge(Query("q", "?", fields={"tests": tests}), text)
        return [found.score, found.reason]

    names, works = [], []
    for name, body in BREAKOUTS.items():
        names.append(name)
        works.append(judged("assert f() is None, f()", breakout(body, folder, port)))
    for name, body in FAKES.items() if with_fakes else ():
        for kind, tests in TESTS.items():
            if kind == "bare except" and name not in ENDING:
                continue
            names.append(f"{name}: {kind}")
            code = "\n".join(line.removeprefix("        ") for line in body.split("\n"))
            works.append(judged(tests, code))
    verdicts = await asyncio.gather(*works)
    return dict(zip(names, verdicts, strict=True))


if __name__ == "__main__":
    with_fakes = "--with-fakes" in sys.argv
    found = asyncio.run(main(sys.argv[1], int(sys.argv[2]), with_fakes=with_fakes))
    sys.stdout.write(json.dumps(found))
