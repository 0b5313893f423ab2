"""At least 10,000 hostile requests.

No 500, no hang, no secret told, no call of anybody outside the list.

Run: python benchmarks/service/hostile.py [--json] [--quick] [--cascade]

The gateway runs as ``mildroute serve`` with keys, a log and the operator's path. The keys of
experts, operator and clients are known here, and looked for in every answer, in all that the
gateway prints, in its log and on its page of metrics; so is a mark in prompts. A server that nobody
may call listens at the address that is written wherever one can be written, the proxy variables of
the gateway's environment included. Every connection must have ended in time, and while all this
goes on the gateway must say that it is well. With --cascade its router looks at answers.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
import fuzz
from attack import ANY, BODY, Attack, Target, partial
from attacks import all_attacks
from judge import Canary, Judge, Pulse, drip, exchange, leave_early
from loopback import ask
from processes import House, house
from rows import Row, at_least, at_most, main, reported

# Seconds that the gateway gives a body here.
PATIENCE = 1.5
# Seconds that any connection may take; two experts may be waited for.
LIMIT = 15.0
SETTINGS = f"""
limits:
  body_timeout: {PATIENCE}
  max_body_mb: 1
  max_in_flight: 256
failover:
  first_byte_timeout: 3.0
  idle_timeout: 2.0
  connect_timeout: 1.0
  timeout: 8.0
  drain_timeout: 3
routing:
  presets: {{cheap: 100, good: {{quality: 0.9}}}}
  routes: {{fast: 7}}
  stream_looks: hold
