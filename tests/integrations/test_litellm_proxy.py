"""The plug-in inside a LiteLLM proxy.

A process of its own, with a configuration file, asked by the openai client.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import openai
import pytest

ENVIRONMENT = os.environ.get("MILDROUTE_LITELLM_ENV", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (Path(ENVIRONMENT) / "bin" / "litellm").exists(),
        reason="needs MILDROUTE_LITELLM_ENV=FOLDER, a LiteLLM proxy",
    ),
]
CHOOSER = """
from mildroute.integrations.litellm import MildroutePlugin
models = {{"sums": "openai/sums", "songs": "openai/songs"}}
plugin = MildroutePlugin({router!r}, models=models, seconds=10.0)
"""
DEPLOYMENT = (
    "  - {{model_name: {group}, litellm_params: {{model: openai/{model}, api_base: {upstream},"
    " api_key: none}}}}\n"
)
SETTINGS = """
router_settings:
  plugins: ["chooser.plugin"]
  num_retries: 1
  allowed_fails: 0
  cooldown_time: 1
  fallbacks: [{auto: [spare]}]
"""


class Upstream(BaseHTTPRequestHandler):
    """Both models; notes who is asked, and fails for those that are down."""

    protocol_version = "HTTP/1.1"
    parsed: list[str] = []  # noqa: RUF012
    down: set[str] = set()  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model = body["model"]
        self.parsed.append(model)
        if model in self.down:
            self.answer(
                500, "application/json", '{"error": {"message": "down", "type": "server_error"}}'
            )
        elif body.get("stream"):
            deltas = [{"content": "I am "}, {"content": model}, {}]
            events = [
                {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": model}
                for _ in deltas
            ]
            for event, delta in zip(events, deltas, strict=True):
                event["choices"] = [
                    {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
                ]
            self.answer(
                200,
                "text/event-stream",
                "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n",
            )
        else:
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": f"I am {model}"},
                "finish_reason": "stop",
            }
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            whole = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": model,
                "choices": [choice],
                "usage": usage,
            }
            self.answer(200, "application/json", json.dumps(whole))

    def answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            httpx.get(f"{address}/health/liveliness", timeout=5.0).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])


@pytest.fixture(scope="module")
def client(
    upstream: str, artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    home = tmp_path_factory.mktemp("proxy")
    (home / "chooser.py").write_text(CHOOSER.format(router=str(artifact)))
    groups = [("auto", "sums"), ("auto", "songs"), ("only-songs", "songs"), ("spare", "spare")]
    deployments = "".join(
        DEPLOYMENT.format(group=group, model=model, upstream=upstream) for group, model in groups
    )
    (home / "config.yaml").write_text(f"model_list:\n{deployments}{SETTINGS}")
    key, port, log = f"sk-{secrets.token_hex(16)}", free_port(), home / "log"
    offline = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HF_HUB_OFFLINE": "1",
        "LITELLM_MASTER_KEY": key,
    }
    command = [
        f"{ENVIRONMENT}/bin/litellm",
        "--config",
        str(home / "config.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, env=os.environ | offline, stdout=sink, stderr=sink) as process,
    ):
        try:
            wait_until_ready(process, f"http://127.0.0.1:{port}", log)
            with openai.OpenAI(
                base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0
            ) as made:
                yield made
        finally:
            process.terminate()


@pytest.fixture(autouse=True)
def all_up() -> None:
    # Longer than the proxy's cooldown, which the test before may have set off.
    if Upstream.down:
        time.sleep(1.2)
    Upstream.down.clear()
    Upstream.parsed.clear()


def said(client: openai.OpenAI, text: str, model: str = "auto") -> str | None:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}]
    )
    return answer.choices[0].message.content


def test_the_proxy_obeys_the_router(client: openai.OpenAI) -> None:
    for _ in range(5):
        assert said(client, "sing a song") == "I am songs"
        assert said(client, "add 1 and 1") == "I am sums"
    assert Upstream.parsed == ["songs", "sums"] * 5


def test_a_stream_is_routed_too(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="auto", messages=[{"role": "user", "content": "sing a song"}], stream=True
    )
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        == "I am songs"
    )


def test_a_model_that_is_asked_for_by_name_is_not_routed(client: openai.OpenAI) -> None:
    assert said(client, "add 1 and 1", "only-songs") == "I am songs"


def test_while_an_expert_is_down_and_while_it_cools_down_the_next_best_answers(
    client: openai.OpenAI,
) -> None:
    Upstream.down.add("songs")
    assert [said(client, "sing a song") for _ in range(3)] == ["I am sums"] * 3
    assert Upstream.parsed[:2] == ["songs", "sums"]


def test_a_fallback_group_answers_when_every_expert_of_the_group_has_failed(
    client: openai.OpenAI,
) -> None:
    Upstream.down.update(["sums", "songs"])
    assert said(client, "add 1 and 1") == "I am spare"
    assert Upstream.parsed == ["sums", "songs", "spare"]
