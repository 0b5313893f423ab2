"""A gateway in a few lines: it routes, explores and samples, and writes the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mildroute import TextRouter
from mildroute._jsonl import JsonlWriter
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog
from mildroute.decision.settings import DecisionLogConfig
from tests.support.records import ATTEMPT, record

EXPERTS = ("small", "large")
DOLLARS = {"small": 0.001, "large": 0.01}
# Chance of a right answer on sums and on songs.
SKILL = {"small": (0.9, 0.1), "large": (0.95, 0.95)}
SONGS = 0.4


def texts(random: np.random.Generator, rows: int) -> tuple[list[str], list[int]]:
    """Sums and songs, with 1 for a song."""
    songs = (random.random(rows) < SONGS).astype(int).tolist()
    starts = [(("add", "sum"), ("sing", "rhyme"))[song][row % 2] for row, song in enumerate(songs)]
    numbers = random.integers(0, 10**9, rows)
    return [f"{start} {number}" for start, number in zip(starts, numbers, strict=True)], songs


def ideal_router() -> TextRouter:
    """A router that sends sums to the small expert and songs to the large one."""
    words = ("add", "sum", "sing", "rhyme")
    inputs = [f"{word} {row}" for row in range(20) for word in words]
    costs = [
        [float(word in words[2:]), float(word in words[:2])] for _ in range(20) for word in words
    ]
    return TextRouter().fit(inputs, costs, experts=EXPERTS)


@dataclass
class World:
    """Requests, answers, scores and samples of a gateway.

    Args:
        folder: Folder of the log.
        choice: The expert that the router in use chooses for a text.
        exploration: Probability that an expert is drawn at random.
        sampling: Share of the requests whose other answers are judged, too.
    """

    folder: Path
    choice: Callable[[str], str] = lambda _text: "small"
    exploration: float = 0.0
    sampling: float = 0.0
    skill: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(SKILL))
    now: float = 1_000_000.0
    seed: int = 1

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._count = 0

    def serve(self, rows: int, **fields: Any) -> None:
        """Answer requests, one a second; fields replace those of the records."""
        inputs, songs = texts(self.random, rows)
        config = DecisionLogConfig(self.folder, log_prompts=True)
        log, feedback = DecisionLog(config), FeedbackLog(config, clock=lambda: self.now)
        samples = JsonlWriter(self.folder / "samples", 10_000)
        for text, song in zip(inputs, songs, strict=True):
            self.now += 1.0
            self._count += 1
            name = f"d{self.seed}-{self._count}"
            choice = self.choice(text)
            chances = {
                each: (each == choice) * (1 - self.exploration) + self.exploration / len(EXPERTS)
                for each in EXPERTS
            }
            expert = str(self.random.choice(EXPERTS, p=list(chances.values())))
            scores = {
                each: float(self.random.random() < self.skill[each][song]) for each in EXPERTS
            }
            given = {
                "time": self.now,
                "router": "",
                "text": text,
                "reason": "router",
                "selected": expert,
                "served_by": expert,
                "first_choice": choice,
                "attempts": ({**ATTEMPT, "expert": expert},),
                "cost_usd": DOLLARS[expert],
                "propensity": chances[expert],
                "propensities": tuple(chances.values()),
                "conversation": "",
                "request_id": "",
                **fields,
            }
            log.write(record(name, **given))
            feedback.write(name, scores[expert], "key")
            if self.random.random() < self.sampling:
                samples.append(json.dumps(self._sample(name, text, scores)).encode())
        for each in (log, feedback, samples):
            each.close()

    def _sample(self, name: str, text: str, scores: Mapping[str, float]) -> dict[str, Any]:
        return {
            "decision_id": name,
            "time": self.now,
            "text": text,
            "conversation": "",
            "experts": list(EXPERTS),
            "scores": [scores[each] for each in EXPERTS],
            "cost_usd": [DOLLARS[each] for each in EXPERTS],
            "seconds": [0.1, 0.2],
        }
