"""A redis-server of the test's own, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest


class RedisServer:
    """A process that keeps nothing on disk; it can be paused, killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            pytest.skip("needs redis-server or valkey-server; install it from the distribution")
        self._binary = binary
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._folder), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen([*command, *self._options], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not self._is_listening():
            assert time.monotonic() < end, "redis-server did not start"
            time.sleep(0.01)

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def cli(self, *command: str) -> None:
        """Send one command, and wait for its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            parts = "".join(f"${len(part)}\r\n{part}\r\n" for part in command)
            link.sendall(f"*{len(command)}\r\n{parts}".encode())
            assert link.recv(100).startswith(b"+OK")
