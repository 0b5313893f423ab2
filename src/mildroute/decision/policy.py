"""The routing policy as a pure function, and what a client asks for in its headers."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from mildroute.decision.predictor import Prediction
from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import (
    TARGETS,
    ExplorationConfig,
    RoutingConfig,
    parse_target,
    target_from_setting,
)
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import Header
from mildroute.gateway.upstream.pool import ExpertStatus
from mildroute.routers.frontier.target import Target

__all__ = [
    "MAX_ID_LENGTH",
    "REASONS",
    "REQUEST_ID",
    "TARGET_HEADERS",
    "Decision",
    "decide",
    "decide_pinned",
    "get_request_id",
    "resolve_look",
    "resolve_target",
    "status_of_look",
    "target_headers",
    "validate_id",
]


# Words for each reason. A client whose answer came from another expert than the first choice is
# told ``fallback`` instead.
REASONS = {
    "router": "the router's first choice",
    "split": (
        "the operating point lies between two vertices that choose different experts, and the"
        " request's id decided"
    ),
    "single": "the operating point sends every request to this expert",
    "pinned": "the client named this expert",
    "sticky": "the conversation stays with its expert",
    "exploration": "drawn at random to learn from",
    "out_of_distribution": "the input is unlike the training data: the safe default",
    "passthrough": "the gateway has no router yet: the default expert",
    "router_timeout": "the router had no time to answer: the safe default",
    "next_best": "the router's first choice cannot answer now: the next best",
}


@dataclass(frozen=True)
class Decision:
    """Which experts to call, in which order.

    Args:
        order: Experts to call, best first; the later ones only if the earlier ones fail. Empty if
            none can serve the request.
        reason: One of :data:`REASONS`.
        excluded: Why each other expert was left out: ``"circuit_open"``, ``"rate_limited"``,
            ``"context"``, ``"tools"``, ``"vision"``, ``"json"``, ``"path"`` (its API has no such
            path), ``"absent"`` (the router knows it, the gateway does not). Those whose circuit is
            open and those that are rate limited stand at the end of the order nevertheless: they
            may be well again by then.
        propensities: Probability of each expert to be the first, by name, before the coin and the
            exploration; they add up to 1 over the eligible ones.
        look: Name of the look of a cascade that was chosen, or empty: the experts that it asks come
            first, and answers decide what follows.
        exploration_usd: Dollars that an expert which was drawn to learn from is expected to charge
            beyond the router's choice.
    """

    order: tuple[str, ...]
    reason: str
    excluded: Mapping[str, str] = field(default_factory=dict)
    propensities: Mapping[str, float] = field(default_factory=dict)
    look: str = ""
    exploration_usd: float = 0.0

    @property
    def selected(self) -> str:
        """What was chosen, an expert or a look; empty if none can serve the request."""
        return self.look or self.expert or ""

    @property
    def expert(self) -> str | None:
        """The expert to call first, or none."""
        return self.order[0] if self.order else None


# Exclusions that may have passed when the call is made; a rate-limited expert is alive at least.
_TEMPORARY = ("rate_limited", "circuit_open")


def decide(
    prediction: Prediction | None,
    parsed: ParsedRequest,
    statuses: Mapping[str, ExpertStatus],
    config: RoutingConfig,
    default: str,
    session_expert: str | None,
    random: Callable[[], float],
    affords: Callable[[float], bool] = lambda _dollars: True,
) -> Decision:
    """Choose the experts for a request that leaves the choice to the gateway.

    Experts are left out if their circuit is open, if they are rate limited, too small for the
    request or unable to do what it needs. Of the others the first is, in this order: the expert of
    the conversation, unless another one is better by more than ``config.switch_threshold``; the
    default, if the router did not answer or the input is out of distribution; one drawn at random,
    as ``config.exploration`` says, in first turns; the router's best. If the
    operating point lies between two vertices, the coin of the prediction says which vertex ranks
    the experts, and each vertex lends its probability to the expert that it would choose of those
    that are eligible. The rest follows in the router's order, and behind it, in the gateway's
    order, experts that the router does not know, which are never drawn. Experts that are left out
    because of rate limits and open circuits alone stand at the very end, for the case that all
    others fail: they may be well again, and a rejection would be certain. If all are left out so,
    the circuits let their probes through and nothing else. An expert that is too small or unable is
    never tried.

    Args:
        prediction: Of the router, or none if it had no time.
        parsed: The request.
        statuses: Every expert of the gateway that can serve such requests, by name.
        config: When a conversation changes its expert, and what is explored.
        default: Expert for inputs that the router cannot judge.
        session_expert: The conversation's expert, or none; not heeded in a first turn.
        random: A number from 0 to just below 1, evenly spread; called only to explore.
        affords: Whether so many dollars may be spent on exploration. It is asked before the draw,
            for the most that any draw can take: so the probabilities do not depend on what is
            drawn.

    Returns:
        The order, why its first is the first, why others were left out, and the probability of each
        to be the first.
    """
    vertices, drawn = _vertices(prediction, statuses)
    ranking = vertices[drawn][1]
    excluded = {
        name: reason
        for name in ranking
        if (reason := _exclusion_reason(statuses.get(name), parsed))
    }
    propensities = dict.fromkeys(ranking, 0.0)
    if len(excluded) == len(ranking):
        return _last_resort(vertices, drawn, excluded, propensities)
    sticky, switch_threshold = _affinity(parsed, config, session_expert)
    choices = [
        _choose(prediction, order, excluded, sticky, default, switch_threshold)
        for _, order in vertices
    ]
    first = choices[drawn][0]
    reason = _combine(prediction, vertices, choices, drawn, propensities)
    eligible = [name for name in ranking if name not in excluded]
    lots: Sequence[_Lot] = ()
    if config.exploration.rate and sticky is None and prediction and _is_sure(prediction):
        firsts = [(chance, name) for (chance, _), (name, _) in zip(vertices, choices, strict=True)]
        lots = _lots(prediction, firsts, eligible, config.exploration)
    dollars = 0.0
    if lots and affords(max(lot.max_dollars for lot in lots)):
        propensities.update(_explored(firsts, lots))
        if (found := lots[drawn].draw(random())) is not None:
            first, reason, dollars = found, "exploration", lots[drawn].dollars[found]
    return Decision(
        (first, *(name for name in eligible if name != first), *_spare(ranking, excluded)),
        reason,
        excluded,
        propensities,
        exploration_usd=dollars,
    )


def _affinity(
    parsed: ParsedRequest, config: RoutingConfig, session_expert: str | None
) -> tuple[str | None, float]:
    """The expert that a conversation stays with, or none, and what another must be better by."""
    if parsed.is_tool_result and config.tool_affinity:
        # The user has asked nothing new: the expert that called the tool continues.
        return session_expert, math.inf
    if parsed.is_first_turn or not config.session_affinity:
        return None, 0.0
    return session_expert, config.switch_threshold


def _combine(
    prediction: Prediction | None,
    vertices: _Vertices,
    choices: Sequence[tuple[str, str]],
    drawn: int,
    propensities: dict[str, float],
) -> str:
    """Lend each vertex's probability to its choice, and tell why the first is the first."""
    first, reason = choices[drawn]
    if all(other == first for other, _ in choices):
        propensities[first] = 1.0
        is_single = reason == "router" and prediction is not None and prediction.is_single
        return "single" if is_single else reason
    for (chance, _), (name, _) in zip(vertices, choices, strict=True):
        propensities[name] += chance
    return "split" if _is_sure(prediction) and reason != "sticky" else reason


