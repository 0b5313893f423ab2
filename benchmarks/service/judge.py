"""Sends hostile requests and judges what comes back.

Statuses, time, and secrets that must not be told.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from attack import Attack

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_JSON = re.compile(rb"(?i)\r\ncontent-type: application/json")
_INJECTED = re.compile(rb"(?im)^x-injected")


class Canary(threading.Thread):
    """A server that nobody may call."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port, self.calls = int(self._server.getsockname()[1]), 0
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.calls += 1
            connection.close()

    def close(self) -> None:
        # To shut it down is what wakes a thread that accepts.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.join(5)


class Judge:
    """Counts requests and faults.

    Args:
        port: Of the gateway.
        secrets: What must not be told, by name.
        seconds: In which every connection must have ended.

    Attributes:
        requests: Requests so far.
        statuses: Of first answers; 0 where there was none.
        faults: What should not have happened.
        examples: One for each.
        slowest: Seconds of the longest request.
    """

    def __init__(self, port: int, secrets: dict[str, bytes], seconds: float) -> None:
        self._port, self._secrets, self._seconds = port, secrets, seconds
        self.requests, self.slowest = 0, 0.0
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def try_all(self, attacks: Iterable[Attack]) -> None:
        for attack in attacks:
            self.try_one(attack)

    def try_one(self, attack: Attack) -> bytes:
        """Send it, and read until the connection ends or the server is done."""
        begun = time.monotonic()
        answer, has_ended = exchange(self._port, attack.data, self._seconds)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.requests += 1
        if not has_ended:
            self.blame("connections that hang", attack, answer)
        self._judge(attack, answer)
        return answer

    def _judge(self, attack: Attack, answer: bytes) -> None:
        statuses = [int(status) for status in _STATUS.findall(answer)]
        self.statuses[statuses[0] if statuses else 0] += 1
        if 500 in statuses:
            self.blame("answers with 500", attack, answer)
        elif any(status > 500 and status not in attack.allowed for status in statuses):
            self.blame("answers with another 5xx", attack, answer)
        elif statuses and statuses[0] not in attack.allowed:
            self.blame("answers with a status that should not be", attack, answer)
        if len(statuses) > attack.most:
            self.blame("more answers than requests", attack, answer)
        if _INJECTED.search(answer):
            self.blame("headers that were injected", attack, answer)
        head, _, body = answer.partition(b"\r\n\r\n")
        if (
            len(statuses) == 1
            and statuses[0] < 500
            and _JSON.search(head)
            and body
            and not is_json(body)
        ):
            self.blame("answers that are called JSON and are none", attack, answer)
        self.look_for_secrets(f"the answer to {attack.name}", answer)

    def look_for_secrets(self, where: str, content: bytes) -> None:
        lowered = content.lower()
        for name, secret in self._secrets.items():
            if secret.lower() in lowered:
                self.faults["secrets in answers"] += 1
                self.examples.setdefault("secrets in answers", f"{name} in {where}")

    def blame(self, fault: str, attack: Attack, answer: bytes) -> None:
        self.faults[fault] += 1
        self.examples.setdefault(fault, f"{attack.name}: {answer[:160]!r}")

    def look_through(self, folder: Path) -> int:
        """Read every file below a folder; their number."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        for path in paths:
            self.look_for_secrets(path.name, path.read_bytes())
        return len(paths)


def is_json(body: bytes) -> bool:
    """As strict readers have it, to whom NaN is nothing."""
    try:
        json.loads(body, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)


def exchange(port: int, data: bytes, seconds: float) -> tuple[bytes, bool]:
    """Send, say that no more will come, and read to the end.

    The answer, and whether the connection ended in time.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.settimeout(seconds)
        answer = b""
        with contextlib.suppress(
            OSError
        ):  # the server has answered before it had all; what it said can often still be read
            connection.sendall(data)
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
        except TimeoutError:
            return answer, False
        except OSError:
            pass
        return answer, True


def leave_early(port: int, data: bytes, how: str) -> None:
    """Send a request and go: at once, with a reset, or with one side still open."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            connection.sendall(data)
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half":
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(5)
                connection.recv(100)
        except OSError:
            pass


def drip(port: int, opening: bytes, byte: bytes, seconds: float, pause: float = 0.1) -> float:
    """Send a byte now and then.

    After how many seconds the server has ended the connection, infinite if it did not.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(opening)
        connection.settimeout(pause)
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            try:
                if byte:
                    connection.sendall(byte)
                while connection.recv(1 << 16):
                    pass
                return time.monotonic() - begun
            except TimeoutError:
                continue
            except OSError:
                return time.monotonic() - begun
    return float("inf")


class Pulse(threading.Thread):
    """Asks how the gateway is, again and again: while it is well it answers at once."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._stopped = port, threading.Event()
        self.beats, self.slowest, self.missed = 0, 0.0, 0

    def run(self) -> None:
        data = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        while not self._stopped.wait(0.05):
            begun = time.monotonic()
            try:
                answer, _ = exchange(self._port, data, 20.0)
            except OSError:
                answer = b""
            self.beats += 1
            self.missed += not answer.startswith(b"HTTP/1.1 200")
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)
