"""Does a decision log with feedback tell what each expert costs?

Measured is the coverage of the 95% intervals over many simulated logs.

Run: python benchmarks/quality/feedback.py [--json] [--quick]

Each repetition: 5,000 requests of a known world, decided by the gateway's own policy with 5%
exploration, written by the real decision log and feedback files, joined by ``costs_from_log``,
estimated. The truth is the world's. Costs depend on the request, and so does the choice: plain
means of the logged costs must fail.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_least, at_most, main, reported

from mildroute.decision.export import costs_from_log
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog, DecisionRecord
from mildroute.decision.policy import decide
from mildroute.decision.prediction import Prediction
from mildroute.evaluation.logged_data import LoggedDecisions, read_logged_decisions
from mildroute.evaluation.off_policy import estimate_expert_costs, estimate_policy_cost
from mildroute.gateway.config import DecisionLogConfig, ExplorationConfig, RoutingConfig
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.upstream.pool import ExpertStatus

EXPERTS = ("small", "code", "large", "cheap")
PRICE_WEIGHT = 10.0
EXPLORE = 0.05
REQUESTS, QUICK_REQUESTS = 5000, 2000
REPETITIONS, QUICK_REPETITIONS = 200, 8
DOLLARS = np.array([0.002, 0.004, 0.012, 0.001])
SLOPES = np.array([[1.5, 0.0], [-1.5, 0.5], [0.0, 1.0], [0.4, -1.0]])
LEVELS = np.array([1.6, 1.2, 2.2, -0.2])
FAILURES = 0.1
METHODS = ("ips", "snips", "dr")
LOWEST, WIDEST, WIDEST_OF_ROUTER = 0.91, 1.3, 1.6


@dataclass
class World:
    """Requests on which every expert's score and dollars are known."""

    quality: NDArray[np.float64]
    scores: NDArray[np.float64]
    dollars: NDArray[np.float64]

    @property
    def costs(self) -> NDArray[np.float64]:
        return (1 - self.scores) + PRICE_WEIGHT * self.dollars


def world(random: np.random.Generator, rows: int) -> World:
    features = random.normal(size=(rows, 2))
    quality = 1 / (1 + np.exp(-(features @ SLOPES.T + LEVELS)))
    scores = (random.random(quality.shape) < quality).astype(float)
    return World(
        quality, scores, DOLLARS * np.exp(random.normal(scale=0.5, size=quality.shape) - 0.125)
    )


