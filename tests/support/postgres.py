"""A Postgres server of its own, from the system's packages, in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest


def binaries() -> Path:
    """Folder of the newest server; the test is skipped if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("needs a Postgres server: apt-get install postgresql")
    return found[-1].parent


class PostgresServer:
    """A server on a socket in its folder; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # It refuses to run as root.
        self._user: dict[str, Any] = (
            {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
        )
        if self._user:
            shutil.chown(folder, "nobody")
        command = [binaries() / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust"]
        subprocess.run(
            [*command, "--no-sync"], check=True, capture_output=True, cwd=folder, **self._user
        )
        self.start()

    def start(self) -> None:
        options = [
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "unix_socket_permissions=0777",
        ]
        self._process = subprocess.Popen(
            [binaries() / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
            cwd=self.folder,
            stderr=subprocess.DEVNULL,
            **self._user,
        )
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(psycopg.OperationalError), self._connection():
                return
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it, whatever is connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(20)

    def new_database(self) -> str:
        """URL of an empty database."""
        name = f"test_{secrets.token_hex(4)}"
        with self._connection() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def _connection(self) -> Any:
        url = f"postgresql://postgres@/postgres?host={self.folder}"
        return psycopg.connect(url, autocommit=True)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    # Not below pytest's folder, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="mildroute-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()
