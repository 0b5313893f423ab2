"""The log in an object store: every line once, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mildroute._jsonl import read_rows
from mildroute.cli.app import app
from mildroute.exceptions import TableError
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability import compaction
from mildroute.serving.observability.compaction import ShippingResult, compact_log, ship_log
from mildroute.serving.observability.decision_log import DECISIONS, DecisionLog, read_log
from mildroute.serving.observability.export import costs_from_log
from mildroute.serving.observability.feedback import FeedbackLog, read_feedback
from serving.records import record

ROOT = Path(__file__).parents[2]
HOUR = 3600.0
# Writes decisions until it is killed, as a gateway does.
WRITER = """
import itertools, os, sys, time
from pathlib import Path
from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability.decision_log import DecisionLog
from serving.records import record

log = DecisionLog(DecisionLogConfig(Path(sys.argv[1]), rows_per_file=100))
for number in itertools.count():
    log.write(record(f"{os.getpid()}-{number}", time=number * 20.0))
    print(number, flush=True)
    time.sleep(0.001 if number < 100 else 0.05)
"""


def write(folder: Path, first: int, last: int) -> DecisionLog:
    log = DecisionLog(DecisionLogConfig(folder, rows_per_file=5))
    for number in range(first, last):
        log.write(record(f"d{number}", time=number * HOUR / 4))
    return log


def ids(target: str) -> Counter[str]:
    """Ids of all rows that are stored, those that readers leave out included."""
    return Counter(row["decision_id"] for row in read_rows(f"{target}/{DECISIONS}"))


def test_lines_are_shipped_by_hour_once_also_those_of_growing_files(tmp_path: Path) -> None:
    log, target = write(tmp_path / "log", 0, 7), f"file://{tmp_path}/store"
    feedback = FeedbackLog(DecisionLogConfig(tmp_path / "log"), clock=lambda: 0.0)
    feedback.write("d0", 0.5, "a")
    assert ship_log(tmp_path / "log", target) == ShippingResult(objects=4, rows=8)
    assert ship_log(tmp_path / "log", target) == ShippingResult(0, 0)
    log.write(record("d7", time=7 * HOUR / 4))
    log.close()
    assert compact_log(tmp_path / "log").files == 2
    write(tmp_path / "log", 8, 10).close()
    assert ship_log(tmp_path / "log", target).rows == 3
    folders = {path.parent.name for path in (tmp_path / "store" / DECISIONS).rglob("*.parquet")}
    assert folders == {"hour=00", "hour=01", "hour=02"}
    assert ids(target) == {f"d{number}": 1 for number in range(10)}
    shipped = {each.decision_id: each for each in read_log(target)}
    assert shipped == {each.decision_id: each for each in read_log(tmp_path / "log")}
    assert read_feedback(target) == {"d0": 0.5}


def test_a_job_that_could_not_note_what_it_wrote_writes_the_same_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "log", 0, 4).close()
    target = f"file://{tmp_path}/store"
    ship_log(tmp_path / "log", f"file://{tmp_path}/other")

    def fail(self: object) -> None:
        raise KeyboardInterrupt

    # The first note is that of a new target.
    notes = iter([compaction._Shipper._save, fail])
    with monkeypatch.context() as patch:
        patch.setattr(compaction._Shipper, "_save", lambda self: next(notes)(self))
        with pytest.raises(KeyboardInterrupt):
            ship_log(tmp_path / "log", target)
    assert ship_log(tmp_path / "log", target).rows == 4
    assert set(ids(target).values()) == {1}


def test_large_files_are_shipped_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_ROWS_PER_OBJECT", 2)
    write(tmp_path / "log", 0, 5).close()
    target = f"file://{tmp_path}/store"
    assert ship_log(tmp_path / "log", target) == ShippingResult(objects=3, rows=5)
    assert ids(target) == {f"d{number}": 1 for number in range(5)}


def test_readers_deduplicate_what_was_shipped_again(tmp_path: Path) -> None:
    write(tmp_path / "log", 0, 4).close()
    target = f"file://{tmp_path}/store"
    for _ in range(2):
        (tmp_path / "log" / "shipped.json").unlink(missing_ok=True)
        assert ship_log(tmp_path / "log", target).rows == 4
    assert set(ids(target).values()) == {2}
    assert len(list(read_log(target))) == 4


def test_what_cannot_be_shipped_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is not a folder"):
        ship_log(tmp_path / "none", "file:///tmp/x")
    write(tmp_path / "log", 0, 2).close()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(
        app, ["log", "ship", str(tmp_path / "log"), str(tmp_path / "file" / "store")]
    )
    assert result.exit_code == 2
    assert "the log must be shipped to" in " ".join(result.output.split())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of a real server that speaks S3."""
    moto = pytest.importorskip("moto.server")
    from pyarrow.fs import S3FileSystem

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", moto.__name__, "-H", "127.0.0.1", "-p", str(port)],
        stdout=log,
        stderr=log,
    )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
        options = {"access_key": "test", "secret_key": "test", "region": "us-east-1"}
        S3FileSystem(
            **options,
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        ).create_dir("bucket")
        yield (
            "s3://test:test@bucket/{name}?scheme=http&region=us-east-1"
            f"&endpoint_override=127.0.0.1%3A{port}"
        )
    finally:
        server.kill()
        server.wait()
        log.close()


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_every_decision_is_there_once_whatever_is_killed(
    store: str, tmp_path: Path, kills: int
) -> None:
    folder, target = tmp_path / "log", store.format(name=f"log-{kills}")
    rng = random.Random(kills)  # noqa: S311
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "mildroute", "log", "ship", str(folder), target]
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], env=environment, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(rng.randrange(1, 120)):
            assert writer.stdout.readline()
        shipper = subprocess.Popen(
            [*command, "--follow", "--interval", "0.01"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert shipper.stdout is not None
        if rng.random() < 0.8:
            # It is at work; else it is killed as it starts.
            assert b"shipped" in shipper.stdout.readline()
        time.sleep(rng.random() * 0.2)
        for process in rng.sample([writer, shipper], 2):
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["rows"] >= 0
    written = Counter(row["decision_id"] for row in read_rows(folder / DECISIONS))
    assert set(written.values()) == {1}
    assert sorted(each.decision_id for each in read_log(target)) == sorted(written)


def test_a_cost_table_is_made_from_a_shipped_log(tmp_path: Path) -> None:
    log = write(tmp_path / "log", 0, 6)
    log.close()
    feedback = FeedbackLog(DecisionLogConfig(tmp_path / "log"))
    for number in range(6):
        feedback.write(f"d{number}", 1.0, "a")
    feedback.close()
    target = f"file://{tmp_path}/store"
    ship_log(tmp_path / "log", target)
    local, shipped = costs_from_log(tmp_path / "log"), costs_from_log(target)
    assert shipped.arrow.sort_by("query_id") == local.arrow.sort_by("query_id")