@dataclass(frozen=True)
class _Lot:
    """Experts that may be drawn in the place of one choice of the router.

    Args:
        rate: Probability that one is drawn.
        chances: Of each, which add up to the rate.
        dollars: That each is expected to charge beyond the choice.
    """

    rate: float
    chances: Mapping[str, float]
    dollars: Mapping[str, float]

    @property
    def max_dollars(self) -> float:
        return max(self.dollars.values(), default=0.0)

    def draw(self, number: float) -> str | None:
        """The expert that a number from 0 to just below 1 stands for, or none."""
        if number >= self.rate:
            return None
        sums = list(accumulate(self.chances.values()))
        # Rounding may leave a rest to the last one.
        return [*self.chances][min(bisect_right(sums, number), len(sums) - 1)]


def _lots(
    prediction: Prediction,
    firsts: Sequence[tuple[float, str]],
    eligible: list[str],
    config: ExplorationConfig,
) -> list[_Lot]:
    """What may be drawn at each vertex, given its probability and its choice; empty if nothing."""
    scores = dict(zip(prediction.experts, prediction.scores or (), strict=False))
    dollars = dict(zip(prediction.experts, prediction.dollars or (), strict=False))
    # What cannot be checked is not explored.
    needs_scores = config.kind == "gap" or config.min_quality > 0
    if (needs_scores and not scores) or (config.max_dollars_per_day is not None and not dollars):
        return []
    known = [name for name in eligible if name in prediction.experts]
    lowest = config.min_quality * max([scores.get(name, 0.0) for name in known], default=0.0)
    weight = prediction.price_weight or 0.0
    costs = {name: weight * dollars.get(name, 0.0) - scores.get(name, 0.0) for name in known}
    lots = []
    for _, choice in firsts:
        names = [name for name in known if name == choice or scores.get(name, 0.0) >= lowest]
        if len(names) < 2:
            return []
        if config.kind == "gap":
            chances = _gap_chances({name: costs[name] for name in names}, choice, config)
            rate = min(config.rate, sum(chances.values()))
        else:
            chances = dict.fromkeys(names, config.rate / len(names))
            rate = config.rate
        paid = dollars.get(choice, 0.0)
        extra = {name: max(0.0, dollars.get(name, 0.0) - paid) for name in chances}
        lots.append(_Lot(rate, chances, extra))
    return lots


