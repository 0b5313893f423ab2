"""What a trainer asks of the place it runs in: rows, a team, and somewhere to leave word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mildroute.engine.training.checkpoints import Progress
from mildroute.engine.training.shards import Rows, Shards
from mildroute.engine.training.statistics import Statistics, combined, statistics_of
from mildroute.engine.training.team import Team
from mildroute.errors import TableError

__all__ = ["Tell", "Worker", "check_rows", "gathered_statistics"]

Tell: TypeAlias = Callable[[dict[str, float], Progress | None], None]
"""Called by all workers at the same time, with figures and, by the leader, with where the run stands."""


@dataclass(frozen=True)
class Worker:
    """One of the processes that train.

    Args:
        shards: What is trained on.
        passing: The rows of one pass that fall to this worker, anew at each call.
        team: The others.
        tell: Leaves word of a step.
        resumed: Where an earlier run stopped, or none.
        patience: Seconds of work that may be lost; word is left no more often than that.

    Example:
        >>> Worker.__name__
        'Worker'
    """

    shards: Shards
    passing: Callable[[], Iterator[Rows]]
    team: Team
    tell: Tell
    resumed: Progress | None = None
    patience: float = 0.0


def gathered_statistics(worker: Worker, sample: int) -> Statistics:
    """Statistics of all rows, for the leader; the others get those of their own rows.

    Args:
        worker: This process.
        sample: Rows of the sample, about.

    Returns:
        The statistics.

    Example:
        >>> gathered_statistics.__name__
        'gathered_statistics'
    """
    stride = max(1, worker.shards.rows // sample)
    own = statistics_of(worker.passing(), experts=len(worker.shards.experts), stride=stride)
    parts = worker.team.gather(own)
    if not parts:
        return own
    found = combined(parts)
    check_rows(found.rows, worker.shards)
    return found


def check_rows(rows: int, shards: Shards) -> None:
    """Refuse a pass that has not seen every row once.

    Args:
        rows: Rows seen.
        shards: What should have been seen.

    Example:
        >>> check_rows(0, Shards("", (), ("a", "b"), 2))
    """
    if rows != shards.rows:
        raise TableError(f"a pass must see each of {shards.rows} rows once, got {rows}; do not change shards while they are trained on.")
