"""Workers that add up what each has found; alone, one worker is the whole team."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Alone", "Distributed", "Team"]


class Team(Protocol):
    """How workers talk to each other.

    Attributes:
        rank: Place of this worker; 0 leads.
        size: Number of the workers.

    Example:
        >>> Alone().gather(3)
        [3]
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
        """The values of all workers in the order of their ranks, for the leader; empty for the others."""
        ...


@dataclass(frozen=True)
class Alone:
    """A team of one.

    Example:
        >>> Alone().share("x")
        'x'
    """

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
    """A team over the default process group of torch.distributed.

    Example:
        >>> Distributed(rank=1, size=2).size
        2
    """

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
