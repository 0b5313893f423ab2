"""The snippets for frameworks run word for word against the process of ``mildroute serve``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from mildroute.decision.log import read_log
from tests.doors.artifacts import experts_file, make_artifact

PAGE = Path(__file__).parents[2] / "docs" / "doors" / "frameworks.md"
COMMAND = [sys.executable, "-c", "from mildroute.cli.app import app; app()"]
# A Python with openai-agents, pydantic-ai-slim[openai] and dspy, and a folder with node_modules
# that hold ai and @ai-sdk/openai-compatible.
FRAMEWORKS = os.environ.get("MILDROUTE_FRAMEWORKS", "")
NODE = os.environ.get("MILDROUTE_NODE", "")
NAMES = {"small", "mid", "large"}

pytestmark = pytest.mark.slow


class Expert(BaseHTTPRequestHandler):
    """All experts; each says its name, in the form that the prompt asks for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = f"I am {body['model']}"
        if "[[ ## answer ## ]]" in json.dumps(body["messages"]):
            text = f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        answer = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence."""


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs."""

    url: str
    log: Path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("frameworks")
    artifact = make_artifact("regression", home)
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Expert)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    experts = experts_file("regression", home)
    address = f"http://127.0.0.1:{upstream.server_port}/v1"
    experts.write_text(experts.read_text().replace("http://127.0.0.1:9", address))
    log, errors = home / "log", home / "errors"
    command = [*COMMAND, "serve", str(artifact), "--experts", str(experts), "--port", "0"]
    with (
        errors.open("wb") as sink,
        subprocess.Popen([*command, "--log", str(log)], stdout=sink, stderr=sink) as process,
    ):
        try:
            yield Gateway(wait_for_address(process, errors), log)
        finally:
            process.terminate()
            process.wait(60)
            upstream.shutdown()
            upstream.server_close()


def wait_for_address(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(r"http://127\.0\.0\.1:\d+", output.read_text())
        if match is not None:
            try:
                httpx.get(f"{match[0]}/healthz", timeout=5.0).raise_for_status()
            except httpx.HTTPError:
                pass
            else:
                return match[0]
        time.sleep(0.1)
    raise AssertionError(output.read_text()[-3000:])


def run(command: list[str], gateway: Gateway, folder: Path) -> None:
    """Run a snippet: it prints the answer of the expert that the log names."""
    before = len(list(read_log(gateway.log)))
    result = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "HOME": str(folder)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    records = list(read_log(gateway.log))[before:]
    assert len(records) == 1
    assert records[0].served_by in NAMES
    assert records[0].cost_usd > 0
    assert result.stdout.split() == ["I", "am", records[0].served_by]


def snippets(language: str, url: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [code.replace("http://127.0.0.1:8000", url) for code in found]


@pytest.mark.skipif(not FRAMEWORKS, reason="MILDROUTE_FRAMEWORKS names no Python with frameworks")
@pytest.mark.parametrize("name", ["agents", "pydantic_ai", "dspy"])
def test_a_python_framework_is_routed(name: str, gateway: Gateway, tmp_path: Path) -> None:
    (code,) = [each for each in snippets("python", gateway.url) if name in each]
    run([FRAMEWORKS, "-c", code], gateway, tmp_path)


@pytest.mark.skipif(not NODE, reason="MILDROUTE_NODE names no folder with node_modules")
def test_the_ai_sdk_is_routed(gateway: Gateway, tmp_path: Path) -> None:
    (code,) = snippets("javascript", gateway.url)
    (tmp_path / "node_modules").symlink_to(Path(NODE) / "node_modules")
    (tmp_path / "ask.mjs").write_text(code)
    run(["node", "ask.mjs"], gateway, tmp_path)
