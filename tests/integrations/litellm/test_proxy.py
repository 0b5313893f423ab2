"""The plug-in inside a LiteLLM proxy.

A process of its own, with a configuration file, asked by the openai client.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.export import costs_from_log
from mildroute.decision.log import DecisionRecord, read_log
from mildroute.decision.settings import DecisionLogConfig

ENVIRONMENT = os.environ.get("MILDROUTE_LITELLM_ENV", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (Path(ENVIRONMENT) / "bin" / "litellm").exists(),
        reason="needs MILDROUTE_LITELLM_ENV=FOLDER, a LiteLLM proxy",
    ),
]
CHOOSER = """
from pathlib import Path
from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig
from mildroute.integrations.litellm import MildrouteClassifier, MildrouteLogger, MildroutePlugin

config = ServiceConfig(
    encoder=EncoderConfig(timeout=10.0), log=DecisionLogConfig(Path({log!r}), log_prompts=True)
)
service = DecisionService.load({router!r}, config)
plugin = MildroutePlugin(service, {{"sums": "openai/sums", "songs": "openai/songs"}})
classifier = MildrouteClassifier(service, {{"sums": "SIMPLE", "songs": "COMPLEX"}})
logger = MildrouteLogger(service)
"""
CONFIG = """
model_list:
  - model_name: auto
    litellm_params: &sums
      model: openai/sums
      api_base: {upstream}
      api_key: none
      input_cost_per_token: 0.001
      output_cost_per_token: 0.002
  - model_name: auto
    litellm_params: &songs
      model: openai/songs
      api_base: {upstream}
      api_key: none
      input_cost_per_token: 0.01
      output_cost_per_token: 0.02
  - {{model_name: only-sums, litellm_params: *sums}}
  - {{model_name: only-songs, litellm_params: *songs}}
  - model_name: spare
    litellm_params: {{model: openai/spare, api_base: {upstream}, api_key: none}}
  - model_name: smart
    litellm_params:
      model: auto_router/complexity_router
      complexity_router_default_model: only-sums
      complexity_router_config:
        classifier_type: custom
        classifier_plugin: chooser.classifier
        tiers: {{SIMPLE: only-sums, MEDIUM: only-sums, COMPLEX: only-songs, REASONING: only-songs}}
  - model_name: remote
    litellm_params:
      model: auto_router/complexity_router
      complexity_router_default_model: spare
      complexity_router_config:
        classifier_type: oss_classifier
        classifier_fallback: default_model
        default_model: spare
        opensource_classifier_config: {{provider: jev, api_base: "{decider}", api_key: none}}
        tiers: {{SIMPLE: only-sums, MEDIUM: only-sums, COMPLEX: only-songs, REASONING: only-songs}}
litellm_settings:
  callbacks: ["chooser.logger"]
router_settings:
  plugins: ["chooser.plugin"]
  num_retries: 1
  allowed_fails: 0
  cooldown_time: 1
  fallbacks: [{{auto: [spare]}}]
