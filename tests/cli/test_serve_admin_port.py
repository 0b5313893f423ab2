"""``mildroute serve --admin-port``: metrics and administration apart from clients."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from docs.tutorials.generate import free_port
from tests.cli.test_serve import ask, experts_file, fitted, running
from tests.cli.test_serve_workers import get, metric, until
from tests.experts.hostile_server import HostileServer, says


def status_of(address: str, path: str, key: str = "", method: str = "GET") -> tuple[int, str]:
    try:
        return 200, get(address, path, key, method)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def draining(address: str) -> bool:
    code, answer = status_of(address, "/readyz")
    return code == 503 and json.loads(answer)["reason"] == "draining"


def refuses(address: str) -> bool:
    try:
        get(address, "/healthz")
    except OSError as error:
        return not isinstance(error, urllib.error.HTTPError)
    return False


def test_the_admin_port_has_metrics_and_reloads_and_ends_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    (tmp_path / "gateway.yaml").write_text("admin_key_env: OPERATOR\n")
    fitted(tmp_path / "router")
    port = free_port()
    admin = f"http://127.0.0.1:{port}/v1"
    options = ("--admin-port", port, "--settings", "gateway.yaml")
    answers: list[Any] = []
    with HostileServer(
        lambda call: says("done", delay=3.0 if "slow" in call.prompt else 0.0)
    ) as server:
        experts_file(tmp_path, server.url)
        with running(tmp_path, *options) as (process, address):
            assert process.stdout is not None
            assert process.stdout.readline() == (
                f"metrics and administration at {admin.removesuffix('/v1')}\n"
            )
            for path, method in (("/metrics", "GET"), ("/admin/reload", "POST")):
                assert status_of(address, path, "mr-operator", method)[0] == 404
                assert path not in json.loads(get(address, "/openapi.json"))["paths"]
            for each in (address, admin):
                assert json.loads(get(each, "/healthz")) == {"status": "alive"}
                assert json.loads(get(each, "/readyz"))["status"] == "ready"
            assert status_of(admin, "/v1/models")[0] == 404
            assert set(json.loads(get(admin, "/openapi.json"))["paths"]) == {
                "/healthz",
                "/readyz",
                "/metrics",
                "/openapi.json",
                "/admin/reload",
                "/",
                "/ui/{name}",
                "/status",
                "/v1/route",
                "/v1/chat/completions",
            }
            assert status_of(admin, "/status", "wrong")[0] == 401
            assert status_of(admin, "/admin/reload", "wrong", "POST")[0] == 401
            assert get(admin, "/admin/reload", "mr-operator", "POST")
            for _ in range(6):
                ask(address, "add 3 and 9")
            assert metric(admin, "mildroute_requests_total") == 6
            slow = threading.Thread(target=lambda: answers.append(ask(address, "slow")[0]))
            slow.start()
            until(lambda: metric(admin, "mildroute_in_flight") == 1)
            process.terminate()
            # Clients are let in no more, and operators see why.
            until(lambda: draining(admin) and refuses(address), seconds=2.5)
            assert metric(admin, "mildroute_in_flight") == 1
            slow.join()
            assert answers[0]["choices"][0]["message"]["content"] == "done"
            assert process.wait(20) == -signal.SIGTERM
            assert refuses(admin)


def refusal(folder: Path, port: str, admin_port: str) -> str:
    """What is said of two ports, before anything else is looked at."""
    command = [sys.executable, "-m", "mildroute", "serve", "none", "--experts", "none.yaml"]
    run = subprocess.run(
        [*command, "--port", port, "--admin-port", admin_port],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    return " ".join(run.stderr.split())


def test_ports_that_cannot_be_had_are_refused_before_a_router_is_loaded(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = refusal(tmp_path, "0", port)
        assert f"at port {port}" in said
        assert "--admin-port" in said
    said = refusal(tmp_path, port, port)
    assert f"got {port} for both" in said
