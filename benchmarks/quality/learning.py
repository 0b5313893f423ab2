"""Does the learner promote what is better, and only that; is it rolled back, and is drift noticed?

Measured are shares of simulated months, by the learner's own judgment of each look.

Run: python benchmarks/quality/learning.py [--json] [--quick]

A month has 30,000 requests, 1,000 a day. In months without a better candidate a new one is tried
whenever one is dropped, and the learner looks once a day. A promoted router turns bad at a random
moment: from then on it sends 60% of the requests to another expert than the router before, and
costs 5, 10 or 20 points more on the mean of all its requests. An expert's update lowers its scores
on the requests that it serves. With MILDROUTE_DATA set, the same is done on streams of MMLU's 57
subjects, whose scores are those of real models.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_least, at_most, main, reported

from mildroute.evaluation.expert_changes import find_change
from mildroute.evaluation.rollout import LearningPlan, judge_candidate, judge_promoted
from mildroute.evaluation.sequential import canary_gains, compare_sequentially, share_of_alpha

Vector = NDArray[np.float64]
PLAN = LearningPlan()
MONTH, DAY, HOUR = 30_000, 1000, 100
MONTHS, QUICK_MONTHS = 200, 5
FALSE_ALARM_MONTHS = 1000
SAMPLING = 0.05
DIFFERING = 0.25
BOUND = 1.3
# What a stream of MMLU costs: two ridge regressions, of 300 and of 3,000 rows.
FEW_ROWS, MANY_ROWS = 300, 3000
SHARES = (0.5, 0.3, 0.2)
# Residuals of an online router are compared after so many requests: before, they change as it
# learns an expert. Those of the learner are of one router, which does not learn while it serves.
SETTLED = 2000


@dataclass
class Stream:
    """Requests on which the cost of both routers' choices is known.

    Args:
        costs: Of the router in use and of the candidate, shape (n, 2).
        forecasts: What a model expects, shape (n, 2).
        differs: Where they choose different experts, shape (n,).
    """

    costs: Vector
    forecasts: Vector
    differs: NDArray[np.bool_]
    random: np.random.Generator

    def __post_init__(self) -> None:
        """Throw the coins."""
        self.coins = self.random.random(len(self.costs))
        self.is_sampled = self.random.random(len(self.costs)) < SAMPLING
        self.costs = np.clip(self.costs, 0.0, BOUND)

    def gains(self, shares: Vector) -> tuple[Vector, Vector]:
        """Gains and bounds of the decisions that tell, at these shares of the candidate."""
        rows = len(shares)
        costs, sampled = self.costs[:rows], self.is_sampled[:rows]
        is_canary = self.coins[:rows] < shares
        tells = sampled | (shares > 0)
        share = np.where(shares > 0, shares, 0.5)
        gains = canary_gains(
            np.where(is_canary, costs[:, 1], costs[:, 0]),
            is_canary,
            share,
            self.forecasts[:rows],
            BOUND,
        )
        gains[sampled] = costs[sampled, 0] - costs[sampled, 1]
        gains[~self.differs[:rows]] = 0.0
        bounds = np.where(sampled, BOUND, BOUND / np.minimum(share, 1 - share))
        return gains[tells], bounds[tells]


def simulated(
    random: np.random.Generator,
    rows: int,
    gain: float,
    differing: float = DIFFERING,
    error: float = 0.35,
    *,
    is_skewed: bool = False,
) -> Stream:
    """Errors whose chance differs between requests and days, and dollars of a few points."""
    days = 0.1 * np.sin(np.arange(rows) / 1500 + random.uniform(0, 6))
    chance = np.clip(error + days + 0.15 * random.standard_normal(rows), 0.02, 0.95)
    if is_skewed:
        chance = np.where(random.random(rows) < 0.03, 0.9, 0.02)
    better = np.clip(chance - gain / differing, 0.0, 1.0)
    errors = random.random((rows, 2)) < np.column_stack([chance, better])
    spread = 1.5 if is_skewed else 0.7
    dollars = 0.03 * np.exp(spread * random.standard_normal((rows, 2)) - spread**2 / 2)
    forecasts = np.full((rows, 2), chance.mean())
    return Stream(errors + dollars, forecasts, random.random(rows) < differing, random)


def tried(stream: Stream, alpha: float, every: int, most: int) -> tuple[str, int]:
    """What becomes of a candidate, and after how many requests."""
    shares = np.zeros(0)
    share, since = 0.0, 0
    for look in range(every, most + 1, every):
        shares = np.concatenate([shares, np.full(look - len(shares), share)])
        found = compare_sequentially(*stream.gains(shares), alpha=alpha)
        decision = judge_candidate(PLAN, share, look - since, look, found, alpha)
        if decision.action in ("promote", "drop"):
            return decision.action, look
        if decision.action == "advance":
            share = PLAN.canary_share if share else PLAN.first_share
            since = look
    return "wait", most


Maker = Callable[[np.random.Generator, int], Stream]


def promotes(make: Maker, seed: int, every: int) -> bool:
    """Whether a month promotes anything; each candidate that is dropped is followed by another."""
    random = np.random.default_rng(seed)
    left, number = MONTH, 0
    while left >= every:
        number += 1
        stream = make(random, min(left, PLAN.max_requests))
        alpha = share_of_alpha(PLAN.alpha, number)
        action, requests = tried(stream, alpha, every, min(left, PLAN.max_requests))
        if action == "promote":
            return True
        left -= requests
    return False


def interval(hits: int, trials: int) -> str:
    """The exact 95% interval of a share, by Clopper and Pearson."""
    low = beta.ppf(0.025, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, trials - hits) if hits < trials else 1.0
    return f"[{low:.3f}, {high:.3f}] of {trials:,}"


def false_promotions(months: int) -> Iterator[Row]:
    kinds: dict[str, tuple[Maker, int]] = {
        "equal candidates": (lambda random, rows: simulated(random, rows, 0.0), DAY),
        "equal candidates, looked at hourly": (
            lambda random, rows: simulated(random, rows, 0.0),
            HOUR,
        ),
        "candidates worse by half a point": (
            lambda random, rows: simulated(random, rows, -0.005),
            DAY,
        ),
        "equal candidates, rare errors and skewed dollars": (
            lambda random, rows: simulated(random, rows, 0.0, is_skewed=True),
            DAY,
        ),
    }
    for name, (make, every) in kinds.items():
        hits = sum(promotes(make, seed, every) for seed in range(months))
        yield at_most(
            f"months that promote: {name}",
            hits / months,
            0.05,
            interval(hits, months),
        )


def promotions(months: int) -> Iterator[Row]:
    alpha = share_of_alpha(PLAN.alpha, 1)
    for differing in (DIFFERING, 0.1, 0.2, 0.3, 0.4):
        found = [
            tried(
                simulated(np.random.default_rng(seed), 10_000, 0.02, differing), alpha, DAY, 10_000
            )
            for seed in range(months)
        ]
        yield _promoted(
            f"2 points better, differing on {differing:.0%}", found, is_bound=differing == DIFFERING
        )


def _promoted(name: str, found: list[tuple[str, int]], *, is_bound: bool) -> Row:
    delays = [requests for action, requests in found if action == "promote"]
    note = f"{interval(len(delays), len(found))}; median {np.median(delays or [np.nan]):,.0f}"
    name = f"promoted within 10,000 requests: {name}"
    share = len(delays) / len(found)
    if not is_bound:
        return reported(name, share, note)
    return at_least(name, share, 0.8, note, full_only=len(found) < MONTHS)


# Routers that turn bad. The router before is the canary of the one that is watched.


def rolled_back(seed: int, points: float, gain: float = 0.02) -> tuple[bool, int]:
    """Whether a promoted router is rolled back, and how many requests after it turned bad."""
    random = np.random.default_rng(seed)
    turn = int(random.integers(0, 5000)) if points else PLAN.watch_requests
    good = simulated(random, turn or 1, -gain)
    bad = simulated(random, PLAN.watch_requests, points, 0.6)
    stream = Stream(
        np.concatenate([good.costs, bad.costs]),
        np.concatenate([good.forecasts, bad.forecasts]),
        np.concatenate([good.differs, bad.differs]),
        random,
    )
    for look in range(HOUR, PLAN.watch_requests + 1, HOUR):
        gains, bounds = stream.gains(np.full(look, PLAN.holdout_share))
        if judge_promoted(PLAN, look, gains, bounds).action == "roll back":
            return True, look - turn
    return False, PLAN.watch_requests - turn


def rollbacks(months: int) -> Iterator[Row]:
    for points in (0.2, 0.1, 0.05):
        found = [rolled_back(seed, points) for seed in range(months)]
        soon = sum(is_back and 0 <= delay <= 2000 for is_back, delay in found)
        delays = [delay for is_back, delay in found if is_back and delay >= 0]
        note = f"{interval(soon, months)}; median {np.median(delays or [np.nan]):,.0f} requests"
        name = f"rolled back within 2,000 requests: {100 * points:.0f} points worse"
        if points == 0.2:
            yield at_least(name, soon / months, 0.95, note)
        else:
            yield reported(name, soon / months, note)
    false = sum(rolled_back(10_000 + seed, 0.0)[0] for seed in range(months))
    name = "rolled back though 2 points better"
    yield at_most(name, false / months, 0.05, interval(false, months), full_only=months < MONTHS)
    equal = sum(rolled_back(20_000 + seed, 0.0, 0.0)[0] for seed in range(months))
    name = "rolled back though equal"
    yield at_most(name, equal / months, 0.05, interval(equal, months), full_only=months < MONTHS)
    yield reported(
        "price of the holdout in points a request",
        100 * PLAN.holdout_share * 0.02,
        f"{PLAN.holdout_share:.0%} of requests go to a router that is 2 points worse",
    )


# Experts that change.


def residuals(
    random: np.random.Generator, rows: int, kind: str, drop: float | Vector = 0.0
) -> Vector:
    if kind == "dollars":
        return random.normal(size=rows) * 0.7
    chance = np.clip(float(kind) + 0.15 * random.standard_normal(rows), 0.02, 0.98)
    # The model knows half of what differs between requests, and is wrong by a constant.
    return (random.random(rows) < chance - drop) - (chance + float(kind)) / 2 + 0.02


def has_false_alarm(seed: int) -> bool:
    random = np.random.default_rng(seed)
    for share, quality in zip(SHARES, ("0.9", "0.75", "0.6"), strict=True):
        for kind in (quality, "dollars"):
            series = residuals(random, int(MONTH * share), kind)
            looks = range(HOUR, MONTH + 1, HOUR)
            if any(find_change(series[: int(look * share)]) is not None for look in looks):
                return True
    return False


def delay(seed: int, share: float, drop: float, quality: float = 0.8) -> float:
    """Requests from the update of an expert to the look that notices it; infinite if none does."""
    random = np.random.default_rng(seed)
    before = int(random.integers(2000, 20_000))
    rows, after = int(before * share), int(3000 * share)
    lower = np.repeat([0.0, drop], [rows, after])
    series = residuals(random, rows + after, str(quality), lower)
    for look in range(HOUR, 3001, HOUR):
        change = find_change(series[: rows + int(look * share)])
        if change is not None and change.row > rows - 100:
            return look
    return np.inf


def drifts(months: int) -> Iterator[Row]:
    trials = FALSE_ALARM_MONTHS if months == MONTHS else months
    alarms = sum(has_false_alarm(seed) for seed in range(trials))
    yield at_most(
        "months with a false alarm of three experts",
        alarms / trials,
        0.01,
        f"{interval(alarms, trials)}, scores and dollars, looked at hourly",
        full_only=trials < FALSE_ALARM_MONTHS,
    )
    for share in (0.5, 0.3, 0.2, 0.1):
        for drop in (0.3, 0.2, 0.1):
            found = np.array([delay(seed, share, drop) for seed in range(months)])
            hits = int((found <= 1000).sum())
            note = f"{interval(hits, months)}; median {np.median(found):,.0f} requests"
            name = f"update noticed within 1,000: share {share:.0%}, {100 * drop:.0f} points"
            if share >= 0.2 and drop == 0.3:
                yield at_least(name, hits / months, 0.9, note, full_only=months < MONTHS)
            else:
                yield reported(name, hits / months, note)


# Streams of MMLU.


@dataclass
class Ridge:
    """Expected cost of each expert, by ridge regression on the rows that it has answered."""

    vectors: Vector
    penalty: float = 30.0

    def fit(self, rows: Any, costs: Vector) -> Vector:
        """Weights of one expert, shape (d,)."""
        known = self.vectors[rows]
        matrix = known.T @ known + self.penalty * np.eye(known.shape[1])
        return np.asarray(np.linalg.solve(matrix, known.T @ costs))


def task() -> Any:
    from tasks import OPUS_TRIO, TASKS, columns, read

    found = TASKS["4"]()
    weaker = 1 - columns(read("mmlu57")[0], "score", ["gemma-7b"])[:, 0] + found.prices[0]
    vectors = found.vectors - found.vectors.mean(axis=0)
    components = np.linalg.svd(vectors[:4000], full_matrices=False)[2][:64]
    reduced = vectors @ components.T
    reduced /= reduced.std()
    ones = np.ones((len(reduced), 1))
    return np.hstack([reduced, ones]).astype(np.float64), found.costs, weaker, OPUS_TRIO[0]


def mmlu_streams(vectors: Vector, costs: Vector, rows: tuple[int, int], seed: int) -> Stream:
    """A router of some rows, a candidate of others, and requests that neither has seen."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(costs))
    ridge = Ridge(vectors)
    cuts = order[: rows[0]], order[rows[0] : rows[0] + rows[1]]
    models = [
        np.column_stack([ridge.fit(cut, costs[cut, expert]) for expert in range(costs.shape[1])])
        for cut in cuts
    ]
    fresh = order[sum(rows) :]
    chosen = [(vectors[fresh] @ model).argmin(axis=1) for model in models]
    seen = np.column_stack([costs[fresh, choice] for choice in chosen])
    expected = vectors[fresh] @ models[1]
    places = np.arange(len(fresh))
    forecasts = np.column_stack([expected[places, choice] for choice in chosen])
    if rows[0] == rows[1] and seen[:, 0].mean() < seen[:, 1].mean() - 1e-12:
        pass  # the candidate is the worse one already
    elif rows[0] == rows[1]:
        seen, forecasts = seen[:, ::-1], forecasts[:, ::-1]
    # Requests are drawn with replacement: the mean gain is exactly that of all of them.
    drawn = random.integers(0, len(fresh), MONTH)
    differs = chosen[0] != chosen[1]
    return Stream(seen[drawn], forecasts[drawn], differs[drawn], random)


