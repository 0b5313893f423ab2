"""A real Envoy with the configuration of ``deploy/envoy`` and our processor."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from mildroute import fit
from mildroute.cli.app import app
from mildroute.costs.table import CostTable
from mildroute.decision.decider import Decider
from mildroute.decision.log import read_decisions
from mildroute.decision.request import DecisionRequest
from mildroute.decision.service import DecisionService, ServiceConfig
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig
from mildroute.experts.config import read_experts
from mildroute.persistence import save_router
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.streams import DONE, event, streams, usage
from tests.support.certificates import make_certificate
from tests.support.envoy import (
    CONFIGURATION,
    Envoy,
    be_patient,
    envoy_binary,
    http_filter,
    processor,
)

pytestmark = pytest.mark.slow

Json = dict[str, Any]
TEXTS = [f"add {number} and {number + 1}" for number in range(60)]
TEXTS += [f"sing song number {number}" for number in range(60)]
EXPERTS = """experts:
  small: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: s-1,
    price: {input: 1, output: 2}}
  large: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: l-1,
    price: {input: 10, output: 20}}
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sums = np.arange(120) < 60
    score = np.where(sums | (np.arange(120) % 4 == 0), 1.0, 0.1)
    table = CostTable.from_data(
        {
            "query_id": [str(number) for number in range(120)],
            "input": TEXTS,
            "score:small": score,
            "score:large": np.ones(120),
            "cost:small": np.full(120, 0.001),
            "cost:large": np.full(120, 0.01),
        }
    )
    folder = tmp_path_factory.mktemp("artifact") / "router"
    return save_router(fit(table, thorough=False).router, folder)


@dataclass
class Setup:
    """Envoy, its experts and the service that decides."""

    envoy: Envoy
    small: HostileServer
    large: HostileServer
    service: DecisionService
    log: Path
    http: httpx.Client

    def chat(self, text: str = "add 1 and 2", **fields: Any) -> httpx.Response:
        body = {"model": "mildroute", "messages": [{"role": "user", "content": text}], **fields}
        return self.http.post("/chat/completions", json=body)

    def decisions(self, count: int) -> list[Json]:
        """The decisions with a bill, once there are so many."""
        end = time.monotonic() + 20
        while True:
            rows = list(read_decisions(self.log))
            if len([row for row in rows if row["attempts"]]) >= count:
                return rows
            assert time.monotonic() < end, f"{rows}"
            time.sleep(0.05)


def start(stack: ExitStack, router: Path, folder: Path, **options: Any) -> Setup:
    """Start everything; it stops with the stack."""
    (folder / "experts.yaml").write_text(EXPERTS)
    script = options.get("script", lambda _call: says("4"))
    small = stack.enter_context(HostileServer(script))
    large = stack.enter_context(HostileServer(script))
    log = folder / "log"
    config = ServiceConfig(log=DecisionLogConfig(log), encoder=EncoderConfig(timeout=10.0))
    experts = read_experts(folder / "experts.yaml")
    service = stack.enter_context(DecisionService.load(router, config, experts))
    models = {"small": "s-1", "large": "l-1"}
    server = stack.enter_context(processor(service, models))
    ports = {"small": [small.port], "large": [large.port], "deciders": [server.port]}
    envoy = stack.enter_context(Envoy(folder, ports, options.get("change", be_patient)))
    http = stack.enter_context(httpx.Client(base_url=envoy.url, timeout=30, trust_env=False))
    return Setup(envoy, small, large, service, log, http)


@pytest.fixture
def setup(router: Path, tmp_path: Path) -> Iterator[Setup]:
    with ExitStack() as stack:
        yield start(stack, router, tmp_path)


