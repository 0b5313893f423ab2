"""``mildroute serve --workers``: several processes that share a port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import ask, experts_file, fitted, router_in_use, running
from tests.experts.hostile_server import HostileServer, says
from tests.support.processes import children


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


@contextmanager
def two_workers(
    folder: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str, HostileServer]]:
    fitted(folder / "router")
    with HostileServer(
        lambda call: says("done", delay=1.0 if "slow" in call.prompt else 0.0)
    ) as server:
        experts_file(folder, server.url)
        with running(folder, "--workers", "2", *options) as (process, address):
            until(lambda: answers(address))
            try:
                yield process, address, server
            finally:
                process.terminate()
                process.wait(60)


def answers(address: str) -> bool:
    try:
        return ask(address, "add 3 and 9")[0]["choices"][0]["message"]["content"] == "done"
    except OSError:
        return False


def served_by(folder: Path) -> set[int]:
    """Return the processes that have logged a decision."""
    return {int(path.stem.split("-")[1]) for path in (folder / "log/decisions").glob("*.jsonl")}


def test_workers_share_a_port_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    with two_workers(tmp_path, "--log", "log") as (process, address, _):
        until(lambda: answers(address) and served_by(tmp_path) == workers_of(process))
        dead = min(workers_of(process))
        os.kill(dead, signal.SIGKILL)
        until(lambda: len(workers_of(process) - {dead}) == 2)
        until(lambda: answers(address) and workers_of(process) <= served_by(tmp_path))


def test_workers_stop_when_their_parent_is_killed(tmp_path: Path) -> None:
    with two_workers(tmp_path) as (process, _, _):
        until(lambda: len(workers_of(process)) == 2)
        workers = workers_of(process)
        process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_a_hangup_replaces_all_workers_and_takes_the_new_router(tmp_path: Path) -> None:
    with two_workers(tmp_path) as (process, address, _):
        before = workers_of(process)
        router = router_in_use(address)
        fitted(tmp_path / "router", swapped=True)
        process.send_signal(signal.SIGHUP)
        until(lambda: len(workers_of(process)) == 2 and not workers_of(process) & before)
        until(lambda: answers(address))
        assert router_in_use(address) != router


def test_requests_in_flight_are_finished_before_the_workers_stop(tmp_path: Path) -> None:
    results: list[Any] = []
    with two_workers(tmp_path) as (process, address, server):
        slow = threading.Thread(target=lambda: results.append(ask(address, "slow")[0]))
        slow.start()
        until(lambda: any("slow" in call.prompt for call in server.calls))
        process.terminate()
        slow.join()
        assert results[0]["choices"][0]["message"]["content"] == "done"
        assert process.wait(20) == 0


def test_the_reload_path_is_not_served_because_it_would_reach_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR", "mr-operator")
    (tmp_path / "gateway.yaml").write_text("admin_key_env: OPERATOR\n")
    with two_workers(tmp_path, "--settings", "gateway.yaml") as (_, address, _):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(address, "/admin/reload", "mr-operator", "POST")
        with refused.value as answer:
            assert answer.code == 404


def test_an_artifact_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
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


KEYS = f"a: {{hash: 'sha256:{'0' * 64}', %s}}\n"


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ("keys: keys.yaml\n", (), "has keys with limits, which each worker would apply"),
        ("", ("--admin-port", "9"), "--workers cannot share an admin port, got 9"),
        (
            "routing:\n  exploration: {rate: 0.1, max_dollars_per_day: 1}\n",
            (),
            "routing.exploration.max_dollars_per_day applies to each process",
        ),
    ],
    ids=["limits of keys", "admin port", "dollars of exploration"],
)
def test_workers_that_would_multiply_a_limit_are_refused(
    tmp_path: Path,
    mildroute: Callable[..., Any],
    settings: str,
    options: tuple[str, ...],
    reason: str,
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(KEYS % "requests_per_minute: 1")
    gateway = tmp_path / "gateway.yaml"
    gateway.write_text(settings)
    result = mildroute(
        "serve", "--experts", "none.yaml", "--workers", 2, "--settings", gateway, *options
    )
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


def test_workers_with_a_store_may_have_limits(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "keys.yaml").write_text(KEYS % "dollars_per_day: 1")
    gateway = tmp_path / "gateway.yaml"
    gateway.write_text("keys: keys.yaml\nstore: redis://127.0.0.1:1/0\n")
    experts = experts_file(tmp_path, "http://127.0.0.1:9/v1")
    result = mildroute(
        "serve", "--experts", experts, "--workers", 2, "--settings", gateway, "--check"
    )
    assert result.exit_code == 0, result.stderr
    assert "ok: 2 experts, no router, 1 client" in result.stdout
