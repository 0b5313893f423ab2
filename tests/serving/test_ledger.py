"""The ledger of spend: each call of an expert once, and sums that are those of the log."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.exceptions import ArgumentError, TableError
from mildroute.serving.auth.database import DatabaseError
from mildroute.serving.auth.keys import APIClient, ClientTeam, KeyStore, hash_key, new_key
from mildroute.serving.auth.limits import DAY
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability.compaction import compact_log
from mildroute.serving.observability.decision_log import DecisionLog, read_log
from mildroute.serving.observability.ledger import Ledger, SpendEntry, read_entries, summarize_spend
from tests.experts.hostile_server import HostileServer, says
from tests.serving.records import ATTEMPT, record
from tests.serving.running import running, until
from tests.support.postgres import PostgresServer

TODAY = 20_000 * DAY  # 2024-10-04
BY = ["key", "team", "expert", "day"]
# Enters a log in a new process for each line of its input, and prints the process's id.
INGEST = """
import os, sys, time
from mildroute.serving.observability.ledger import Ledger
from mildroute.serving.observability import ledger
ledger._BATCH = 20
enter = Ledger._enter
def enter_slowly(*given):
    time.sleep(0.005)
    return enter(*given)
Ledger._enter = enter_slowly
for _ in sys.stdin:
    child = os.fork()
    if not child:
        Ledger(sys.argv[2], create=True).ingest(sys.argv[1])
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


@pytest.fixture
def url(database_url: str) -> str:
    return database_url


def write_log(folder: Path, count: int, *, start: int = 0, rows: int = 100) -> DecisionLog:
    """Decisions with 0 to 3 calls each, of prices whose sums depend on their order."""
    dice = random.Random(start)  # noqa: S311
    log = DecisionLog(DecisionLogConfig(folder, rows_per_file=rows))
    for number in range(start, start + count):
        calls = tuple(
            ATTEMPT
            | {"expert": dice.choice("sl"), "cost_usd": dice.random() * 10 ** dice.randint(-9, 2)}
            for _ in range(number % 4)
        )
        log.write(
            record(
                f"d{number}",
                time=TODAY + dice.random() * 3 * DAY,
                key=dice.choice("abc"),
                team=dice.choice(["red", ""]),
                attempts=calls,
            )
        )
    return log


def dollars_by_key(folder: Path) -> dict[str, float]:
    """The slow way: all calls of the log, added by ``math.fsum``."""
    costs: dict[str, list[float]] = {}
    for decision in read_log(folder):
        for call in decision.attempts:
            costs.setdefault(decision.key, []).append(call["cost_usd"])
    return {key: math.fsum(values) for key, values in costs.items()}


def in_ledger(url: str, by: list[str]) -> list[dict[str, Any]]:
    with closing(Ledger(url)) as ledger:
        return summarize_spend(ledger.entries(), by)


def ingest(folder: Path, url: str) -> int:
    with closing(Ledger(url, create=True)) as ledger:
        return ledger.ingest(folder)


def test_sums_are_those_of_the_log_to_the_last_bit(url: str, tmp_path: Path) -> None:
    write_log(tmp_path, 1000).close()
    assert ingest(tmp_path, url) == 1500
    found = in_ledger(url, ["key"])
    assert {row["key"]: row["dollars"] for row in found} == dollars_by_key(tmp_path)
    assert sum(row["calls"] for row in found) == 1500
    assert sum(row["tokens_in"] for row in found) == 15_000
    assert in_ledger(url, BY) == summarize_spend(read_entries(tmp_path), BY)
    assert ingest(tmp_path, url) == 0