"""
ODD = (
    "  'odd \"name%0d%0aX-Injected: 1 é': {{kind: openai, base_url: 'http://127.0.0.1:{port}/v1',"
    " model: a, api_key_env: EXPERT_KEY}}\n"
)
MARKS = {"EXPERT_KEY": "sk-MARKEDupstream0123456789", "ADMIN_KEY": "MARKEDadmin0123456789"}


@dataclass
class Amounts:
    """How many of each kind; of the listed attacks every ``stride``-th, ``rounds`` times."""

    rounds: int
    stride: int
    described: int
    bodies: int
    noise: int
    headers: int
    drips: int


@dataclass
class Outcome:
    """What came of it."""

    judge: Judge
    canary_calls: int
    strange_calls: int
    slowest_drip: float
    pulse: Pulse
    held: float
    files: int
    tracebacks: int
    calls: int


def besiege(folder: Path, amounts: Amounts, *, cascade: bool) -> Outcome:
    """All attacks, then a look at what is left."""
    canary = Canary()
    there = f"http://127.0.0.1:{canary.port}"
    proxies = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), there
    )
    environment = {**MARKS, **proxies, "CANARY": str(canary.port)}
    try:
        with house(
            folder,
            SETTINGS,
            environment=environment,
            priced=True,
            cascade=cascade,
            further=ODD.format(port=1),
        ) as ours:
            before, lines = ours.gateway.resources()["descriptors"], connections_to_experts(ours)
            judge, pulse = Judge(ours.port, secrets_of(ours), LIMIT), Pulse(ours.port)
            pulse.start()
            target = Target(ours.keys["team-0"], canary.port)
            attack(ours, judge, target, amounts)
            slowest = slow_ones(ours, judge, target, amounts.drips)
            pulse.stop()
            judge.look_for_secrets("the page of metrics", ours.gateway.metrics().encode())
            held = settled(ours, before, lines)
            told = [expert.tell("ok") for expert in ours.experts.values()]
            ours.gateway.stop()
            output = ours.gateway.output()
            judge.look_for_secrets("the output", output.encode())
            return Outcome(
                judge,
                canary.calls,
                sum(int(each["strange"]) for each in told),
                slowest,
                pulse,
                held,
                judge.look_through(folder / "log"),
                output.count("Traceback"),
                sum(int(each["calls"]) for each in told),
            )
    finally:
        canary.close()


def secrets_of(ours: House) -> dict[str, bytes]:
    """By name; the mark of prompts is none, but must not be written down either."""
    clients = {f"the key of {name}": key.encode() for name, key in ours.keys.items()}
    return {
        **clients,
        **{name: value.encode() for name, value in MARKS.items()},
        "a wrong key": b"mr-" + b"W" * 43,
        "a prompt": fuzz.PROMPT_MARK.encode(),
    }


def attack(ours: House, judge: Judge, target: Target, amounts: Amounts) -> None:
    listed = list(all_attacks(target))[:: amounts.stride]
    for _ in range(amounts.rounds):
        judge.try_all(listed)
    few = [each for each in listed if len(each.data) < 5000][:: 2 if amounts.rounds > 1 else 12]
    with ThreadPoolExecutor(32) as threads:  # most of these wait for the gateway's patience to end
        list(threads.map(judge.try_one, [*partial(few, 0.5), *partial(few, 0.97)]))
    moods(ours, judge, target)
    for how in ("close", "reset", "half"):
        for body in (BODY, BODY[:-1] + b',"stream":true}'):
            for _ in range(5 * amounts.rounds):
                leave_early(ours.port, target.post(body), how)
                judge.requests += 1
    fuzz.bodies(target, amounts.bodies, judge.try_one)
    fuzz.noise(target, amounts.noise, judge.try_one)
    fuzz.headers(target, amounts.headers, judge.try_one)
    if amounts.described:
        fuzz.described(target, ask(ours.port, "/openapi.json")[1], amounts.described, judge.try_one)


def moods(ours: House, judge: Judge, target: Target) -> None:
    """Experts that repeat the key they were sent, inject headers, or send the gateway elsewhere."""
    failed = ANY | {502, 503, 504}
    for mood in ("echo", "inject", "redirect", "cut", "reset", "error"):
        for expert in ours.experts.values():
            expert.tell(mood)
        for model in (b"small", b"mildroute"):
            for stream in (b"false", b"true"):
                body = BODY.replace(b'"mildroute"', b'"%b","stream":%b' % (model, stream))
                judge.try_one(Attack(f"mood: {mood} {model.decode()}", target.post(body), failed))
    for expert in ours.experts.values():
        expert.tell("ok")
    odd = '{"model":"odd \\"name%0d%0aX-Injected: 1 é","messages":[{"role":"user","content":"x"}]}'
    judge.try_one(Attack("an odd name", target.post(odd.encode()), failed))
    wait_for_experts(ours, target)


def wait_for_experts(ours: House, target: Target) -> None:
    """Until the circuits that the moods have opened are closed again: later 5xx are faults."""
    deadline = time.monotonic() + 60
    for model in ours.experts:
        body = BODY.replace(b'"mildroute"', b'"%b"' % model.encode())
        while b" 200 " not in exchange(ours.port, target.post(body), LIMIT)[0][:20]:
            if time.monotonic() > deadline:
                raise SystemExit(f"{model} does not serve again after its faults")
            time.sleep(0.1)


def slow_ones(ours: House, judge: Judge, target: Target, count: int) -> float:
    """Clients that take their time over a body, in all ways at once.

    The seconds after which the last of them was sent away.
    """
    request = target.post()
    head = request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    kept = head.replace(b"connection: close\r\n", b"")
    ways = [
        (head, b" "),
        (kept, b"{"),
        (head.replace(b"content-length", b"transfer-encoding: chunked\r\nx-length"), b"1\r\na\r\n"),
    ]
    jobs = [way for way in ways for _ in range(count)]
    with ThreadPoolExecutor(len(jobs)) as threads:
        found = list(threads.map(lambda way: drip(ours.port, *way, seconds=LIMIT), jobs))
    judge.requests += len(jobs)
    for (opening, byte), seconds in zip(jobs, found, strict=True):
        if seconds == float("inf"):
            judge.blame("connections that hang", Attack("slow", opening + byte), b"")
    return max(found)


def connections_to_experts(ours: House) -> int:
    return sum(int(expert.tell("ok")["lines"]) for expert in ours.experts.values())


def settled(ours: House, before: float, lines: int) -> float:
    """Return the file descriptors that are left over when all clients have gone.

    Connections kept to experts are not counted.
    """
    for _ in range(50):
        held = (
            ours.gateway.resources()["descriptors"]
            - before
            - (connections_to_experts(ours) - lines)
        )
        if held <= 0:
            break
        time.sleep(0.1)
    return held


def rows_of(found: Outcome, least: int) -> Iterable[Row]:
    """The outcome in rows."""
    judge = found.judge
    seen = ", ".join(
        f"{count:,} x {status or 'none'}" for status, count in sorted(judge.statuses.items())
    )
    yield at_least(
        "hostile requests", judge.requests, least, f"{seen}; {found.calls:,} calls of experts"
    )
    for fault in (
        "answers with 500",
        "answers with another 5xx",
        "answers with a status that should not be",
        "more answers than requests",
        "headers that were injected",
        "answers that are called JSON and are none",
        "connections that hang",
    ):
        yield at_most(fault, judge.faults[fault], 0, judge.examples.get(fault, ""))
    yield reported("slowest request, seconds", judge.slowest)
    yield at_most(
        "slowest slow-loris, seconds",
        found.slowest_drip,
        4 * PATIENCE + 2,
        f"the gateway gives {PATIENCE} s for a body",
    )
    fault = "secrets in answers"
    yield at_most(
        fault,
        judge.faults[fault],
        0,
        judge.examples.get(
            fault, f"in answers, output, metrics and {found.files} files of the log"
        ),
    )
    yield at_most("calls of a server outside the list", found.canary_calls, 0)
    yield at_most(
        "calls of experts that should not be",
        found.strange_calls,
        0,
        "by path, host, key or headers",
    )
    yield at_most(
        "times that /healthz failed meanwhile", found.pulse.missed, 0, f"of {found.pulse.beats}"
    )
    yield at_most("slowest /healthz meanwhile, seconds", found.pulse.slowest, 2.0)
    yield at_most("file descriptors left over", found.held, 0)
    yield at_most("tracebacks in the gateway's output", found.tracebacks, 0)


def measure(quick: bool, cascade: bool) -> Iterator[Row]:
    amounts = Amounts(1, 3, 0, 30, 20, 20, 1) if quick else Amounts(4, 1, 160, 4000, 1500, 1500, 10)
    folder = Path(tempfile.mkdtemp(prefix="mildroute-hostile-"))
    try:
        yield from rows_of(besiege(folder, amounts, cascade=cascade), 250 if quick else 10_000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(__doc__ or "", measure, {"--cascade": {"action": "store_true"}})
