"""A block that is tried again asks only what was in flight, and stops when called off."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from mildroute._files import file_lock
from mildroute._jsonl import WriteAheadLog, read_file
from mildroute.collection.queries import query_digest
from mildroute.collection.runner import Task
from mildroute.collection.store import AnswerStore
from mildroute.distributed.collect_worker import (
    CollectWorker,
    WorkerSpec,
    journal_name,
    journals_of,
    recover_entries,
    write_blocks,
)
from mildroute.exceptions import ArgumentError, MildrouteError, TableError
from mildroute.experts.base import Answer, Query
from mildroute.judges.exact_match import ExactMatchJudge
from tests.collection.pools import Counting

QUERIES = [Query(f"q{place}", f"{place} + 1?", str(place + 1)) for place in range(6)]


@pytest.fixture
def expert() -> Counting:
    return Counting("a", lambda query: Answer(query.reference, dollars=0.25), worst=1.0)


@pytest.fixture
def block(tmp_path: Path) -> Path:
    return write_blocks(
        [Task(query, query_digest(query)) for query in QUERIES], tmp_path / "work" / "17", "000", 8
    )[0]


@pytest.fixture
def asker(tmp_path: Path, expert: Counting) -> Iterator[CollectWorker]:
    with closing(asker_of(expert, tmp_path)) as found:
        yield found


def asker_of(expert: Counting, folder: Path, version: str = "1") -> CollectWorker:
    return CollectWorker(
        WorkerSpec(
            lambda: expert,
            ExactMatchJudge,
            "a",
            (version, ExactMatchJudge().version),
            2,
            folder / "journals",
        )
    )


def answer(place: int, text: str | None = "0", error: str = "") -> dict[str, object]:
    costs = {
        "dollars": 0.25,
        "unconfirmed_cost": 0.0,
        "latency": 1.0,
        "tokens_in": 1,
        "tokens_out": 1,
        "attempts": 1,
    }
    return {
        "kind": "answers",
        **cell(place),
        "query_id": f"q{place}",
        "text": text,
        "error": error,
        **costs,
    }


def verdict(place: int, score: float | None) -> dict[str, object]:
    judge = ExactMatchJudge()
    about = {
        "judge": judge.name,
        "judge_version": judge.version,
        "score": score,
        "reason": "",
        "dollars": 0.0,
    }
    return {"kind": "verdicts", **cell(place), **about}


def cell(place: int) -> dict[str, object]:
    return {"expert": "a", "version": "1", "query": query_digest(QUERIES[place])}


def die(block: Path, journals: Path, *lines: dict[str, object]) -> None:
    journal = WriteAheadLog(journals, journal_name(block))
    for line in lines:
        journal.add(line)
    journal.close()


def test_a_second_attempt_asks_only_what_the_first_had_no_answer_to(
    tmp_path: Path, block: Path, asker: CollectWorker, expert: Counting
) -> None:
    asks = [{"kind": "started", **cell(place), "worst": 1.0} for place in range(5)]
    # Judged, waiting for its verdict, failed, without a verdict, and asked in vain.
    known = [
        answer(0),
        verdict(0, 1.0),
        answer(1),
        answer(2, None, "timeout"),
        answer(3),
        verdict(3, None),
    ]
    die(block, tmp_path / "journals", *asks, *known)
    before = recover_entries(journals_of(block, tmp_path / "journals"))
    assert before.dollars == 4 * 0.25 + 1.0
    tally = asker.fill(block)
    assert set(expert.asked) == {"q4", "q5"}
    assert (tally.done, tally.errors, tally.score, tally.dollars, tally.calls) == (
        6,
        2,
        3.0,
        6 * 0.25,
        6,
    )
    lines = list(read_file(journals_of(block, tmp_path / "journals")[1]))
    assert [line["kind"] for line in lines].count("verdicts") == 3


def test_an_attempt_at_a_block_that_is_done_asks_nothing_and_counts_the_same(
    block: Path, asker: CollectWorker, expert: Counting
) -> None:
    first = asker.fill(block)
    expert.asked.clear()
    again = asker.fill(block)
    assert not expert.asked
    assert (
        (again.done, again.score, again.dollars)
        == (first.done, first.score, first.dollars)
        == (6, 6.0, 1.5)
    )


def test_the_next_run_finds_what_workers_wrote(
    tmp_path: Path, block: Path, asker: CollectWorker
) -> None:
    asker.fill(block)
    with AnswerStore(tmp_path) as archive:
        assert len(archive.known({"a": "1"}, ("exact", ExactMatchJudge().version)).judged["a"]) == 6
        assert archive.spent() == 1.5
        assert not archive.work.exists()


def test_a_machine_that_does_not_see_the_folder_says_so(
    tmp_path: Path, asker: CollectWorker
) -> None:
    with pytest.raises(TableError, match=r"every machine must see the folder.*put --out on a disk"):
        asker.fill(tmp_path / "work" / "17" / "000-000009.parquet")


class Slow(Counting):
    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        await asyncio.sleep(60)
        return await super().answer(batch)


def test_work_that_is_called_off_stops_in_the_middle_and_frees_its_journal(
    tmp_path: Path, block: Path
) -> None:
    slow = Slow("a")
    stopped = asker_of(slow, tmp_path)
    failures: list[Exception] = []

    def fill() -> None:
        with closing(stopped):
            try:
                stopped.fill(block)
            except TableError as error:
                failures.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    while not journals_of(block, tmp_path / "journals"):
        time.sleep(0.01)
    with AnswerStore(tmp_path):
        thread.join(5)
    assert "deleted; run the same command again" in str(failures[0])


def test_two_attempts_at_a_block_never_run_at_once(
    block: Path, asker: CollectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mildroute.distributed.collect_worker._PATIENCE", 0.05)
    with file_lock(block, 0), pytest.raises(TableError, match=r"still in use after 0\.05 s"):
        asker.fill(block)


def test_a_block_that_kills_every_worker_ends_the_run(
    tmp_path: Path, block: Path, asker: CollectWorker
) -> None:
    for _ in range(11):
        die(block, tmp_path / "journals")
    with pytest.raises(MildrouteError, match="may lose its worker 10 times, got 11 deaths"):
        asker.fill(block)


def test_another_version_on_a_worker_is_refused(
    tmp_path: Path, block: Path, expert: Counting
) -> None:
    other = asker_of(expert, tmp_path, "2")
    with closing(other), pytest.raises(ArgumentError, match="must be the same everywhere"):
        other.fill(block)
    assert not expert.asked
