"""Answers that repeat one thing 100,000 characters long, as models do when they get stuck."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mildroute.collection.budget import Budget
from mildroute.collection.calls import MAX_INLINE_ANSWER_CHARS
from mildroute.collection.entries import Entry
from mildroute.collection.run import CollectionRun
from mildroute.collection.runner import run_all
from mildroute.collection.store import StoredState
from mildroute.experts.base import Answer, Query
from mildroute.judges import unit_tests
from mildroute.judges._sandbox import Outcome
from mildroute.judges.base import Judge, ReadingJudge, Verdict
from mildroute.judges.exact_match import ExactMatchJudge
from mildroute.judges.registry import get_judge
from tests.judges.scripted import Scripted

LENGTH = 100_000
PATTERNS = {
    "letters": "a", "newlines": "\n", "spaces": " ", "blank lines": " \n", "tabs": "\t",
    "double quotes": '"', "single quotes": "'", "backticks": "`", "fences": "```\n",
    "braces": "{", "brackets": "[", "empty objects": "{}", "objects": '{"a": ', "digits": "1",
    "groups of digits": "1,", "dots": ".", "dashes": "-", "backslashes": "\\",
    "fractions": "\\frac{", "boxes": "\\boxed{", "options": "A ", "answers": "the answer is ",
    "code": "x = 1\n",
}  # fmt: skip
FRAMES: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "fenced": lambda text: f"```\n{text}\n```",
    "in JSON": lambda text: f'{{"answer": "{text}", "city": "Paris"}}',
    "quoted": lambda text: f'The answer is "{text}", so B.',
}
JUDGES: dict[str, dict[str, Any]] = {
    "exact": {},
    "choice": {},
    "numeric": {},
    "regex": {"pattern": r"\b(\w+), the capital", "group": 1},
    "json": {"path": "city"},
    "label": {"labels": ["positive", "negative"]},
    "tests": {},
    "graded": {},
    "pairwise": {},
}
REFERENCES = {"numeric": "4", "choice": "B", "label": "positive"}
GRID = list(itertools.product(JUDGES, PATTERNS, FRAMES))
# What took longest before: seconds to minutes.
WORST = [
    ("tests", "letters", "fenced"), ("tests", "newlines", "plain"), ("json", "newlines", "plain"),
    ("json", "spaces", "quoted"), ("exact", "double quotes", "plain"),
    ("exact", "backticks", "plain"), ("numeric", "digits", "plain"), ("label", "answers", "quoted"),
    ("choice", "options", "plain"), ("graded", "newlines", "quoted"), ("json", "objects", "plain"),
    ("pairwise", "spaces", "fenced"), ("regex", "letters", "plain"), ("tests", "fences", "plain"),
    ("exact", "fractions", "plain"), ("numeric", "groups of digits", "in JSON"),
]  # fmt: skip
CHOICES = ["Rome", "Paris"]
FIELDS = {"choices": CHOICES, "tests": "assert f() == 1"}


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long code runs is another matter; here it is read."""
    outcome = Outcome(failure="not run")
    monkeypatch.setattr(unit_tests, "run_tests", lambda *_, **__: outcome)
    monkeypatch.setattr(unit_tests, "sandbox_works", lambda: True)


def judged(name: str, text: str) -> tuple[Judge, Query]:
    settings = dict(JUDGES[name])
    if name in ("graded", "pairwise"):
        settings["expert"] = Scripted([Answer(text), Answer(text)])
    reference = REFERENCES.get(name, "Paris")
    return get_judge(name, **settings), Query("q", "Where?", reference=reference, fields=FIELDS)