def test_envoy_accepts_the_configuration(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    text = CONFIGURATION.read_text()
    text = text.replace("/etc/envoy/tls/tls.crt", str(certificate))
    file = tmp_path / "envoy.yaml"
    file.write_text(text.replace("/etc/envoy/tls/tls.key", str(key)))
    command = [str(envoy_binary()), "--mode", "validate", "-c", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_500_texts_get_the_decisions_of_python_and_each_is_logged_once_with_its_bill(
    router: Path, setup: Setup
) -> None:
    texts = [f"{TEXTS[number % 120]} please {number}" for number in range(500)]
    for text in texts:
        assert setup.chat(text).status_code == 200
    decider = Decider.load(router)
    expected = [decider.decide(DecisionRequest(text)) for text in texts]
    rows = setup.decisions(500)
    assert len({row["decision_id"] for row in rows}) == len(rows) == 500
    assert [row["selected"] for row in rows] == [each.expert for each in expected]
    assert [row["reason"] for row in rows] == [each.reason for each in expected]
    assert [row["propensity"] for row in rows] == [each.propensity for each in expected]
    assert {row["selected"] for row in rows} == {"small", "large"}
    # 7 tokens of the request and 2 of the answer, at the prices of EXPERTS.
    bills = {"small": (7 * 1 + 2 * 2) / 1e6, "large": (7 * 10 + 2 * 20) / 1e6}
    for row in rows:
        assert row["served_by"] == row["selected"]
        assert row["cost_usd"] == pytest.approx(bills[row["selected"]])
    calls = {"small": setup.small.calls, "large": setup.large.calls}
    for name, model in (("small", "s-1"), ("large", "l-1")):
        assert len(calls[name]) == sum(row["selected"] == name for row in rows)
        assert {call.json["model"] for call in calls[name]} == {model}
    access = setup.envoy.access(500)
    assert {line["decision"]["decision_id"] for line in access} == {
        row["decision_id"] for row in rows
    }
    assert [line["decision"]["propensity"] for line in access] == [
        each.propensity for each in expected
    ]


def test_a_client_learns_the_id_of_its_decision_and_chooses_no_expert_by_header(
    setup: Setup,
) -> None:
    chosen = setup.chat("add 1 and 2")
    other = {"x-mildroute-expert": "small"}
    body = {"model": "another", "messages": [{"role": "user", "content": "add 1 and 2"}]}
    assert setup.http.post("/chat/completions", json=body, headers=other).status_code == 200
    (row,) = setup.decisions(1)
    assert chosen.headers["x-mildroute-decision-id"] == row["decision_id"]
    # The other request passes untouched, to the default expert.
    (call,) = [call for call in setup.large.calls if call.json["model"] == "another"]
    assert call.body == json.dumps(body, separators=(",", ":")).encode()


def test_a_stream_flows_while_it_comes_and_its_usage_is_billed(
    router: Path, tmp_path: Path
) -> None:
    gate = threading.Event()
    opened = threading.Event()
    opened.set()
    script = [streams(event("fo"), event("ur"), usage(11, 5), DONE, gates=[opened, gate])]
    with ExitStack() as stack:
        setup = start(stack, router, tmp_path, script=script)
        body = {
            "model": "mildroute",
            "stream": True,
            "messages": [{"role": "user", "content": "a"}],
        }
        with setup.http.stream("POST", "/responses", json=body) as answer:
            chunks = answer.iter_raw()
            first = next(chunks)
            assert b"fo" in first
            assert b"ur" not in first
            gate.set()
            assert b"[DONE]" in b"".join(chunks)
        (row,) = setup.decisions(1)
        assert (row["tokens_in"], row["tokens_out"], row["status"]) == (11, 5, 200)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messages", {"system": "Be brief.", "messages": [{"role": "user", "content": "add 1"}]}),
        ("/responses", {"input": "add 1 and 2", "instructions": "Be brief."}),
        ("/responses", {"input": [{"role": "user", "content": "add 1 and 2"}]}),
        ("/completions", {"prompt": "add 1 and 2"}),
        (
            "/chat/completions",
            {"messages": [{"role": "user", "content": "\u4f60 \u0000"}]},
        ),
    ],
)
def test_other_apis_and_any_text_are_decided(setup: Setup, path: str, body: Json) -> None:
    answer = setup.http.post(path, json={"model": "mildroute", **body})
    assert answer.status_code == 200
    (call,) = [*setup.small.calls, *setup.large.calls]
    assert call.json == {"model": call.json["model"], **body}
    assert call.json["model"] in ("s-1", "l-1")
    assert int(call.headers["content-length"]) == len(call.body)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"model":"mildroute","messages":', "malformed"),
        (b'{"messages":[{"role":"user","content":"add"}]}', "malformed"),
        (b'{"model":["mildroute"],"messages":[]}', "malformed"),
        (b'{"model":"mildroute","messages":[]}', "malformed"),
        (b'{"model":"mildroute","messages":"add"}', "malformed"),
        (b'{"model":"mildroute","messages":[7]}', "malformed"),
        (b'{"model":"mildroute","messages":[{"role":"user","content":"\\ud800"}]}', "malformed"),
        (b"\xff\xfe" * 100, "malformed"),
        (b'{"model":"mildroute","messages":[' + b"[" * 600 + b"]" * 600 + b"]}", "malformed"),
        (b'{"model":"mildroute","input":"a","x":' + b"[" * 400 + b"]" * 400 + b"}", "malformed"),
        (b'{"model":"mildroute","input":[' + b"1," * 600_000 + b"1]}", "malformed"),
    ],
)
def test_a_body_that_cannot_be_read_passes_to_the_default_expert(
    setup: Setup, content: bytes, reason: str
) -> None:
    answer = setup.http.post("/chat/completions", content=content)
    assert answer.status_code == 200
    (call,) = setup.large.calls
    # Providers do not know the model "mildroute".
    assert call.body == content.replace(b'"model":"mildroute"', b'"model":"large"')
    (line,) = setup.envoy.access(1)
    assert line["decision"]["reason"] == reason
    assert list(read_decisions(setup.log)) == []


def test_a_target_out_of_reach_goes_to_the_default_expert(setup: Setup) -> None:
    body = {"model": "mildroute", "input": "add 1 and 2"}
    for value in ("0.9", "-1"):
        headers = {"x-mildroute-quality": value}
        assert setup.http.post("/responses", json=body, headers=headers).status_code == 200
    lines = setup.envoy.access(2)
    assert [line["decision"]["reason"] == "unreachable_target" for line in lines] == [False, True]
    (row,) = setup.decisions(1)
    assert row["target"] == "quality 0.9"


