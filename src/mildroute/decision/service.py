"""A service that decides, logs and reloads, for integrations that call no experts themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Self

from mildroute.decision.async_decider import AsyncDecider
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.decider import Decider
from mildroute.decision.decision import Decision
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog, DecisionRecord
from mildroute.decision.outcomes import Outcome, OutcomeLog
from mildroute.decision.prediction import Prediction
from mildroute.decision.reload import PredictorManager
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig, RoutingConfig
from mildroute.decision.targets import describe_target
from mildroute.exceptions import ArgumentError
from mildroute.routers.frontier.target import Target

if TYPE_CHECKING:
    from mildroute.experts.config import ExpertFile

__all__ = ["Caller", "DecisionService", "ServiceConfig"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceConfig:
    """The settings of a decision service.

    Args:
        target: Target of requests that have none of their own; ``None`` means the router's own
            operating point.
        routing: Default expert, conversations and exploration.
        encoder: Settings of the encoder.
        log: Settings of the decision log; without a folder, nothing is logged.
        reload_interval: Seconds between two checks for a new artifact; ``None`` disables reloading.

    Example:
        >>> ServiceConfig(target=Target("quality", 0.95)).reload_interval
        5.0
    """

    target: Target | None = None
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    log: DecisionLogConfig = field(default_factory=DecisionLogConfig)
    reload_interval: float | None = 5.0


@dataclass(frozen=True)
class Caller:
    """The origin of a request, for the log.

    Args:
        path: The entry point, such as ``"systemone"`` or ``"litellm"``.
        model: The model that the client asked for.
        key: Name of the client's key.
        trace_id: Id of the request's trace.

    Example:
        >>> Caller("litellm", model="auto").path
        'litellm'
    """

    path: str = ""
    model: str = ""
    key: str = ""
    trace_id: str = ""


class DecisionService:
    """A service that decides, logs each decision, and loads new versions of the artifact.

    Methods may be called from several threads, except that :meth:`adecide` belongs to one event
    loop. The records are those of the gateway's log, so ``mildroute costs from-log`` and
    ``mildroute learn`` read them.

    Args:
        manager: Holder of the router, whose :meth:`~PredictorManager.load` has been called.
        config: The settings.
        experts: Names, prices, contexts and capabilities of the experts; without them, every expert
            of the router can be called and outcomes must contain their dollars.
        now: Function that returns seconds since 1970.
        random: Function that returns a uniform number in [0, 1), which decides what is explored.

    Example:
        >>> import tempfile
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> folder = Path(tempfile.mkdtemp())
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> _ = save_router(router, folder / "router")
        >>> config = ServiceConfig(log=DecisionLogConfig(folder / "log"))
        >>> with DecisionService.load(folder / "router", config) as service:
        ...     decision = service.decide(DecisionRequest("sing a song"), caller=Caller("mine"))
        ...     outcome = Outcome("expert_1", tokens_in=9, tokens_out=80, cost_usd=0.002)
        ...     _ = service.report_outcome(decision.decision_id, outcome)
        ...     _ = service.report_score(decision.decision_id, 1.0)
        >>> decision.expert, decision.propensity
        ('expert_1', 1.0)
    """

    def __init__(
        self,
        manager: PredictorManager,
        config: ServiceConfig | None = None,
        experts: ExpertFile | None = None,
        *,
        now: Callable[[], float] = time.time,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.config = config or ServiceConfig()
        self.manager = manager
        self._now = now
        log = self.config.log
        self._decisions = None if log.folder is None else DecisionLog(log)
        self._outcomes = None if log.folder is None else OutcomeLog(log)
        self._feedback = None if log.folder is None else FeedbackLog(log, now)
        self._decider = Decider(
            None,
            self.config.routing,
            new_id=None if self._feedback is None else self._feedback.ids.new,
            random=random,
        )
        self._async_decider = AsyncDecider(self._decider, manager)
        self._experts = experts
        self._prices = (
            {}
            if experts is None
            else {spec.name: (spec.price, spec.per_answer) for spec in experts.experts}
        )
        self._statuses = None if experts is None else statuses_of(experts)
        self._lock = threading.Lock()
        self._watcher: _Watcher | None = None

    @classmethod
    def load(
        cls,
        router: str | Path | None,
        config: ServiceConfig | None = None,
        experts: ExpertFile | None = None,
        *,
        now: Callable[[], float] = time.time,
        random: Callable[[], float] = random.random,
    ) -> Self:
        """Load an artifact and reload it whenever it changes.

        Args:
            router: Folder or URL of the artifact. While there is none, every decision is for the
                default expert, or for the first one of ``experts``.
            config: The settings.
            experts: The experts that can be called; ``None`` means all that the router knows.
            now: Function that returns seconds since 1970.
            random: Function that returns a uniform number in [0, 1), which decides what is
                explored.

        Raises:
            ArtifactError: The artifact is invalid or cannot reach the target.
        """
        config = config or ServiceConfig()
        names = None if experts is None else frozenset(spec.name for spec in experts.experts)
        targets = {} if config.target is None else {"target": config.target}
        manager = PredictorManager(router, config.encoder, names, _announce, targets)
        manager.load()
        service = cls(manager, config, experts, now=now, random=random)
        if router is not None and config.reload_interval is not None:
            service._watcher = _Watcher(manager, config.reload_interval)
        return service

    def __enter__(self) -> Self:
        """Return the service itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the service."""
        self.close()

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts that the service chooses from."""
        if self._statuses is not None:
            return tuple(self._statuses)
        predictor = self.manager.predictor
        return () if predictor is None else predictor.experts[: predictor.n_experts]

    @property
    def statuses(self) -> Mapping[str, ExpertStatus]:
        """The state of each expert that may be called, by name."""
        if self._statuses is not None:
            return self._statuses
        return {name: ExpertStatus() for name in self.experts}

    @property
    def ignores_answers(self) -> bool:
        """Return whether the router is a cascade, which decides here without reading answers."""
        return self.manager.predictor is not None and bool(self.manager.predictor.looks)

    def decide(
        self,
        request: DecisionRequest,
        statuses: Mapping[str, ExpertStatus] | None = None,
        *,
        caller: Caller | None = None,
    ) -> Decision:
        """Decide for one request and log the decision.

        Args:
            request: The input, its target and what it needs.
            statuses: State of each expert that may be called, by name; by default those of the file
                of experts, or all experts of the router.
            caller: The origin of the request.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
        """
        arrived, started = self._now(), perf_counter()
        request = self._with_target(request)
        statuses = self.statuses if statuses is None else statuses
        current = self.manager.predictor
        if current is None:
            with self._lock:
                decision = self._decider.pass_through(request, statuses)
                self._record(decision, request, caller, arrived, started)
            return decision
        predictor = self._decider.predictor_for(current, request)
        with self._lock:
            point = predictor.point(request.target)
        prediction = predictor.predict(request.text, point, request.coin_key)
        with self._lock:
            decision = self._decider.choose(predictor, prediction, point, request, statuses)
            self._record(decision, request, caller, arrived, started)
        return decision

    async def adecide(
        self,
        request: DecisionRequest,
        statuses: Mapping[str, ExpertStatus] | None = None,
        *,
        caller: Caller | None = None,
    ) -> Decision:
        """Decide as :meth:`decide` does; concurrent requests share batches of the encoder.

        An input whose vector is not ready within ``config.encoder.timeout`` seconds goes to the
        default expert.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
            TooManyTargetsError: Too many new targets arrived at the same time.
        """
        arrived, started = self._now(), perf_counter()
        request = self._with_target(request)
        decision, _ = await self._async_decider.decide(
            request, lambda: self.statuses if statuses is None else statuses
        )
        with self._lock:
            self._record(decision, request, caller, arrived, started)
        return decision

    async def apredict(self, request: DecisionRequest) -> Prediction | None:
        """Return the router's view of an input, without deciding or logging anything.

        Returns:
            The view; ``None`` if there is no router, or if the vector is not ready in time.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
        """
        return await self._async_decider.predict(self._with_target(request))

    def report_outcome(
        self, decision_id: str, outcome: Outcome, *, conversation: str | None = None
    ) -> bool:
        """Log the outcome of a call that carried out a decision, with its cost.

        Args:
            decision_id: Id of the decision, which another replica may have made.
            outcome: The outcome; if it has no dollars, they are computed from its tokens and the
                expert's price.
            conversation: The conversation of the request, which stays with an expert that answered
                in place of the one chosen.

        Returns:
            Whether the outcome was written; ``False`` if there is no log, or if the disk is full.
        """
        if outcome.cost_usd is None:
            outcome = replace(outcome, cost_usd=self.cost(outcome.expert, outcome))
        with self._lock:
            if conversation is not None and outcome.is_answer:
                self._decider.remember(conversation, outcome.expert)
            if self._outcomes is None:
                return False
            baseline = None if self._experts is None else self._experts.baseline
            charge = self.cost(baseline, outcome) if baseline and outcome.is_answer else None
            return self._outcomes.write(decision_id, outcome, self._now(), charge or 0.0)

    def report_score(
        self, decision_id: str, score: float, detail: str | None = None, *, key: str = ""
    ) -> bool:
        """Log how good the answer to a decision was.

        Args:
            decision_id: Id of the decision, which another replica may have made.
            score: Score from 0 (useless) to 1 (perfect).
            detail: A comment of at most 2,000 characters, or ``None``.
            key: Name of the client's key.

        Returns:
            Whether a service with this log created the id.

        Raises:
            ArgumentError: There is no log, or the id, the score or the detail is invalid.
            OSError: The disk is full or missing.
        """
        if self._feedback is None:
            raise ArgumentError("scores need a decision log, got none; set the log's folder.")
        with self._lock:
            if not self._feedback.write(decision_id, score, key, detail):
                raise OSError("the score could not be stored; send it again later.")
        return self._feedback.ids.has_made(decision_id)

    def cost(self, expert: str, outcome: Outcome) -> float | None:
        """Return the dollars that an expert charges for a call's tokens; ``None`` if unknown."""
        price, per_answer = self._prices.get(expert, (None, None))
        if price is None and per_answer is None:
            return None
        cached = min(outcome.cached_tokens, outcome.tokens_in)
        tokens = (outcome.tokens_in, outcome.tokens_out, cached)
        by_token = 0.0 if price is None else float(price.cost(*tokens))
        return by_token + (per_answer or 0.0 if outcome.is_answer else 0.0)

    def close(self) -> None:
        """Stop watching the artifact and close the logs."""
        if self._watcher is not None:
            self._watcher.stop()
        for log in (self._decisions, self._outcomes, self._feedback):
            if log is not None:
                log.close()
        self.manager.close()

    def _with_target(self, request: DecisionRequest) -> DecisionRequest:
        if request.target is not None or self.config.target is None:
            return request
        return replace(request, target=self.config.target)

    def _record(
        self,
        decision: Decision,
        request: DecisionRequest,
        caller: Caller | None,
        arrived: float,
        started: float,
    ) -> None:
        """Write a decision to the log, and keep its conversation with the expert."""
        if decision.expert is not None:
            self._decider.remember(request.conversation, decision.expert)
        if self._decisions is None:
            return
        caller = caller or Caller()
        prediction = decision.prediction
        seconds = perf_counter() - started
        self._decisions.write(
            DecisionRecord(
                decision_id=decision.decision_id,
                time=arrived,
                key=caller.key,
                path=caller.path,
                model=caller.model,
                router=decision.router,
                experts=decision.experts,
                posterior=() if prediction is None else prediction.posterior,
                price_weight=None if prediction is None else prediction.price_weight,
                reason=decision.reason,
                selected=decision.selected,
                propensity=decision.propensity,
                propensities=tuple(
                    [decision.propensities.get(name, 0.0) for name in decision.experts]
                ),
                served_by="",
                attempts=(),
                status=200 if decision.order else 503,
                tokens_in=0,
                tokens_out=0,
                cost_usd=0.0,
                baseline_cost_usd=0.0,
                decision_seconds=seconds,
                first_byte_seconds=seconds,
                seconds=seconds,
                conversation=request.conversation or "",
                text=request.text,
                request_id=request.request_id,
                target=describe_target(request.target),
                first_choice=decision.first_choice,
                trace_id=caller.trace_id,
                look=decision.look,
            )
        )


def statuses_of(experts: ExpertFile) -> dict[str, ExpertStatus]:
    """Return the state of each expert of a file, all of them available."""
    statuses = {}
    for spec in experts.experts:
        capabilities = spec.settings.get("capabilities")
        statuses[spec.name] = ExpertStatus(
            context=spec.settings.get("context"),
            capabilities=None if capabilities is None else frozenset(capabilities),
        )
    return statuses


def _announce(predictor: AsyncPredictor) -> None:
    if predictor.looks:
        _LOG.warning(
            "the router is a cascade; answers cannot be read here, so it decides by the input alone"
        )


class _Watcher:
    """A thread that reloads the artifact whenever it changes."""

    def __init__(self, manager: PredictorManager, seconds: float) -> None:
        self._manager = manager
        self._seconds = seconds
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mildroute-reload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._started.wait()
        with contextlib.suppress(RuntimeError):  # The loop has already ended.
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._watch())

    async def _watch(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._manager.watch(self._seconds))
        self._started.set()
        await self._task
