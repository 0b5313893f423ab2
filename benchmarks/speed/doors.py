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

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from gateway import fit_router, process, prompts
from loopback import COMMAND, free_port
from rows import Row, at_most, main, reported

from mildroute.decision import Caller, Decider, DecisionRequest, DecisionService, ServiceConfig
from mildroute.decision.settings import DecisionLogConfig

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
    "/v1/systemone": over_http("decide", "/v1/systemone", system_one),
    "/v1/decisions": over_http("decide", "/v1/decisions", openai_decisions),
    "/v1/route of the gateway": over_http("serve", "/v1/route", lambda text: {"input": text}),
    "/v1/systemone of the gateway": over_http("serve", "/v1/systemone", system_one),
}


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