def test_compressed_chunked_and_large_bodies_are_decided(setup: Setup) -> None:
    large = "add " * 2_600_000
    body = {"model": "mildroute", "messages": [{"role": "user", "content": large}]}
    content = json.dumps(body).encode()
    assert len(content) > 10_000_000
    assert setup.http.post("/chat/completions", content=content).status_code == 200
    pieces = (content[at : at + 65_536] for at in range(0, len(content), 65_536))
    assert setup.http.post("/chat/completions", content=pieces).status_code == 200
    small = json.dumps({"model": "mildroute", "input": "add 1 and 2"}).encode()
    headers = {"content-encoding": "gzip"}
    packed = setup.http.post("/responses", content=gzip.compress(small), headers=headers)
    assert packed.status_code == 200
    assert len(setup.decisions(3)) == 3
    calls = [*setup.small.calls, *setup.large.calls]
    assert {call.json["model"] for call in calls} <= {"s-1", "l-1"}
    assert max(len(call.body) for call in calls) > 10_000_000
    too_large = setup.http.post("/chat/completions", content=b"x" * (34 << 20))
    assert too_large.status_code == 413


def test_http_2_is_decided(setup: Setup) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    command = ["curl", "-sS", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}"]
    command += ["-d", '{"model": "mildroute", "input": "add 1 and 2"}', "-o", "/dev/null"]
    run = subprocess.run(
        [*command, f"{setup.envoy.url}/responses"], capture_output=True, text=True, check=True
    )
    assert run.stdout == "2 200"
    assert len(setup.decisions(1)) == 1


def test_without_a_decision_in_time_the_default_expert_answers(
    router: Path, tmp_path: Path
) -> None:
    # It accepts connections and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:

        def be_quick(configuration: Json) -> None:
            http_filter(configuration, "ext_proc")["message_timeout"] = "0.1s"
            for cluster in configuration["static_resources"]["clusters"]:
                if cluster["name"] == "deciders":
                    cluster.pop("health_checks")
                    port = {"address": "127.0.0.1", "port_value": silent.getsockname()[1]}
                    (endpoints,) = cluster["load_assignment"]["endpoints"]
                    (endpoint,) = endpoints["lb_endpoints"]
                    endpoint["endpoint"]["address"]["socket_address"] = port

        setup = start(stack, router, tmp_path, change=be_quick)
        begun = time.monotonic()
        assert setup.chat('say "model": "mildroute"').status_code == 200
        assert time.monotonic() - begun < 5
        (call,) = setup.large.calls
        assert call.json["model"] == "large"
        assert call.prompt == 'say "model": "mildroute"'


def test_failures_of_an_expert_are_in_the_log(router: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        setup = start(stack, router, tmp_path, script=[status(400, {}, '{"error": {}}')])
        assert setup.chat().status_code == 400
        (row,) = setup.decisions(1)
        assert (row["status"], row["served_by"], row["cost_usd"]) == (400, "", 0.0)


def test_a_slow_client_does_not_delay_others(setup: Setup) -> None:
    with socket.create_connection(("127.0.0.1", setup.envoy.port)) as slow:
        slow.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
        assert setup.chat().status_code == 200
    assert len(setup.decisions(1)) == 1


def test_the_command_decides_for_envoy_until_it_is_told_to_stop(
    router: Path, tmp_path: Path
) -> None:
    (tmp_path / "experts.yaml").write_text(EXPERTS)
    command = [sys.executable, "-m", "mildroute", "decide", str(router), "--ext-proc", "0"]
    command += ["--experts", str(tmp_path / "experts.yaml"), "--log", str(tmp_path / "log")]
    with (
        HostileServer([says("4")]) as expert,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as decider,
    ):
        assert decider.stdout is not None
        line = decider.stdout.readline()
        assert line.startswith("deciding between small, large for Envoy at 127.0.0.1:")
        port = int(line.rpartition(":")[2])
        ports = {"small": [expert.port], "large": [expert.port], "deciders": [port]}
        with Envoy(tmp_path, ports, be_patient) as envoy:
            body = {"model": "mildroute", "input": "add 1 and 2"}
            answer = httpx.post(f"{envoy.url}/responses", json=body, timeout=30, trust_env=False)
            assert answer.status_code == 200
        decider.terminate()
        assert decider.wait(30) == 0
    (row,) = read_decisions(tmp_path / "log")
    assert row["tokens_in"] == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ext-proc", "much"], "must be a port"),
        (["--ext-proc", "127.0.0.1:99999"], "must be a port"),
        (["--ext-proc", "0.0.0.0:0"], "--no-key"),
        (["--ext-proc", "0", "--key-env", "HOME"], "--key-env has no meaning"),
    ],
)
def test_the_command_refuses_addresses_that_it_cannot_serve(
    router: Path, options: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["decide", str(router), *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