def _gap_chances(
    costs: Mapping[str, float], choice: str, config: ExplorationConfig
) -> dict[str, float]:
    """Inverse-gap weighting (Abe and Long 1999, SquareCB), scaled down to the rate if it is more.

    The rest is left to the router's choice, which need not be the best of the model of outcomes.
    """
    best = min(costs.values())
    gaps = {name: cost - best for name, cost in costs.items() if name != choice}
    # At a price beyond all measure a gap may be no number.
    chances = {
        name: 1.0 / (len(costs) + config.gamma * gap)
        for name, gap in gaps.items()
        if gap < math.inf
    }
    scale = min(1.0, config.rate / max(sum(chances.values()), config.rate))
    return {name: scale * chances.get(name, 0.0) for name in gaps}


def _explored(firsts: Sequence[tuple[float, str]], lots: Sequence[_Lot]) -> dict[str, float]:
    """Probability of each expert to be the first, over the vertices and what is drawn there."""
    found: dict[str, float] = {}
    for (chance, choice), lot in zip(firsts, lots, strict=True):
        found[choice] = found.get(choice, 0.0) + chance * (1.0 - lot.rate)
        for name, share in lot.chances.items():
            found[name] = found.get(name, 0.0) + chance * share
    return found


def status_of_look(asked: Iterable[ExpertStatus | None]) -> ExpertStatus | None:
    """The status of a look: of the least of the experts that it asks; none if one is not there."""
    found = list(asked)
    known = [status for status in found if status is not None]
    if len(known) < len(found):
        return None
    contexts = [status.context for status in known if status.context is not None]
    able = [status.capabilities for status in known if status.capabilities is not None]
    return ExpertStatus(
        all(status.is_available for status in known),
        all(status.has_capacity for status in known),
        min(contexts, default=None),
        frozenset.intersection(*able) if able else None,
        frozenset().union(*(status.unserved_paths for status in known)),
    )


