"""Delay of one tenant's requests while another tenant sends large bodies.

Run: python benchmarks/service/large_bodies.py [--json] [--quick]

One tenant keeps four bodies of 8 MB in flight: 60,000 short text parts, or one long string. Another
tenant sends an 85 KB chat, again and again, and a short one. Each round measures the second tenant
alone and then beside the first, so that both medians come from the same minute; a figure is the
median over the rounds. Gateway, experts and both tenants are processes on loopback and share the
machine's cores, so a busy machine shows more delay than the gateway causes.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import http.client
import json
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from loopback import SENTENCE
from processes import house
from rows import Row, at_most, main, reported

IN_FLIGHT = 4
LARGE = 8_000_000
PARTS = 60_000
MEDIUM = 85_000
SHORT = 200
PAUSE = 0.05
SPAWN = multiprocessing.get_context("spawn")


def chat(content: object) -> bytes:
    """Return the body of a routed chat."""
    message = {"role": "user", "content": content}
    return json.dumps({"model": "mildroute", "max_tokens": 16, "messages": [message]}).encode()


def text(characters: int) -> str:
    return (SENTENCE * (characters // len(SENTENCE) + 1))[:characters]


def large_body(shape: str) -> bytes:
    if shape == "one string":
        return chat(text(LARGE))
    part = {"type": "text", "text": text(LARGE // PARTS - 30)}
    return chat([part] * PARTS)


def send(port: int, key: str, bodies: list[bytes], until: Event) -> Iterator[tuple[int, float]]:
    """Send the bodies in turn over one connection; yield the status and the seconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    while not until.is_set():
        for body in bodies:
            started = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
            response.read()
            yield response.status, time.perf_counter() - started


def flood(port: int, key: str, shape: str, until: Event, sent: multiprocessing.Queue[int]) -> None:
    """Send large bodies until told to stop, and report how many were answered."""
    sent.put(sum(status == 200 for status, _ in send(port, key, [large_body(shape)], until)))


def probe(
    port: int, key: str, requests: int, times: multiprocessing.Queue[list[list[float]]]
) -> None:
    """Send medium and short chats in turn; report the seconds of each kind."""
    never = SPAWN.Event()
    seconds: list[list[float]] = [[], []]
    for number, (status, took) in enumerate(
        send(port, key, [chat(text(MEDIUM)), chat(text(SHORT))], never)
    ):
        if status != 200:
            raise SystemExit(f"a chat was answered with {status}")
        seconds[number % 2].append(took)
        if number + 1 == 2 * requests:
            break
        time.sleep(PAUSE)
    times.put(seconds)


@dataclass
class Delay:
    """The medians of one round, in seconds."""

    medium: float
    short: float
    slowest: float


def measure_probe(port: int, key: str, requests: int) -> Delay:
    times: multiprocessing.Queue[list[list[float]]] = SPAWN.Queue()
    process = SPAWN.Process(target=probe, args=(port, key, requests, times))
    process.start()
    medium, short = times.get(timeout=300)
    process.join()
    return Delay(statistics.median(medium), statistics.median(short), max(medium))


def measure_round(
    port: int, keys: dict[str, str], shape: str, requests: int
) -> tuple[Delay, Delay, float]:
    """Return the delays alone and beside large bodies, and the answered large bodies a second."""
    alone = measure_probe(port, keys["team-1"], requests)
    stop = SPAWN.Event()
    sent: multiprocessing.Queue[int] = SPAWN.Queue()
    senders = [
        SPAWN.Process(target=flood, args=(port, keys["team-0"], shape, stop, sent))
        for _ in range(IN_FLIGHT)
    ]
    for sender in senders:
        sender.start()
    time.sleep(2.0)
    started = time.monotonic()
    beside = measure_probe(port, keys["team-1"], requests)
    stop.set()
    answered = sum(sent.get(timeout=120) for _ in senders)
    seconds = time.monotonic() - started + 2.0
    for sender in senders:
        sender.join()
    return alone, beside, answered / seconds


def rows_of(shape: str, rounds: list[tuple[Delay, Delay, float]]) -> Iterator[Row]:
    ratios = [beside.medium / alone.medium for alone, beside, _ in rounds]
    alone, beside = (
        statistics.median(1000 * each[side].medium for each in rounds) for side in (0, 1)
    )
    note = f"{alone:.0f} to {beside:.0f} ms; rounds: {', '.join(f'{each:.2f}' for each in ratios)}"
    yield at_most(
        f"{shape}: median of an 85 KB chat, times alone",
        statistics.median(ratios),
        2.0,
        note,
        full_only=True,
    )
    short = statistics.median(beside.short / alone.short for alone, beside, _ in rounds)
    yield reported(f"{shape}: median of a short chat, times alone", short)
    slowest = statistics.median(beside.slowest for _, beside, _ in rounds)
    yield reported(f"{shape}: slowest 85 KB chat, seconds", slowest)
    rate = statistics.median(each for _, _, each in rounds)
    yield reported(f"{shape}: large bodies answered a second", rate)


def measure(quick: bool) -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(prefix="mildroute-large-bodies-"))
    count, requests = (1, 30) if quick else (5, 60)
    try:
        with house(folder, clients=2) as ours:
            measure_probe(ours.port, ours.keys["team-1"], 5)
            for shape in ("parts", "one string"):
                rounds = [
                    measure_round(ours.port, ours.keys, shape, requests) for _ in range(count)
                ]
                yield from rows_of(shape, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(__doc__ or "", measure)
