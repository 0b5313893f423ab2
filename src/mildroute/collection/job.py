"""The job of a collection: queries, experts, a judge and a cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.collection.assignment import sample_experts
from mildroute.collection.queries import Queries, open_queries
from mildroute.costs.prices import PriceList
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Expert
from mildroute.experts.config import build_expert, read_experts
from mildroute.judges.base import Judge
from mildroute.judges.registry import get_judge, judge_from_config

__all__ = ["CollectionJob", "make_job"]


@dataclass(frozen=True)
class CollectionJob:
    """The description of a cost table to collect.

    Args:
        queries: The queries.
        experts: Experts that answer.
        judge: The judge that scores.
        folder: Folder of the table and of all stored answers.
        prices: List prices to store with the table, or ``None``.
        max_dollars: Cap on all dollars ever spent in this folder; ``None`` means no cap.
        experts_per_query: Number of experts that get each query; ``None`` means all.
        answers: Whether the table also contains the texts of the answers.

    Example:
        >>> CollectionJob.__name__
        'CollectionJob'
    """

    queries: Queries
    experts: Sequence[Expert]
    judge: Judge
    folder: Path
    prices: PriceList | None = None
    max_dollars: float | None = None
    experts_per_query: int | None = None
    answers: bool = False

    def __post_init__(self) -> None:
        """Validate the cap and the folder."""
        if self.max_dollars is not None and not 0 <= self.max_dollars < math.inf:
            raise ArgumentError(
                "max_dollars (--max-dollars) must be a number of dollars, not negative, got"
                f" {self.max_dollars!r}."
            )
        if self.folder.is_file():
            raise ArgumentError(
                "the folder of a collection (--out) must be a folder, got the file"
                f" {str(self.folder)!r}; choose another."
            )

    @property
    def is_assigned(self) -> Callable[[str, str], bool]:
        """A function that returns whether an expert gets a query, by their names."""
        return sample_experts([expert.name for expert in self.experts], self.experts_per_query)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each expert."""
        return {expert.name: expert.version for expert in self.experts}

    @property
    def judge_key(self) -> tuple[str, str]:
        """The name and version of the judge."""
        return self.judge.name, self.judge.version


def make_job(
    queries: Any,
    experts: Sequence[Expert] | str | Path | None,
    judge: Judge | str | None,
    folder: Path,
    max_dollars: float | None,
) -> CollectionJob:
    """Return the job for the arguments of :func:`collect`."""
    if experts is None or judge is None:
        raise ArgumentError(
            "collect needs a CollectionJob, or queries, experts and a judge, got"
            f" {'no experts' if experts is None else 'no judge'}; give experts (or the path of an"
            " experts.yaml) and a judge such as 'exact'."
        )
    if not isinstance(experts, (str, Path)):
        if isinstance(judge, str):
            judge = get_judge(judge)
        return CollectionJob(
            open_queries(queries), list(experts), judge, folder, max_dollars=max_dollars
        )
    file = read_experts(experts)
    if isinstance(judge, str):
        judge = judge_from_config(judge, {}, [*file.judges, *file.experts])
    return CollectionJob(
        open_queries(queries),
        [build_expert(spec) for spec in file.experts],
        judge,
        folder,
        file.prices,
        max_dollars,
    )
