"""Money of a collection: capped runs are usable, and lost calls count one attempt each."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.collection.budget import Budget
from mildroute.collection.entries import CallStarted
from mildroute.collection.store import AnswerStore, unanswered_calls
from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError
from mildroute.experts.base import Answer, Query
from mildroute.experts.config import build_expert, read_experts
from tests.collection.command import collect
from tests.collection.pools import Counting, run, write_queries
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    disconnects,
    hangs,
    says,
    status,
)

# Dollars per million tokens.
PRICES = {"small": 0.2, "middle": 1.0, "large": 5.0}
TOKENS = (20, 8)
OPTIONS = ("--experts", "experts.yaml", "--judge", "exact", "--yes", "--json")


def write_pool(folder: Path, url: str, queries: int, **settings: object) -> None:
    folder.mkdir(exist_ok=True)
    write_queries(folder, queries)
    experts = {
        name: {
            "kind": "openai",
            "base_url": url,
            "model": name,
            "price": {"input": price, "output": price},
            "request": {"max_tokens": 10},
            **settings,
        }
        for name, price in PRICES.items()
    }
    (folder / "experts.yaml").write_text(json.dumps({"experts": experts}))


def answer(call: Call) -> Behavior:
    """The smaller models know some sums, and are the faster ones."""
    number, model = int(call.prompt.split()[0]), call.json["model"]
    knows = {"small": number % 3 == 0, "middle": number % 3 != 1, "large": True}[model]
    delay = {"small": 0.0, "middle": 0.001, "large": 0.005}[model]
    return says(str(number + 1) if knows else "no idea", TOKENS, delay=delay)


def one_attempt(folder: Path, query: Query, name: str) -> float:
    return build_expert(read_experts(folder / "experts.yaml").expert(name)).max_attempt_cost(query)


def command(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_half_the_money_for_500_queries_gives_a_table_that_fit_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    half = 500 * sum(TOKENS) * sum(PRICES.values()) / 1e6 / 2
    with HostileServer(answer) as server:
        write_pool(tmp_path, server.url, 500)
        found = command("collect", "queries.jsonl", *OPTIONS, "--max-dollars", half)
    assert found["is_capped"]
    assert found["spent"] == pytest.approx(found["paid"])
    assert 0.9 * half <= found["paid"] <= half
    assert 225 <= found["complete"] <= 250
    table = CostTable.read("costs")
    assert len(table) == found["complete"]
    assert len(table) + found["left_out"] == 500
    # Random rows, and not the first ones of the file.
    places = [
        int(name[1:]) for name in pq.read_table("costs/costs.parquet")["query_id"].to_pylist()
    ]
    assert 200 <= sum(places) / len(places) <= 300
    fitted = command("fit", "costs", "--quality", 0.9, "--router", "RegressionRouter", "--json")
    assert fitted["experts"]


def test_after_ctrl_c_lost_calls_count_one_attempt_each_and_nothing_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def behave(call: Call) -> Behavior:
        return says("4", TOKENS) if call.number < 30 else hangs()

    with HostileServer(behave) as server:
        write_pool(tmp_path, server.url, 100, concurrency=4)
        stopped = collect(tmp_path, interrupt_when=lambda: server.at_once == 12)
        paid = sum(TOKENS) * sum(PRICES[call.json["model"]] for call in server.calls[:30]) / 1e6
    assert stopped.code == 1
    kept = int(stopped.err.split("stopped: ")[1].split()[0])
    assert kept == 30
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        spending = archive.spending()
    bound = 4 * sum(one_attempt(tmp_path, Query("q99", "99 + 1?"), name) for name in PRICES)
    assert spending.lost_calls == 12
    assert spending.paid == pytest.approx(paid)
    assert spending.reserved <= bound * (1 + 1e-9)
    last = stopped.err.strip().splitlines()[-1]
    assert last == f"stopped: 30 of 300 kept, {spending}; the same command resumes it"
    with HostileServer(answer) as server:
        write_pool(tmp_path, server.url, 100, concurrency=4)
        again = CliRunner().invoke(app, ["collect", "queries.jsonl", *OPTIONS[:-1]])
        assert len(server.calls) == 300 - kept
    assert f"in costs so far: {spending}; no cap" in again.output


def test_a_retry_reserves_again_and_never_exceeds_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with HostileServer([disconnects()]) as server:
        write_pool(tmp_path, server.url, 5, retries=3, concurrency=1)
        bound = one_attempt(tmp_path, Query("q1", "1 + 1?"), "large")
        found = command("collect", "queries.jsonl", *OPTIONS, "--max-dollars", 2.5 * bound, code=4)
        charged = sum(
            one_attempt(tmp_path, Query("q", call.prompt), call.json["model"])
            for call in server.calls
        )
    assert found["is_capped"]
    assert found["paid"] == 0
    assert found["reserved"] == pytest.approx(charged)
    assert found["reserved"] <= 2.5 * bound
    assert any("no money for another attempt" in str(each) for each in found["reasons"].values())


def test_a_failure_that_costs_nothing_keeps_its_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    attempts: dict[str, int] = {}

    def behave(call: Call) -> Behavior:
        key = call.json["model"] + call.prompt
        attempts[key] = attempts.get(key, 0) + 1
        return answer(call) if attempts[key] > 1 else status(500)

    with HostileServer(behave) as server:
        write_pool(tmp_path, server.url, 2, concurrency=1)
        bound = sum(one_attempt(tmp_path, Query("q1", "1 + 1?"), name) for name in PRICES)
        found = command("collect", "queries.jsonl", *OPTIONS, "--max-dollars", 1.5 * bound)
    assert (found["empty"], found["reserved"], found["lost_calls"]) == (0, 0.0, 0)


def test_a_call_lost_in_a_retry_counts_the_attempts_that_may_have_been_charged() -> None:
    cell = {"expert": "a", "version": "1", "query": "q"}
    started = [{**cell, "worst": worst, "attempt": place} for place, worst in ((1, 2.0), (2, 4.0))]
    assert unanswered_calls({"started": started}) == [started[1]]
    assert unanswered_calls({"started": started, "answers": [cell]}) == []
    again = [*started, {**cell, "worst": 2.0, "attempt": 1}]
    assert unanswered_calls({"started": again, "answers": [cell]}) == [again[2]]


def test_a_journal_that_is_turned_over_keeps_the_retries_of_calls_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mildroute.collection.store._MAX_JOURNAL_LINES", 2)
    with AnswerStore(tmp_path) as archive:
        archive.add(CallStarted("a", "1", "q", 2.0))
        archive.add(CallStarted("a", "1", "q", 4.0, attempt=2))
        archive.add(CallStarted("a", "1", "q", 6.0, attempt=3))
    with AnswerStore(tmp_path) as archive:
        assert archive.spending() == (0.0, 6.0, 1)


def test_queries_of_a_lower_rank_are_paid_first_and_those_behind_a_refused_one_never() -> None:
    async def day() -> list[object]:
        budget, order = Budget(1.0), []

        async def call(rank: int, worst: float) -> None:
            order.append((rank, await budget.reserve(worst, rank=rank)))

        await budget.reserve(1.0)
        calls = [asyncio.ensure_future(call(*each)) for each in ((7, 0.1), (3, 0.4), (5, 0.9))]
        await asyncio.sleep(0)
        budget.settle(1.0, 0.5)
        await asyncio.sleep(0.01)
        budget.settle(0.4, 0.4)
        await asyncio.gather(*calls)
        return order

    assert asyncio.run(asyncio.wait_for(day(), 10)) == [(3, True), (5, False), (7, False)]


class Slow(Counting):
    async def answer(self, batch: Any) -> list[Answer]:
        await asyncio.sleep(0.002)
        return await super().answer(batch)


def test_a_fast_and_expensive_expert_does_not_spend_the_money_of_a_slow_one(
    tmp_path: Path,
) -> None:
    people = Counting(
        "people",
        lambda query: Answer(query.reference, dollars=0.05),
        worst=0.05,
        batch_size=64,
    )
    slow = Slow("slow", lambda query: Answer(query.reference, dollars=0.01), worst=0.01)
    free = Counting("free", batch_size=64)
    queries = write_queries(tmp_path, 200)
    found = run(tmp_path, [people, slow, free], queries=queries, max_dollars=6.0)
    assert 80 <= found.complete <= 100
    assert len(people.asked) <= found.complete + 3 * slow.concurrency
    assert len(free.asked) == 200
    assert found.spent <= 6.0


def test_the_order_is_random_and_stays_when_queries_are_added(tmp_path: Path) -> None:
    def asked(count: int, folder: str) -> list[str]:
        (tmp_path / folder).mkdir()
        expert = Counting("a", concurrency=1)
        run(tmp_path / folder, [expert], queries=write_queries(tmp_path, count))
        return list(expert.asked)

    few, many = asked(50, "few"), asked(100, "many")
    assert few != sorted(few, key=lambda name: int(name[1:]))
    assert [name for name in many if name in few] == few


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "place",
    [
        "mildroute._jsonl.os.write",
        "mildroute.collection.store.pq.write_table",
    ],
)
def test_a_full_disk_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise FULL

    run(tmp_path, [Counting("a")], queries=write_queries(tmp_path, 5))
    with monkeypatch.context() as patch:
        patch.setattr(place, full)
        with pytest.raises(
            TableError, match=r"No space left on device.* run the same command again"
        ):
            run(tmp_path, [Counting("a")], queries=write_queries(tmp_path, 20))
    again = Counting("a")
    assert run(tmp_path, [again], queries=write_queries(tmp_path, 20)).empty == 0
    assert not {f"q{place}" for place in range(5)} & set(again.asked)


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
"""


def test_a_full_disk_in_a_run_of_the_command_shows_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start = LIMITED + "from mildroute.cli.app import app; app()"
    with HostileServer(answer) as server:
        write_pool(tmp_path, server.url, 60)
        done = collect(tmp_path, "--json", start=start)
        calls = len(server.calls)
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert "run the same command again" in done.err
        assert len(done.err.strip().splitlines()) == 1
        assert command("collect", "queries.jsonl", *OPTIONS)["empty"] == 0
        assert len(server.calls) <= 180 + 3 * 8
    assert 0 < calls < 180
