"""Sampling: a share of requests goes to the other experts, too, within a cap that always holds."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from mildroute._jsonl import log_files, read_file
from mildroute.cli.app import app
from mildroute.decision.days import DAY
from mildroute.decision.export import LoggedCostTable, costs_from_log
from mildroute.decision.feedback import FeedbackLog, SampleLog, read_samples
from mildroute.decision.log import DecisionLog
from mildroute.evaluation.logged_data import read_logged_decisions
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertFile
from mildroute.gateway.config import (
    DecisionLogConfig,
    FailoverConfig,
    GatewayConfig,
    SamplingConfig,
)
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.sampling.budget import FileBudget
from mildroute.gateway.sampling.loading import load_sampler
from mildroute.gateway.upstream.base import CallSlots
from tests.experts.hostile_server import Behavior, Call, HostileServer, hangs, says, status
from tests.gateway.fakes import FakeManager, experts_at
from tests.gateway.running import TRUST, Running, running, until
from tests.gateway.streams import DONE, event, streams, usage
from tests.support.records import record

# A dollar for a thousand tokens.
PRICE = {"input": 1000.0, "output": 1000.0}
GRADED = {"judge": "graded", "judge_settings": {"expert": "referee"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def grades(call: Call) -> Behavior:
    """Ten for answers with the word "good" in them, one for others."""
    answer = call.prompt.rsplit("<answer-", 1)[1]
    return says(f"Grade: {10 if 'good' in answer else 1}", (100, 5))


def experts_of(judge: str, **urls: str) -> ExpertFile:
    given = {name: {"base_url": url, "price": PRICE} for name, url in urls.items()}
    asked = {"base_url": judge, "price": PRICE, "request": {"max_tokens": 10}, "retries": 0}
    return replace(experts_at(**given), judges=experts_at(referee=asked).experts)


@contextmanager
def sampling(
    folder: Path,
    judge: HostileServer,
    rate: float = 1.0,
    manager: FakeManager | None = None,
    *,
    log_prompts: bool = False,
    settings: dict[str, Any] | None = None,
    **experts: HostileServer,
) -> Iterator[Running]:
    """A gateway that samples."""
    given = {"rate": rate, "max_dollars_per_day": 100.0, **GRADED, **(settings or {})}
    config = GatewayConfig(
        log=DecisionLogConfig(folder, log_prompts=log_prompts),
        sampling=SamplingConfig(**given),
        failover=FailoverConfig(drain_timeout=1.0, timeout=5.0),
    )
    urls = {name: server.url for name, server in experts.items()}
    metrics = GatewayMetrics()
    file = experts_of(judge.url, **urls)
    services: dict[str, Any] = {
        "metrics": metrics,
        "sampler": load_sampler(config, file, metrics),
        "log": DecisionLog(config.log),
    }
    if manager is not None:
        services["manager"] = manager
    priced = {name: {"base_url": url, "price": PRICE} for name, url in urls.items()}
    with running(config, services=services, **priced) as gateway:
        yield gateway


def samples(folder: Path, wanted: int = 1) -> list[dict[str, Any]]:
    until(lambda: len(list(read_samples(folder))) >= wanted)
    return list(read_samples(folder))


def figure(gateway: Running, name: str) -> float:
    """A figure of the metrics; 0 if there is none yet."""
    for line in gateway.http.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[-1])
    return 0.0


def test_a_request_is_answered_by_all_and_judged_and_logged(tmp_path: Path) -> None:
    with (
        HostileServer([says("a bad answer", (7, 2))]) as small,
        HostileServer([says("a good answer", (8, 3))]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, small=small, large=large) as gateway,
    ):
        answer = gateway.chat("Which?", max_tokens=20, temperature=0.5)
        assert answer.json()["choices"][0]["message"]["content"] == "a bad answer"
        (row,) = samples(tmp_path)
        assert (row["experts"], row["scores"]) == (["small", "large"], [0.0, 1.0])
        assert row["cost_usd"] == pytest.approx([0.009, 0.011])
        assert (row["text"], row["served_by"]) == ("Which?", "small")
        assert row["decision_id"] == answer.headers["x-mildroute-decision-id"]
        assert all(0 < seconds < 5 for seconds in row["seconds"])
        assert "answers" not in row
        assert row["judge_usd"] == pytest.approx(0.21)
        # What the other expert gets is the request of the client, to the byte but for the model.
        assert large.calls[0].json == {**small.calls[0].json, "model": "large-model"}
        assert len(small.calls) == len(large.calls) == 1
        until(lambda: figure(gateway, 'mildroute_samples_total{sample="full"}') == 1)
        assert figure(gateway, 'mildroute_sampling_dollars_total{expert="large"}') == 0.011
        assert figure(gateway, 'mildroute_sampling_dollars_total{expert="referee"}') == 0.21
        assert figure(gateway, 'mildroute_spend_dollars_total{expert="large"}') == 0.0
        left = figure(gateway, "mildroute_sampling_left_dollars")
        assert left == pytest.approx(100 - 0.011 - 0.21)


def test_streams_are_sampled_as_streams_and_answers_are_kept_if_texts_are(tmp_path: Path) -> None:
    def stream(text: str) -> Behavior:
        return streams(event(text), event(" answer"), usage(7, 2), DONE)

    with (
        HostileServer([stream("a bad")]) as small,
        HostileServer([stream("a good")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, small=small, large=large, log_prompts=True) as gateway,
    ):
        assert "data: [DONE]" in gateway.chat(stream=True).text
        (row,) = samples(tmp_path)
        assert row["answers"] == ["a bad answer", "a good answer"]
        assert row["scores"] == [0.0, 1.0]
        assert row["cost_usd"] == pytest.approx([0.009, 0.009])


def test_a_judge_sees_the_whole_conversation(tmp_path: Path) -> None:
    with (
        HostileServer([says("Oslo")]) as small,
        HostileServer([says("Bergen")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, small=small, large=large) as gateway,
    ):
        messages = [
            {"role": "user", "content": "Capital of Sweden?"},
            {"role": "assistant", "content": "Stockholm"},
            {"role": "user", "content": [{"type": "text", "text": "And of Norway?"}]},
        ]
        body = {"model": "mildroute", "messages": messages}
        assert gateway.http.post("/v1/chat/completions", json=body).status_code == 200
        (row,) = samples(tmp_path)
        assert row["text"] == "And of Norway?"
        assert len(row["conversation"]) > 10
        told = "user: Capital of Sweden?\n\nassistant: Stockholm\n\nuser: And of Norway?"
        assert all(told in call.prompt for call in judge.calls)


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-mildroute-sampling": "off"}, {}),
        ({"x-mildroute-sampling": "No"}, {}),
        ({"x-mildroute-sampling": "disabled"}, {}),
        ({}, {"model": "small"}),
        ({}, {"tools": [TOOL]}),
        ({}, {"n": 2}),
        ({}, {"text": " "}),
        ({}, {"text": "long " * 20_000}),
    ],
)
def test_what_must_not_be_sampled_is_not(
    tmp_path: Path, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    with (
        HostileServer([says("Hi")]) as small,
        HostileServer([says("Hi")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, small=small, large=large) as gateway,
    ):
        assert gateway.chat(headers=headers, **fields).status_code == 200
        assert gateway.chat().status_code == 200
        (row,) = samples(tmp_path)
        assert len(large.calls) == 1
        assert row["text"] == "Hi"


def test_a_share_is_drawn_and_failures_of_clients_are_not_sampled(tmp_path: Path) -> None:
    def half(call: Call) -> Behavior:
        return status(400, {}, "{}") if call.number % 2 else says("Hi")

    with (
        HostileServer(half) as small,
        HostileServer([says("Hi")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, 0.5, small=small, large=large) as gateway,
    ):
        codes = [gateway.chat().status_code for _ in range(80)]
        assert codes.count(400) == 40
        until(lambda: len(large.calls) >= 6, 20)
        until(lambda: len(samples(tmp_path)) == len(large.calls), 20)
        assert len(large.calls) <= 34  # of 40: five standard deviations


def test_what_fails_or_cannot_be_told_has_no_score(tmp_path: Path) -> None:
    with (
        HostileServer([says("a good answer")]) as small,
        HostileServer([status(500)]) as broken,
        HostileServer([says("")]) as silent,
        HostileServer([says("It is hard to tell.")]) as judge,
        sampling(tmp_path, judge, small=small, broken=broken, silent=silent) as gateway,
    ):
        assert gateway.chat().status_code == 200
        (row,) = samples(tmp_path)
        assert row["experts"] == ["small", "broken", "silent"]
        assert row["scores"] == [None, None, None]
        assert row["cost_usd"] == [pytest.approx(0.009), None, pytest.approx(0.009)]
        until(lambda: figure(gateway, 'mildroute_samples_total{sample="failed"}') == 1)


def test_a_response_never_waits_for_a_sample(tmp_path: Path) -> None:
    few = {"concurrency": 1, "max_queue_size": 1}
    with (
        HostileServer([says("Hi")]) as small,
        HostileServer([hangs()]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, settings=few, small=small, large=large) as gateway,
    ):
        started = time.monotonic()
        for _ in range(20):
            assert gateway.chat().status_code == 200
        assert time.monotonic() - started < 4  # one sample alone would take 5
        dropped = 'mildroute_samples_total{sample="dropped"}'
        until(lambda: figure(gateway, dropped) >= 17)
        assert len(large.calls) == 1


def test_a_call_takes_no_slot_that_a_client_waits_for(tmp_path: Path) -> None:
    gate = threading.Event()

    def slow(call: Call) -> Behavior:
        return streams(event("x"), DONE, gates=[gate])

    with (
        HostileServer([says("Hi")]) as small,
        HostileServer(slow) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, small=small, large=large) as gateway,
    ):
        upstream = gateway.app.pool.callable["large"].upstream
        assert upstream is not None
        upstream.slots = CallSlots(1)
        busy = threading.Thread(target=lambda: gateway.chat(model="large", stream=True))
        busy.start()
        until(lambda: len(large.calls) == 1)
        assert gateway.chat().status_code == 200
        until(lambda: figure(gateway, "mildroute_sampling_left_dollars") < 100)
        time.sleep(0.3)
        assert (len(large.calls), upstream.slots.waiting) == (1, 0)
        gate.set()
        busy.join()
        until(lambda: len(large.calls) == 2)


def test_without_dollars_nothing_is_asked(tmp_path: Path) -> None:
    """A call of 110 bytes with 20 tokens out may cost 0.39 dollars, and costs 0.009."""
    cap = {"max_dollars_per_day": 0.45}
    with (
        HostileServer([says("Hi")]) as small,
        HostileServer([says("Hi")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, settings=cap, small=small, large=large) as gateway,
    ):
        for _ in range(5):
            gateway.chat(max_tokens=20)
        no_budget = 'mildroute_samples_total{sample="no_budget"}'
        until(lambda: figure(gateway, no_budget) == 5)
        # An answer is not bought if its judge cannot be paid.
        assert (len(large.calls), len(judge.calls)) == (0, 0)


def test_what_an_expert_does_not_tell_counts_at_its_highest(tmp_path: Path) -> None:
    """Reasoning is billed and not shown; a request without a limit is given one."""
    cap = {"max_dollars_per_day": 1000.0}
    with (
        HostileServer([says("Hi")]) as small,
        HostileServer([says("Hi", None)]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, settings=cap, small=small, large=large) as gateway,
    ):
        gateway.chat("Which?", max_tokens=None)
        (row,) = samples(tmp_path)
        limit = large.calls[0].json["max_tokens"]
        assert "max_tokens" not in {key for key, value in small.calls[0].json.items() if value}
        assert row["cost_usd"][1] < 0.1
        until(lambda: figure(gateway, "mildroute_sampling_left_dollars") < 1000.0 - limit / 1000)
        assert large.calls[0].json["messages"] == small.calls[0].json["messages"]


@pytest.mark.anyio
@pytest.mark.parametrize("dollars", ["NaN", "-1e9", "Infinity", '"much"'])
async def test_a_count_that_cannot_be_is_no_leave_to_spend(tmp_path: Path, dollars: str) -> None:
    path = tmp_path / "sampling.json"
    path.write_text(f'{{"day": 0, "dollars": {dollars}}}')
    assert await FileBudget(path, 10.0).reserve(1.0) is None


def test_without_a_router_requests_are_passed_on_sampled_and_said_to_be_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mildroute.gateway.sampling")
    with (
        HostileServer([says("a bad answer")]) as small,
        HostileServer([says("a good answer")]) as large,
        HostileServer(grades) as judge,
        sampling(tmp_path, judge, 1.0, FakeManager(None), small=small, large=large) as gateway,
    ):
        for number in range(29):
            answer = gateway.chat(f"question {number}", max_tokens=5)
            assert answer.headers["x-mildroute-reason"] == "passthrough"
        until(lambda: figure(gateway, 'mildroute_samples_total{sample="full"}') == 29, 20)
        assert "enough" not in caplog.text
        for number in range(2):
            gateway.chat(f"and {number}", max_tokens=5)
        until(lambda: "enough samples to fit a router" in caplog.text)
        until(lambda: figure(gateway, 'mildroute_samples_total{sample="full"}') == 31)
        assert caplog.text.count("enough samples to fit a router") == 1


def sample(decision_id: str, scores: list[float | None], **changes: Any) -> dict[str, Any]:
    count = len(scores)
    return {
        "decision_id": decision_id,
        "time": 1000.0,
        "text": f"text of {decision_id}",
        "conversation": "",
        "experts": ["small", "large", "huge"][:count],
        "scores": scores,
        "cost_usd": [0.5 + place for place in range(count)],
        "seconds": [1.5] * count,
        "tokens_in": [7] * count,
        "tokens_out": [2] * count,
        "served_by": "small",
        "judge": "graded",
        "judged_by": "referee",
        "judge_usd": 0.25,
        **changes,
    }


def written(folder: Path, *rows: dict[str, Any]) -> None:
    """A log of three decisions, two of them with feedback, and of samples."""
    config = DecisionLogConfig(folder, rows_per_file=2)
    log, feedback, kept = DecisionLog(config), FeedbackLog(config), SampleLog(config)
    for number in range(3):
        log.write(record(f"d{number}", text=None))
    feedback.write("d0", 0.5, "a")
    feedback.write("d1", 0.25, "a")
    for row in rows:
        kept.write(row, [])
    for each in (log, feedback, kept):
        each.close()


def check_table(found: LoggedCostTable) -> None:
    rows = {row["query_id"]: row for row in found.arrow.to_pylist()}
    assert list(rows) == ["d0", "d1", "d9"]
    plain, sampled, alone = rows.values()
    assert (plain["score:small"], plain["score:large"], plain["score:huge"]) == (0.5, None, None)
    assert (plain["propensity:small"], plain["propensity:huge"]) == (0.975, 0.0)
    # The judge scores all experts by one rule, so that its word counts and not the client's.
    assert [sampled[f"score:{name}"] for name in ("small", "large", "huge")] == [1.0, 0.75, None]
    assert [sampled[f"cost:{name}"] for name in ("small", "large", "huge")] == [0.5, 1.5, None]
    assert [sampled[f"latency:{name}"] for name in ("small", "large")] == [1.5, 1.5]
    chances = [sampled[f"propensity:{name}"] for name in ("small", "large", "huge")]
    assert (chances, sampled["propensity"]) == ([1.0, 1.0, 0.0], 1.0)
    assert (sampled["selected"], sampled["posterior:small"]) == ("small", 0.7)
    assert [alone[f"propensity:{name}"] for name in ("small", "large", "huge")] == [1.0] * 3
    assert [alone[f"score:{name}"] for name in ("small", "large", "huge")] == [0.5, 0.0, None]
    assert (alone["selected"], alone["posterior:small"]) == ("small", None)
    assert (found.decisions, found.without_score, found.unknown) == (3, 1, 0)
    assert found.samples.rows == 2
    assert (found.samples.full, found.samples.scores) == (0, {"small": 2, "large": 2, "huge": 0})
    assert "a fit needs 30 of these, and huge has 0 scores" in str(found.samples)


def test_a_table_has_all_cells_of_a_sample_however_the_log_was_kept(tmp_path: Path) -> None:
    """``d1`` has feedback, too, and ``d9`` was decided elsewhere, where an expert had failed."""
    folder = tmp_path / "log"
    written(folder, sample("d1", [1.0, 0.75]), sample("d9", [0.5, 0.0, None]))
    check_table(costs_from_log(folder))
    for _ in range(2):  # a shipper may copy a line twice
        for path in folder.rglob("*.jsonl"):
            copy = (
                tmp_path / "copied" / path.parent.name / f"{len(list(tmp_path.rglob('*')))}.jsonl"
            )
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    check_table(costs_from_log(f"file://{tmp_path}/copied"))
    table = costs_from_log(folder).arrow
    logged = read_logged_decisions(table)
    assert (logged.rows, logged.experts) == (1, ("small", "large"))
    assert any("2 of 3 rows are samples" in note for note in logged.notes)


@pytest.mark.parametrize("is_alone", [False, True])
def test_enough_samples_are_said_by_the_command(tmp_path: Path, *, is_alone: bool) -> None:
    written(tmp_path, *(sample(f"s{number}", [1.0, 0.0]) for number in range(30)))
    if is_alone:
        shutil.rmtree(tmp_path / "feedback")
    out = str(tmp_path / "t.parquet")
    result = CliRunner().invoke(app, ["costs", "from-log", str(tmp_path), "--out", out])
    assert result.exit_code == 0, result.output
    assert "30 samples, 30 of them with a score for every expert: enough to fit" in result.output
    result = CliRunner().invoke(app, ["costs", "from-log", str(tmp_path), "--out", out, "--json"])
    found = json.loads(result.stdout)["samples"]
    assert found == {
        "rows": 30,
        "full": 30,
        "scores": {"small": 30, "large": 30},
        "is_enough": True,
    }


def refused(tmp_path: Path, judge: str = "http://127.0.0.1:1/v1", **changes: Any) -> str:
    given = {"rate": 0.1, "max_dollars_per_day": 1.0, **GRADED, **changes.pop("sampling", {})}
    config = GatewayConfig(
        log=changes.pop("log", DecisionLogConfig(tmp_path)), sampling=SamplingConfig(**given)
    )
    file = changes.pop("file", experts_of(judge, small=judge, large=judge))
    with pytest.raises(ArgumentError) as caught:
        load_sampler(config, file, GatewayMetrics())
    return str(caught.value)


def test_what_could_not_work_is_refused_at_the_start(tmp_path: Path) -> None:
    for judge in ("exact", "choice", "numeric", "label", "pairwise"):
        settings = {"expert": "referee"} if judge == "pairwise" else {}
        found = refused(tmp_path, sampling={"judge": judge, "judge_settings": settings})
        assert "from the request alone" in found
        assert "the query has no reference" in found or "reference" in found
    assert "needs an expert" in refused(tmp_path, sampling={"judge_settings": {"expert": "nobody"}})
    assert "max_dollars_per_day None" in refused(tmp_path, sampling={"max_dollars_per_day": None})
    assert "judge None" in refused(tmp_path, sampling={"judge": None})
    assert "log None" in refused(tmp_path, log=DecisionLogConfig())
    assert "got nobody; known: small, large" in refused(tmp_path, sampling={"experts": ("nobody",)})
    alone = experts_at(small="http://127.0.0.1:1/v1")
    assert "at least two experts" in refused(tmp_path, file=alone)
    endless = {"base_url": "http://127.0.0.1:1/v1", "price": PRICE}
    file = experts_of("http://127.0.0.1:1/v1", small="http://x/v1", large="http://x/v1")
    file = replace(file, judges=experts_at(referee=endless).experts)
    assert "set max_tokens" in refused(tmp_path, file=file)
    off = GatewayConfig()
    assert load_sampler(off, experts_at(), GatewayMetrics()) is None


class TestFileBudget:
    @pytest.mark.anyio
    async def test_processes_that_share_a_log_share_the_day(self, tmp_path: Path) -> None:
        now = [10 * DAY + 5]
        one, other = (FileBudget(tmp_path / "s.json", 1.0, lambda: now[0]) for _ in range(2))
        held = await one.reserve(0.7)
        assert held is not None
        assert await other.reserve(0.4) is None
        assert (await other.reserve(0.3)) is not None
        await one.settle(held, 0.1)
        assert other.left == pytest.approx(0.0)
        assert await other.reserve(0.6) is not None
        assert await one.reserve(0.01) is None
        now[0] += DAY
        late = await one.reserve(1.0)
        assert late is not None
        now[0] += DAY
        assert await other.reserve(0.5) is not None
        await one.settle(late, 0.0)  # of yesterday: today is as it was
        assert await other.reserve(0.6) is None
        now[0] -= 5 * DAY  # a clock that goes back begins no second day
        assert await other.reserve(0.6) is None

    @pytest.mark.anyio
    async def test_many_at_once_never_take_more_than_there_is(self, tmp_path: Path) -> None:
        budgets = [FileBudget(tmp_path / "s.json", 1.0) for _ in range(4)]
        found = await asyncio.gather(*(budgets[n % 4].reserve(0.07) for n in range(40)))
        assert sum(each is not None for each in found) == 14

    @pytest.mark.anyio
    async def test_a_file_that_cannot_be_read_or_written_stops_it(self, tmp_path: Path) -> None:
        budget = FileBudget(tmp_path / "s.json", 1.0)
        held = await budget.reserve(0.5)
        assert held is not None
        (tmp_path / "s.json").write_text("[")
        assert await budget.reserve(0.1) is None
        await budget.settle(held, 0.1)
        gone = FileBudget(tmp_path / "gone" / "s.json", 1.0)
        assert await gone.reserve(0.1) is None


GATEWAY = """
log: {folder: log}
sampling:
  rate: 1
  max_dollars_per_day: 40
  judge: graded
  judge_settings: {expert: referee}
  concurrency: 4
