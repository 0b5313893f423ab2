"""From a parsed request to a decision: prediction, session affinity, policy, shadow router."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mildroute.decision.policy import (
    Decision,
    decide,
    decide_pinned,
    resolve_look,
    status_of_look,
)
from mildroute.decision.predictor import (
    ROWS_PER_TURN,
    Prediction,
    Predictor,
    TooManyTargetsError,
)
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import AUTO_MODEL, TARGETS, ExplorationConfig, RoutingConfig
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.limits import ROUNDING, start_of_day
from mildroute.gateway.upstream.pool import CALLABLE_KINDS, ExpertPool, ExpertStatus
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.target import Target

__all__ = ["Decider", "ExplorationBudget", "RoutingResult", "SessionAffinity"]


_FIELD_OF_TARGET = {kind: name for name, kind in TARGETS.items()}


_LOG = logging.getLogger(__name__)
# Requests whose answers can be looked at; the last one asks for a decision alone.
_LOOK_PATHS = ("chat/completions", "completions", "route")


class SessionAffinity:
    """Which expert each conversation stays with.

    The memory is bounded twice: by number, the conversation that was idle for longest goes first,
    and by time.

    Args:
        config: How many conversations are remembered, and for how many idle seconds.
    """

    __slots__ = ("_clock", "_max_sessions", "_sessions", "_ttl")

    def __init__(self, config: RoutingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_sessions = config.max_sessions
        self._ttl = config.session_ttl
        self._clock = clock
        # Each entry moves to the end when it is renewed, so the order is that of their times and
        # the oldest is always in front.
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        """Conversations in memory; some may have expired already."""
        return len(self._sessions)

    def get(self, conversation: str | None) -> str | None:
        """The expert of a conversation, or none."""
        session = self._sessions.get(conversation) if conversation is not None else None
        if session is None or self._is_expired(session):
            return None
        return session[0]

    def remember(self, conversation: str | None, expert: str) -> None:
        """Remember, or renew, the expert of a conversation; nothing happens if there is none."""
        if conversation is None or self._max_sessions <= 0:
            return
        sessions = self._sessions
        sessions[conversation] = (expert, self._clock())
        sessions.move_to_end(conversation)
        if len(sessions) > self._max_sessions:
            sessions.popitem(last=False)
        # To drop one for each that comes is enough for the old ones to run out, and costs the same
        # every time.
        oldest = next(iter(sessions))
        if self._is_expired(sessions[oldest]):
            del sessions[oldest]

    def _is_expired(self, session: tuple[str, float]) -> bool:
        return self._clock() - session[1] > self._ttl


class ExplorationBudget:
    """The dollars that exploration may be expected to cost in a UTC day, in this process.

    Args:
        config: With the limit, or none.
        now: Seconds since 1970.
    """

    def __init__(self, config: ExplorationConfig, now: Callable[[], float] = time.time) -> None:
        self._limit = config.max_dollars_per_day
        self._now = now
        self._day = start_of_day(now())
        self._spent = 0.0

    @property
    def left(self) -> float:
        """Dollars of today; NaN without a limit."""
        if self._limit is None:
            return math.nan
        today = start_of_day(self._now())
        if today > self._day:
            self._day = today
            self._spent = 0.0
        return self._limit - self._spent

    def covers(self, dollars: float) -> bool:
        """Return whether so much may be spent now."""
        left = self.left
        return self._limit is None or (left > ROUNDING and dollars <= left + ROUNDING)

    def spend(self, dollars: float) -> None:
        """Count what an exploration is expected to cost."""
        if self._limit is not None and dollars > 0:
            self._spent = self._limit - self.left + dollars


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """What was decided for a request.

    Args:
        decision: Which experts to call.
        prediction: Of the router, or none if it was not asked or had no time.
        experts: That the router knows, or that there are if there is no router.
        router: Digest of the router; empty if the client named the expert, or there is none.
        target: What the operating point was chosen by, or none for the router's own.
        first_choice: What the router alone would choose, or empty.
        shadow: Gives the choice of the shadow router, or none.
        predictor: The router itself, which continues after a look, or none.
    """

    decision: Decision
    prediction: Prediction | None = None
    experts: tuple[str, ...] = ()
    router: str = ""
    target: Target | None = None
    first_choice: str = ""
    shadow: asyncio.Task[str] | None = None
    predictor: Predictor | None = None


class Decider:
    """Decides which experts serve a request.

    Args:
        manager: Holds the router, and perhaps a canary; while it has none, requests are passed to
            the default expert.
        shadow: Holds a second router whose choices are only logged, or none.
        exploration: Dollars that exploration may cost; by default as the settings say, in this
            process.
        random: A number from 0 to just below 1, evenly spread.
    """

    def __init__(
        self,
        manager: PredictorManager,
        pool: ExpertPool,
        affinity: SessionAffinity,
        config: RoutingConfig,
        *,
        shadow: PredictorManager | None = None,
        random: Callable[[], float] = random.random,
        exploration: ExplorationBudget | None = None,
    ) -> None:
        self._exploration = exploration or ExplorationBudget(config.exploration)
        self._manager = manager
        self._pool = pool
        self._affinity = affinity
        self._config = config
        self._shadow = shadow
        self._random = random
        # Experts whose log-probabilities are missing, as last warned of.
        self._without_logprobs: list[str] = []
        self._routes = frozenset((AUTO_MODEL, *config.routes))

    def is_route(self, model: str) -> bool:
        """Whether a ``model`` leaves the choice to the gateway.

        An APIError if neither a route nor an expert has that name.
        """
        if model in self._routes:
            return True
        if model not in self._pool.experts:
            known = ", ".join((*sorted(self._routes), *self._pool.experts))
            message = (
                f"model must be a route or an expert of this gateway, which has: {known:.2000}."
            )
            raise APIError(404, message, code="model_not_found", param="model")
        return False

    async def decide(
        self, parsed: ParsedRequest, target: Target | None, coin_key: str
    ) -> RoutingResult:
        """Decide for one request, in time.

        Args:
            parsed: The request.
            target: What the operating point is chosen by, or none for the router's own.
            coin_key: Seeds the coin between two vertices.
        """
        current = self._manager.predictor
        if current is None:
            shadow = self._start_shadow(parsed, target, coin_key)
            return self._pass_through(parsed, self._pool.statuses(), target, shadow)
        if self._manager.canary is None:
            predictor = self._predictor_for(current, parsed)
            point = await _operating_point(predictor, target)
        else:
            predictor, point = await self._router_for(current, parsed, target, coin_key)
        prediction = await predictor.predict(parsed.text, point, coin_key)
        shadow = self._start_shadow(parsed, target, coin_key)
        statuses = self._pool.statuses()
        if parsed.owner is None:
            default = self._default(predictor, prediction, point)
            session_expert = self._affinity.get(parsed.conversation)
            decision = self._choose(
                predictor, prediction, parsed, statuses, default, session_expert
            )
        else:
            # No other expert knows the response that this one continues: an error is better than a
            # response that has lost its past.
            decision = decide_pinned(parsed.owner, parsed, statuses, "sticky")
        return self._result(decision, prediction, predictor, target, shadow)

    async def decide_batch(
        self, requests: Sequence[ParsedRequest], target: Target | None, coin_keys: Sequence[str]
    ) -> list[RoutingResult]:
        """Decide for many requests at once, however long it takes.

        Experts that the gateway cannot call may be chosen, too.
        """
        results: dict[int, RoutingResult] = {}
        current = self._manager.predictor
        if current is None:
            statuses = self._pool.all_statuses()
            return [self._pass_through(parsed, statuses, target) for parsed in requests]
        for predictor, places in await self._groups(current, requests, target, coin_keys):
            point = await _operating_point(predictor, target)
            predictions = await predictor.predict_batch(
                [requests[place].text for place in places],
                point,
                [coin_keys[place] for place in places],
            )
            statuses = self._pool.all_statuses()
            for place, prediction in zip(places, predictions, strict=True):
                parsed = requests[place]
                default = self._default(predictor, prediction, point)
                session_expert = self._affinity.get(parsed.conversation)
                decision = self._choose(
                    predictor, prediction, parsed, statuses, default, session_expert
                )
                results[place] = self._result(decision, prediction, predictor, target)
                if len(results) % ROWS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return [results[place] for place in range(len(requests))]

    def _pass_through(
        self,
        parsed: ParsedRequest,
        statuses: Mapping[str, ExpertStatus],
        target: Target | None,
        shadow: asyncio.Task[str] | None = None,
    ) -> RoutingResult:
        """The default expert, and behind it the others in the order of their file."""
        if parsed.owner is not None:
            decision = decide_pinned(parsed.owner, parsed, statuses, "sticky")
        else:
            default = self._config.default or next(iter(statuses), "")
            decision = decide(None, parsed, statuses, self._config, default, None, self._random)
            if decision.reason == "router_timeout":
                decision = replace(decision, reason="passthrough")
        return RoutingResult(decision, experts=tuple(statuses), target=target, shadow=shadow)

    async def _router_for(
        self, current: Predictor, parsed: ParsedRequest, target: Target | None, coin_key: str
    ) -> tuple[Predictor, OperatingPoint | None]:
        """The router that decides a request, and where."""
        canary = self._manager.canary
        if canary is not None and canary.takes(parsed.conversation or coin_key):
            # A target that it alone cannot reach must not fail because of it.
            with contextlib.suppress(APIError):
                predictor = self._predictor_for(canary.predictor, parsed)
                return predictor, await _operating_point(predictor, target)
        predictor = self._predictor_for(current, parsed)
        return predictor, await _operating_point(predictor, target)

    def _predictor_for(self, predictor: Predictor, parsed: ParsedRequest) -> Predictor:
        """The router that may decide a request: without looks if they would not see enough.

        A look that has learned from log-probabilities decides badly without them: on a table where
        they alone tell, it kept 74% of the best expert's score in place of 96%.
        """
        mode = self._config.stream_looks
        is_streamed = parsed.is_stream and (
            mode == "route" or (mode == "first" and predictor.look_characters is None)
        )
        if is_streamed or parsed.path not in _LOOK_PATHS:
            return predictor.without_looks
        if predictor.logprob_experts and not self._has_logprobs(predictor, parsed):
            return predictor.without_looks
        return predictor

    def _has_logprobs(self, predictor: Predictor, parsed: ParsedRequest) -> bool:
        if parsed.path == "completions" or (
            parsed.is_stream and self._config.stream_looks == "first"
        ):
            return False
        known = predictor.logprob_experts & frozenset(self._pool.experts)
        silent = sorted(name for name in known if not self._pool.find(name).has_logprobs)
        if silent and silent != self._without_logprobs:
            names = ", ".join(silent)
            _LOG.warning("no looks: the router needs log-probabilities (logprobs) of %s", names)
        self._without_logprobs = silent
        return not silent

    async def _groups(
        self,
        current: Predictor,
        requests: Sequence[ParsedRequest],
        target: Target | None,
        coin_keys: Sequence[str],
    ) -> Sequence[tuple[Predictor, Sequence[int]]]:
        """The requests of each router, by their places."""
        canary = self._manager.canary
        if canary is not None:
            try:
                await _operating_point(canary.predictor, target)
            except APIError:
                canary = None
        groups: dict[Predictor, list[int]] = {}
        for place, (parsed, coin_key) in enumerate(zip(requests, coin_keys, strict=True)):
            is_taken = canary is not None and canary.takes(parsed.conversation or coin_key)
            found = canary.predictor if canary is not None and is_taken else current
            groups.setdefault(self._predictor_for(found, parsed), []).append(place)
        return list(groups.items())

    def _choose(
        self,
        predictor: Predictor,
        prediction: Prediction | None,
        parsed: ParsedRequest,
        statuses: Mapping[str, ExpertStatus],
        default: str,
        session_expert: str | None,
    ) -> Decision:
        """Choose an expert, or a look of a cascade."""
        looks = predictor.looks
        if looks:
            found = {
                name: status_of_look(map(statuses.get, asked)) for name, asked in looks.items()
            }
            statuses = {**statuses, **{name: each for name, each in found.items() if each}}
        decision = decide(
            prediction,
            parsed,
            statuses,
            self._config,
            default,
            session_expert,
            self._random,
            self._exploration.covers,
        )
        self._exploration.spend(decision.exploration_usd)
        return resolve_look(decision, looks)

    def pin_expert(self, parsed: ParsedRequest) -> RoutingResult:
        """Decide for the expert that the client named; an APIError if it cannot be called."""
        name = parsed.model
        if name not in self._pool.callable:
            message = (
                f"{name} cannot be asked through the gateway, which only speaks to experts of the"
                f" kinds {' and '.join(CALLABLE_KINDS)}; use /v1/route."
            )
            raise APIError(400, message, code="expert_not_callable", param="model")
        return RoutingResult(decide_pinned(name, parsed, self._pool.statuses()))

    def remember(self, conversation: str | None, expert: str) -> None:
        """Let a conversation stay with the expert that served it."""
        self._affinity.remember(conversation, expert)

    def _default(
        self, predictor: Predictor, prediction: Prediction | None, point: OperatingPoint | None
    ) -> str:
        """The expert for inputs that the router cannot judge, at the price of the request."""
        named = self._config.default or (prediction.default if prediction is not None else "")
        return named or predictor.default_at(None if point is None else point.price_weight)

    def _result(
        self,
        decision: Decision,
        prediction: Prediction | None,
        predictor: Predictor,
        target: Target | None,
        shadow: asyncio.Task[str] | None = None,
    ) -> RoutingResult:
        first_choice = "" if prediction is None else self._first_choice(prediction)
        return RoutingResult(
            decision,
            prediction,
            predictor.experts,
            predictor.digest,
            target,
            first_choice,
            shadow,
            predictor,
        )

    def _first_choice(self, prediction: Prediction) -> str:
        """What a router alone would choose."""
        default = self._config.default
        return (
            default
            if default is not None and prediction.is_out_of_distribution
            else prediction.expert
        )

    def _start_shadow(
        self, parsed: ParsedRequest, target: Target | None, coin_key: str
    ) -> asyncio.Task[str] | None:
        predictor = None if self._shadow is None else self._shadow.predictor
        if predictor is None:
            return None
        choice = self._shadow_choice(predictor, parsed.text, target, coin_key)
        return asyncio.get_running_loop().create_task(choice)

    async def _shadow_choice(
        self, predictor: Predictor, text: str, target: Target | None, coin_key: str
    ) -> str:
        """What the shadow router would choose; empty if it could not say."""
        try:
            point = await predictor.point(target)
        except (ArgumentError, TooManyTargetsError):
            return ""
        prediction = await predictor.predict(text, point, coin_key)
        return "" if prediction is None else self._first_choice(prediction)


async def _operating_point(predictor: Predictor, target: Target | None) -> OperatingPoint | None:
    """Where to decide; an APIError if the router cannot decide there."""
    try:
        return await predictor.point(target)
    except ArgumentError as error:
        raise APIError(
            400,
            str(error),
            param=_FIELD_OF_TARGET.get(target.kind) if target is not None else None,
        ) from None
    except TooManyTargetsError:
        message = (
            "too many qualities and budgets that are new to the gateway are being looked up; retry"
            " later, or ask for a preset."
        )
        raise APIError(429, message, code="too_many_targets", retry_after=1.0) from None