def test_only_new_lines_are_read_also_of_files_that_were_tidied(url: str, tmp_path: Path) -> None:
    first = write_log(tmp_path, 150)
    assert ingest(tmp_path, url) == 223
    first.close()
    compact_log(tmp_path)
    with closing(Ledger(url)) as ledger:
        assert ledger.ingest(tmp_path) == 0
        more = write_log(tmp_path, 8, start=150)
        assert ledger.ingest(tmp_path) == 12
        more.write(record("last"))
        assert ledger.ingest(tmp_path) == 1
        assert ledger.ingest(tmp_path) == 0
    more.close()
    assert in_ledger(url, BY) == summarize_spend(read_entries(tmp_path), BY)


def test_a_line_that_is_half_written_waits(url: str, tmp_path: Path) -> None:
    log = write_log(tmp_path, 8)
    (path,) = (tmp_path / "decisions").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert ingest(tmp_path, url) == 9
    path.write_bytes(whole)
    assert ingest(tmp_path, url) == 3
    log.close()


def test_killed_at_any_moment_and_run_again_each_call_counts_once(url: str, tmp_path: Path) -> None:
    write_log(tmp_path, 3000, rows=700).close()
    dice = random.Random(1)  # noqa: S311
    command = [sys.executable, "-c", INGEST, str(tmp_path), url]
    pipe = subprocess.PIPE
    with (
        closing(Ledger(url, create=True)) as reader,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent,
    ):
        assert parent.stdin is not None
        assert parent.stdout is not None
        counts = [0]
        for _ in range(5):
            print(file=parent.stdin, flush=True)
            child = int(parent.stdout.readline())
            until(lambda: calls_of(reader) > counts[-1], 20)
            time.sleep(dice.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline() == "ended\n"
            counts.append(calls_of(reader))
        parent.stdin.close()
    assert counts == sorted(counts)
    assert counts[-1] < 4500
    assert ingest(tmp_path, url) == 4500 - counts[-1]
    assert in_ledger(url, BY) == summarize_spend(read_entries(tmp_path), BY)


def calls_of(ledger: Ledger) -> int:
    return int(ledger.execute("SELECT count(*) FROM mildroute_spend")[0][0])


def calls_in(url: str) -> int:
    try:
        with closing(Ledger(url)) as ledger:
            return calls_of(ledger)
    except DatabaseError:  # no table yet
        return 0


def test_two_at_once_count_each_call_once(url: str, tmp_path: Path) -> None:
    write_log(tmp_path, 2000, rows=300).close()
    added: list[int] = []
    runs = [threading.Thread(target=lambda: added.append(ingest(tmp_path, url))) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(added) == 3000
    assert in_ledger(url, BY) == summarize_spend(read_entries(tmp_path), BY)


def test_files_of_one_name_from_two_machines_are_two(url: str, tmp_path: Path) -> None:
    for place, machine in enumerate("ab"):
        write_log(tmp_path / machine, 4, start=4 * place).close()
        (path,) = (tmp_path / machine / "decisions").iterdir()
        path.rename(path.with_name("00000000000000000001-1.jsonl"))
        assert ingest(tmp_path / machine, url) == 6
    assert calls_in(url) == 12


def test_a_report_groups_by_what_is_asked_within_a_time(tmp_path: Path) -> None:
    """By hand: 0.1 ten times is 1, exactly, and a day ends at midnight of UTC."""
    log = DecisionLog(DecisionLogConfig(tmp_path))
    call = ATTEMPT | {"cost_usd": 0.1}
    for number in range(10):
        log.write(record(f"d{number}", time=TODAY, seconds=1.0, team="red", attempts=(call,)))
    late = record(
        "late", time=TODAY + DAY - 0.5, seconds=1.0, attempts=(call | {"expert": "large"},)
    )
    log.write(late)
    log.close()
    sums = {"tokens_in": 100, "tokens_out": 200, "calls": 10, "dollars": 1.0}
    tenth = {"tokens_in": 10, "tokens_out": 20, "calls": 1, "dollars": 0.1}
    entries = list(read_entries(tmp_path))
    assert summarize_spend(entries, ["day", "team"]) == [
        {"day": "2024-10-04", "team": "red"} | sums,
        {"day": "2024-10-05", "team": ""} | tenth,
    ]
    assert summarize_spend(entries, ["expert"]) == [
        {"expert": "large"} | tenth,
        {"expert": "small"} | sums,
    ]
    assert len(list(read_entries(tmp_path, until=TODAY + DAY))) == 10
    assert len(list(read_entries(tmp_path, since=TODAY + DAY))) == 1
    with pytest.raises(ArgumentError, match="some of key, team, expert, day, got model"):
        summarize_spend(entries, ["model"])
    with pytest.raises(TableError, match="is not a folder"):
        list(read_entries(tmp_path / "none"))


def test_the_smallest_and_the_largest_dollars_add_up() -> None:
    costs = [5e-324, 1e15, 0.1, 0.0, 1e-9]
    entries = [SpendEntry("d", n, 0.0, "k", "", "e", 0, 0, cost) for n, cost in enumerate(costs)]
    assert summarize_spend(entries, ["key"])[0]["dollars"] == math.fsum(costs)


def test_the_log_has_the_team_of_a_key() -> None:
    key = new_key()
    client = APIClient("a", team=ClientTeam("red", members=("a",)))
    with (
        HostileServer([says("4")]) as expert,
        running(
            services={"key_store": KeyStore([(hash_key(key), client)])}, small=expert.url
        ) as gateway,
    ):
        gateway.chat(headers={"authorization": f"Bearer {key}"})
        assert gateway.records()[0].team == "red"


class TestCommand:
    def run(self, *words: object) -> Any:
        return CliRunner().invoke(app, ["spend", *map(str, words)])

    def test_ingest_and_report(self, url: str, tmp_path: Path) -> None:
        write_log(tmp_path, 40).close()
        told = self.run("ingest", tmp_path, "--ledger", url)
        assert told.stdout == f"60 calls are new in {url}.\n"
        again = self.run("ingest", tmp_path, "--ledger", url, "--json")
        assert json.loads(again.stdout) == {"calls": 0, "ledger": url}
        options = ("--by", "key,day", "--since", "2024-10-05", "--until", "2024-10-06", "--json")
        rows = json.loads(self.run("report", "--ledger", url, *options).stdout)
        assert {row["day"] for row in rows} == {"2024-10-05"}
        assert rows == json.loads(self.run("report", "--log", tmp_path, *options).stdout)
        table = self.run("report", "--ledger", url, "--by", "team").stdout
        assert "tokens out" in table
        assert "red" in table

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("report",), "give --ledger or --log"),
            (("report", "--log", ".", "--ledger", "sqlite:///x.db"), "give --ledger or --log"),
            (("report", "--log", ".", "--by", "model"), "some of key, team, expert, day"),
            (("report", "--ledger", "sqlite:////no/such.db"), "No such file"),
            (("report", "--log", ".", "--since", "soon"), "must be a date"),
            (("ingest", "/no/such", "--ledger", "sqlite:////tmp"), "unable to open|says"),
            (("ingest", "log", "--ledger", "ledger.db"), "named by its URL"),
        ],
    )
    def test_errors_are_one_line(self, words: tuple[str, ...], message: str) -> None:
        result = self.run(*words)
        assert result.exit_code == 2
        assert re.search(message, result.stderr)

    def test_a_sidecar_follows_the_log_and_waits_for_its_database(
        self, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        url = postgres.new_database()
        log = write_log(tmp_path, 4)
        words = f"-m mildroute spend ingest {tmp_path} --follow --interval 0.05 --ledger"
        command = [sys.executable, *words.split(), url]
        sidecar = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: calls_in(url) == 6, 30)
            postgres.stop()
            log.write(record("later"))
            assert sidecar.stderr is not None
            assert sidecar.stderr.readline().startswith("the log waits: ")
            postgres.start()
            until(lambda: calls_in(url) == 7, 30)
        finally:
            sidecar.terminate()
            sidecar.communicate()
            log.close()
