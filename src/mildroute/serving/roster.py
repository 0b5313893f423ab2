"""All experts of a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable

from mildroute.errors import ArgumentError
from mildroute.experts.file import ExpertFile
from mildroute.experts.shape import nearest
from mildroute.serving.breaker import State
from mildroute.serving.candidate import Candidate
from mildroute.serving.settings import Settings
from mildroute.serving.standing import Standing

__all__ = ["CHOOSE", "Roster"]

CHOOSE = "mildroute"
"""What a client writes under ``model`` to leave the choice to the gateway."""


class Roster:
    """The experts of experts.yaml, in its order: the only ones that are ever called.

    Args:
        file: Who there is.
        settings: Of the gateway.
        clock: Seconds that only grow.

    Attributes:
        candidates: By name.
        callable: Those that can be called, by name.
        baseline: Whose bill the savings are counted against.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.spec import ExpertSpec
        >>> crowd = ExpertSpec("crowd", "people", {"field": "label"})
        >>> Roster(ExpertFile(Path("experts.yaml"), (crowd,)), Settings()).callable
        {}
    """

    def __init__(self, file: ExpertFile, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.candidates = {spec.name: Candidate(spec, settings, clock) for spec in file.experts}
        self.callable = {name: candidate for name, candidate in self.candidates.items() if candidate.upstream is not None}
        _check_routes(settings, self.candidates)
        wanted = settings.baseline
        if wanted is not None and wanted not in self.candidates:
            raise ArgumentError(
                f"baseline must be an expert of {file.path.name}, got {wanted!r:.60}; {nearest(wanted, [*self.candidates])}"
            )
        self.baseline = self.candidates.get(wanted or max(self.callable, key=self._list_price, default=""))

    def standings(self) -> dict[str, Standing]:
        """How those that can be called stand now."""
        return {name: candidate.standing() for name, candidate in self.callable.items()}

    def standings_of_all(self) -> dict[str, Standing]:
        """How all stand now; those that the gateway cannot call are always up."""
        return {name: candidate.standing() for name, candidate in self.candidates.items()}

    def circuits(self) -> dict[str, State]:
        """State of each circuit now, by the name of its expert; of those that can be called alone."""
        return {name: candidate.breaker.state for name, candidate in self.callable.items()}

    def close(self) -> None:
        """End all connections that nobody uses."""
        for candidate in self.callable.values():
            if candidate.upstream is not None:
                candidate.upstream.close()

    def _list_price(self, name: str) -> float:
        return self.callable[name].list_price


def _check_routes(settings: Settings, candidates: dict[str, Candidate]) -> None:
    for name in (CHOOSE, *settings.policy.routes):
        if name in candidates:
            raise ArgumentError(f"{name!r} must not name an expert and a route; rename the expert or the route.")
