"""The pool of experts that the gateway can call: prices, status, circuit breakers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from mildroute._checks import nearest
from mildroute.decision.request import ExpertStatus
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertFile, ExpertSpec
from mildroute.gateway.config import AUTO_MODEL, GatewayConfig
from mildroute.gateway.http.body import PATHS, ParsedRequest
from mildroute.gateway.observability.logs import log_event
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.observability.tracing import OPERATIONS, CallTarget
from mildroute.gateway.upstream.anthropic import AnthropicUpstream
from mildroute.gateway.upstream.base import Upstream
from mildroute.gateway.upstream.charge import Charge, charge_of_call
from mildroute.gateway.upstream.circuit_breaker import CircuitBreaker, State
from mildroute.gateway.upstream.litellm import LiteLLMUpstream
from mildroute.gateway.upstream.openai import OpenAIUpstream

__all__ = [
    "CALLABLE_KINDS",
    "SAFE_IN_HEADER",
    "ExpertPool",
    "PoolChange",
    "UpstreamExpert",
    "check_prices",
]


# Kinds of experts that the gateway can call.
CALLABLE_KINDS: Mapping[str, type[OpenAIUpstream] | type[LiteLLMUpstream]] = {
    "openai": OpenAIUpstream,
    "anthropic": AnthropicUpstream,
    "litellm": LiteLLMUpstream,
}
_LOG = logging.getLogger(__name__)
_CIRCUIT_EVENTS = {
    "open": (logging.WARNING, "circuit opened"),
    "half-open": (logging.INFO, "circuit half-open"),
    "closed": (logging.INFO, "circuit closed"),
}
_FIRST_COOLDOWN = 1.0
_MAX_COOLDOWN = 60.0
# More tokens than any expert accepts.
_MAX_CONTEXT = 1 << 32
SAFE_IN_HEADER = " !#$&'()*+,/:;<=>?@[]^`{|}"


class UpstreamExpert:
    """An expert from experts.yaml.

    A rate-limited expert (429) is not called until its Retry-After has passed, or for 1, 2, 4, ...
    up to 60 seconds without one. A 429 is not a failure: the expert works, and an open circuit
    would exclude it for longer than it requests.

    Attributes:
        spec: Settings of the expert in the file.
        upstream: Client that calls the expert; ``None`` for a kind that the gateway cannot call.
        header: Name of the expert, encoded as the value of a header.
        context: Maximum tokens of request and response together; ``None`` if unknown.
        targets: Trace target of the calls on each path.
    """

    def __init__(
        self,
        spec: ExpertSpec,
        config: GatewayConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = spec.name
        self.spec = spec
        self.header = quote(spec.name, safe=SAFE_IN_HEADER).encode()
        self.upstream: Upstream | None = None
        if spec.kind in CALLABLE_KINDS:
            self.upstream = CALLABLE_KINDS[spec.kind](
                spec,
                connect_timeout=config.failover.connect_timeout,
                max_calls=config.limits.max_in_flight,
            )
        self.targets = {
            path: CallTarget() if self.upstream is None else self.upstream.target(operation)
            for path, operation in OPERATIONS.items()
        }
        self.breaker = CircuitBreaker(config.breaker, clock, on_change=self._report_circuit)
        self.context: int | None = spec.settings.get("context")
        self._price = spec.price
        self._per_answer = spec.per_answer or 0.0
        self._clock = clock
        self._limited_until = 0.0
        self._rate_limits = 0
        unserved = frozenset() if self.upstream is None else frozenset(PATHS) - self.upstream.paths
        self._statuses = _statuses(spec, unserved)
        self.max_tokens: int = spec.settings.get("context") or _MAX_CONTEXT

    def status(self) -> ExpertStatus:
        """Return the current status."""
        has_capacity = self.upstream is None or (
            self.upstream.slots.has_capacity
            and (not self._limited_until or self._clock() >= self._limited_until)
        )
        return self._statuses[self.breaker.allows_call(), has_capacity]

    def cost(
        self, tokens_in: int, tokens_out: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> float:
        """Return the dollars of a response."""
        if self._price is None:
            return self._per_answer
        cost = self._price.cost(tokens_in, tokens_out, cached_tokens, written_tokens)
        return float(cost) + self._per_answer

    def _report_circuit(self, state: State) -> None:
        seconds = self.breaker.retry_after if state == "open" else None
        log_event(_LOG, *_CIRCUIT_EVENTS[state], expert=self.name, retry_after=seconds)

    @property
    def has_price(self) -> bool:
        """Return whether experts.yaml has a price for the expert."""
        return self._price is not None or self.spec.per_answer is not None

    @property
    def has_logprobs(self) -> bool:
        """Return whether log-probabilities may be requested from the expert."""
        return self.upstream is not None and self.upstream.has_logprobs

    @property
    def list_price(self) -> float:
        """Return the price of a million tokens in and a million out, to rank experts by price."""
        return self.cost(1_000_000, 1_000_000)

    def close(self) -> None:
        """Close the upstream; calls in flight still finish."""
        if self.upstream is not None:
            self.upstream.close()

    def record_success(self, started: float) -> None:
        """Record that the expert responded to a call that began at ``started``."""
        self._rate_limits = 0
        self._limited_until = 0.0
        self.breaker.record_success(started)

    def record_failure(self, started: float, request: int | None = None) -> None:
        """Record that the expert did not respond, or responded with an error of its own."""
        self.breaker.record_failure(started, request)

    def release(self, started: float) -> None:
        """Release a cancelled call, which says nothing about the health of the expert."""
        self.breaker.release(started)

    def record_rate_limit(self, started: float, retry_after: float | None) -> float:
        """Record that the expert is rate limited; return the seconds of its cooldown."""
        self._rate_limits += 1
        cooldown = (
            min(_FIRST_COOLDOWN * 2.0 ** min(self._rate_limits - 1, 10), _MAX_COOLDOWN)
            if retry_after is None
            else min(retry_after, _MAX_COOLDOWN)
        )
        self.cool_down(cooldown)
        self.breaker.release(started)
        return cooldown

    def cool_down(self, seconds: float) -> None:
        """Make no call to the expert for this many seconds."""
        self._limited_until = max(self._limited_until, self._clock() + seconds)


def _statuses(spec: ExpertSpec, unserved: frozenset[str]) -> dict[tuple[bool, bool], ExpertStatus]:
    """Return every status that an expert can have, so that each is created only once."""
    names = spec.settings.get("capabilities")
    capabilities = None if names is None else frozenset(names)
    context = spec.settings.get("context")
    pairs = [(available, capacity) for available in (True, False) for capacity in (True, False)]
    return {pair: ExpertStatus(*pair, context, capabilities, unserved) for pair in pairs}


class PoolChange(NamedTuple):
    """Experts that are ready to replace the current ones.

    Args:
        experts: All new experts, by name.
        baseline: The expert that savings are measured against, or ``None``.
    """

    experts: dict[str, UpstreamExpert]
    baseline: UpstreamExpert | None


class ExpertPool:
    """The experts of experts.yaml, in its order. The gateway calls no others.

    Attributes:
        path: Path of the file.
        experts: All experts, by name.
        callable: The experts that the gateway can call, by name.
        baseline: The expert that savings are measured against, or ``None``.
    """

    def __init__(
        self,
        file: ExpertFile,
        config: GatewayConfig,
        clock: Callable[[], float] = time.monotonic,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self.path: Path = file.path
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._failover = config.failover
        self._max_output_tokens = config.limits.max_output_tokens
        self.experts: dict[str, UpstreamExpert] = {}
        self._retired: dict[str, UpstreamExpert] = {}
        self.install(self.prepare(file))

    def prepare(self, file: ExpertFile) -> PoolChange:
        """Check a file as a whole and build its experts; raise an ArgumentError if it is invalid.

        An expert whose settings have not changed stays the same object, with its connections,
        circuit and calls.
        """
        experts = {spec.name: self._expert_of(spec) for spec in file.experts}
        _check_routes(self._config, experts)
        if self._config.routing.default is not None:
            file.expert(self._config.routing.default)
        baseline = self._config.baseline or file.baseline
        if baseline is not None and baseline not in experts:
            raise ArgumentError(
                f"baseline must be an expert of {file.path.name}, got {baseline!r:.60};"
                f" {nearest(baseline, [*experts])}"
            )
        prices = {
            name: expert.list_price
            for name, expert in experts.items()
            if expert.upstream is not None
        }
        most_expensive = max(prices, key=lambda name: prices[name], default="")
        return PoolChange(experts, experts.get(baseline or most_expensive))

    def install(self, change: PoolChange) -> None:
        """Replace the experts.

        Removed and changed experts finish their calls; then their connections are closed.
        """
        before = self.experts
        # Waiting requests hold references to these mappings, so they are replaced, never changed.
        self.experts = change.experts
        self.callable = {
            name: expert for name, expert in self.experts.items() if expert.upstream is not None
        }
        self.baseline = change.baseline
        for name, expert in before.items():
            if self.experts.get(name) is not expert:
                self._retired[name] = expert
                expert.close()
        if self._metrics is not None:
            baseline = "" if self.baseline is None else self.baseline.name
            self._metrics.set_experts(sorted(self.experts), baseline)

    def find(self, name: str) -> UpstreamExpert:
        """Return the expert of a decision, even if it has since been removed from the file."""
        return self.experts.get(name) or self._retired[name]

    def _expert_of(self, spec: ExpertSpec) -> UpstreamExpert:
        old = self.experts.get(spec.name)
        if old is not None and (old.spec.kind, old.spec.settings) == (spec.kind, spec.settings):
            return old
        return UpstreamExpert(spec, self._config, self._clock)

    def max_charge(self, parsed: ParsedRequest, name: str) -> Charge:
        """Return the maximum charge of a call to an expert."""
        return charge_of_call(
            self.find(name), parsed, "unknown", max_output_tokens=self._max_output_tokens
        )

    def max_dollars(self, parsed: ParsedRequest, order: Sequence[str]) -> float:
        """Return the maximum cost of a request, by the most expensive expert that it may call."""
        names = order[: self._failover.max_attempts]
        return max((self.max_charge(parsed, name).dollars for name in names), default=0.0)

    def max_dollars_of_look(
        self, parsed: ParsedRequest, first: Sequence[str], order: Sequence[str], max_calls: int
    ) -> float:
        """Return the maximum cost of a cascade.

        It includes all experts that are called first, and the most expensive of those that may
        follow.
        """
        dollars = {name: self.max_charge(parsed, name).dollars for name in order}
        others = sorted((dollars[name] for name in order if name not in first), reverse=True)
        further = max(max_calls - len(first), 0)
        return sum(dollars[name] for name in first) + sum(others[:further])

    def statuses(self) -> dict[str, ExpertStatus]:
        """Return the current status of each expert that can be called."""
        return {name: expert.status() for name, expert in self.callable.items()}

    def all_statuses(self) -> dict[str, ExpertStatus]:
        """Return each expert's current status; one that cannot be called is always available."""
        return {name: expert.status() for name, expert in self.experts.items()}

    def circuits(self) -> dict[str, State]:
        """Return the state of the circuit of each expert that can be called."""
        return {name: expert.breaker.state for name, expert in self.callable.items()}

    async def close(self) -> None:
        """Close all connections."""
        for expert in (*self.experts.values(), *self._retired.values()):
            if expert.upstream is not None:
                await expert.upstream.wait_closed()


