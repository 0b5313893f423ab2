"""A learner that is killed at any moment loses nothing and promotes nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from learning.test_learner import learner_of
from learning.world import World, entries, full_table, single_router
from mildroute._files import open_location
from mildroute._jsonl import log_part
from mildroute.exceptions import TableError
from mildroute.learning.trail import Store, Trail
from mildroute.persistence.remote import read_pointer
from tests.support.s3 import s3_bucket

ROOT = Path(__file__).parents[2]
# Actions that change the pointer.
ACTIONS = {"started", "canary", "promoted", "dropped", "accepted", "rolled back"}


def start(world: World) -> subprocess.Popen[bytes]:
    plan = ("shadow_requests=50", "first_requests=100", "watch_requests=300", "settle_seconds=0")
    command = [sys.executable, "-m", "mildroute", "learn", str(world.folder / "state")]
    command += ["--log", str(world.folder / "log"), "--pointer", world.pointer]
    command += ["--table", str(world.folder / "table.parquet"), "--quality", "0.95"]
    command += ["--every", "0.05", *(word for each in plan for word in ("--plan", each))]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def check_trail(world: World) -> Counter[str]:
    """Every action was intended, done once, and is what the pointer says."""
    trail = entries(world.folder / "state")
    for before, entry in zip([{}, *trail], trail, strict=False):
        if entry["event"] in ACTIONS and "pointer" in entry:
            assert before["event"] == "intent"
            assert (before["action"], before["after"]) == (entry["event"], entry["pointer"])
    promoted = [entry["candidate"] for entry in trail if entry["event"] == "promoted"]
    assert len(set(promoted)) == len(promoted)
    acted = [entry for entry in trail if "pointer" in entry]
    allowed = [acted[-1]["pointer"]] if acted else []
    if trail[-1]["event"] == "intent":
        allowed += [trail[-1]["before"], trail[-1]["after"]]
    if allowed:
        assert read_pointer(world.pointer).document() in allowed
    return Counter(entry["event"] for entry in trail)


@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_a_killed_learner_goes_on_and_does_nothing_twice(tmp_path: Path, kills: int) -> None:
    world = World(tmp_path, str(tmp_path / "routers" / "prod.json"), clock=time.time, seed=kills)
    full_table(tmp_path)
    world.publish(single_router(tmp_path, "small"))
    world.serve(50)
    rng = random.Random(kills)  # noqa: S311
    for _ in range(kills):
        learner = start(world)
        assert learner.stdout is not None
        if rng.random() < 0.8:
            # It is at work; else it is killed as it starts.
            assert learner.stdout.readline()
        time.sleep(rng.random() * 1.5)
        os.kill(learner.pid, signal.SIGKILL)
        learner.communicate()
        if (tmp_path / "state" / "trail").is_dir() and any((tmp_path / "state/trail").iterdir()):
            check_trail(world)
        world.serve(220)
    learner = start(world)
    try:
        until = time.monotonic() + 120
        while not (counts := check_trail(world))["accepted"]:
            assert time.monotonic() < until, counts
            world.serve(220)
            time.sleep(0.2)
    finally:
        learner.kill()
        learner.communicate()
    assert counts["promoted"] == counts["accepted"] == 1
    pointer = read_pointer(world.pointer)
    assert len(pointer.history) == 1


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URLs below a bucket of a real server that speaks S3."""
    with s3_bucket("fleet", monkeypatch) as (_, ending):
        yield f"s3://fleet{ending}"


def test_logs_state_and_pointer_may_lie_in_object_storage(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    world = World(tmp_path, str(log_part(bucket, "routers/prod.json")))
    world.publish(single_router(tmp_path, "small"))
    log, state = str(log_part(bucket, "log")), str(log_part(bucket, "state"))
    learner = learner_of(world, log=log, state=state)
    events: list[str] = []
    for _ in range(12):
        world.serve(220)
        system, root = open_location(log)
        pafs.copy_files(str(tmp_path / "log"), root, destination_filesystem=system)
        events.append(learner.look()["event"])
        if events[-1] == "promoted":
            break
    assert [event for event in events if event != "waited"] == [
        "fitted",
        "canary",
        "canary",
        "promoted",
    ]
    trail = Trail(Store(state))
    assert trail.last["pointer"] == read_pointer(world.pointer).document()
    home = f"candidates/{trail.state.candidate[:16]}"
    assert set(Store(state).names(home)) >= {"router.json", "report.html", "verdict.json"}


def lease(store: Store, **changes: Any) -> None:
    held = {"host": "elsewhere", "pid": 1, "token": "x", "until": time.time() + 60}
    store.write("lock.json", json.dumps({**held, **changes}).encode())


def test_a_lease_in_object_storage_keeps_a_second_learner_off(bucket: str) -> None:
    store = Store(str(log_part(bucket, "state")))
    lease(store)
    with pytest.raises(TableError, match="got one on elsewhere"), store.locked():
        pass
    lease(store, until=time.time() - 1)
    refused = pytest.raises(TableError, match="one learner at a time")
    with store.locked(), refused, store.locked():  # this process lives, and holds it
        pass
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    lease(store, host=os.uname().nodename, pid=process.pid)
    with store.locked():
        assert json.loads(store.read("lock.json") or b"")["pid"] == os.getpid()
    assert store.read("lock.json") == b"{}"
