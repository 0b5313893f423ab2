"""The pool of experts that the gateway can call: prices, status, circuit breakers."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

from mildroute._yaml import nearest
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertFile, ExpertSpec
from mildroute.experts.settings import dollars_of
from mildroute.serving.config import GatewayConfig
from mildroute.serving.routing.policy import ExpertStatus
from mildroute.serving.upstream.circuit_breaker import CircuitBreaker, State
from mildroute.serving.upstream.client import UpstreamClient

__all__ = ["AUTO_MODEL", "ExpertPool", "UpstreamExpert"]


# One expert as the gateway sees it: its endpoint, its circuit, its price, and how it fares.


_FIRST_REST, _LONGEST_REST = 1.0, 60.0
_QUOTED = " !#$&'()*+,/:;<=>?@[]^`{|}"


class UpstreamExpert:
    """An expert of experts.yaml.

    An expert that refuses a call (429) is asked for nothing until the time that it names is over, or for 1, 2, 4, ... up to 60 seconds
    where it names none. A refusal is no failure: the expert is well, and opening its circuit besides would keep it away for longer than
    it asks for.

    Args:
        spec: The expert.
        settings: Of the gateway.
        clock: Seconds that only grow.

    Attributes:
        name: Its name.
        header: Its name as a header can hold it.
        upstream: Where it is called, or none for a kind that the gateway cannot call.
        breaker: Its circuit.

    Example:
        >>> UpstreamExpert(ExpertSpec("crowd", "people", {"field": "label"}), GatewayConfig()).upstream is None
        True
    """

    def __init__(self, spec: ExpertSpec, settings: GatewayConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.header = spec.name, quote(spec.name, safe=_QUOTED).encode()
        limits, failover = settings.limits, settings.failover
        self.upstream = UpstreamClient(spec, connect=failover.connect, most=limits.connections) if spec.kind == "openai" else None
        self.breaker = CircuitBreaker(settings.breaker, clock)
        self._price, self._per_answer, self._clock = spec.price, spec.per_answer or 0.0, clock
        self._aside_until, self._refusals = 0.0, 0
        self._standings = _standings(spec)

    def expert_status(self) -> ExpertStatus:
        """How it stands now."""
        has_room = self.upstream is None or (self.upstream.has_room and (not self._refusals or self._clock() >= self._aside_until))
        return self._standings[self.breaker.is_closed_for_call(), has_room]

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        """What an answer costs."""
        return dollars_of(self._price, tokens_in, tokens_out) + self._per_answer

    @property
    def list_price(self) -> float:
        """Dollars of a million tokens in and out, to find the most expensive."""
        return self.dollars(1_000_000, 1_000_000)

    def succeeded(self, started: float) -> None:
        """It answered a call that began then."""
        self._refusals = 0
        self.breaker.succeed(started)

    def failed(self, started: float) -> None:
        """It did not answer, or with an error of its own."""
        self.breaker.fail(started)

    def given_up(self, started: float) -> None:
        """Nobody waits for its answer any more."""
        self.breaker.cancel(started)

    def refused(self, started: float, seconds: float | None) -> float:
        """It is over its rate; gives the seconds for which it is left alone."""
        self._refusals += 1
        rest = min(_FIRST_REST * 2.0 ** min(self._refusals - 1, 10), _LONGEST_REST) if seconds is None else min(seconds, _LONGEST_REST)
        self._aside_until = max(self._aside_until, self._clock() + rest)
        self.breaker.cancel(started)
        return rest


def _standings(spec: ExpertSpec) -> dict[tuple[bool, bool], ExpertStatus]:
    """All that it can be, made once."""
    able = spec.settings.get("capabilities")
    capabilities = None if able is None else frozenset(able)
    pairs = [(is_up, has_room) for is_up in (True, False) for has_room in (True, False)]
    return {pair: ExpertStatus(*pair, spec.settings.get("context"), capabilities) for pair in pairs}


# All experts of a gateway.


AUTO_MODEL = "mildroute"
"""What a client writes under ``model`` to leave the choice to the gateway."""


class ExpertPool:
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
        >>> from mildroute.experts.config import ExpertSpec
        >>> crowd = ExpertSpec("crowd", "people", {"field": "label"})
        >>> ExpertPool(ExpertFile(Path("experts.yaml"), (crowd,)), GatewayConfig()).callable
        {}
    """

    def __init__(self, file: ExpertFile, settings: GatewayConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.candidates = {spec.name: UpstreamExpert(spec, settings, clock) for spec in file.experts}
        self.callable = {name: candidate for name, candidate in self.candidates.items() if candidate.upstream is not None}
        _check_routes(settings, self.candidates)
        wanted = settings.baseline
        if wanted is not None and wanted not in self.candidates:
            raise ArgumentError(
                f"baseline must be an expert of {file.path.name}, got {wanted!r:.60}; {nearest(wanted, [*self.candidates])}"
            )
        self.baseline = self.candidates.get(wanted or max(self.callable, key=self._list_price, default=""))

    def statuses(self) -> dict[str, ExpertStatus]:
        """How those that can be called stand now."""
        return {name: candidate.expert_status() for name, candidate in self.callable.items()}

    def standings_of_all(self) -> dict[str, ExpertStatus]:
        """How all stand now; those that the gateway cannot call are always up."""
        return {name: candidate.expert_status() for name, candidate in self.candidates.items()}

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


def _check_routes(settings: GatewayConfig, candidates: dict[str, UpstreamExpert]) -> None:
    for name in (AUTO_MODEL, *settings.policy.routes):
        if name in candidates:
            raise ArgumentError(f"{name!r} must not name an expert and a route; rename the expert or the route.")
