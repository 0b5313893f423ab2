"""The policy, a pure function from a prediction and the states of the experts to a decision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mildroute.decision.decision import Decision
from mildroute.decision.exploration import Draw, explored_propensities, possible_draws
from mildroute.decision.prediction import Prediction
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import RoutingConfig

__all__ = ["decide", "decide_pinned", "resolve_look", "status_of_look"]

# Reasons for an exclusion that may no longer hold when the call is made, the likelier one first.
_TEMPORARY = ("rate_limited", "circuit_open")
# Probability of each vertex, and the order of the experts there.
_Vertices = Sequence[tuple[float, tuple[str, ...]]]


def decide(
    prediction: Prediction | None,
    request: DecisionRequest,
    statuses: Mapping[str, ExpertStatus],
    config: RoutingConfig,
    default: str,
    session_expert: str | None,
    random: Callable[[], float],
    affords: Callable[[float], bool] = lambda _dollars: True,
) -> Decision:
    """Choose the experts for a request.

    Experts are excluded if their circuit is open, if they are rate limited, if their context is too
    small for the request or if they lack a capability that it needs. The first of the remaining
    experts is, in order of precedence: the expert of the conversation, unless another one is better
    by more than ``config.switch_threshold``; the default, if there is no prediction or the input is
    unlike the training data; an expert drawn at random according to ``config.exploration``, in
    first turns only; the router's best. If the operating point lies between two vertices, the coin
    of the prediction selects the vertex that ranks the experts, and each vertex adds its
    probability to the eligible expert that it would choose.

    The other experts follow in the router's order, then those that the router does not know, which
    are never drawn. Rate-limited experts and those with an open circuit come last, in case all
    others fail: they may have recovered, and without them a rejection would be certain.

    Args:
        prediction: The router's view of the input; ``None`` if the router timed out.
        request: The request.
        statuses: State of every expert that could serve the request, by name.
        config: Rules for conversations and exploration.
        default: Expert for inputs that the router cannot judge.
        session_expert: The conversation's expert, or ``None``; ignored in a first turn.
        random: Function that returns a uniform number in [0, 1); called only to explore.
        affords: Function that returns whether exploration can pay an amount of dollars. It is
            called before the draw with the largest amount of any draw, so that probabilities do not
            depend on the expert that is drawn.

    Returns:
        The order, the reason for its first expert, the reasons for exclusions, and propensities.
    """
    vertices, drawn = _vertices(prediction, statuses)
    ranking = vertices[drawn][1]
    excluded = {
        name: reason
        for name in ranking
        if (reason := _exclusion_reason(statuses.get(name), request))
    }
    propensities = dict.fromkeys(ranking, 0.0)
    if len(excluded) == len(ranking):
        return _last_resort(vertices, drawn, excluded, propensities)
    sticky, switch_threshold = _sticky_expert(request, config, session_expert)
    choices = [
        _choose(prediction, order, excluded, sticky, default, switch_threshold)
        for _, order in vertices
    ]
    first = choices[drawn][0]
    reason = _combine(prediction, vertices, choices, drawn, propensities)
    eligible = [name for name in ranking if name not in excluded]
    draws: Sequence[Draw] = ()
    if config.exploration.rate and sticky is None and prediction and _is_sure(prediction):
        firsts = [(chance, name) for (chance, _), (name, _) in zip(vertices, choices, strict=True)]
        draws = possible_draws(prediction, firsts, eligible, config.exploration)
    dollars = 0.0
    if draws and affords(max(draw.max_dollars for draw in draws)):
        propensities.update(explored_propensities(firsts, draws))
        explored = draws[drawn].expert(random())
        if explored is not None:
            first = explored
            reason = "exploration"
            dollars = draws[drawn].dollars[explored]
    return Decision(
        (first, *(name for name in eligible if name != first), *_spare(ranking, excluded)),
        reason,
        excluded,
        propensities,
        exploration_usd=dollars,
    )


def decide_pinned(
    name: str,
    request: DecisionRequest,
    statuses: Mapping[str, ExpertStatus],
    reason: str = "pinned",
) -> Decision:
    """Decide for a request that only one expert can serve.

    The expert is called even if it is rate limited, if the request seems too long for it (the
    length is only an estimate), or if its circuit is open, which then allows its probes. It is not
    called if it lacks a capability that the request needs.

    Returns:
        A decision for this expert alone; its order is empty if the expert cannot be called.
    """
    exclusion = _exclusion_reason(statuses.get(name), request)
    order = (name,) if exclusion in ("", "context", *_TEMPORARY) else ()
    excluded = {name: exclusion} if exclusion else {}
    return Decision(order, reason, excluded, {name: float(len(order))})


def status_of_look(members: Iterable[ExpertStatus | None]) -> ExpertStatus | None:
    """Combine the states of the experts that a stage calls; ``None`` if one of them is missing."""
    statuses = list(members)
    present = [status for status in statuses if status is not None]
    if len(present) < len(statuses):
        return None
    contexts = [status.context for status in present if status.context is not None]
    supported = [status.capabilities for status in present if status.capabilities is not None]
    return ExpertStatus(
        all(status.is_available for status in present),
        all(status.has_capacity for status in present),
        min(contexts, default=None),
        frozenset.intersection(*supported) if supported else None,
        frozenset().union(*(status.unserved_paths for status in present)),
    )


def resolve_look(decision: Decision, looks: Mapping[str, tuple[str, ...]]) -> Decision:
    """Replace a cascade's stages in the order by experts; those of the chosen stage come first."""
    if not looks:
        return decision
    look = decision.expert if decision.expert in looks else ""
    names = (*looks.get(look or "", ()), *(name for name in decision.order if name not in looks))
    return replace(decision, order=tuple(dict.fromkeys(names)), look=look or "")


