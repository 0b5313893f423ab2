"""Two gateways behind a TCP load balancer, three experts, and kill -9 of any of them.

One expert is sound, one fails three calls in ten, one is dead. Gateways and experts are killed and
started again, routers are replaced by good and corrupt ones, and clients never try again.
"""

from __future__ import annotations

import itertools
import math
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from artifacts import bad_artifacts, make_router, put_in_place
from books import dollars_of
from expert import text_of, tokens_of
from loopback import is_answering
from processes import HERE, House, house
from rows import Row, at_least, at_most, reported
from storm import copied
from traffic import Job, Told, Traffic, conversation_of

from mildroute.decision.conversation import named_conversation
from mildroute.decision.log import DecisionRecord, read_log

SETTINGS = """
failover:
  first_byte_timeout: 1.5
  idle_timeout: 3.0
  connect_timeout: 1.0
  timeout: 30.0
  max_attempts: 3
routing: {stream_looks: hold}
"""
MOODS = {"small": "normal", "middle": "flaky"}
DEAD = "large"
# Seconds after a kill -9 in which connections to the gateway may be cut: the balancer and its
# clients have requests under way to it.
_AFTER_KILL = 1.0


@dataclass
class Pauses:
    """Seconds between two of a kind, at least and at most."""

    gateway: tuple[float, float] = (6.0, 10.0)
    expert: tuple[float, float] = (7.0, 12.0)
    revival: tuple[float, float] = (0.3, 1.5)
    reload: tuple[float, float] = (4.0, 6.0)


@dataclass
class Crashes:
    """What has happened, and when gateways were killed."""

    gateway_kills: list[float] = field(default_factory=list)
    expert_kills: int = 0
    reloads: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    def explains(self, told: Told) -> bool:
        """Whether a gateway was killed while this request was under way, or just before."""
        return any(
            told.at - _AFTER_KILL <= kill <= told.at + told.seconds + 0.1
            for kill in self.gateway_kills
        )


class Repeated(threading.Thread):
    """Calls something again and again, with random pauses, until it is stopped."""

    def __init__(self, step: Callable[[], None], pause: tuple[float, float], seed: int) -> None:
        super().__init__(daemon=True)
        self._step, self._pause = step, pause
        self._rng, self._stopped = random.Random(seed), threading.Event()  # noqa: S311
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(self._rng.uniform(*self._pause)):
            self._step()

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Pair:
    """Two gateways with logs of their own, and what is done to them.

    Args:
        house: The first gateway and its experts.
        pauses: Between two blows.
    """

    def __init__(self, house: House, pauses: Pauses) -> None:
        self._house, self._pauses = house, pauses
        self._rng = random.Random(0)  # noqa: S311
        self.gateways = [house.gateway, house.further_gateway("second")]
        self.gateways[1].start()
        work = house.folder / "offered"
        self._good = itertools.cycle(
            make_router(work / f"good-{seed}", seed, cascade=house.cascade) for seed in (1, 2)
        )
        self._bad = itertools.cycle(list(bad_artifacts(next(self._good), work)))
        self._next, self._victims = itertools.cycle(self.gateways), itertools.cycle(MOODS)
        self._turns = itertools.count()
        self.crashes = Crashes()

    @property
    def logs(self) -> list[Path]:
        return [gateway.folder / "log" for gateway in self.gateways]

    def start(self) -> list[Repeated]:
        pauses = self._pauses
        return [
            Repeated(self.kill_gateway, pauses.gateway, 1),
            Repeated(self.kill_expert, pauses.expert, 2),
            Repeated(self.reload, pauses.reload, 3),
        ]

    def kill_gateway(self) -> None:
        """The next one, if the other can take its clients; it is started again."""
        gateway = next(self._next)
        if all(is_answering(each.port) for each in self.gateways):
            self.crashes.gateway_kills.append(time.time())
            gateway.end()
            gateway.start()

    def kill_expert(self) -> None:
        """The next one; it comes back soon."""
        name = next(self._victims)
        expert = self._house.experts[name]
        expert.kill()
        self.crashes.expert_kills += 1
        time.sleep(self._rng.uniform(*self._pauses.revival))
        expert.start()
        expert.tell(MOODS[name])

    def reload(self) -> None:
        """Replace the router, one time in four by a corrupt one, and tell both gateways."""
        is_good = next(self._turns) % 4 != 3
        folder = next(self._good) if is_good else next(self._bad)[1]
        self._offer(folder)
        for gateway in self.gateways:
            try:
                status = gateway.reload(self._house.admin_key)
            except OSError:
                continue  # it has just been killed
            if status == (200 if is_good else 422):
                self.crashes.reloads += is_good
                self.crashes.refused += not is_good
            else:
                self.crashes.faults.append(f"{folder.name}: {status}")
        if not is_good:
            # A gateway that starts again must find a router.
            self._offer(next(self._good))

    def _offer(self, folder: Path) -> None:
        copy = self._house.folder / "offered" / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, copy_function=copied)
        put_in_place(copy, self._house.gateway.router)

    def end(self) -> None:
        self.gateways[1].end()


