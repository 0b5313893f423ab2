"""A run on Ray asks, counts, spends and writes as a local one does, and survives the death of a
worker.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.distributed.cluster import connected
from mildroute.exceptions import ArgumentError
from tests.collection.pools import write_queries
from tests.distributed.collect.pools import CONCURRENCY, asked, right, run, specs, table_of
from tests.experts.hostile_server import Behavior, Call, HostileServer, says, status

pytest.importorskip("ray")
# Ray warns of settings of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)

EXPERTS = """
experts:
  first:
    {{kind: openai, base_url: "{url}", model: first, concurrency: 4,
     request: {{max_tokens: 10}}, retries: 0}}
  second:
    {{kind: openai, base_url: "{url}", model: second, concurrency: 1,
     request: {{max_tokens: 10}}, retries: 0}}
"""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(2, store_bytes=100 << 20):
        yield


@pytest.mark.slow
def test_ray_and_local_runs_go_on_where_the_other_stopped_and_end_with_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostileServer(right) as server:
        experts = [*specs(server, "first"), *specs(server, "second", concurrency=1)]
        run(tmp_path / "local", experts, 60, workers=None)
        server.calls.clear()
        run(tmp_path / "both", experts, 10, workers=None)
        write_queries(tmp_path / "both", 50)
        (tmp_path / "both" / "experts.yaml").write_text(EXPERTS.format(url=server.url))
        monkeypatch.chdir(tmp_path / "both")
        options = [
            "--experts",
            "experts.yaml",
            "--judge",
            "exact",
            "--json",
            "--yes",
            "--ray",
            "--ray-workers",
            "1",
        ]
        command = CliRunner().invoke(app, ["collect", "queries.jsonl", *options])
        counts = [
            (each["known"], each["done"], each["errors"], each["state"])
            for each in json.loads(command.stdout)["experts"]
        ]
        assert counts == [(10, 40, 0, "done")] * 2
        last = run(tmp_path / "both", experts, 60, workers=None)
        assert [tally.known for tally in last.tallies] == [50, 50]
        assert set(asked(server).values()) == {1}
        assert server.most_at_once <= CONCURRENCY + 1
    assert table_of(tmp_path / "both") == table_of(tmp_path / "local")
    assert not (tmp_path / "both" / "costs" / "_collected" / "work").exists()


def test_the_cap_holds_over_all_workers(tmp_path: Path) -> None:
    # Nine tokens out at a dollar each; ten of them and some cents for the input are set aside for
    # each call.
    with HostileServer([says("2", tokens=(0, 9))]) as server:
        found = run(
            tmp_path,
            specs(server, "dear", price={"input": 1.0, "output": 1e6}),
            20,
            workers=2,
            max_dollars=50.0,
        )
        assert found.is_capped
        assert found.spent == 45.0
        assert [(tally.done, tally.dollars, tally.state) for tally in found.tallies] == [
            (5, 45.0, "stopped by the cap")
        ]
        assert len(server.calls) == 5


def test_an_expert_that_gives_no_answers_is_left_alone(tmp_path: Path) -> None:
    with HostileServer([status(400)]) as server:
        found = run(tmp_path, specs(server, "first"), 60)
    (tally,) = found.tallies
    assert tally.state == "gives no answers"
    assert tally.done == tally.errors < 60


@pytest.mark.slow
def test_an_error_of_a_worker_ends_the_run_at_once_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_HERE_KEY", "sk-only-here-0815")
    with (
        HostileServer(right) as server,
        pytest.raises(
            ArgumentError,
            match=r"variable ONLY_HERE_KEY must hold the key.*before Ray is started on it.\)$",
        ),
    ):
        run(tmp_path, specs(server, "first", api_key_env="ONLY_HERE_KEY"), 10)
    assert not server.calls


def test_a_killed_worker_costs_only_the_calls_under_way_and_failures_are_counted_once(
    tmp_path: Path,
) -> None:
    def kill() -> None:
        while len(server.calls) < 10:
            time.sleep(0.01)
        # Journals are named after their writers.
        newest = max((tmp_path / "costs" / "_collected" / "journals").glob("*.jsonl"))
        os.kill(int(newest.stem.split("-")[-2]), signal.SIGKILL)

    def behave(call: Call) -> Behavior:
        return (
            status(400, delay=0.05)
            if int(call.prompt.split()[0]) % 4 == 3
            else says("5", delay=0.05)
        )

    with HostileServer(behave) as server:
        watcher = threading.Thread(target=kill, daemon=True)
        watcher.start()
        found = run(tmp_path, specs(server, "first", price=1.0), 40)
        watcher.join()
        calls = asked(server)
    (tally,) = found.tallies
    assert (tally.done, tally.errors, tally.score, tally.calls, found.empty) == (40, 10, 1, 40, 10)
    assert len(calls) == 40
    assert sum(calls.values()) <= 40 + CONCURRENCY
    # Lost calls count at what they may have cost, answered ones at what they did.
    assert found.spent > tally.dollars
    assert tally.dollars == pytest.approx(30 * 9e-6)


def test_workers_without_ray_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experts.yaml").write_text(EXPERTS.format(url="http://127.0.0.1:9/v1"))
    write_queries(tmp_path)
    refused = CliRunner().invoke(
        app,
        [
            "collect",
            "queries.jsonl",
            "--experts",
            "experts.yaml",
            "--judge",
            "exact",
            "--ray-workers",
            "2",
        ],
    )
    assert "got --ray-workers 2 without --ray" in " ".join(refused.output.split())


def test_a_run_with_nothing_to_do_starts_no_worker(tmp_path: Path) -> None:
    write_queries(tmp_path)
    with HostileServer(right) as server:
        run(tmp_path, specs(server), 5, workers=None)
        assert [
            tally.state for tally in run(tmp_path, specs(server), 5, max_dollars=1.0).tallies
        ] == ["done", "done"]
