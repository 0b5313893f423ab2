"""A router inside LiteLLM.

A routing plug-in that leaves of a group's models the one that should answer.

Give it to a Python router as ``Router(plugins=[plugin])``, with its asynchronous methods. For the
proxy (1.94 or newer) make it in a module beside ``config.yaml`` and name it there; the group's
models are the experts::

    # chooser.py
    from mildroute.integrations.litellm import MildroutePlugin
    plugin = MildroutePlugin("router", models={"small": "openai/small-1", "large":
    "openai/large-1"}, default="large")

    # config.yaml
    router_settings:
      plugins: ["chooser.plugin"]
      num_retries: 2            # a retry asks the next best
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx

from mildroute.decision.async_decider import AsyncDecider
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.decider import Decider
from mildroute.decision.prompt import prompt_of_messages
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import EncoderConfig, RoutingConfig
from mildroute.decision.targets import parse_target
from mildroute.exceptions import ArgumentError
from mildroute.experts.secrets import Secret
from mildroute.experts.settings import validate_base_url
from mildroute.routers.frontier.target import Target

__all__ = ["MildroutePlugin", "RouteClient", "RoutingContext"]


_LOG = logging.getLogger("mildroute.route_client")
_SIGNAL = "mildroute"
_SIGNALS = "routing_plugin_signals"
# Reasons of decisions that the router did not make.
_UNJUDGED = ("router_timeout", "out_of_distribution")


class RouteClient:
    """Calls ``POST /v1/route`` of a gateway.

    Args:
        url: Of the gateway, such as ``http://127.0.0.1:8000``.
        key_env: Environment variable of the client's key, or ``None``.
        transport: Transport of the HTTP client, or ``None`` for the default.
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float = 0.25,
        key_env: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = f"{validate_base_url(url).removesuffix('/v1')}/v1/route"
        self._seconds = seconds
        self._transport = transport
        self._secret = None if key_env is None else Secret(key_env)
        self._client: httpx.AsyncClient | None = None
        self._is_well = True

    async def ranking(self, text: str, target: Target | None = None) -> tuple[str, ...] | None:
        """Experts in the order to ask them.

        None if the gateway cannot be reached, does not answer in time or refuses.
        """
        parsed: dict[str, Any] = {"input": text}
        if target is not None:
            parsed[target.kind.replace(" ", "_")] = target.value
        headers = [] if self._secret is None else [(b"authorization", self._secret.bearer())]
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._seconds, transport=self._transport)
        try:
            answer = await self._client.post(self._url, json=parsed, headers=headers)
        except httpx.HTTPError as error:
            self._note(type(error).__name__)
            return None
        found = _ranking(answer)
        self._note(f"status {answer.status_code}" if found is None else None)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _note(self, trouble: str | None) -> None:
        """Say once that there is trouble, and once that it is over.

        A busy proxy would fill its log with it.
        """
        if trouble is not None and self._is_well:
            _LOG.warning(
                "no decision from %s (%s); requests go to the default until it answers.",
                self._url,
                trouble,
            )
        if trouble is None and not self._is_well:
            _LOG.warning("decisions from %s again.", self._url)
        self._is_well = trouble is None


def _ranking(answer: httpx.Response) -> tuple[str, ...] | None:
    """Return the names in the answer, or ``None`` if it is not a gateway's."""
    if answer.status_code != httpx.codes.OK:
        return None
    try:
        names = tuple(answer.json()["order"])
    except (ValueError, KeyError, TypeError):
        return None
    return names if names and all(isinstance(name, str) for name in names) else None


class RoutingContext(Protocol):
    """The part of LiteLLM's routing context that this plug-in uses.

    LiteLLM itself is never imported.
    """

    structured_messages: list[dict[str, Any]]
    candidate_models: list[str]
    metadata: dict[str, Any]
    signals: dict[str, Any]


class _Tried(tuple[str, ...]):
    """Models that a request has been sent to, kept in its metadata.

    Of a class of its own, as clients write metadata but no classes.
    """

    # Candidates that the last of them was chosen from; LiteLLM holds the same list.
    left: list[str]


class _Ranker(Protocol):
    """Ranks experts, in this process or elsewhere."""

    async def ranking(self, text: str, target: Target | None) -> tuple[str, ...] | None: ...

    async def close(self) -> None: ...


class _LocalRanker:
    """Decides in this process, as every door does.

    Args:
        predictor: The router.
        default: Expert for requests that the router cannot judge, or ``None`` for its own.
    """

    def __init__(self, predictor: AsyncPredictor, default: str | None) -> None:
        self.predictor = predictor
        names = predictor.experts[: predictor.n_experts]
        self._statuses = {name: ExpertStatus() for name in names}
        self._decider = AsyncDecider(Decider(predictor, RoutingConfig(default=default)), self)

    async def ranking(self, text: str, target: Target | None) -> tuple[str, ...] | None:
        # The text seeds the coin, so that a retry has the order of the first try.
        decision, _ = await self._decider.decide(
            DecisionRequest(text, target), lambda: self._statuses
        )
        return None if decision.reason in _UNJUDGED else decision.order

    async def close(self) -> None:
        self.predictor.close()


