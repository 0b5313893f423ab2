"""Estimates of the calls, dollars and seconds of a run, before the first call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mildroute.collection.entries import ANSWERS
from mildroute.collection.queries import query_digest
from mildroute.collection.run import assign_all
from mildroute.collection.store import AnswerStore, StoredState
from mildroute.experts.base import CostEstimate, Expert, Query

__all__ = ["CollectionEstimate", "PastCalls", "estimate_collection", "measure_past_calls"]

# Assumed seconds of a call if none has been made; the estimate is then marked as not measured.
_DEFAULT_LATENCY_S = 1.0
_NO_COST = CostEstimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class PastCalls:
    """Means over earlier answers of an expert's present version.

    Args:
        answers: Number of answers.
        dollars: Mean dollars of an answer.
        latency: Mean seconds of an answer.
    """

    answers: int = 0
    dollars: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class CollectionEstimate:
    """An estimate of the calls to one expert.

    Args:
        expert: Name of the expert.
        cells: Number of cells of the job.
        missing: Number of cells without a verdict.
        calls: Number of cells without an answer.
        tokens_in: Tokens of the calls' prompts, at four characters a token.
        dollars: Expected dollars, based on earlier answers or, if there are none, on answers of
            maximum length.
        at_most: Upper bound on the dollars if all attempts are charged; infinite if nothing bounds
            an answer.
        seconds: Expected seconds, based on earlier answers or, if there are none, on one second per
            call.
        is_measured: Whether dollars and seconds come from earlier answers.

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


@dataclass
class _CellCounts:
    """Counts of one expert's cells, and the total cost of its calls."""

    cells: int = 0
    missing: int = 0
    calls: int = 0
    total: CostEstimate = _NO_COST


def estimate_collection(
    queries: Iterable[Query],
    experts: Sequence[Expert],
    stored: StoredState,
    past_calls: Mapping[str, PastCalls],
    is_assigned: Callable[[str, str], bool] = assign_all,
) -> list[CollectionEstimate]:
    """Return estimates for all experts, from one pass over the queries.

    Args:
        queries: The queries.
        experts: The experts.
        stored: Answers and verdicts of earlier runs.
        past_calls: Means over each expert's earlier answers.
        is_assigned: Function that returns whether an expert gets a query, by their names.
    """
    counts = {expert.name: _CellCounts() for expert in experts}
    for query in queries:
        digest = query_digest(query)
        for expert in experts:
            if is_assigned(expert.name, query.query_id):
                _count_cell(counts[expert.name], query, digest, expert, stored)
    return [
        _estimate_expert(expert, counts[expert.name], past_calls.get(expert.name, PastCalls()))
        for expert in experts
    ]


def measure_past_calls(store: AnswerStore, versions: Mapping[str, str]) -> dict[str, PastCalls]:
    """Return means over the stored answers of each expert in the given version."""
    counts: dict[str, int] = {}
    dollars: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for row in store.entries(ANSWERS, ["expert", "version", "error", "dollars", "latency"]):
        name = row["expert"]
        if versions.get(name) == row["version"] and not row["error"]:
            counts[name] = counts.get(name, 0) + 1
            dollars[name] = dollars.get(name, 0.0) + row["dollars"]
            seconds[name] = seconds.get(name, 0.0) + row["latency"]
    return {
        name: PastCalls(count, dollars[name] / count, seconds[name] / count)
        for name, count in counts.items()
    }


def _count_cell(
    counts: _CellCounts, query: Query, digest: str, expert: Expert, stored: StoredState
) -> None:
    counts.cells += 1
    if digest in stored.judged[expert.name]:
        return
    counts.missing += 1
    if digest not in stored.answered[expert.name]:
        counts.calls += 1
        cost = expert.estimate_cost(query)
        counts.total = CostEstimate(
            counts.total.tokens_in + cost.tokens_in,
            counts.total.dollars + cost.dollars,
            counts.total.at_most + cost.at_most,
        )


def _estimate_expert(expert: Expert, counts: _CellCounts, past: PastCalls) -> CollectionEstimate:
    dollars = counts.total.dollars
    latency = _DEFAULT_LATENCY_S
    if past.answers:
        dollars = min(counts.total.at_most, past.dollars * counts.calls)
        latency = past.latency
    return CollectionEstimate(
        expert.name,
        counts.cells,
        counts.missing,
        counts.calls,
        counts.total.tokens_in,
        dollars,
        counts.total.at_most,
        latency * counts.calls / (expert.concurrency * expert.batch_size),
        is_measured=past.answers > 0,
    )
