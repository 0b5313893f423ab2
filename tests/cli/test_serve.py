"""``mildroute serve``: what is wrong is said before a port is opened.

A running gateway routes, reloads and ends in order.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mildroute import TextRouter
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.factory import load_gateway
from mildroute.persistence import save_router
from tests.experts.hostile_server import HostileServer, says

SUMS = [f"add {place} and {place + 1}" for place in range(40)]
SONGS = [f"sing song number {place}" for place in range(40)]


@cache
def router_of(experts: tuple[str, str], *, swapped: bool = False) -> TextRouter:
    """A router that sends sums to the first expert and songs to the second, or the other way."""
    costs = [[0.0, 1.0]] * 40 + [[1.0, 0.0]] * 40
    return TextRouter().fit([*SUMS, *SONGS], costs[::-1] if swapped else costs, experts=experts)


def fitted(
    folder: Path, experts: tuple[str, str] = ("small", "large"), *, swapped: bool = False
) -> Path:
    return save_router(router_of(experts, swapped=swapped), folder)


def experts_file(folder: Path, url: str) -> Path:
    path = folder / "experts.yaml"
    lines = [
        f"  {name}: {{kind: openai, base_url: '{url}', model: {name}-1, price: 1}}"
        for name in ("small", "large")
    ]
    path.write_text("\n".join(["experts:", *lines]))
    return path


@contextmanager
def running(
    folder: Path,
    *options: str,
    meanwhile: Callable[[subprocess.Popen[str]], None] = lambda _: None,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway in a process of its own, and its address; ``meanwhile`` runs while it starts."""
    command = [
        sys.executable,
        "-c",
        "from mildroute.cli.app import app; app()",
        "serve",
        "router",
        "--experts",
        "experts.yaml",
    ]
    process = subprocess.Popen(
        [*command, "--port", "0", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        meanwhile(process)
        if "json" in options:
            first = json.loads(process.stderr.readline())
            assert (first["message"], first["experts"]) == ("serving", 2)
            yield process, first["url"]
            return
        first = process.stdout.readline()
        assert " at http://127.0.0.1:" in first, first + process.stderr.read()
        yield process, first.split(" at ")[1].split()[0]
    finally:
        process.kill()
        process.communicate()


def ask(address: str, text: str) -> tuple[dict[str, Any], dict[str, str]]:
    body = json.dumps(
        {"model": "mildroute", "messages": [{"role": "user", "content": text}]}
    ).encode()
    request = urllib.request.Request(  # noqa: S310
        f"{address}/chat/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=20
    ) as answer:
        return json.loads(answer.read()), {
            name.lower(): value for name, value in answer.headers.items()
        }


def router_in_use(address: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        address.replace("/v1", "/readyz"), timeout=20
    ) as answer:
        digest: str = json.loads(answer.read())["router"]
        return digest


def test_it_routes_reloads_on_sighup_and_ends_in_order(tmp_path: Path) -> None:
    fitted(tmp_path / "router")
    with HostileServer([says("done")]) as server:
        experts_file(tmp_path, server.url)
        with running(tmp_path, "--log", "log") as (process, address):
            _, sums = ask(address, "add 3 and 9")
            _, songs = ask(address, "sing song number 7")
            assert (sums["x-mildroute-expert"], songs["x-mildroute-expert"]) == ("small", "large")
            assert [call.json["model"] for call in server.calls] == ["small-1", "large-1"]
            before = router_in_use(address)
            fitted(tmp_path / "router", swapped=True)
            process.send_signal(signal.SIGHUP)
            for _ in range(200):
                if router_in_use(address) != before:
                    break
            _, after = ask(address, "add 3 and 9")
            assert after["x-mildroute-expert"] == "large"
            process.terminate()
            assert process.wait(20) in (0, -signal.SIGTERM)
    lines = [
        line
        for path in (tmp_path / "log").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert {sums["x-mildroute-decision-id"], songs["x-mildroute-decision-id"]} <= {
        json.loads(line)["decision_id"] for line in lines
    }
    assert len(lines) == 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="signals are read from /proc")
def test_a_hangup_while_it_starts_does_not_end_it(tmp_path: Path) -> None:
    fitted(tmp_path / "router")
    experts_file(tmp_path, "http://127.0.0.1:9/v1")
    early: list[bool] = []

    def hang_up(process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + 60
        status = Path(f"/proc/{process.pid}/status")
        while time.monotonic() < end and process.poll() is None:
            ignored = int(re.search(r"SigIgn:\s*(\w+)", status.read_text())[1], 16)  # type: ignore[index]
            if ignored & 1 << (signal.SIGHUP - 1):
                process.send_signal(signal.SIGHUP)
                early.append(True)
                return

    with running(tmp_path, meanwhile=hang_up) as (process, address):
        assert router_in_use(address)
        assert process.poll() is None
    assert early


@pytest.mark.parametrize("package", ["prometheus_client", "starlette", "uvicorn"])
def test_a_missing_extra_is_one_sentence(tmp_path: Path, package: str) -> None:
    experts_file(tmp_path, "http://127.0.0.1:9/v1")
    hidden = (
        f"import sys; sys.modules[{package!r}] = None; from mildroute.cli.app import app; app()"
    )
    command = [sys.executable, "-c", hidden, "serve", "--experts", "experts.yaml", "--port", "0"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert re.fullmatch(r"error: .* needs \S+; run: pip install .*\[serve\]'\n", result.stderr)


class Collector(ThreadingHTTPServer):
    """A receiver of OTLP over HTTP that keeps the names of spans."""

    def __init__(self) -> None:
        names: list[str] = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        names.extend(span.name for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Receiver)
        self.names = names


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send_nonsense(address: str) -> None:
    host, port = address.removesuffix("/v1").removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"no HTTP at all\r\n\r\n")
        assert b" 400 " in client.recv(4096)


def test_sigterm_sends_the_spans_of_the_last_seconds(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn raises the signal again once it has drained, and what came after was skipped."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    # Nothing is sent before the end by itself.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    fitted(tmp_path / "router")
    (tmp_path / "gateway.yaml").write_text("logging: {access: true}")
    with HostileServer([says("done")]) as server:
        experts_file(tmp_path, server.url)
        options = ("--settings", "gateway.yaml", "--traces", "--log-format", "json")
        with running(tmp_path, *options) as (process, address):
            _, headers = ask(address, "add 3 and 9")
            for _ in range(3):
                send_nonsense(address)
            assert collector.names == []
            process.terminate()
            assert process.wait(20) in (0, -signal.SIGTERM)
            assert process.stderr is not None
            lines = [json.loads(line) for line in process.stderr]
    assert sorted(collector.names) == [
        "POST /v1/chat/completions",
        "chat small-1",
        "mildroute.decision",
    ]
    (access,) = [line for line in lines if line["logger"] == "mildroute.access"]
    assert access["expert"] == "small"
    assert access["decision_id"] == headers["x-mildroute-decision-id"]
    assert len(access["trace_id"]) == 32
    (warning,) = [line for line in lines if line["logger"] == "uvicorn.error"]
    assert warning["message"] == "Invalid HTTP request received."


def test_an_address_that_others_can_reach_needs_keys(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    fitted(tmp_path / "router")
    experts = experts_file(tmp_path, "http://127.0.0.1:9/v1")
    result = mildroute(
        "serve", str(tmp_path / "router"), "--experts", str(experts), "--host", "192.0.2.1"
    )
    assert result.exit_code == 2
    assert (
        "needs client keys, got none for '192.0.2.1'; create them with mildroute keys new"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "router" / "router.json").unlink(), "router.json"),
        (lambda folder: (folder / "experts.yaml").unlink(), "experts.yaml"),
        (
            lambda folder: (folder / "gateway.yaml").write_text("routing: {default: tiny}\n"),
            "no expert 'tiny'",
        ),
        (lambda folder: (folder / "gateway.yaml").write_text("baseline: tiny\n"), "'tiny'"),
        (
            lambda folder: (folder / "gateway.yaml").write_text("polizy: {}\n"),
            "gateway.yaml:1: polizy is not a setting",
        ),
        (lambda folder: fitted(folder / "router", ("red", "blue")), "got one for red, blue"),
    ],
)
def test_what_is_wrong_is_said_before_a_port_is_opened(
    tmp_path: Path, mildroute: Callable[..., Any], change: Callable[[Path], Any], message: str
) -> None:
    fitted(tmp_path / "router")
    experts_file(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / "gateway.yaml").write_text("")
    change(tmp_path)
    options = [
        "--experts",
        str(tmp_path / "experts.yaml"),
        "--settings",
        str(tmp_path / "gateway.yaml"),
        "--port",
        "0",
    ]
    for command in (options, [*options, "--check"]):
        result = mildroute("serve", str(tmp_path / "router"), *command)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_check_loads_everything_and_leaves_ports_and_logs_alone(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    fitted(tmp_path / "router")
    experts = str(experts_file(tmp_path, "http://127.0.0.1:9/v1"))
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--experts", experts, "--port", port, "--log", str(log), "--check"]
        result = mildroute("serve", str(tmp_path / "router"), *options)
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(r"ok: 2 experts, router [0-9a-f]{16}, no client keys\n", result.stdout)
    assert not log.exists()

    result = mildroute("serve", *options)
    assert result.stdout == "ok: 2 experts, no router, no client keys\n"


def test_a_check_refuses_what_a_gateway_would_wait_for(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    """A mistyped router, and a log that could not be written."""
    options = ["--experts", str(experts_file(tmp_path, "http://127.0.0.1:9/v1")), "--check"]
    result = mildroute("serve", str(tmp_path / "ruoter"), *options)
    assert result.exit_code == 2
    assert "needs a stored router if ROUTER is given, got nothing at" in result.stderr
    assert "ruoter" not in result.stderr  # a URL may hold credentials

    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "decisions").write_text("")
    for name in ("file", "link", "log"):
        result = mildroute("serve", *options, "--log", str(tmp_path / name))
        assert result.exit_code == 2
        assert "needs a readable and writable folder" in result.stderr

    (tmp_path / "log" / "decisions").unlink()
    (tmp_path / "log" / "decisions").mkdir()
    (tmp_path / "log" / "decisions" / f"{20_261_118}-1.jsonl").write_text("no JSON\n" * 2)
    result = mildroute("serve", *options, "--log", str(tmp_path / "log"))
    assert result.exit_code == 2
    assert "1.jsonl" in result.stderr

    result = mildroute("serve", *options, "--port", "8001", "--admin-port", "8001")
    assert result.exit_code == 2
    assert "got 8001 for both" in result.stderr
    result = mildroute("serve", *options, "--host", "300.1.1.1", "--no-keys")
    assert result.exit_code == 2
    assert "must be able to listen on 300.1.1.1" in result.stderr


def test_a_check_notes_a_store_that_is_away(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    options = ["--experts", str(experts_file(tmp_path, "http://127.0.0.1:9/v1")), "--check"]
    (tmp_path / "gateway.yaml").write_text("store: redis://127.0.0.1:9\n")
    result = mildroute("serve", *options, "--settings", str(tmp_path / "gateway.yaml"))
    assert result.exit_code == 0
    assert "the store does not respond" in result.stderr
    assert result.stdout.startswith("ok: 2 experts")


def test_a_port_that_is_taken_is_said_before_the_router_is_loaded(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = mildroute(
            "serve", str(tmp_path / "no router"), "--experts", "no experts", "--port", port
        )
    assert result.exit_code == 2
    assert (
        f"must be able to listen on 127.0.0.1 at port {port}, got: Address already in use; give"
        " --port or --host." in result.stderr
    )


def test_an_expert_that_only_the_router_knows_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    services = load_gateway(
        fitted(tmp_path / "router", ("small", "huge")),
        experts_file(tmp_path, "http://127.0.0.1:9/v1"),
        GatewayConfig(),
    )
    services.manager.close()
    assert caplog.messages == [
        "experts.yaml lacks huge, which the router knows: they are never called"
    ]
