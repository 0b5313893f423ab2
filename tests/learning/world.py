"""A gateway in a few lines: it follows a pointer, throws the canary's coin, and writes the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mildroute import TextRouter
from mildroute._jsonl import JsonlWriter
from mildroute.costs.table import CostTable
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog
from mildroute.gateway.config import DecisionLogConfig
from mildroute.persistence import load_router, save_router
from mildroute.persistence.remote import fetch_artifact, pointer_or_none, publish_router
from mildroute.routers.baselines import BestSingleRouter
from tests.support.records import ATTEMPT, record

EXPERTS = ("small", "large")
DOLLARS = {"small": 0.001, "large": 0.01}
# Chance of a right answer on sums and on songs.
SKILL = {"small": (0.9, 0.1), "large": (0.95, 0.95)}


def texts(random: np.random.Generator, rows: int) -> tuple[list[str], np.ndarray[Any, Any]]:
    songs = (random.random(rows) < 0.4).astype(int)
    starts = [("sing", "rhyme")[row % 2] if song else ("add", "sum")[row % 2]
              for row, song in enumerate(songs)]  # fmt: skip
    numbers = random.integers(0, 10**9, rows)
    return [f"{start} {number}" for start, number in zip(starts, numbers, strict=True)], songs


def full_table(folder: Path, rows: int = 240, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    inputs, songs = texts(random, rows)
    columns: dict[str, Any] = {"query_id": [f"t{row}" for row in range(rows)], "input": inputs}
    for name in EXPERTS:
        chance = np.array(SKILL[name])[songs]
        columns[f"score:{name}"] = (random.random(rows) < chance).astype(float)
        columns[f"cost:{name}"] = np.full(rows, DOLLARS[name])
    return Path(CostTable.from_data(columns).save(folder / "table.parquet"))


def single_router(folder: Path, name: str) -> Path:
    """A router that sends everything to one expert."""
    costs = [[float(each != name) for each in EXPERTS]] * 16
    inputs = [f"{word} {row}" for row in range(4) for word in ("add", "sum", "sing", "rhyme")]
    router = TextRouter(router=BestSingleRouter()).fit(inputs, costs, experts=EXPERTS)
    return save_router(router, folder / f"all-to-{name}")


@dataclass
class World:
    """Requests, answers, scores and samples of a gateway that follows a pointer.

    Args:
        folder: In which the log lies.
        pointer: That it follows; without one all goes to ``default``.
        sampling: Share of the requests whose other answers are judged, too.
    """

    folder: Path
    pointer: str
    default: str = "small"
    sampling: float = 0.0
    clock: Callable[[], float] | None = None
    skill: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(SKILL))
    now: float = 1_000_000.0
    seed: int = 1

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._routers: dict[str, Any] = {}
        self._count = 0

    def time(self) -> float:
        return self.now if self.clock is None else self.clock()

    def publish(self, folder: Path) -> str:
        return publish_router(folder, self.pointer).digest

    def router(self, digest: str) -> Any:
        if digest not in self._routers:
            self._routers[digest] = load_router(fetch_artifact(self.pointer, digest))
        return self._routers[digest]

    def serve(self, rows: int) -> None:
        """Answer requests as the pointer says, one a second."""
        inputs, songs = texts(self.random, rows)
        pointer = pointer_or_none(self.pointer)
        config = DecisionLogConfig(self.folder / "log", log_prompts=True)
        log, feedback = DecisionLog(config), FeedbackLog(config, clock=self.time)
        samples = JsonlWriter(self.folder / "log" / "samples", 10_000)
        digests = [] if pointer is None else [pointer.digest, *filter(None, [pointer.canary])]
        chosen = {
            digest: [each.name for each in self.router(digest).explain(inputs)]
            for digest in digests
        }
        for row, (text, song) in enumerate(zip(inputs, songs, strict=True)):
            self.now += 1.0
            self._count += 1
            name = f"d{self.seed}-{self._count}"
            digest, expert, reason = "", self.default, "passthrough"
            if pointer is not None:
                is_canary = pointer.canary is not None and self.random.random() < pointer.share
                digest = str(pointer.canary) if is_canary else pointer.digest
                expert, reason = chosen[digest][row], "router"
            scores = {
                each: float(self.random.random() < self.skill[each][song]) for each in EXPERTS
            }
            log.write(
                record(
                    name,
                    time=self.time(),
                    router=digest[:16],
                    text=text,
                    reason=reason,
                    selected=expert,
                    served_by=expert,
                    first_choice=expert,
                    attempts=({**ATTEMPT, "expert": expert},),
                    cost_usd=DOLLARS[expert],
                    propensity=1.0,
                    propensities=tuple(float(each == expert) for each in EXPERTS),
                )
            )
            feedback.write(name, scores[expert], None)
            if self.random.random() < self.sampling:
                samples.append(json.dumps(self._sample(name, text, scores)).encode())
        for each in (log, feedback, samples):
            each.close()

    def _sample(self, name: str, text: str, scores: Mapping[str, float]) -> dict[str, Any]:
        return {
            "decision_id": name,
            "time": self.time(),
            "text": text,
            "conversation": "",
            "experts": list(EXPERTS),
            "scores": [scores[each] for each in EXPERTS],
            "cost_usd": [DOLLARS[each] for each in EXPERTS],
            "seconds": [0.1, 0.2],
        }


def entries(state: Path) -> list[dict[str, Any]]:
    """The trail, whose files hold one line each and are numbered without a gap."""
    paths = sorted((state / "trail").glob("*.jsonl"))
    found = [json.loads(path.read_text()) for path in paths]
    assert [entry["number"] for entry in found] == list(range(1, len(found) + 1))
    assert all(path.read_text().count("\n") == 1 for path in paths)
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