def answer(pattern: str, frame: str, length: int = LENGTH) -> str:
    repeated = PATTERNS[pattern]
    return FRAMES[frame]((repeated * (length // len(repeated) + 1))[:length])


async def longest_stall(work: Awaitable[object]) -> tuple[float, float]:
    """Seconds of computing that some work took, and how long the event loop stood still at most."""
    longest, done = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not done:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)

    watching = asyncio.ensure_future(watch())
    start = time.process_time()
    await work
    seconds = time.process_time() - start
    done = True
    await watching
    return seconds, longest


def measured(name: str, pattern: str, frame: str) -> tuple[float, float]:
    text = answer(pattern, frame)
    judge, query = judged(name, text)
    return asyncio.run(longest_stall(judge.judge(query, text)))


def check(case: tuple[str, str, str]) -> None:
    """At most 1 s, and 50 ms of the event loop; the best of five, for the machine may be busy."""
    seconds, stall = measured(*case)
    for _ in range(4):
        if seconds <= 1.0 and stall <= 0.05:
            return
        again, still = measured(*case)
        seconds, stall = min(seconds, again), min(stall, still)
    assert (seconds <= 1.0, stall <= 0.05) == (True, True), (seconds, stall)


@pytest.mark.parametrize("case", WORST, ids=" ".join)
def test_a_degenerate_answer_takes_at_most_a_second_and_leaves_the_loop_its_turn(
    case: tuple[str, str, str],
) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=" ".join)
def test_every_degenerate_answer_to_every_judge_takes_at_most_a_second(
    case: tuple[str, str, str],
) -> None:
    assert measured(*case)[0] <= 1.0


class Nowhere:
    def add(self, entry: Entry) -> None:
        pass


@pytest.mark.parametrize("case", [("exact", "dots", "quoted"), ("json", "spaces", "plain")])
def test_a_collection_goes_on_while_a_degenerate_answer_is_judged(
    case: tuple[str, str, str],
) -> None:
    text = answer(*case[1:])
    judge, query = judged(case[0], text)

    def stall() -> float:
        expert = Scripted([Answer(text)])
        run = CollectionRun(
            [query], [expert], judge, Nowhere(), StoredState(("scripted",)), Budget()
        )
        return asyncio.run(longest_stall(run_all(run)))[1]

    assert min(stall() for _ in range(5)) <= 0.05


@pytest.mark.parametrize("name", ["exact", "choice", "numeric", "label"])
def test_a_collection_reads_short_answers_at_once_and_goes_on(name: str) -> None:
    for pattern in PATTERNS:
        text = answer(pattern, "plain", MAX_INLINE_ANSWER_CHARS)
        judge, query = judged(name, text)
        assert isinstance(judge, ReadingJudge)

        def seconds(judge: ReadingJudge = judge, query: Query = query, text: str = text) -> float:
            start = time.perf_counter()
            judge.score(query, text)
            return time.perf_counter() - start

        assert min(seconds() for _ in range(5)) <= 0.05


def test_a_collection_reads_only_long_answers_in_a_thread() -> None:
    threads = []

    class Threads(ExactMatchJudge):
        def score(self, query: Query, text: str) -> Verdict:
            threads.append(threading.current_thread())
            return super().score(query, text)

    for length in (MAX_INLINE_ANSWER_CHARS, MAX_INLINE_ANSWER_CHARS + 1):
        query = Query("q", "Where?", reference="Paris")
        state = StoredState(("scripted",))
        expert = Scripted([Answer("a" * length)])
        asyncio.run(
            run_all(CollectionRun([query], [expert], Threads(), Nowhere(), state, Budget()))
        )
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


def test_a_collection_takes_turns_between_answers_that_it_reads_at_once() -> None:
    queries = [Query(f"q{number}", "Where?", reference="Paris") for number in range(200)]
    turns = 0

    class Known(Scripted):
        async def answer(self, batch: Sequence[Query]) -> list[Answer]:
            return [Answer("Paris") for _ in batch]  # without a turn of the loop

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def collect() -> None:
        counting = asyncio.ensure_future(count())
        state = StoredState(("scripted",))
        run = CollectionRun(queries, [Known([])], ExactMatchJudge(), Nowhere(), state, Budget())
        await run_all(run)
        counting.cancel()

    asyncio.run(collect())
    assert turns >= len(queries)


def test_the_grid_is_whole() -> None:
    assert len(GRID) == 828
    assert set(WORST) <= set(GRID)