def on_mmlu(months: int) -> Iterator[Row]:
    vectors, costs, weaker, name = task()
    alpha = share_of_alpha(PLAN.alpha, 1)

    def worse(random: np.random.Generator, _: int) -> Stream:
        seed = int(random.integers(2**32))
        return mmlu_streams(vectors, costs, (FEW_ROWS, FEW_ROWS), seed)

    hits = sum(promotes(worse, seed, DAY) for seed in range(months))
    yield at_most(
        "months that promote: MMLU, candidates that are worse",
        hits / months,
        0.05,
        interval(hits, months),
        full_only=months < MONTHS,
    )
    streams = [mmlu_streams(vectors, costs, (FEW_ROWS, MANY_ROWS), seed) for seed in range(months)]
    gains = [float((each.costs[:, 0] - each.costs[:, 1]).mean()) for each in streams]
    found = [tried(each, alpha, DAY, 10_000) for each in streams]
    differing = np.mean([each.differs.mean() for each in streams])
    label = f"MMLU, {100 * np.mean(gains):.1f} points better, differing on {differing:.0%}"
    yield _promoted(label, found, is_bound=False)
    alarms = sum(mmlu_false_alarm(vectors, costs, seed) for seed in range(months))
    yield at_most(
        "months with a false alarm: MMLU",
        alarms / months,
        0.01,
        interval(alarms, months),
        full_only=months < MONTHS,
    )
    yield from recovery(vectors, costs, weaker, name, max(months // 5, 2))


@dataclass
class OnlineRouter:
    """Ridge regression of each expert, refitted every 200 requests, with inverse-gap exploration.

    Args:
        tells: When it is told of the change: ``"at once"``, ``"by the detector"`` or ``"never"``.

    Attributes:
        noticed: Request at which the change of the first expert was noticed, or infinite.
        false_alarms: Changes that were none.
    """

    vectors: Vector
    costs: Vector
    weaker: Vector
    order: NDArray[np.intp]
    change: int
    tells: str
    random: np.random.Generator
    gamma: float = 60.0

    def __post_init__(self) -> None:
        """Begin with some rows on which all costs are known."""
        experts = range(self.costs.shape[1])
        start = self.order[:FEW_ROWS]
        # Request, row, cost and residual of each answer.
        self.seen: list[list[tuple[int, int, float, float]]] = [
            [(-1, int(row), float(self.costs[row, expert]), np.nan) for row in start]
            for expert in experts
        ]
        self.models = np.zeros((self.vectors.shape[1], len(experts)))
        self.settled = [SETTLED for _ in experts]
        self.noticed = np.inf
        self.false_alarms = 0

    def run(self) -> tuple[Vector, float]:
        """Costs of the stream, and the share of the first expert before it changes."""
        paid, asked = [], []
        draws = self.random.random(len(self.order))
        for place, row in enumerate(self.order[FEW_ROWS:]):
            if place == self.change and self.tells == "at once":
                self.seen[0] = []
            if self.tells == "by the detector" and place % HOUR == 0:
                for expert in range(len(self.seen)):
                    self._look(place, expert)
            if place % 200 == 0:
                self._refit()
            expected = self.vectors[row] @ self.models
            chosen = self._choose(expected, draws[place])
            is_new = place >= self.change and chosen == 0
            cost = float(self.weaker[row] if is_new else self.costs[row, chosen])
            self.seen[chosen].append((place, int(row), cost, cost - float(expected[chosen])))
            paid.append(cost)
            asked.append(chosen == 0)
        return np.array(paid), float(np.mean(asked[self.change - 1000 : self.change]))

    def _look(self, place: int, expert: int) -> None:
        """Forget what an expert did before it changed."""
        known = [each for each in self.seen[expert] if each[0] >= self.settled[expert]]
        change = find_change([each[3] for each in known])
        if change is None:
            return
        if expert or place < self.change:
            self.false_alarms += 1
        else:
            self.noticed = min(self.noticed, place)
        self.seen[expert] = known[change.row :]
        self.settled[expert] = place + SETTLED
        self._refit()

    def _refit(self) -> None:
        for expert, seen in enumerate(self.seen):
            if seen:
                _, rows, costs, _ = zip(*seen, strict=True)
                self.models[:, expert] = Ridge(self.vectors).fit(list(rows), np.array(costs))

    def _choose(self, expected: Vector, draw: float) -> int:
        gaps = expected - expected.min()
        chances = 1 / (len(gaps) + self.gamma * gaps)
        best = int(gaps.argmin())
        chances[best] = 0.0
        chances[best] = 1 - chances.sum()
        return int((draw > np.cumsum(chances)[:-1]).sum())


def mmlu_false_alarm(vectors: Vector, costs: Vector, seed: int) -> bool:
    """Whether a month of one router has an alarm though no expert changes."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(costs))
    start, fresh = order[:MANY_ROWS], order[MANY_ROWS:]
    ridge = Ridge(vectors)
    models = np.column_stack([ridge.fit(start, column[start]) for column in costs.T])
    drawn = random.choice(fresh, MONTH)
    expected = vectors[drawn] @ models
    chosen = expected.argmin(axis=1)
    residual = (costs[drawn] - expected)[np.arange(MONTH), chosen]
    for expert in range(costs.shape[1]):
        counts = np.cumsum(chosen == expert)[HOUR - 1 :: HOUR]
        series = residual[chosen == expert]
        if any(find_change(series[:count]) is not None for count in counts):
            return True
    return False


def recovery(
    vectors: Vector, costs: Vector, weaker: Vector, name: str, seeds: int
) -> Iterator[Row]:
    """The strongest expert of a stream answers like a weaker one from one request on."""
    change, back = 6000, 3000
    delays, shares, later, early = [], [], [], 0
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(costs))
        paid = {}
        for tells in ("at once", "by the detector", "never"):
            random = np.random.default_rng([seed, 1])
            stream = OnlineRouter(vectors, costs, weaker, order, change, tells, random)
            paid[tells], share = stream.run()
            if tells == "by the detector":
                delays.append(stream.noticed - change)
                early += stream.false_alarms
                shares.append(share)
        window = slice(change + back, change + back + 3000)
        later.append(
            [paid[tells][window].mean() for tells in ("by the detector", "at once", "never")]
        )
    hits = int((np.array(delays) <= 1000).sum())
    note = (
        f"{interval(hits, seeds)}; median {np.median(delays):,.0f} requests; {name} serves"
        f" {np.mean(shares):.0%} and answers like gemma-7b; {early} false alarms"
    )
    label = "update noticed within 1,000: MMLU"
    yield at_least(label, hits / seeds, 0.9, note, full_only=seeds < 20)
    means = np.array(later)
    extra = means[:, 0] - means[:, 1]
    error = extra.std(ddof=1) / np.sqrt(seeds)
    yield at_most(
        "cost after 3,000 requests over a router that was told at once, MMLU",
        extra.mean(),
        0.005,
        f"± {1.96 * error:.4f} over {seeds} streams; it costs {means[:, 0].mean():.4f}",
        full_only=seeds < 20,
    )
    lost = means[:, 2] - means[:, 0]
    error = lost.std(ddof=1) / np.sqrt(seeds)
    yield reported(
        "the same of a router that never notices, over ours, MMLU",
        lost.mean(),
        f"± {1.96 * error:.4f}",
    )


def measure(quick: bool) -> Iterator[Row]:
    months = QUICK_MONTHS if quick else MONTHS
    yield from false_promotions(months)
    yield from promotions(months)
    yield from rollbacks(months)
    yield from drifts(months)
    if "MILDROUTE_DATA" in os.environ:
        yield from on_mmlu(months)


if __name__ == "__main__":
    main(__doc__ or "", measure)
