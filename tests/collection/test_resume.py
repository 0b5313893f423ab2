"""A collector that is killed at any moment goes on, asks nothing twice but what was in flight, and
ends with the same table.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.collection.pools import write_queries
from tests.experts.hostile_server import HostileServer, says

CONCURRENCY, QUERIES = 4, 60
EXPERTS = """
experts:
  first:
    kind: openai
    base_url: {url}
    model: one
    concurrency: {concurrency}
    price: {{input: 1, output: 1}}
    request: {{max_tokens: 10}}
  second:
    kind: openai
    base_url: {url}
    model: two
    concurrency: {concurrency}
"""


def collector(folder: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        "from mildroute.cli.app import app; app()",
        "collect",
        "queries.jsonl",
        "--experts",
        "experts.yaml",
    ]
    return subprocess.Popen(
        [*command, "--judge", "exact", "--yes", "--json"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def prepare(folder: Path, server: HostileServer) -> None:
    folder.mkdir()
    write_queries(folder, QUERIES)
    (folder / "experts.yaml").write_text(EXPERTS.format(url=server.url, concurrency=CONCURRENCY))


def table_of(folder: Path) -> list[dict[str, object]]:
    """All but the seconds, which differ from run to run."""
    table = pq.read_table(folder / "costs" / "costs.parquet")
    return table.drop_columns(
        [name for name in table.column_names if name.startswith("latency")]
    ).to_pylist()


def runs_until_done(folder: Path, chance: random.Random, kills: int) -> int:
    done = 0
    for _ in range(kills):
        process = collector(folder)
        time.sleep(chance.uniform(0.6, 2.5))
        process.send_signal(signal.SIGKILL)
        done += process.wait() == -signal.SIGKILL
        process.communicate()
    process = collector(folder)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    return done


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_a_killed_run_goes_on_and_ends_with_the_same_table(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    with HostileServer(lambda call: says(call.prompt.split()[0], delay=0.05)) as server:
        prepare(tmp_path / "calm", server)
        calm = collector(tmp_path / "calm")
        assert calm.wait(60) == 0
        calm.communicate()
        server.calls.clear()
        prepare(tmp_path / "killed", server)
        kills = runs_until_done(tmp_path / "killed", chance, kills=2)
        asked = Counter((call.json["model"], call.prompt) for call in server.calls)
    assert table_of(tmp_path / "killed") == table_of(tmp_path / "calm")
    assert len(asked) == 2 * QUERIES
    assert sum(asked.values()) - len(asked) <= kills * 2 * CONCURRENCY
