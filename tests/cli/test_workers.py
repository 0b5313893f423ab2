"""``mildroute serve --workers``: several processes that act as one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision.log import dollars_of_today
from mildroute.gateway.workers import Channel
from tests.cli.test_serve import ask, experts_file, fitted, running
from tests.experts.hostile_server import HostileServer, says
from tests.support.processes import BackgroundLoad, children


def until(is_so: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    found = set()
    for pid in children(process.pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in command:
            found.add(pid)
    return found


def get(address: str, path: str, key: str = "", method: str = "GET") -> str:
    request = urllib.request.Request(  # noqa: S310
        address.replace("/v1", path), method=method, headers={"authorization": f"Bearer {key}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        found: str = answer.read().decode()
        return found


def metric(address: str, name: str) -> float:
    page = get(address, "/metrics")
    return sum(float(found[1]) for found in re.finditer(rf"^{name}(?:{{.*}})? (.*)$", page, re.M))


def decisions(folder: Path) -> dict[int, list[str]]:
    """Ids of decisions by the process that has written them."""
    found: dict[int, list[str]] = {}
    for path in (folder / "log" / "decisions").glob("*.jsonl"):
        lines = path.read_text().splitlines()
        found[int(path.stem.split("-")[1])] = [json.loads(line)["decision_id"] for line in lines]
    return found


class Load(BackgroundLoad):
    """Clients that ask one request after the other, each on a connection of its own."""

    def __init__(self, address: str, clients: int = 2) -> None:
        super().__init__()
        self._address = address
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        self.ids: list[str] = []
        self.failed: list[tuple[float, Exception]] = []

    def _run(self) -> None:
        while not self._is_over.is_set():
            started = time.monotonic()
            try:
                _, headers = ask(self._address, "add 3 and 9")
                self.ids.append(headers["x-mildroute-decision-id"])
            except (OSError, HTTPException) as error:  # the second if an answer is cut
                self.failed.append((started, error))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[Path, HostileServer]]:
    fitted(tmp_path / "router")
    (tmp_path / "gateway.yaml").write_text("admin_key_env: OPERATOR\n")
    with HostileServer(
        lambda call: says("done", delay=1.0 if "slow" in call.prompt else 0.0)
    ) as server:
        experts_file(tmp_path, server.url)
        yield tmp_path, server


@contextmanager
def two_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    options = ("--workers", "2", "--log", "log", "--settings", "gateway.yaml")
    with running(folder, *options) as (process, address):
        yield process, address


@pytest.mark.slow
def test_workers_share_a_port_their_metrics_and_their_reloads(
    gateway: tuple[Path, HostileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, server = gateway
    with two_workers(folder, monkeypatch) as (process, address):
        with Load(address) as load:
            until(lambda: all(decisions(folder).get(pid) for pid in workers_of(process)))
            until(lambda: len(load.ids) >= 40)
        assert load.failed == []
        assert metric(address, "mildroute_requests_total") == len(load.ids) == len(server.calls)
        counted = metric(address, "mildroute_request_seconds_count")
        assert counted == len(load.ids)
        written = Counter(one for ids in decisions(folder).values() for one in ids)
        assert written == Counter(load.ids)
        # A gateway that starts now counts the lines of both, each once.
        found = dollars_of_today(folder / "log", time.time())[""]
        assert found == pytest.approx(metric(address, "mildroute_spend_dollars_total"))

        def reloads(result: str) -> float:
            name = rf'mildroute_reloads_total{{kind="router",result="{result}"}}'
            return metric(address, re.escape(name))

        before = json.loads(get(address, "/readyz"))["router"]
        fitted(folder / "router", swapped=True)
        process.send_signal(signal.SIGHUP)
        until(lambda: reloads("loaded") == 2)
        assert f'mildroute_router_info{{baseline="large",digest="{before}"}}' not in get(
            address, "/metrics"
        )
        told = json.loads(get(address, "/admin/reload", "mr-operator", "POST"))
        assert told["workers"] == reloads("loaded") / 2 == 2
        (folder / "router" / "router.json").write_text("{}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(address, "/admin/reload", "mr-operator", "POST")
        with refused.value as answer:
            assert answer.code == 422
        assert reloads("rejected") == 2
        assert told["router"] in get(address, "/readyz")
        # Experts, too, in both.
        name = re.escape('mildroute_reloads_total{kind="experts",result="loaded"}')
        before = metric(address, name)
        assert before >= 4
        text = (folder / "experts.yaml").read_text()
        (folder / "experts.yaml").write_text(
            f"{text}\n{text[text.index('  large') :].replace('large', 'new')}"
        )
        process.send_signal(signal.SIGHUP)
        until(lambda: metric(address, name) == before + 2)
        for _ in range(8):
            assert '"new"' in get(address, "/v1/models")


def test_a_worker_that_is_killed_comes_back_and_no_other_request_fails(
    gateway: tuple[Path, HostileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = gateway
    with two_workers(folder, monkeypatch) as (process, address):
        with Load(address) as load:
            until(lambda: all(decisions(folder).get(pid) for pid in workers_of(process)))
            before = metric(address, "mildroute_requests_total")
            dead = min(workers_of(process))
            os.kill(dead, signal.SIGKILL)
            # Its port is closed by then, and only then.
            until(lambda: not Path(f"/proc/{dead}").exists())
            gone = time.monotonic()
            # What was read once does not fall, or Prometheus would take it for a restart.
            assert metric(address, "mildroute_requests_total") >= before
            until(
                lambda: len(alive := workers_of(process)) == 2 and decisions(folder).get(max(alive))
            )
            assert dead not in workers_of(process)
            assert metric(address, "mildroute_requests_total") >= before
        # Those that the dead worker had, and none that began later.
        assert [error for started, error in load.failed if started > gone] == []
        written = Counter(one for ids in decisions(folder).values() for one in ids)
        # A line is written after its answer: each client may have one of a worker that was killed.
        assert len(set(load.ids) - set(written)) <= 2
        assert set(written.values()) == {1}
        slow = threading.Thread(target=lambda: answers.append(ask(address, "slow")[0]))
        answers: list[Any] = []
        slow.start()
        until(lambda: metric(address, "mildroute_in_flight") == 1)
        process.terminate()
        slow.join()
        assert answers[0]["choices"][0]["message"]["content"] == "done"
        assert process.wait(20) == -signal.SIGTERM
        assert process.stderr is not None
        said = process.stderr.read()
        assert said.count("\n") == 1
        assert re.search(
            r"ERROR mildroute.gateway.workers worker died worker=\d exit_code=-9", said
        )


def test_workers_end_with_their_parent(
    gateway: tuple[Path, HostileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = gateway
    with two_workers(folder, monkeypatch) as (process, address):
        pids = workers_of(process)
        assert len(pids) == 2
        process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        with pytest.raises(OSError, match="refused"):
            ask(address, "add 3 and 9")


def test_what_is_wrong_is_said_once(tmp_path: Path) -> None:
    experts_file(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / "no router").write_text("")
    command = [sys.executable, "-m", "mildroute", "serve", "no router", "--experts", "experts.yaml"]
    result = subprocess.run(
        [*command, "--workers", "3", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "no router" in result.stderr
    assert result.stderr.count("\n") == 1


def test_other_systems_cannot_share_a_port(
    tmp_path: Path, mildroute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mildroute.gateway.workers.sys.platform", "darwin")
    result = mildroute(
        "serve", tmp_path, "--experts", "experts.yaml", "--workers", "2", "--port", 0
    )
    assert result.exit_code == 2
    assert "several workers share a port on Linux alone, got darwin; leave out" in result.stderr


def test_a_channel_carries_calls_in_both_directions_until_one_end_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        links = socket.socketpair()
        asked = asyncio.Event()

        async def double(number: int) -> int:
            # The other end may ask back before it has its answer.
            return number + await left.call("same", number)  # type: ignore[no-any-return]

        async def same(number: int) -> int:
            return number

        async def never() -> None:
            asked.set()
            await asyncio.Event().wait()

        async def fail() -> None:
            raise ValueError("bad")

        left, right = Channel(double=double, never=never, fail=fail), Channel(same=same)
        for channel, link in zip((left, right), links, strict=True):
            await channel.open(link)
        tasks = [asyncio.create_task(channel.run()) for channel in (left, right)]
        assert await asyncio.gather(*(right.call("double", n) for n in range(5))) == [0, 2, 4, 6, 8]
        assert await right.call("fail") is None
        assert [record.message for record in caplog.records] == ["a call of another process failed"]
        long = "x" * 1_000_000
        assert await left.call("same", long) == long
        waiting = asyncio.create_task(right.call("never"))
        await asked.wait()
        tasks[0].cancel()
        with pytest.raises(ConnectionResetError):
            await waiting
        with pytest.raises(ConnectionResetError):
            await right.call("double", 1)
        await tasks[1]

    asyncio.run(run())