def check_prices(
    experts: Iterable[UpstreamExpert], config: GatewayConfig, *, has_budgets: bool
) -> None:
    """Reject experts without a price if dollars are limited, because their calls would be free.

    Args:
        experts: All experts, callable or not.
        config: Settings with the limits of sampling and exploration.
        has_budgets: Whether any client key has a dollar limit.
    """
    limits = {
        "dollars_per_day of a client key": has_budgets,
        "sampling.max_dollars_per_day": config.sampling.max_dollars_per_day is not None,
        "routing.exploration.max_dollars_per_day": (
            config.routing.exploration.max_dollars_per_day is not None
        ),
    }
    limit = next((name for name, is_set in limits.items() if is_set), None)
    unpriced = [
        expert.name for expert in experts if expert.upstream is not None and not expert.has_price
    ]
    if limit is not None and unpriced:
        raise ArgumentError(
            f"{', '.join(unpriced):.200} must have a price in experts.yaml, because"
            f" {limit} would not count calls without one; write price: {{input: 0, output: 0}} for"
            " an expert that is free."
        )


def _check_routes(config: GatewayConfig, experts: dict[str, UpstreamExpert]) -> None:
    for name in (AUTO_MODEL, *config.routing.routes):
        if name in experts:
            raise ArgumentError(
                f"{name!r} must not name an expert and a route; rename the expert or the route."
            )
