"""Estimate of the calls, dollars and seconds of a run, before the first call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mildroute.collection.queries import query_digest
from mildroute.collection.runner import all_experts
from mildroute.collection.store import ANSWERS, AnswerStore, StoredState
from mildroute.experts.base import Expert, Query

__all__ = ["CollectionEstimate", "PastCalls", "estimate_collection", "measure_past_calls"]


# Seconds that a call is taken to last where none has been made; the estimate says so.
_UNKNOWN_LATENCY = 1.0


@dataclass(frozen=True)
class PastCalls:
    """Means over an expert's earlier answers in the same version."""

    answers: int = 0
    dollars: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class CollectionEstimate:
    """Estimate of the calls to one expert.

    Args:
        expert: Its name.
        cells: Cells of the job.
        missing: Those that have no verdict yet.
        calls: Those that have no answer yet.
        tokens_in: Tokens of the calls' prompts, at four characters a token.
        dollars: What they will cost: by earlier answers where there are some, else with every
            answer as long as it may be.
        at_most: What they can cost at most, all attempts charged; infinite if nothing bounds an
            answer.
        seconds: How long they will take; by earlier answers, else at a second a call.
        is_measured: Whether earlier answers stand behind dollars and seconds.

    Example:
        >>> CollectionEstimate("small", 10, 4, 4, 100.0, 0.1, 0.2, 5.0, True).at_most
        0.2
    """

    expert: str
    cells: int
    missing: int
    calls: int
    tokens_in: float
    dollars: float
    at_most: float
    seconds: float
    is_measured: bool


def estimate_collection(
    queries: Iterable[Query],
    experts: Sequence[Expert],
    known: StoredState,
    experience: dict[str, PastCalls],
    wanted: Callable[[str, str], bool] = all_experts,
) -> list[CollectionEstimate]:
    """Estimates for all experts, from one pass over the queries."""
    counts = {expert.name: [0, 0, 0, 0.0, 0.0, 0.0] for expert in experts}
    for query in queries:
        digest = query_digest(query)
        for expert in experts:
            if wanted(expert.name, query.query_id):
                _count(counts[expert.name], query, digest, expert, known)
    return [
        _estimate(expert, counts[expert.name], experience.get(expert.name, PastCalls()))
        for expert in experts
    ]


def measure_past_calls(archive: AnswerStore, versions: dict[str, str]) -> dict[str, PastCalls]:
    """Means over the answers that an archive holds of experts in these versions."""
    sums: dict[str, list[float]] = {}
    for row in archive.entries(ANSWERS, ["expert", "version", "error", "dollars", "latency"]):
        if versions.get(row["expert"]) == row["version"] and not row["error"]:
            total = sums.setdefault(row["expert"], [0, 0.0, 0.0])
            for place, value in enumerate((1, row["dollars"], row["latency"])):
                total[place] += value
    return {
        name: PastCalls(int(count), *(part / count for part in rest))
        for name, (count, *rest) in sums.items()
    }


def _count(
    counts: list[float], query: Query, digest: str, expert: Expert, known: StoredState
) -> None:
    counts[0] += 1
    if digest in known.judged[expert.name]:
        return
    counts[1] += 1
    if digest not in known.answered[expert.name]:
        counts[2] += 1
        for place, amount in enumerate(expert.estimate_cost(query), start=3):
            counts[place] += amount


def _estimate(expert: Expert, counts: list[float], experience: PastCalls) -> CollectionEstimate:
    cells, missing, calls, tokens, once, at_most = counts
    latency = experience.latency if experience.answers else _UNKNOWN_LATENCY
    lanes = expert.concurrency * expert.batch_size
    return CollectionEstimate(
        expert.name,
        int(cells),
        int(missing),
        int(calls),
        tokens,
        min(at_most, experience.dollars * calls) if experience.answers else once,
        at_most,
        latency * calls / lanes,
        bool(experience.answers),
    )