"""
CHINESE = "请把下面这句话翻译成英文,今天天气很好。"


class Upstream(BaseHTTPRequestHandler):
    """Both models; notes who is asked, and fails for those that are down."""

    protocol_version = "HTTP/1.1"
    parsed: list[str] = []  # noqa: RUF012
    down: set[str] = set()  # noqa: RUF012
    slow: set[str] = set()  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model = body["model"]
        self.parsed.append(model)
        if model in self.slow:
            time.sleep(3.0)
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
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
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
    deadline = time.monotonic() + 300.0
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(f"{address}/health/liveliness", timeout=5.0).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])


@pytest.fixture(scope="module")
def decider_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decider") / "log"


@pytest.fixture(scope="module")
def decider(
    artifact: Path, decider_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of ``mildroute decide``."""
    labels = tmp_path_factory.mktemp("labels") / "labels.yaml"
    labels.write_text("{SIMPLE: sums, MEDIUM: sums, COMPLEX: songs, REASONING: songs}\n")
    command = [sys.executable, "-c", "from mildroute.cli.app import app; app()", "decide"]
    command += [str(artifact), "--port", "0", "--labels", str(labels)]
    command += ["--log", str(decider_log), "--log-prompts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            match = re.search(r"(http://\S+)/v1/systemone", process.stdout.readline())
            assert match is not None
            yield match[1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def client(
    upstream: str,
    decider: str,
    artifact: Path,
    log: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[openai.OpenAI]:
    home = tmp_path_factory.mktemp("proxy")
    (home / "chooser.py").write_text(CHOOSER.format(router=str(artifact), log=str(log)))
    (home / "config.yaml").write_text(CONFIG.format(upstream=upstream, decider=decider))
    key, port, output = f"sk-{secrets.token_hex(16)}", free_port(), home / "output"
    offline = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HF_HUB_OFFLINE": "1",
        "LITELLM_MASTER_KEY": key,
    }
    command = [f"{ENVIRONMENT}/bin/litellm", "--config", str(home / "config.yaml")]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (
        output.open("wb") as sink,
        subprocess.Popen(command, env=os.environ | offline, stdout=sink, stderr=sink) as process,
    ):
        try:
            wait_until_ready(process, f"http://127.0.0.1:{port}", output)
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


def record(log: Path, decision_id: str, calls: int = 1) -> DecisionRecord:
    """The decision in the log, once the outcomes of its calls are there."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        for row in read_log(log):
            if row.decision_id == decision_id and len(row.attempts) == calls:
                return row
        time.sleep(0.1)
    raise AssertionError(list(read_log(log))[-3:])


def ask(client: openai.OpenAI, content: Any, model: str = "auto", **more: Any) -> tuple[str, str]:
    """The answer, and the id of the decision."""
    response = client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": content}], **more
    )
    text = response.parse().choices[0].message.content or ""
    return text, response.headers["x-mildroute-decision-id"]


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


@pytest.mark.parametrize(
    ("text", "expert", "dollars"), [("add 1 and 1", "sums", 0.02), ("sing a song", "songs", 0.2)]
)
def test_the_log_has_the_decision_and_the_bill_that_litellm_computed(
    client: openai.OpenAI, log: Path, text: str, expert: str, dollars: float
) -> None:
    _, decision_id = ask(client, text)
    row = record(log, decision_id)
    assert (row.selected, row.served_by, row.propensity, row.status) == (expert, expert, 1.0, 200)
    assert (row.tokens_in, row.tokens_out, row.text, row.model) == (10, 5, text, "auto")
    assert row.cost_usd == pytest.approx(dollars)


def test_a_retry_is_an_attempt_of_the_same_decision(client: openai.OpenAI, log: Path) -> None:
    Upstream.down.add("songs")
    answer, decision_id = ask(client, "sing a song, please")
    row = record(log, decision_id, calls=2)
    assert answer == "I am sums"
    assert (row.selected, row.served_by, row.propensity) == ("songs", "sums", 1.0)
    assert [(call["expert"], call["status"]) for call in row.attempts] == [
        ("songs", 500),
        ("sums", 200),
    ]
    assert row.cost_usd == pytest.approx(0.02)
    assert sum(one.text == "sing a song, please" for one in read_log(log)) == 1


def test_a_stream_is_billed_when_it_has_ended(client: openai.OpenAI, log: Path) -> None:
    stream = client.chat.completions.create(
        model="auto", messages=[{"role": "user", "content": "sing a long song"}], stream=True
    )
    decision_id = stream.response.headers["x-mildroute-decision-id"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "I am songs"
    row = record(log, decision_id)
    assert row.served_by == "songs"
    assert row.cost_usd > 0
    assert row.first_byte_seconds <= row.seconds


@pytest.mark.parametrize(
    ("text", "expert", "dollars"), [("add 1 and 1", "sums", 0.02), ("sing a song", "songs", 0.2)]
)
def test_the_auto_router_takes_the_tier_of_the_expert(
    client: openai.OpenAI, log: Path, text: str, expert: str, dollars: float
) -> None:
    answer, decision_id = ask(client, text, "smart")
    row = record(log, decision_id)
    assert answer == f"I am {expert}"
    assert (row.selected, row.served_by, row.model) == (expert, expert, "smart")
    assert row.cost_usd == pytest.approx(dollars)


@pytest.mark.parametrize(("text", "expert"), [("add 1 and 1", "sums"), ("sing a song", "songs")])
def test_the_auto_router_asks_our_decision_model(
    client: openai.OpenAI, decider_log: Path, text: str, expert: str
) -> None:
    assert said(client, text, "remote") == f"I am {expert}"
    asked = [row for row in read_log(decider_log) if text in (row.text or "")]
    assert [row.selected for row in asked] == [expert]


def test_scores_and_bills_become_a_cost_table(client: openai.OpenAI, log: Path) -> None:
    _, decision_id = ask(client, "sing a song")
    record(log, decision_id)
    with DecisionService.load(None, ServiceConfig(log=DecisionLogConfig(log))) as service:
        assert service.report_score(decision_id, 0.75)
    table = costs_from_log(log, only_with_text=True).arrow
    assert table["score:songs"].to_pylist() == [0.75]
    assert table["cost:songs"].to_pylist() == [pytest.approx(0.2)]


def test_many_requests_at_once_are_each_logged_once(client: openai.OpenAI, log: Path) -> None:
    texts = [
        f"{kind} number {index}" for kind in ("add 1 and 1", "sing a song") for index in range(30)
    ]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda text: ask(client, text), texts))
    for text, (answer, decision_id) in zip(texts, answers, strict=True):
        row = record(log, decision_id)
        assert (row.text, f"I am {row.served_by}") == (text, answer)
    assert len({decision_id for _, decision_id in answers}) == len(texts)


@pytest.mark.parametrize(
    "content",
    [
        CHINESE,
        "",
        [
            {"type": "text", "text": "sing a song about this"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
    ],
)
@pytest.mark.parametrize("model", ["auto", "smart"])
def test_unusual_prompts_are_answered(client: openai.OpenAI, content: Any, model: str) -> None:
    response = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": content}]
    )
    assert response.choices[0].message.content in {"I am sums", "I am songs"}


def test_a_client_that_hangs_up_leaves_a_decision(client: openai.OpenAI, log: Path) -> None:
    Upstream.slow.add("songs")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "sing a song nobody hears"}]
        )
    Upstream.slow.clear()
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        rows = [row for row in read_log(log) if row.text == "sing a song nobody hears"]
        if rows:
            break
        time.sleep(0.1)
    assert [row.selected for row in rows] == ["songs"]
    assert said(client, "sing a song") == "I am songs"
