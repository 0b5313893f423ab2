"""What benchmarks with real servers share: the command, texts to ask with, ports and calls."""

from __future__ import annotations

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

# ``mildroute`` of the checkout that the benchmark runs in.
COMMAND = [sys.executable, "-c", "from mildroute.cli.app import app; app()"]
SENTENCE = "the cat sat on a mat while seven old men sang about sums and songs of the sea"
WORDS = SENTENCE.split()


def ask(
    port: int,
    path: str,
    document: Any = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = 30.0,
) -> tuple[int, Any]:
    """Status and answer; JSON where it is JSON."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        body,
        {"content-type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=seconds
        ) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content.decode(errors="replace")


def is_answering(port: int, path: str = "/healthz", *, only_ok: bool = True) -> bool:
    """Tell whether a server answers; with ``only_ok``, whether it says that it is well."""
    try:
        status, _ = ask(port, path, seconds=2)
    except OSError:
        return False
    return status == 200 or not only_ok


def free_port() -> int:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
