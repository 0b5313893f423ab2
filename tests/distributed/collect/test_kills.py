"""Whatever of a run on Ray is killed, and whenever.

The table ends the same, and nothing is asked twice but what was in flight.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mildroute.experts.config import ExpertSpec
from tests.collection.pools import write_queries
from tests.distributed.collect.pools import CONCURRENCY, asked, run, specs, table_of
from tests.experts.hostile_server import HostileServer, says
from tests.support.processes import children

pytest.importorskip("ray")
# Ray warns of settings of its own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
]
SEEDS, QUERIES, KEY = range(30), 120, "sk-marked-0815-never-to-be-seen-4711"
# Calls that all experts together can serve; the second one has a single worker.
AT_ONCE = CONCURRENCY + 1
EXPERTS = """
experts:
  first:
    {{kind: openai, base_url: "{url}", model: first, api_key_env: KILLS_KEY, concurrency: 4,
     request: {{max_tokens: 10}}, retries: 0}}
  second:
    {{kind: openai, base_url: "{url}", model: second, api_key_env: KILLS_KEY, concurrency: 1,
     request: {{max_tokens: 10}}, retries: 0}}
"""


def experts(server: HostileServer) -> list[ExpertSpec]:
    return [
        *specs(server, "first", api_key_env="KILLS_KEY"),
        *specs(server, "second", api_key_env="KILLS_KEY", concurrency=1),
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that does no work, and two machines that do; a machine that is lost is missed soon."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ |= {"KILLS_KEY": KEY, "RAY_USAGE_STATS_ENABLED": "0"}
    quick = {
        "health_check_period_ms": 300,
        "health_check_failure_threshold": 3,
        "health_check_initial_delay_ms": 0,
    }
    found = Cluster(
        initialize_head=True,
        shutdown_at_exit=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quick},
    )
    for _ in range(2):
        found.add_node(num_cpus=2)
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    yield found
    ray.shutdown()
    found.shutdown()
    del os.environ["KILLS_KEY"]


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with HostileServer(
        lambda call: says(
            call.prompt.split()[0], delay=0.05 if call.json["model"] == "first" else 0.012
        )
    ) as found:
        yield found


@pytest.fixture(scope="module")
def calm(
    cluster: Any, server: HostileServer, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, object]]:
    """The table of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("calm")
    run(folder, experts(server), QUERIES, workers=None)
    return table_of(folder)


def moment(server: HostileServer, chance: random.Random) -> None:
    """Wait for a random moment, most often while calls are in flight."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0.0, 4.0))
        return
    end = time.monotonic() + 60
    while not server.calls and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 2.0))


def disturbed(
    server: HostileServer, chance: random.Random, disturb: Callable[[], object]
) -> threading.Thread:
    def wait_and_disturb() -> None:
        moment(server, chance)
        disturb()

    thread = threading.Thread(target=wait_and_disturb, daemon=True)
    thread.start()
    return thread


def check(
    folder: Path, server: HostileServer, calm: list[dict[str, object]], kills: int = 1
) -> None:
    calls = asked(server)
    assert table_of(folder) == calm
    assert len(calls) == 2 * QUERIES
    assert sum(calls.values()) - len(calls) <= kills * AT_ONCE
    assert not list((folder / "costs" / "_collected" / "journals").iterdir())
    shutil.rmtree(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_driver_is_taken_over(
    seed: int, cluster: Any, server: HostileServer, calm: list[dict[str, object]], tmp_path: Path
) -> None:
    chance = random.Random(seed)  # noqa: S311
    server.calls.clear()
    write_queries(tmp_path, QUERIES)
    (tmp_path / "experts.yaml").write_text(EXPERTS.format(url=server.url))
    command = [
        sys.executable,
        "-c",
        "from mildroute.cli.app import app; app()",
        "collect",
        "queries.jsonl",
        "--experts",
        "experts.yaml",
    ]
    options = ["--judge", "exact", "--yes", "--json", "--ray", "--ray-workers", "2"]
    with subprocess.Popen(
        [*command, *options],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "RAY_ADDRESS": cluster.address},
    ) as driver:
        moment(server, chance)
        driver.send_signal(signal.SIGKILL)
    # Its workers live on for a moment; the next run may be of either kind.
    run(tmp_path, experts(server), QUERIES, workers=chance.choice([None, 2]))
    check(tmp_path, server, calm)


def kill_a_worker(chance: random.Random) -> None:
    workers = []
    for pid in children(os.getpid()):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::") and b"MapBatches" in name:
            workers.append(pid)
    if workers:
        os.kill(chance.choice(workers), signal.SIGKILL)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_worker_is_replaced(
    seed: int, cluster: Any, server: HostileServer, calm: list[dict[str, object]], tmp_path: Path
) -> None:
    chance = random.Random(seed)  # noqa: S311
    server.calls.clear()
    killer = disturbed(server, chance, lambda: kill_a_worker(chance))
    run(tmp_path, experts(server), QUERIES, workers=2)
    killer.join()
    check(tmp_path, server, calm)


@pytest.mark.parametrize("seed", range(5))
def test_the_cap_holds_and_is_used_up_when_workers_die(
    seed: int, cluster: Any, server: HostileServer, tmp_path: Path
) -> None:
    # A call costs two dollars; a little more than ten are set aside for it, and those of calls that
    # are lost stay away.
    chance, price = random.Random(seed), {"input": 1.0, "output": 1e6}  # noqa: S311
    server.calls.clear()
    killer = disturbed(server, chance, lambda: kill_a_worker(chance))
    found = run(
        tmp_path, specs(server, "first", price=price), QUERIES, workers=2, max_dollars=200.0
    )
    killer.join()
    assert found.is_capped
    assert 189.0 < found.spent <= 200.0
    assert 2.0 * len(server.calls) <= 200.0


def lose(cluster: Any, machine: Any, *, at_once: bool) -> None:
    """End the processes of a machine.

    All at once, or Ray's own first, so that its workers live on for a while.
    """
    (ray_itself,) = machine.all_processes["raylet"]
    workers = list(children(ray_itself.process.pid)) if at_once else []
    for pid in [ray_itself.process.pid, *workers]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(machine, allow_graceful=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_machine_is_made_up_for(
    seed: int, cluster: Any, server: HostileServer, calm: list[dict[str, object]], tmp_path: Path
) -> None:
    chance = random.Random(seed)  # noqa: S311
    server.calls.clear()
    machine = chance.choice(sorted(cluster.worker_nodes, key=lambda node: node.unique_id))
    killer = disturbed(
        server, chance, lambda: lose(cluster, machine, at_once=chance.random() < 0.7)
    )
    try:
        run(tmp_path, experts(server), QUERIES, workers=2)
    finally:
        killer.join()
        cluster.add_node(num_cpus=2)
    check(tmp_path, server, calm)


def test_the_key_is_in_no_log(cluster: Any, calm: list[dict[str, object]]) -> None:
    folder = Path(cluster.head_node.get_session_dir_path())
    texts = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(texts) > 10
    assert [path for path in texts if KEY.encode() in path.read_bytes()] == []
