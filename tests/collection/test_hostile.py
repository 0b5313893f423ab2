"""A server that fails in every way at 30% of all calls.

Each cell is answered or explained, memory and dollars keep their bounds.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mildroute.collection.store import AnswerStore
from tests.collection.command import Finished, collect
from tests.collection.pools import write_queries
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    answers,
    chunked,
    cut_off,
    disconnects,
    drips,
    half_json,
    hangs,
    huge,
    repeats,
    resets,
    says,
    status,
)

WORKERS, MAX_TOKENS, TOKENS = 4, 10, (7, 2)
# Dollars per million tokens.
PRICES = {
    "right": (100.0, 500.0),
    "half": (300.0, 300.0),
    "stormy": (100.0, 100.0),
    "free": (0.0, 0.0),
}
STORMS = {"stormy": {}, "right": {"Retry-After": "0.2"}}
STORM_SECONDS, SHARE = 0.03, 0.3
# MiB of the longest answer that is read.
LARGEST = 4.0


def text_of(model: str, prompt: str) -> str:
    """What a model says to "3 + 1?".

    All know the sum but the one that is right on even numbers alone.
    """
    number = int(prompt.split()[0])
    return str(number + 1) if model != "half" or number % 2 == 0 else "no idea"


def echo(call: Call) -> Behavior:
    """A sound answer, and another one that nobody asked for; judged, the second would be wrong."""
    call.body = call.body.replace(
        json.dumps(call.prompt).encode(),
        json.dumps(text_of(call.json["model"], call.prompt)).encode(),
    )
    return repeats()


WRONG_TYPES: tuple[Any, ...] = (
    [],
    "5",
    {"choices": [{"message": {"content": 5}}]},
    {
        "choices": [{"message": {"content": ["5"]}}],
        "usage": {"prompt_tokens": "many", "completion_tokens": None},
    },
    {"choices": {"message": {"content": "5"}}},
    {
        "choices": [{"message": {"content": None}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    },
    {"error": {"message": "the backend is away"}},
)
HUGE = huge(10_000_000)
# What no server charges for.
FREE: tuple[Behavior, ...] = (
    status(500, {}, "boom"),
    status(503),
    status(500, {"Retry-After": "0.05"}),
)
# What a model may have worked for, and what a server may charge.
CHARGED: tuple[Behavior, ...] = (
    hangs(), drips(0.02), half_json(), cut_off(), chunked("wrong", whole=False), disconnects(),
    resets(), HUGE, status(200, {}, "<html>busy</html>"), status(504),
    *(answers(document) for document in WRONG_TYPES),
)  # fmt: skip


@dataclass
class Weather:
    """Good or bad by seed, model, prompt and attempt, so that the order of calls changes nothing.

    Keeps its own books.
    """

    seed: int
    is_calm: bool = False
    storms: tuple[int, ...] = (22,)
    charged: float = 0.0
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    until: dict[str, float] = field(default_factory=dict)

    def __call__(self, call: Call) -> Behavior:
        model, prompt = call.json["model"], call.prompt
        self.attempts[model, prompt] += 1
        self.calls[model] += 1
        if not self.is_calm and self._is_stormy(model):
            self.refused += 1
            return status(429, STORMS[model], "slow down")
        chance = random.Random(f"{self.seed} {model} {prompt} {self.attempts[model, prompt]}")  # noqa: S311
        if not self.is_calm and chance.random() < SHARE:
            return self._failure(chance, call, model)
        self._charge(model)
        return echo(call) if chance.random() < 0.1 else says(text_of(model, prompt), TOKENS)

    def _is_stormy(self, model: str) -> bool:
        """From some calls on, for a moment, everybody who asks this model is refused."""
        if model in STORMS and self.calls[model] in self.storms:
            self.until[model] = time.monotonic() + STORM_SECONDS
        return time.monotonic() < self.until.get(model, 0.0)

    def _failure(self, chance: random.Random, call: Call, model: str) -> Behavior:
        self.failures[model] += 1
        if chance.random() < len(FREE) / (len(FREE) + len(CHARGED)):
            return chance.choice(FREE)
        self._charge(model)
        return chance.choice((drips(0.0005, text_of(model, call.prompt)), *CHARGED))

    def _charge(self, model: str) -> None:
        self.charged += (
            sum(price * tokens for price, tokens in zip(PRICES[model], TOKENS, strict=True)) / 1e6
        )


def write_pool(folder: Path, url: str, queries: int, timeout: float = 0.5) -> None:
    """Two retries; all experts but one have a price and a bound."""
    folder.mkdir(parents=True, exist_ok=True)
    write_queries(folder, queries)
    experts = {}
    for name, (dear, more_expensive) in PRICES.items():
        experts[name] = {
            "kind": "openai",
            "base_url": url,
            "model": name,
            "concurrency": WORKERS,
            "timeout": timeout,
            "retries": 2,
        }
        if dear:
            experts[name] |= {
                "price": {"input": dear, "output": more_expensive},
                "request": {"max_tokens": MAX_TOKENS},
            }
    (folder / "experts.yaml").write_text(json.dumps({"experts": experts}))


def worst_call(queries: int) -> float:
    """At most what one call of one worker costs, with all its attempts."""
    body = {
        "max_tokens": MAX_TOKENS,
        "model": "stormy",
        "messages": [{"role": "user", "content": f"{queries} + 1?"}],
    }
    return max(
        3 * ((len(json.dumps(body)) + 256) * dear + MAX_TOKENS * more_expensive) / 1e6
        for dear, more_expensive in PRICES.values()
    )


def found_in(folder: Path) -> dict[str, dict[int, float | None]]:
    """Scores by the numbers of the queries that are in the table."""
    rows = pq.read_table(folder / "costs" / "costs.parquet").to_pylist()
    return {
        name: {int(row["query_id"][1:]): row[f"score:{name}"] for row in rows} for name in PRICES
    }


def errors_in(folder: Path) -> dict[tuple[str, str], str]:
    """The last word on each cell that was asked."""
    with AnswerStore(folder / "costs" / "_collected") as archive:
        return {
            (row["expert"], row["query_id"]): row["error"] for row in archive.entries("answers")
        }


def assert_no_score_is_wrong(folder: Path) -> int:
    """Every score is the true one; returns how many cells are empty."""
    empty = 0
    for name, scores in found_in(folder).items():
        for place, score in scores.items():
            truth = float(text_of(name, f"{place} + 1?") == str(place + 1))
            empty += score is None
            assert score is None or score == truth, (name, place)
    return empty


def assert_explained(folder: Path, stopped: set[str], queries: int) -> None:
    """Every empty cell has a reason, and none with a score has one.

    Queries that are not in the table were never asked of some expert for want of money.
    """
    errors, found = errors_in(folder), found_in(folder)
    for place in range(queries):
        reasons = {name: errors.get((name, f"q{place}")) for name in found}
        if place not in found["right"]:
            assert any(reasons[name] is None for name in stopped), place
            continue
        for name, scores in found.items():
            if scores[place] is None:
                assert reasons[name], (name, place)
            else:
                assert reasons[name] == "", (name, place)


def report(done: Finished, code: int = 0) -> dict[str, Any]:
    assert done.code == code, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def stopped_in(found: dict[str, Any]) -> set[str]:
    return {each["expert"] for each in found["experts"] if each["state"] == "stopped by the cap"}


def survive(
    folder: Path,
    weather: Weather,
    server: HostileServer,
    queries: int,
    check: Callable[[Finished], None],
) -> None:
    """Under a cap that bites, then under one that does not, then when the sky is clear."""
    write_pool(folder, server.url, queries)
    cap = queries * 0.02
    done = collect(folder, "--json", "--max-dollars", str(cap))
    found = report(done)
    assert found["is_capped"]
    assert weather.charged <= cap + 3 * WORKERS * worst_call(queries)
    assert weather.charged <= found["spent"] <= cap
    assert_explained(folder, stopped_in(found), queries)
    check(done)

    rich = report(collect(folder, "--json", "--max-dollars", "1000"))
    assert not rich["is_capped"]
    assert weather.charged <= rich["spent"]
    assert_explained(folder, set(), queries)
    left = assert_no_score_is_wrong(folder)
    assert left == rich["empty"]
    assert 0 < left < 0.5 * queries * len(PRICES)

    weather.is_calm, before = True, sum(weather.calls.values())
    assert report(collect(folder, "--json"))["empty"] == 0
    assert sum(weather.calls.values()) - before == left
    assert assert_no_score_is_wrong(folder) == 0


def peak_when_calm(folder: Path, queries: int) -> float:
    with HostileServer(Weather(0, is_calm=True)) as server:
        write_pool(folder, server.url, queries)
        done = collect(folder, "--json")
        assert report(done)["empty"] == 0
    return done.peak


def test_a_hostile_server_leaves_every_cell_answered_or_explained_and_the_cap_unbroken(
    tmp_path: Path,
) -> None:
    weather = Weather(1)
    with HostileServer(weather) as server:
        survive(tmp_path / "hostile", weather, server, 20, lambda _done: None)
    assert weather.refused > 0
    assert sum(weather.failures.values()) > 15


def test_answers_of_ten_megabytes_take_no_more_memory_than_what_is_read_of_them(
    tmp_path: Path,
) -> None:
    calm = peak_when_calm(tmp_path / "calm", 4)
    with HostileServer([HUGE]) as server:
        write_pool(tmp_path / "huge", server.url, WORKERS, timeout=60.0)
        done = collect(tmp_path / "huge", "--json")
    assert report(done, code=4)["empty"] == WORKERS * len(PRICES)
    assert {error.split(" than")[0] for error in errors_in(tmp_path / "huge").values()} == {
        "the answer is longer"
    }
    # what all workers hold at once of answers that are not yet refused, and as much again for
    # pieces and what is not given back
    assert done.peak <= calm + 2 * LARGEST * WORKERS * len(PRICES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_five_thousand_cells_through_a_hostile_server(tmp_path: Path, seed: int) -> None:
    calm, peaks = peak_when_calm(tmp_path / "calm", 1250), []
    weather = Weather(seed, storms=(30, 400))
    with HostileServer(weather) as server:
        survive(tmp_path / "hostile", weather, server, 1250, lambda done: peaks.append(done.peak))
    assert sum(weather.failures.values()) > 1000
    assert max(peaks) <= calm + 2 * LARGEST * WORKERS * len(PRICES)