@dataclass
class Tally:
    """What each repetition said of each expert."""

    values: dict[str, list[list[float]]] = field(default_factory=dict)
    lows: dict[str, list[list[float]]] = field(default_factory=dict)
    highs: dict[str, list[list[float]]] = field(default_factory=dict)

    def add(self, name: str, found: list[tuple[float, float, float]]) -> None:
        for kept, place in ((self.values, 0), (self.lows, 1), (self.highs, 2)):
            kept.setdefault(name, []).append([part[place] for part in found])

    def coverage(self, name: str, truth: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((np.array(self.lows[name]) <= truth) & (truth <= np.array(self.highs[name]))).mean(
            axis=0
        )

    def width(self, name: str) -> NDArray[np.float64]:
        """Return the mean width over that of an interval that knows the deviation.

        Someone who knew the deviation of the estimate would give that interval.
        """
        widths = (np.array(self.highs[name]) - np.array(self.lows[name])).mean(axis=0)
        return widths / (2 * 1.96 * np.std(self.values[name], axis=0, ddof=1))


def simulate(folder: Path, random: np.random.Generator, requests: int, failures: float) -> World:
    """Write the log of one gateway.

    In some logs one expert fails now and then, and the next one answers.
    """
    seen = world(random, requests)
    rules, log, feedback = (
        RoutingConfig(exploration=ExplorationConfig(rate=EXPLORE)),
        DecisionLog(DecisionLogConfig(folder)),
        FeedbackLog(DecisionLogConfig(folder)),
    )
    parsed = ParsedRequest("chat/completions", "mildroute", "", is_first_turn=True)
    statuses = {name: ExpertStatus() for name in EXPERTS}
    worth = np.exp(
        6 * (seen.quality - PRICE_WEIGHT * DOLLARS)
        + random.normal(scale=0.3, size=seen.quality.shape)
    )
    posterior = worth / worth.sum(axis=1, keepdims=True)
    draws, fails = iter(random.random(requests).tolist()), random.random(requests) < failures
    for row in range(requests):
        prediction = Prediction(EXPERTS, tuple(posterior[row].tolist()))
        decision = decide(prediction, parsed, statuses, rules, "large", None, draws.__next__)
        chances = tuple(decision.propensities[name] for name in EXPERTS)
        place = EXPERTS.index(decision.order[0])
        answered = EXPERTS.index(decision.order[1]) if fails[row] and place == 1 else place
        log.write(
            DecisionRecord(
                f"d{row}", float(row), "", parsed.path, parsed.model, "", EXPERTS,
                prediction.posterior, None, decision.reason, EXPERTS[place], chances[place],
                chances, EXPERTS[answered], (), 200, 100, 100,
                float(seen.dollars[row, answered]), 0.0, 0.0, 0.1, 0.5,
            )
        )  # fmt: skip
        feedback.write(f"d{row}", float(seen.scores[row, answered]), "")
    log.close()
    feedback.close()
    return seen


def repetition(seed: int, requests: int, tally: Tally, failures: float = 0.0) -> None:
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        seen = simulate(Path(folder), random, requests, failures)
        costs = costs_from_log(folder)
        costs.save(Path(folder) / "logged.parquet")
        logged = read_logged_decisions(Path(folder) / "logged.parquet", price_weight=PRICE_WEIGHT)
    for method in METHODS:
        found = estimate_expert_costs(logged, method=method)
        tally.add(method, [(each.value, each.low, each.high) for each in found.values()])
        tally.add(
            f"router {method}",
            [_limits(estimate_policy_cost(logged, _other_router(seen), method=method))],
        )
    tally.add("plain", [_plain(logged, place) for place in range(len(EXPERTS))])
    tally.add("all costs known", [_mean(seen.costs[:, place]) for place in range(len(EXPERTS))])


def _limits(found: object) -> tuple[float, float, float]:
    return tuple(getattr(found, name) for name in ("value", "low", "high"))  # type: ignore[return-value]


def _other_router(seen: World) -> NDArray[np.intp]:
    """A router that minds only quality, to be judged by the log of one that minds prices, too."""
    return seen.quality.argmax(axis=1)


def _mean(costs: NDArray[np.float64]) -> tuple[float, float, float]:
    half = 1.96 * costs.std(ddof=1) / np.sqrt(len(costs))
    return float(costs.mean()), float(costs.mean() - half), float(costs.mean() + half)


def _plain(logged: LoggedDecisions, place: int) -> tuple[float, float, float]:
    return _mean(logged.costs[logged.has_answer & (logged.chosen == place)])


def truths() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean cost of each expert and of the other router.

    It has three digits more than the intervals.
    """
    whole = world(np.random.default_rng(10**6), 2_000_000)
    expected = (1 - whole.quality) + PRICE_WEIGHT * DOLLARS
    return expected.mean(axis=0), expected[np.arange(len(expected)), _other_router(whole)].mean(
        keepdims=True
    )


def measure(quick: bool) -> Iterator[Row]:
    yield from (
        figures(QUICK_REPETITIONS, QUICK_REQUESTS) if quick else figures(REPETITIONS, REQUESTS)
    )


def figures(repetitions: int, requests: int) -> Iterator[Row]:
    truth, of_router = truths()
    tally, failing = Tally(), Tally()
    for seed in range(repetitions):
        repetition(seed, requests, tally)
        repetition(10_000 + seed, requests, failing, FAILURES)
    low, high = (binom.ppf(share, repetitions, 0.95) / repetitions for share in (0.005, 0.995))
    # some twenty rows are held to it, so a short run must be far out to fail
    lowest = (
        LOWEST if repetitions >= REPETITIONS else binom.ppf(1e-4, repetitions, 0.95) / repetitions
    )
    note = (
        f"95% nominal; {repetitions} repetitions of a sound interval give {low:.3f} to {high:.3f}"
        " (99%)"
    )
    for method in METHODS:
        for place, name in enumerate(EXPERTS):
            yield at_least(
                f"coverage of {method}, {name}", tally.coverage(method, truth)[place], lowest, note
            )
            yield at_most(
                f"width of {method} / known deviation, {name}",
                tally.width(method)[place],
                WIDEST,
                _shown(tally, method, truth, place),
                full_only=True,  # a quick run is too short to know the deviations
            )
        yield at_least(
            f"coverage of {method}, another router",
            tally.coverage(f"router {method}", of_router)[0],
            lowest,
            note,
        )
        yield at_most(
            f"width of {method} / known deviation, another router",
            tally.width(f"router {method}")[0],
            WIDEST_OF_ROUTER,
            "some 20 rows decide",
            full_only=True,
        )
        failed = failing.coverage(method, truth)
        yield at_least(
            f"lowest coverage of {method} where code fails on {FAILURES:.0%}",
            failed.min(),
            lowest,
            "the next expert answers",
        )
    plain, known = tally.coverage("plain", truth), tally.coverage("all costs known", truth)
    yield at_most(
        "lowest coverage of plain means",
        plain.min(),
        0.5,
        "they must fail: each expert is asked for what it is good at",
    )
    yield reported(
        "lowest coverage if all costs were known", known.min(), "sampling of the requests alone"
    )
    full = np.mean(
        np.array(tally.highs["all costs known"]) - np.array(tally.lows["all costs known"]), axis=0
    )
    for method in METHODS:
        widths = np.mean(np.array(tally.highs[method]) - np.array(tally.lows[method]), axis=0)
        yield reported(
            f"mean width of {method} / all costs known",
            float((widths / full).mean()),
            "one of four costs is seen a request",
        )


def _shown(tally: Tally, method: str, truth: NDArray[np.float64], place: int) -> str:
    values = np.array(tally.values[method])[:, place]
    return (
        f"truth {truth[place]:.4f}, mean of estimates {values.mean():.4f}, deviation"
        f" {values.std(ddof=1):.4f}"
    )


if __name__ == "__main__":
    main(__doc__ or "", measure)
