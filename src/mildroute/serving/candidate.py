"""One expert as the gateway sees it: its endpoint, its circuit, its price, and how it fares."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

from mildroute.experts.model_settings import dollars_of
from mildroute.experts.spec import ExpertSpec
from mildroute.serving.breaker import Breaker
from mildroute.serving.settings import Settings
from mildroute.serving.standing import Standing
from mildroute.serving.upstream import Upstream

__all__ = ["Candidate"]

_FIRST_REST, _LONGEST_REST = 1.0, 60.0
_QUOTED = " !#$&'()*+,/:;<=>?@[]^`{|}"


class Candidate:
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
        >>> Candidate(ExpertSpec("crowd", "people", {"field": "label"}), Settings()).upstream is None
        True
    """

    def __init__(self, spec: ExpertSpec, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.header = spec.name, quote(spec.name, safe=_QUOTED).encode()
        limits, failover = settings.limits, settings.failover
        self.upstream = Upstream(spec, connect=failover.connect, most=limits.connections) if spec.kind == "openai" else None
        self.breaker = Breaker(settings.breaker, clock)
        self._price, self._per_answer, self._clock = spec.price, spec.per_answer or 0.0, clock
        self._aside_until, self._refusals = 0.0, 0
        self._standings = _standings(spec)

    def standing(self) -> Standing:
        """How it stands now."""
        has_room = self.upstream is None or (self.upstream.has_room and (not self._refusals or self._clock() >= self._aside_until))
        return self._standings[self.breaker.is_closed_for_call(), has_room]

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        """What an answer costs."""
        return dollars_of(self._price, tokens_in, tokens_out) + self._per_answer

    @property
    def list_price(self) -> float:
        """Dollars of a million tokens in and out, to find the dearest."""
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


def _standings(spec: ExpertSpec) -> dict[tuple[bool, bool], Standing]:
    """All that it can be, made once."""
    able = spec.settings.get("capabilities")
    capabilities = None if able is None else frozenset(able)
    pairs = [(is_up, has_room) for is_up in (True, False) for has_room in (True, False)]
    return {pair: Standing(*pair, spec.settings.get("context"), capabilities) for pair in pairs}