def resolve_look(decision: Decision, looks: Mapping[str, tuple[str, ...]]) -> Decision:
    """The decision with experts alone in its order, those of its look first."""
    if not looks:
        return decision
    look = decision.expert if decision.expert in looks else ""
    names = (*looks.get(look or "", ()), *(name for name in decision.order if name not in looks))
    return replace(decision, order=tuple(dict.fromkeys(names)), look=look or "")


def decide_pinned(
    name: str, parsed: ParsedRequest, statuses: Mapping[str, ExpertStatus], reason: str = "pinned"
) -> Decision:
    """Decide for a request that names its expert, or that continues from a response of its.

    It is called although it is rate limited, and although the request seems too long for it, which
    it can tell better itself; if its circuit is open it gets its probes. It is not called if it
    cannot do what the request needs.

    Returns:
        An order of this expert alone, or an empty one.
    """
    excluded = _exclusion_reason(statuses.get(name), parsed)
    order = (name,) if excluded in ("", "context", *_TEMPORARY) else ()
    return Decision(order, reason, {name: excluded} if excluded else {}, {name: float(len(order))})


_Vertices = Sequence[tuple[float, tuple[str, ...]]]


def _vertices(
    prediction: Prediction | None, statuses: Mapping[str, ExpertStatus]
) -> tuple[_Vertices, int]:
    """Probability and order of each vertex, and the vertex on which the coin falls.

    Experts that the router does not know come last.
    """
    if prediction is None:
        return ((1.0, tuple(statuses)),), 0
    known = prediction.experts
    strange = tuple([name for name in statuses if name not in known])
    orders = prediction.orders
    return (
        [(chance, order + strange) for chance, order in orders] if strange else orders
    ), prediction.drawn


def _spare(order: tuple[str, ...], excluded: Mapping[str, str]) -> tuple[str, ...]:
    """Those that may be well again when all others have failed."""
    return (
        tuple([name for reason in _TEMPORARY for name in order if excluded.get(name) == reason])
        if excluded
        else ()
    )


def _last_resort(
    vertices: _Vertices, drawn: int, excluded: Mapping[str, str], propensities: dict[str, float]
) -> Decision:
    """No expert is eligible now: those that may be by the time of the call."""
    spares = [_spare(order, excluded) for _, order in vertices]
    if len({spare[:1] for spare in spares}) == 1:
        propensities.update(dict.fromkeys(spares[drawn][:1], 1.0))
    else:
        for (chance, _), spare in zip(vertices, spares, strict=True):
            propensities[spare[0]] += chance
    return Decision(spares[drawn], "next_best", excluded, propensities)


def _exclusion_reason(status: ExpertStatus | None, parsed: ParsedRequest) -> str:
    """Why an expert cannot serve a request, lasting reasons first; empty if it can."""
    if status is None:
        return "absent"
    if parsed.path in status.unserved_paths:
        return "path"
    if status.capabilities is not None and not parsed.needs <= status.capabilities:
        return min(parsed.needs - status.capabilities)
    if status.context is not None and parsed.tokens_in + (parsed.tokens_out or 0) > status.context:
        return "context"
    if not status.is_available:
        return "circuit_open"
    return "" if status.has_capacity else "rate_limited"


def _choose(
    prediction: Prediction | None,
    order: tuple[str, ...],
    excluded: Mapping[str, str],
    sticky: str | None,
    default: str,
    switch_threshold: float,
) -> tuple[str, str]:
    """The first of an order if there is no exploration, and why; at least one is eligible."""
    best = next(name for name in order if name not in excluded)
    # A prediction for an input unlike the training data is no reason to leave.
    sure = prediction if _is_sure(prediction) else None
    if (
        sticky is not None
        and sticky in order
        and sticky not in excluded
        and (sure is None or _gain(sure, best, sticky) <= switch_threshold)
    ):
        return sticky, "sticky"
    if sure is not None:
        return best, "router" if best == order[0] else "next_best"
    if default not in order or default in excluded:
        return best, "next_best"
    return default, "router_timeout" if prediction is None else "out_of_distribution"