@contextmanager
def balanced(ports: Iterable[int]) -> Iterator[int]:
    """A load balancer before servers; its port."""
    command = [sys.executable, str(HERE / "round_robin.py"), *map(str, ports)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.communicate()


@dataclass
class Outcome:
    """Everything that is compared."""

    told: list[Told]
    crashes: Crashes
    records: list[DecisionRecord]
    answered: dict[str, list[int]]
    called: dict[str, list[int]]
    tracebacks: int
    budgets: dict[str, float]


def crash(
    folder: Path,
    requests: int,
    budgets: dict[str, float],
    pauses: Pauses,
    *,
    cascade: bool = False,
) -> Outcome:
    """Clients ask while gateways and experts are killed."""
    with house(folder, SETTINGS, clients=5, budgets=budgets, cascade=cascade) as ours:
        for name, mood in MOODS.items():
            ours.experts[name].tell(mood)
        ours.experts[DEAD].kill()
        pair = Pair(ours, pauses)
        try:
            with balanced(gateway.port for gateway in pair.gateways) as port:
                job = Job(
                    port,
                    ours.keys,
                    rate=0.0,
                    seconds=1800.0,
                    book=str(folder / "clients.jsonl"),
                    kinds={"stream": 5, "chat": 2, "known": 1, "tools": 1, "responses": 1},
                    most_at_once=40,
                    count=requests,
                    requests_per_connection=20,
                    retries=False,
                )
                traffic = Traffic(job).start()
                repeated = pair.start()
                told, _ = traffic.finish()
                for each in repeated:
                    each.stop()
            for gateway in pair.gateways:
                gateway.stop()
            return Outcome(
                told,
                pair.crashes,
                [record for log in pair.logs for record in read_log(log)],
                {name: expert.answered() for name, expert in ours.experts.items()},
                {name: expert.called() for name, expert in ours.experts.items()},
                sum(gateway.output().count("Traceback") for gateway in pair.gateways),
                budgets,
            )
        finally:
            pair.end()
            ours.experts[DEAD].start()


def failures_of(found: Outcome) -> Counter[str]:
    """Kinds of what clients saw."""
    kinds: Counter[str] = Counter()
    for each in found.told:
        kinds[_kind_of(each, found.crashes)] += 1
    return kinds


def _kind_of(told: Told, crashes: Crashes) -> str:
    if told.is_good:
        return "good"
    if told.status == 429 and ("insufficient_quota" in told.error or "dollars" in told.error):
        return "budget"
    if told.error.startswith("cut off") and crashes.explains(told):
        return "cut by a kill -9"
    if told.status == 200 and told.error.startswith("an error event"):
        return "stream broken by its expert"
    return f"failed: {told.status} {told.error[:80]}"


def crash_rows(found: Outcome, requests: int, title: str, limit: float) -> Iterable[Row]:
    """The outcome in rows; ``limit`` is the percentage of requests that may fail."""
    kinds, crashes = failures_of(found), found.crashes
    rest = len(found.told) - kinds["budget"]
    failed = {kind: count for kind, count in kinds.items() if kind.startswith("failed")}
    shown = "; ".join(f"{count} x {kind}" for kind, count in sorted(failed.items())[:4])
    yield at_least(
        f"{title}: requests",
        len(found.told),
        requests,
        f"{len(crashes.gateway_kills)} kills of gateways, {crashes.expert_kills} of experts,"
        f" {crashes.reloads} reloads, {crashes.refused} corrupt ones refused;"
        f" {kinds['good']:,} good, {kinds['budget']:,} over their budget",
    )
    yield at_most(
        f"{title}: failures that could be helped, %", _percent(failed, rest), limit, shown
    )
    yield reported(
        f"{title}: streams broken by their expert, with an error event, %",
        100 * kinds["stream broken by its expert"] / max(rest, 1),
    )
    yield reported(
        f"{title}: connections cut by a kill -9 of a gateway, %",
        100 * kinds["cut by a kill -9"] / max(rest, 1),
    )
    yield from _rows_of_books(found, title)
    yield at_most(
        f"{title}: reloads that went wrong", len(crashes.faults), 0, "; ".join(crashes.faults[:3])
    )
    yield at_most(f"{title}: tracebacks", found.tracebacks, 0)


def _percent(failed: dict[str, int], rest: int) -> float:
    return 100 * sum(failed.values()) / max(rest, 1)


def _rows_of_books(found: Outcome, title: str) -> Iterable[Row]:
    lines = _by_number(found)
    repeated = sum(len(each) > 1 for each in lines.values())
    missing = [each for each in found.told if each.decision_id and not lines.get(each.number)]
    unexplained = [each for each in missing if not found.crashes.explains(each)]
    yield at_most(
        f"{title}: decisions without a line, but for those in flight at a kill -9, or with two",
        len(unexplained) + repeated,
        0,
        f"{sum(map(len, lines.values())):,} lines; {len(missing)} missing at a kill -9",
    )
    uncounted = list(_uncounted(found, lines))
    yield at_most(
        f"{title}: calls of experts that no line has",
        len(uncounted),
        0,
        f"{sum(map(len, found.called.values())):,} calls; {uncounted[:3]}",
    )
    wrong = sum(
        each.text != text_of(each.expert, each.number) for each in found.told if each.is_good
    )
    yield at_most(f"{title}: answers to another question", wrong, 0)
    generated, charged, lost = _dollars(found, lines)
    yield at_most(
        f"{title}: bills against the books of experts, %",
        100 * abs(charged / max(generated, 1e-12) - 1),
        0.1,
        f"${generated:.6f} generated, ${charged:.6f} charged",
    )
    yield reported(
        f"{title}: generated for requests in flight at a kill -9, in no bill, %",
        100 * lost / max(generated, 1e-12),
    )
    for key, limit in found.budgets.items():
        spent = math.fsum(record.cost_usd for record in found.records if record.key == key)
        yield reported(f"{title}: spent of the ${limit:g} of {key}, as a fraction", spent / limit)


def _by_number(found: Outcome) -> dict[int, list[DecisionRecord]]:
    by_conversation: dict[str, list[DecisionRecord]] = {}
    for record in found.records:
        by_conversation.setdefault(record.conversation, []).append(record)
    return {
        each.number: by_conversation.get(
            named_conversation(conversation_of(each.number), each.key), []
        )
        for each in found.told
    }


def _uncounted(
    found: Outcome, lines: dict[int, list[DecisionRecord]]
) -> Iterator[tuple[str, int, int, int]]:
    """Expert, number, calls and recorded attempts, where there were more calls than attempts."""
    for expert, numbers in found.called.items():
        for number, calls in Counter(numbers).items():
            if records := lines.get(number):
                attempts = sum(
                    attempt["expert"] == expert for record in records for attempt in record.attempts
                )
                if calls > attempts:
                    yield expert, number, calls, attempts


def _dollars(found: Outcome, lines: dict[int, list[DecisionRecord]]) -> tuple[float, float, float]:
    """Of complete answers: as experts generated them, as the log charges, and those in no line.

    A gateway that is killed before an answer has ended cannot write its line.
    """
    generated, charged, lost = [], [], []
    for expert, numbers in found.answered.items():
        for number in numbers:
            records = lines.get(number, [])
            (generated if records else lost).append(dollars_of(expert, tokens_of(number)))
            charged += [
                attempt["cost_usd"]
                for record in records
                for attempt in record.attempts
                if attempt["expert"] == expert and not attempt["reason"]
            ]
    return math.fsum(generated), math.fsum(charged), math.fsum(lost)