def _vertices(
    prediction: Prediction | None, statuses: Mapping[str, ExpertStatus]
) -> tuple[_Vertices, int]:
    """Return each vertex, and the index of the one that the coin selects.

    Experts that the router does not know come last.
    """
    if prediction is None:
        return ((1.0, tuple(statuses)),), 0
    unknown = tuple([name for name in statuses if name not in prediction.experts])
    orders = prediction.orders
    vertices = [(chance, order + unknown) for chance, order in orders] if unknown else orders
    return vertices, prediction.drawn


def _exclusion_reason(status: ExpertStatus | None, request: DecisionRequest) -> str:
    """Return the reason why an expert cannot serve a request, or an empty text.

    Permanent reasons take precedence over temporary ones.
    """
    if status is None:
        return "absent"
    if request.path in status.unserved_paths:
        return "path"
    if status.capabilities is not None and not request.needs <= status.capabilities:
        return min(request.needs - status.capabilities)
    if status.context is not None and request.tokens > status.context:
        return "context"
    if not status.is_available:
        return "circuit_open"
    return "" if status.has_capacity else "rate_limited"


def _last_resort(
    vertices: _Vertices, drawn: int, excluded: Mapping[str, str], propensities: dict[str, float]
) -> Decision:
    """Decide while no expert is eligible, for experts that may recover before the call."""
    spares = [_spare(order, excluded) for _, order in vertices]
    if len({spare[:1] for spare in spares}) == 1:
        propensities.update(dict.fromkeys(spares[drawn][:1], 1.0))
    else:
        for (chance, _), spare in zip(vertices, spares, strict=True):
            propensities[spare[0]] += chance
    return Decision(spares[drawn], "next_best", excluded, propensities)


def _spare(order: tuple[str, ...], excluded: Mapping[str, str]) -> tuple[str, ...]:
    """Return the excluded experts that may have recovered when all others have failed."""
    if not excluded:
        return ()
    return tuple([name for reason in _TEMPORARY for name in order if excluded.get(name) == reason])


def _sticky_expert(
    request: DecisionRequest, config: RoutingConfig, session_expert: str | None
) -> tuple[str | None, float]:
    """Return the expert that a conversation stays with, and the gain that makes it switch."""
    if request.is_tool_result and config.tool_affinity:
        # The user asked nothing new, so the expert that called the tool continues.
        return session_expert, math.inf
    if request.is_first_turn or not config.session_affinity:
        return None, 0.0
    return session_expert, config.switch_threshold


def _choose(
    prediction: Prediction | None,
    order: tuple[str, ...],
    excluded: Mapping[str, str],
    sticky: str | None,
    default: str,
    switch_threshold: float,
) -> tuple[str, str]:
    """Return the first expert before exploration and the reason; one must be eligible."""
    best = next(name for name in order if name not in excluded)
    # A prediction for an input unlike the training data does not end a conversation's affinity.
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


def _combine(
    prediction: Prediction | None,
    vertices: _Vertices,
    choices: Sequence[tuple[str, str]],
    drawn: int,
    propensities: dict[str, float],
) -> str:
    """Add each vertex's probability to its choice, and return the reason for the first expert."""
    first, reason = choices[drawn]
    if all(other == first for other, _ in choices):
        propensities[first] = 1.0
        is_single = reason == "router" and prediction is not None and prediction.is_single
        return "single" if is_single else reason
    for (chance, _), (name, _) in zip(vertices, choices, strict=True):
        propensities[name] += chance
    return "split" if _is_sure(prediction) and reason != "sticky" else reason


def _is_sure(prediction: Prediction | None) -> bool:
    return prediction is not None and not prediction.is_out_of_distribution


def _gain(prediction: Prediction, best: str, sticky: str) -> float:
    posterior = dict(zip(prediction.experts, prediction.posterior, strict=True))
    return posterior.get(best, 0.0) - posterior.get(sticky, 0.0)