def _is_sure(prediction: Prediction | None) -> bool:
    return prediction is not None and not prediction.is_out_of_distribution


def _gain(prediction: Prediction, best: str, sticky: str) -> float:
    posterior = dict(zip(prediction.experts, prediction.posterior, strict=True))
    return posterior.get(best, 0.0) - posterior.get(sticky, 0.0)


# How much a client wants quality to cost, and by which id its request goes: its headers, its
# route, its body.


# Headers, of which a request may have one, each with the member of a body that means the same.
TARGET_HEADERS = {
    f"x-mildroute-{name.replace('_', '-')}".encode(): name for name in (*TARGETS, "preset")
}

REQUEST_ID = b"x-request-id"
MAX_ID_LENGTH = 256
# What HTTP allows around a value of a header, and does not count as a part of it.
_SPACE = " \t"
_is_id = re.compile(f"[ -~]{{1,{MAX_ID_LENGTH}}}").fullmatch


def target_headers(headers: Iterable[Header]) -> dict[str, str]:
    """Targets in the headers of a client, by the name of the member that means the same."""
    found: dict[str, str] = {}
    for name, value in headers:
        target = TARGET_HEADERS.get(name)
        if target is not None:
            if target in found:
                raise APIError(
                    400, f"the header {name.decode()} must come once, got it twice.", param=target
                )
            found[target] = value.decode("latin-1").strip(_SPACE)
    return found


def resolve_target(given: Mapping[str, Any], model: str, config: RoutingConfig) -> Target | None:
    """What to choose the operating point by, or none for the router's own.

    Args:
        given: What the client names under ``price_weight``, ``quality``, ``budget`` and ``preset``;
            a number counts before a preset.
        model: A route, whose target counts if the client names none.
        config: Presets and routes.

    Raises:
        APIError: The client names what is not there, two numbers, or one that makes no sense.
    """
    numbers = [name for name in TARGETS if given.get(name) is not None]
    if len(numbers) > 1:
        raise APIError(
            400,
            f"give one of price_weight, quality and budget, got {' and '.join(numbers)}.",
            param=numbers[1],
        )
    if numbers:
        try:
            return parse_target(numbers[0], given[numbers[0]])
        except ArgumentError as error:
            raise APIError(400, str(error), param=numbers[0]) from None
    preset = given.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in config.presets:
            known = ", ".join(sorted(config.presets)) or "none is set up"
            raise APIError(
                400, f"a preset must be one of the gateway's own: {known}.", param="preset"
            )
        return target_from_setting(config.presets[preset])
    route = config.routes.get(model)
    return None if route is None else target_from_setting(route)


def get_request_id(headers: Iterable[Header]) -> str:
    """The client's id of a request; empty if it sends none."""
    sent = [value.decode("latin-1").strip(_SPACE) for name, value in headers if name == REQUEST_ID]
    if len(sent) > 1:
        raise APIError(
            400, "the header x-request-id must come once, got it twice.", param="x-request-id"
        )
    return validate_id(sent[0], "x-request-id") if sent and sent[0] else ""


def validate_id(value: Any, param: str) -> str:
    """The id, if it is one: it is hashed and logged, and clients make it up."""
    if not isinstance(value, str) or _is_id(value) is None:
        got = f"{len(value):,} characters" if isinstance(value, str) else type(value).__name__
        message = (
            f"a request's id must be 1 to {MAX_ID_LENGTH} printable ASCII characters, got {got};"
            " send a shorter one, or none."
        )
        raise APIError(400, message, param=param)
    return value
