"""Milliseconds of one decision behind each door, with words and with a sentence model, and memory.

Run: python benchmarks/speed/doors.py [--json] [--quick]

Each door decides on texts that it has not seen, one after another, so that no cache helps and no
batch hides what a single client waits for. HTTP doors run as the commands that users start, over
one connection that is kept, and write the decision log. On a busy machine the processor time of
the door says more than the wait of its client.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import asyncio
import http.client
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from gateway import fit_router, process, prompts
from loopback import COMMAND, free_port
from rows import Row, at_most, main, reported

from mildroute.decision import Caller, Decider, DecisionRequest, DecisionService, ServiceConfig
from mildroute.decision.settings import DecisionLogConfig
from mildroute.integrations.langchain import MildrouteDecisionModel
from mildroute.integrations.litellm import MildrouteClassifier, MildroutePlugin

MIB = 2**20
SYSTEM_ONE_MS = 2.0
EXPERTS = """experts:
  small: {kind: openai, base_url: "http://127.0.0.1:9", model: small, price: 0.1}
  large: {kind: openai, base_url: "http://127.0.0.1:9", model: large, price: 2}
"""
QUESTION = {
    "type": "choice",
    "instructions": "Who answers?",
    "criteria": {"small": "", "large": ""},
}
OPTIONS = [{"value": "small"}, {"value": "large"}]
# Decides on one text.
Decide = Callable[[str], object]


@contextmanager
def python(router: Path, _: Path) -> Iterator[tuple[Decide, int]]:
    decider = Decider.load(router)
    yield lambda text: decider.decide(DecisionRequest(text)), os.getpid()


@contextmanager
def service(router: Path, folder: Path) -> Iterator[tuple[Decide, int]]:
    config = ServiceConfig(log=DecisionLogConfig(folder / "log"))
    with DecisionService.load(router, config) as made:
        caller = Caller("benchmark")
        yield lambda text: made.decide(DecisionRequest(text), caller=caller), os.getpid()


def context_of(text: str) -> Any:
    """Return what LiteLLM shows of a request."""
    return SimpleNamespace(
        structured_messages=[{"role": "user", "content": text}],
        candidate_models=["small", "large"],
        metadata={},
        signals={},
    )


def in_litellm(decide: Callable[[DecisionService], Callable[[Any], Awaitable[Any]]]) -> Any:
    """A door that LiteLLM awaits in its process."""

    @contextmanager
    def door(router: Path, folder: Path) -> Iterator[tuple[Decide, int]]:
        config = ServiceConfig(log=DecisionLogConfig(folder / "log"))
        with DecisionService.load(router, config) as made, asyncio.Runner() as loop:
            call = decide(made)

            async def await_decision(text: str) -> None:
                await call(context_of(text))

            yield lambda text: loop.run(await_decision(text)), os.getpid()

    return door


@contextmanager
def langchain(router: Path, folder: Path) -> Iterator[tuple[Decide, int]]:
    from langchain_core.decisions import Choice

    config = ServiceConfig(log=DecisionLogConfig(folder / "log"))
    question = {"expert": Choice(instructions="Who answers?", criteria=QUESTION["criteria"])}
    with DecisionService.load(router, config) as made:
        model = MildrouteDecisionModel(made)
        yield lambda text: model.invoke({"state": text, "questions": question}), os.getpid()


def over_http(command: str, path: str, body: Callable[[str], Any]) -> Any:
    """A door of a command that serves."""

    @contextmanager
    def door(router: Path, folder: Path) -> Iterator[tuple[Decide, int]]:
        (folder / "experts.yaml").write_text(EXPERTS)
        port = free_port()
        options = ["--experts", "experts.yaml", "--log", "log", "--port", str(port)]
        with process([*COMMAND, command, str(router), *options], port, folder) as pid:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

            def decide(text: str) -> None:
                content = json.dumps(body(text))
                connection.request("POST", path, content, {"content-type": "application/json"})
                response = connection.getresponse()
                answer = response.read()
                if response.status != 200:
                    raise SystemExit(f"{path} answered {response.status}: {answer[:300]!r}")

            yield decide, pid
            connection.close()

    return door


def system_one(text: str) -> Any:
    return {"model": "mildroute", "state": text, "questions": {"expert": QUESTION}}


def openai_decisions(text: str) -> Any:
    question = {"type": "choice", "instructions": "Who answers?", "choices": OPTIONS}
    return {"model": "mildroute", "input": text, "questions": [question]}


# Add a door as a context manager that yields how to decide and the process to weigh.
DOORS = {
    "Python": python,
    "service with a log": service,
    "LiteLLM's plug-in": in_litellm(lambda made: MildroutePlugin(made).run),
    "LiteLLM's classifier": in_litellm(lambda made: MildrouteClassifier(made).classify),
    "/v1/systemone": over_http("decide", "/v1/systemone", system_one),
    "/v1/decisions": over_http("decide", "/v1/decisions", openai_decisions),
    "/v1/route of the gateway": over_http("serve", "/v1/route", lambda text: {"input": text}),
    "/v1/systemone of the gateway": over_http("serve", "/v1/systemone", system_one),
}

# Only in an environment of its own: LangChain wants other versions than the development has.
if importlib.util.find_spec("langchain_core") is not None:
    DOORS["LangChain"] = langchain


def milliseconds(decide: Decide, texts: list[str]) -> np.ndarray:
    taken = []
    for text in texts:
        began = time.perf_counter()
        decide(text)
        taken.append(1000 * (time.perf_counter() - began))
    return np.array(taken)


def measure(quick: bool) -> Iterator[Row]:
    rows, count = (300, 60) if quick else (2_000, 1_000)
    with tempfile.TemporaryDirectory() as place:
        for encoder in ("tfidf",) if quick else ("tfidf", "minilm-int8"):
            router = fit_router(Path(place) / encoder, encoder, rows)
            for number, (name, door) in enumerate(DOORS.items()):
                folder = Path(place) / f"{encoder}-{number}"
                folder.mkdir()
                with door(router, folder) as (decide, pid):
                    side = psutil.Process(pid)
                    milliseconds(decide, prompts(count // 10, seed=20 + number))
                    before = sum(side.cpu_times()[:2])
                    taken = milliseconds(decide, prompts(count, seed=10 + number))
                    processor = 1000 * (sum(side.cpu_times()[:2]) - before) / count
                    memory = side.memory_info().rss / MIB
                p50, p95 = np.quantile(taken, [0.5, 0.95])
                yield reported(f"{name}, {encoder}: p50, ms", p50)
                if name == "/v1/systemone" and encoder == "tfidf":
                    yield at_most(f"{name}, {encoder}: p95, ms", p95, SYSTEM_ONE_MS, full_only=True)
                else:
                    yield reported(f"{name}, {encoder}: p95, ms", p95)
                yield reported(f"{name}, {encoder}: processor time, ms", processor)
                if pid != os.getpid():
                    yield reported(f"{name}, {encoder}: memory, MiB", memory)


if __name__ == "__main__":
    main(__doc__ or "", measure)