class MildroutePlugin:
    """Narrows the candidates to the model of the best expert.

    At each retry they are narrowed to that of the next best. Groups with one model, or with none of
    the experts, are left as they are. Of several deployments of the chosen model LiteLLM takes one
    as it is set up to.

    Args:
        router: Folder of a stored router, which then decides in this process, on a thread of its
            own; or the URL of a gateway, which is then asked for each decision.
        price_weight: How much error one dollar is worth; without this, a quality and a budget the
            router's own operating point counts.
        quality: Share of the best single expert's score to keep, instead of a price weight.
        budget: Dollars for 1,000 requests, instead of a price weight.
        models: For each expert the ``model`` under ``litellm_params``; where none is given, an
            expert's name is that model's, with or without its provider.
        default: Expert for requests that cannot be judged: in time, for lack of a text, or because
            they are unlike the training data. Where none is named it is the router's best single
            expert; with a gateway LiteLLM chooses then among all.
        seconds: Time for a decision.
        key_env: Environment variable of the client's key for a gateway, or ``None``.

    Example:
        >>> import asyncio, tempfile
        >>> from pathlib import Path
        >>> from types import SimpleNamespace
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router")
        >>> models = {"expert_0": "openai/sums", "expert_1": "openai/songs"}
        >>> plugin = MildroutePlugin(folder, models=models, seconds=10.0)
        >>> context = SimpleNamespace(
        ...     structured_messages=[{"role": "user", "content": "sing a song"}],
        ...     candidate_models=["openai/sums", "openai/songs"],
        ...     metadata={},
        ...     signals={},
        ... )
        >>> asyncio.run(plugin.run(context)).candidate_models
        ['openai/songs']
    """

    def __init__(
        self,
        router: str | os.PathLike[str],
        *,
        price_weight: float | None = None,
        quality: float | None = None,
        budget: float | None = None,
        models: Mapping[str, str] | None = None,
        default: str | None = None,
        seconds: float = 0.25,
        key_env: str | None = None,
    ) -> None:
        self._target = _target(price_weight=price_weight, quality=quality, budget=budget)
        self._models, self._default = models, default
        self._ranker: _Ranker
        # Made here and not at the first request: a proxy with a broken artifact must not start.
        if isinstance(router, str) and router.startswith(("http://", "https://")):
            self._ranker = RouteClient(router, seconds=seconds, key_env=key_env)
        else:
            predictor = AsyncPredictor.load(router, EncoderConfig(timeout=seconds))
            if self._target is not None:
                predictor.pin(self._target)
            _check_names(predictor.experts, models, default)
            self._ranker = _LocalRanker(predictor, default)
            self._default = default or predictor.default

    async def run(self, context: Any) -> Any:
        """Narrow the candidates of a request; called by LiteLLM before it chooses a deployment.

        Args:
            context: LiteLLM's ``RoutingContext``; see :class:`RoutingContext` for what is read and
                changed.
        """
        candidates: list[str] = context.candidate_models
        tried = _tried(context.metadata)
        ordered: list[str] = []
        if len(set(candidates)) > 1:
            text = prompt_of_messages(context.structured_messages).text
            ranking = await self._ranker.ranking(text, self._target) if text else None
            ordered = self._in_order(ranking, candidates)
        if ordered:
            first = next((model for model in ordered if model not in tried), ordered[0])
            context.candidate_models = [model for model in candidates if model == first]
            reason = (
                "default" if ranking is None else "router" if first == ordered[0] else "next_best"
            )
            context.signals[_SIGNAL] = {
                "model": first,
                "reason": reason,
                "tried": _noted(tried, first, context.candidate_models),
            }
        elif tried:
            # A fallback to another group: LiteLLM would still allow only what was left of the group
            # before it (seen in 1.106).
            tried.left[:] = candidates
        return context

    async def close(self) -> None:
        """Let threads and connections go."""
        await self._ranker.close()

    def _in_order(self, ranking: Sequence[str] | None, candidates: Sequence[str]) -> list[str]:
        """Models from best to worst, those that are no expert's last.

        None at all if no expert is among the candidates.
        """
        experts = ([] if self._default is None else [self._default]) if ranking is None else ranking
        models = (self._model(expert, candidates) for expert in experts)
        ordered = [model for model in models if model is not None]
        return list(dict.fromkeys([*ordered, *candidates])) if ordered else []

    def _model(self, expert: str, candidates: Sequence[str]) -> str | None:
        if self._models is not None:
            model = self._models.get(expert)
            return model if model in candidates else None
        return next(
            (model for model in candidates if expert in (model, model.partition("/")[2])), None
        )


def _tried(metadata: Mapping[str, Any]) -> _Tried:
    """Return where this request has been sent before.

    LiteLLM keeps the signals of the last run in its metadata.
    """
    signals = metadata.get(_SIGNALS)
    own = signals.get(_SIGNAL) if isinstance(signals, Mapping) else None
    tried = own.get("tried") if isinstance(own, Mapping) else None
    return tried if isinstance(tried, _Tried) else _Tried()


def _noted(tried: _Tried, model: str, left: list[str]) -> _Tried:
    noted = _Tried((*tried, model))
    noted.left = left
    return noted


def _target(**given: float | None) -> Target | None:
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ArgumentError(
            f"give one of price_weight, quality and budget, got {' and '.join(named)}."
        )
    return next((parse_target(name, value) for name, value in named.items()), None)


def _check_names(
    experts: Sequence[str], models: Mapping[str, str] | None, default: str | None
) -> None:
    for name in (*(models or ()), *(() if default is None else (default,))):
        if name not in experts:
            raise ArgumentError(
                f"models and default must name experts of the router ({', '.join(experts)}), got"
                f" {name!r}."
            )