"""


def billed(server: HostileServer, tokens: int) -> float:
    """Dollars by the expert's own count: each call that it has received."""
    return len(server.calls) * tokens * 0.001


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """``mildroute serve`` without a router, killed in the end."""
    command = [sys.executable, "-m", "mildroute", "serve", "--experts", "experts.yaml"]
    process = subprocess.Popen(
        [*command, "--settings", "gateway.yaml", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def wait_for(is_so: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_kill_9_at_random_never_lets_more_be_spent_than_the_cap(tmp_path: Path) -> None:
    """Five lives of a gateway, each killed in the middle of its samples; the cap is of the day."""
    rng = random.Random(7)  # noqa: S311
    with (
        HostileServer([says("a bad answer", (7, 2))]) as small,
        HostileServer([says("a good answer", (30, 20), delay=0.05)]) as large,
        HostileServer([says("Grade: 10", (150, 10), delay=0.05)]) as referee,
    ):
        file = experts_of(referee.url, small=small.url, large=large.url)
        document = {
            "experts": {spec.name: {"kind": spec.kind, **spec.settings} for spec in file.experts},
            "judges": {spec.name: {"kind": spec.kind, **spec.settings} for spec in file.judges},
        }
        (tmp_path / "experts.yaml").write_text(json.dumps(document))
        (tmp_path / "gateway.yaml").write_text(GATEWAY)
        spent = []
        with httpx.Client(trust_env=False, verify=TRUST, timeout=20) as http:
            for life in range(5):
                port = 21_000 + rng.randrange(20_000)
                http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
                with served(tmp_path, port):
                    wait_for(lambda: is_ready(http))
                    body = {"model": "mildroute", "max_tokens": 20}
                    end = time.monotonic() + 0.3 + rng.random()
                    while time.monotonic() < end or life == 4:
                        messages = [{"role": "user", "content": f"Question {rng.random()}"}]
                        answer = http.post(
                            "/v1/chat/completions", json={**body, "messages": messages}
                        )
                        assert answer.headers["x-mildroute-expert"] == "small"
                        if life == 4 and "no_budget" in http.get("/metrics").text:
                            break
                        time.sleep(0.01)
                # Calls that were in flight are on the bill, too.
                spent.append(billed(large, 50) + billed(referee, 160))
                assert spent[-1] <= 40.0
        assert spent[0] > 0
        assert spent[-1] > spent[0]
        rows = [row for path in log_files(tmp_path / "log" / "samples") for row in read_file(path)]
        assert 0 < len(rows) <= len(large.calls)
        assert all(math.isfinite(row["cost_usd"][1]) for row in rows)
        counted = json.loads((tmp_path / "log" / "sampling.json").read_text())["dollars"]
        assert spent[-1] <= counted + 1e-9 <= 40.0 + 1e-6
