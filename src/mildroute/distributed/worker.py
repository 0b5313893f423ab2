"""A training worker: its place in the process group, its part of the rows, its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.distributed.shards import Rows, Shards
from mildroute.distributed.statistics import (
    LinearConfig,
    MLPConfig,
    Statistics,
    combined,
    plan_margins,
    reward_mass_of,
    statistics_of,
)
from mildroute.exceptions import ArtifactError, TableError

__all__ = [
    "Distributed",
    "ProcessGroup",
    "SingleProcess",
    "Tell",
    "TrainingProgress",
    "Worker",
    "check_rows",
    "gathered_margins",
    "gathered_statistics",
    "read_progress",
    "write_progress",
]


# Where a training run stands, as one file of arrays; reading it can run no code.


_FILE = "progress.npz"
_COUNTS = ("done", "passes", "rows")


@dataclass(frozen=True)
class TrainingProgress:
    """What is needed to continue.

    Args:
        done: Steps or epochs that are done.
    """

    done: int = 0
    passes: int = 0
    rows: int = 0
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays whose names begin with a word and a dot, without it."""
        return {
            name.removeprefix(f"{prefix}."): array
            for name, array in self.arrays.items()
            if name.startswith(f"{prefix}.")
        }


def write_progress(folder: str | Path, progress: TrainingProgress) -> None:
    """Write it into a folder."""
    found: dict[str, Any] = {name: np.asarray(getattr(progress, name)) for name in _COUNTS}
    found |= {f"array.{name}": np.asarray(array) for name, array in progress.arrays.items()}
    np.savez(Path(folder) / _FILE, **found)


def read_progress(folder: str | Path) -> TrainingProgress:
    """What :func:`write_progress` has written."""
    path = Path(folder) / _FILE
    if not path.exists():
        raise ArtifactError(
            f"a checkpoint must have the file {_FILE}, got none in {str(folder)!r}."
        )
    with np.load(path, allow_pickle=False) as found:
        arrays = {
            name.removeprefix("array."): found[name]
            for name in found.files
            if name.startswith("array.")
        }
        return TrainingProgress(**{name: int(found[name]) for name in _COUNTS}, arrays=arrays)


# Workers that add up what each has found; alone, one worker is the whole team.


class ProcessGroup(Protocol):
    """How workers talk to each other.

    Attributes:
        rank: Place of this worker; 0 leads.
    """

    @property
    def rank(self) -> int:
        """Place of this worker."""
        ...

    @property
    def size(self) -> int:
        """Number of the workers."""
        ...

    def share(self, value: Any) -> Any:
        """What the leader gives; the others' value is ignored."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The values of all workers in the order of their ranks, for the leader.

        Empty for the others.
        """
        ...


@dataclass(frozen=True)
class SingleProcess:
    """A team of one."""

    rank: int = 0
    size: int = 1

    def share(self, value: Any) -> Any:
        """The value itself."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The value alone."""
        return [value]


@dataclass(frozen=True)
class Distributed:
    """A team over the default process group of torch.distributed."""

    rank: int
    size: int

    def share(self, value: Any) -> Any:
        """What rank 0 gives."""
        from torch import distributed

        holder = [value]
        distributed.broadcast_object_list(holder, src=0)
        return holder[0]

    def gather(self, value: Any) -> list[Any]:
        """All values, for rank 0."""
        from torch import distributed

        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        distributed.gather_object(value, found, dst=0)
        return found or []


# What a trainer needs of the place it runs in: rows, a team, and somewhere to leave word.


# Called by all workers at the same time, with figures and, by the leader, with where the run
# stands.
Tell: TypeAlias = Callable[[dict[str, float], TrainingProgress | None], None]


@dataclass(frozen=True)
class Worker:
    """One of the processes that train.

    Args:
        passing: The rows of one pass that fall to this worker, again at each call.
        resumed: Where an earlier run stopped, or none.
        patience: Seconds of work that may be lost; word is left no more often than that.
    """

    shards: Shards
    passing: Callable[[], Iterator[Rows]]
    team: ProcessGroup
    tell: Tell
    resumed: TrainingProgress | None = None
    patience: float = 0.0


def gathered_statistics(worker: Worker, sample: int) -> Statistics:
    """Statistics of all rows, for the leader; the others get those of their own rows."""
    stride = max(1, worker.shards.rows // sample)
    own = statistics_of(worker.passing(), experts=len(worker.shards.experts), stride=stride)
    parts = worker.team.gather(own)
    if not parts:
        return own
    found = combined(parts)
    check_rows(found.rows, worker.shards)
    return found


def gathered_margins(
    worker: Worker, plan: LinearConfig | MLPConfig, known: Statistics
) -> NDArray[np.float64]:
    """Return the margins of a plan for all workers, shape (p,).

    Theory margins need a pass over the rows: they count rewards, which depend on the lowest and the
    highest cost of all rows.

    Args:
        worker: This worker.
        plan: What to train.
        known: Statistics of all rows for the leader, of its own rows for any other worker.
    """
    mass = None
    if plan.margins == "theory":
        lowest, highest = worker.team.share((known.lowest, known.highest))
        own = reward_mass_of(worker.passing(), plan.reward, lowest, highest, len(known.wins))
        parts = worker.team.gather(own)
        mass = np.sum(parts, axis=0) if parts else own
    margins: NDArray[np.float64] = worker.team.share(plan_margins(plan.margins, known, mass))
    return margins


def check_rows(rows: int, shards: Shards) -> None:
    """Refuse a pass that has not seen every row once."""
    if rows != shards.rows:
        raise TableError(
            f"a pass must see each of {shards.rows} rows once, got {rows}; do not change shards"
            " while they are trained on."
        )
