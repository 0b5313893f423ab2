"""Clients of decision models, unchanged, ask the process that ``mildroute decide`` starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mildroute import load_router
from mildroute.decision.log import read_log
from mildroute.fitting.targets import point_of
from tests.doors.artifacts import TARGET, make_artifact, texts_for

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "doors" / "system-one.md"
COMMAND = [sys.executable, "-c", "from mildroute.cli.app import app; app()"]
# Folders of environments with clients, which want other versions than the development environment
# has: semantic-router and typesafe-sdk, and langchain-core.
ENVIRONMENTS = ("MILDROUTE_DECISION_CLIENTS_ENV", "MILDROUTE_LANGCHAIN_ENV")
TEXTS = texts_for("regression", 40)


def python_of(variable: str) -> str:
    """Return the Python of an environment; skip the test without one."""
    folder = os.environ.get(variable, "")
    if not folder:
        pytest.skip(f"{variable} names no environment with the client's package")
    return str(Path(folder) / "bin" / "python")


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    url: str
    log: Path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_artifact("regression", tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def server(artifact: Path, tmp_path: Path) -> Iterator[Server]:
    options = ["--port", "0", "--log", str(tmp_path / "log"), "--log-prompts"]
    target = [f"--{TARGET.kind}", str(TARGET.value)]
    with subprocess.Popen(
        [*COMMAND, "decide", str(artifact), *options, *target],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        try:
            match = re.search(r"deciding between small, mid, large at (http\S+)/v1/systemone", line)
            assert match is not None, line
            yield Server(match[1], tmp_path / "log")
        finally:
            running.terminate()
            _, errors = running.communicate(timeout=60)
    assert running.returncode in (0, -signal.SIGTERM), errors
    assert "Traceback" not in errors


@pytest.fixture(scope="module")
def expected(artifact: Path) -> list[str]:
    router: Any = load_router(artifact)
    point = point_of(router, TARGET)
    return [each.name for each in router.explain(TEXTS, point=point, request_ids=TEXTS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "environment"),
    [
        ("semantic_router", ENVIRONMENTS[0]),
        ("typesafe", ENVIRONMENTS[0]),
        ("typesafe_schemas", ENVIRONMENTS[0]),
        ("langchain_schemas", ENVIRONMENTS[1]),
    ],
)
def test_a_client_gets_the_decisions_of_the_library(
    client: str, environment: str, server: Server, expected: list[str]
) -> None:
    python = python_of(environment)
    script = Path(__file__).with_name("ask_as_a_client.py")
    result = subprocess.run(
        [python, str(script), client, server.url],
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    chosen = json.loads(result.stdout.splitlines()[-1])
    for index, names in enumerate(chosen):
        assert set(names) == {expected[index]}, TEXTS[index]
    logged = {record.text: record.selected for record in read_log(server.log)}
    assert logged == dict(zip(TEXTS, expected, strict=True))


@pytest.mark.slow
def test_the_ten_lines_of_the_page_run(server: Server) -> None:
    (code, *_) = re.findall(r"```python\n(import httpx.*?)```", PAGE.read_text(), re.DOTALL)
    code = code.replace("http://127.0.0.1:8100", server.url)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert re.match(r"(small|large) \{'small': ", result.stdout)


@pytest.mark.slow
def test_the_lines_for_semantic_router_run(server: Server) -> None:
    python = python_of(ENVIRONMENTS[0])
    (code,) = re.findall(r"```python\n(import asyncio.*?)```", PAGE.read_text(), re.DOTALL)
    code = code.replace("http://127.0.0.1:8100", server.url)
    result = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "'expert': {'type': 'choice'" in result.stdout
