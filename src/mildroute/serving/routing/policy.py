"""The routing policy as a pure function, and what a client asks for in its headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mildroute._fit import Target
from mildroute.exceptions import ArgumentError
from mildroute.serving.config import TARGETS, RoutingConfig, target_named, target_of_setting
from mildroute.serving.http.body import ParsedRequest
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Header
from mildroute.serving.routing.predictor import Prediction

__all__ = [
    "LONGEST_ID",
    "REASONS",
    "REQUEST_ID",
    "TARGET_HEADERS",
    "Decision",
    "ExpertStatus",
    "checked_id",
    "decide",
    "decide_named",
    "request_id_of",
    "target_headers",
    "target_of",
]


# What was decided for a request, and why.


REASONS = {
    "router": "the router's first choice",
    "split": "the operating point lies between two vertices that choose different experts, and the request's id decided",
    "single": "the operating point sends every request to this expert",
    "named": "the client named this expert",
    "kept": "the conversation stays with its expert",
    "explored": "drawn at random to learn from",
    "far": "the input is unlike the training data: the safe default",
    "late": "the router had no time to answer: the safe default",
    "next": "the router's first choice cannot answer now: the next best",
}
"""Words for each reason. A client whose answer came from another expert than the first choice is told ``fallback`` instead."""


@dataclass(frozen=True)
class Decision:
    """Whom to ask, in which order.

    Args:
        order: Experts to ask, best first; the later ones only if the earlier ones fail. Empty if nobody can answer.
        reason: A key of :data:`REASONS`.
        excluded: Why each other expert was left out: ``"down"``, ``"rate"``, ``"context"``, ``"tools"``, ``"vision"``, ``"json"``,
            ``"absent"`` (the router knows it, the gateway does not). Those that are down or over their rate stand at the end of the
            order nevertheless, because to try is better than to refuse.
        propensities: Probability with which each expert was to be the first, by name, before the coin and the lots; they add up to 1
            over the eligible ones.
    """

    order: tuple[str, ...]
    reason: str
    excluded: Mapping[str, str] = field(default_factory=dict)
    propensities: Mapping[str, float] = field(default_factory=dict)

    @property
    def expert(self) -> str | None:
        """Whom to ask first, or none."""
        return self.order[0] if self.order else None


# What is known of an expert at the moment of a decision.


@dataclass(frozen=True)
class ExpertStatus:
    """One expert, now.

    Args:
        is_up: Whether its circuit lets a call through.
        has_room: Whether its rate allows a call.
        context: Tokens that it can take, request and answer together, or none if unknown.
        capabilities: What it can do; none if its file does not say, which counts as everything.
    """

    is_up: bool = True
    has_room: bool = True
    context: int | None = None
    capabilities: frozenset[str] | None = None


# Who is asked, and in which order: a pure function of what the router thinks and of what is known
# of the experts.


_PASSING = ("rate", "down")
"""Hindrances that may have passed when the call is made; who is over its rate is alive at least."""


def decide(
    prediction: Prediction | None,
    parsed: ParsedRequest,
    statuses: Mapping[str, ExpertStatus],
    rules: RoutingConfig,
    default: str,
    held: str | None,
    draw: Callable[[], float],
) -> Decision:
    """Choose the experts for a request that leaves the choice to the gateway.

    Left out is who is down, over its rate, too small for the request or unable to do what it needs. Of the others the first is, in this
    order: the conversation's own expert, unless another one is better by more than ``rules.leave_gain``; the safe default, if the router
    did not answer or the input is unlike its training data; one drawn at random, with probability ``rules.explore``, in first turns; the
    router's best. Where the operating point lies between two vertices, the prediction's coin says which vertex's order is the router's, and
    each vertex lends its probability to whom it would choose of those who can answer. The rest follows in the router's order, and behind
    it, in the gateway's order, experts that the router does not know, which are never drawn. Experts that are left out because of rates
    and outages alone stand at the very end, and are tried if all others have failed: they may be well again, and a refusal would be
    certain. An expert that is too small or unable is never tried.

    Args:
        prediction: What the router thinks, or none if it had no time.
        parsed: The request.
        statuses: Every expert of the gateway that can serve such requests, by name.
        rules: When a conversation changes its expert, and the share of lots.
        default: Expert for inputs that the router cannot judge.
        held: The conversation's expert, or none; not heeded in a first turn.
        draw: A number from 0 to just below 1, evenly spread; called only where lots are drawn.

    Returns:
        The order, why its first is the first, why others were left out, and the probability of each to be the first.

    Example:
        >>> parsed = ParsedRequest("chat/completions", "mildroute", "Hi", b"", (0, 0), needs=frozenset({"vision"}))
        >>> statuses = {"small": ExpertStatus(capabilities=frozenset()), "large": ExpertStatus()}
        >>> decide(Prediction(("small", "large"), (0.8, 0.2)), parsed, statuses, RoutingConfig(), "large", None, lambda: 0.5)
        Decision(order=('large',), reason='next', excluded={'small': 'vision'}, propensities={'small': 0.0, 'large': 1.0})
    """
    vertices, drawn = _vertices(prediction, statuses)
    ranking = vertices[drawn][1]
    excluded = {name: why for name in ranking if (why := _exclusion_reason(statuses.get(name), parsed))}
    propensities = dict.fromkeys(ranking, 0.0)
    if len(excluded) == len(ranking):
        return _last_resort(vertices, drawn, excluded, propensities)
    own = None if parsed.is_first_turn or not rules.keep_conversations else held
    choices = [_choice(prediction, order, excluded, own, default, rules.leave_gain) for _, order in vertices]
    first, reason = choices[drawn]
    if all(other == first for other, _ in choices):
        propensities[first] = 1.0
        if reason == "router" and prediction is not None and prediction.is_single:
            reason = "single"
    else:
        for (chance, _), (name, _) in zip(vertices, choices, strict=True):
            propensities[name] += chance
        if _is_sure(prediction) and reason != "kept":
            reason = "split"
    eligible = [name for name in ranking if name not in excluded]
    lots = _lots(prediction, eligible) if own is None and rules.explore > 0 else []
    if len(lots) > 1:
        share = rules.explore / len(lots)
        propensities.update({name: share + (1.0 - rules.explore) * propensities[name] for name in lots})
        if (chance := draw()) < rules.explore:
            # The same number tells whom: below the share it is spread evenly, too. Rounding may reach the end, hence the bound.
            first, reason = lots[min(int(chance / rules.explore * len(lots)), len(lots) - 1)], "explored"
    spare = _spare(ranking, excluded)
    return Decision((first, *(name for name in eligible if name != first), *spare), reason, excluded, propensities)


def decide_named(name: str, parsed: ParsedRequest, statuses: Mapping[str, ExpertStatus], reason: str = "named") -> Decision:
    """Decide for a request that names its expert, or that goes on from an answer of its: that one or none.

    It is tried although it is down or over its rate, and although the request seems too long for it, which it can tell better itself.
    It is not tried if it cannot do what the request needs.

    Args:
        name: The expert.
        parsed: The request.
        statuses: Every expert of the gateway, by name.
        reason: Why this one.

    Returns:
        An order of this expert alone, or an empty one.

    Example:
        >>> decide_named("small", ParsedRequest("completions", "small", "Hi", b"", (0, 0)), {"small": ExpertStatus(is_up=False)})
        Decision(order=('small',), reason='named', excluded={'small': 'down'}, propensities={'small': 1.0})
    """
    why = _exclusion_reason(statuses.get(name), parsed)
    order = (name,) if why in ("", "context", *_PASSING) else ()
    return Decision(order, reason, {name: why} if why else {}, {name: float(len(order))})


_Vertices = Sequence[tuple[float, tuple[str, ...]]]


def _vertices(prediction: Prediction | None, statuses: Mapping[str, ExpertStatus]) -> tuple[_Vertices, int]:
    """Probability and order of each vertex, experts that the router does not know last, and the vertex on which the coin falls."""
    if prediction is None:
        return ((1.0, tuple(statuses)),), 0
    known = prediction.experts
    strange = tuple([name for name in statuses if name not in known])
    orders = prediction.orders
    return ([(chance, order + strange) for chance, order in orders] if strange else orders), prediction.drawn


def _spare(order: tuple[str, ...], excluded: Mapping[str, str]) -> tuple[str, ...]:
    """Who may be well again when all others have failed."""
    return tuple([name for why in _PASSING for name in order if excluded.get(name) == why]) if excluded else ()


def _last_resort(vertices: _Vertices, drawn: int, excluded: Mapping[str, str], propensities: dict[str, float]) -> Decision:
    """Nobody can answer now: who may be able to by the time of the call."""
    spares = [_spare(order, excluded) for _, order in vertices]
    if len({spare[:1] for spare in spares}) == 1:
        propensities.update(dict.fromkeys(spares[drawn][:1], 1.0))
    else:
        for (chance, _), spare in zip(vertices, spares, strict=True):
            propensities[spare[0]] += chance
    return Decision(spares[drawn], "next", excluded, propensities)


def _exclusion_reason(expert_status: ExpertStatus | None, parsed: ParsedRequest) -> str:
    """What keeps an expert from answering, what will not pass before what may; empty if nothing does."""
    if expert_status is None:
        return "absent"
    if expert_status.capabilities is not None and not parsed.needs <= expert_status.capabilities:
        return min(parsed.needs - expert_status.capabilities)
    if expert_status.context is not None and parsed.tokens_in + (parsed.tokens_out or 0) > expert_status.context:
        return "context"
    if not expert_status.is_up:
        return "down"
    return "" if expert_status.has_room else "rate"


def _choice(
    prediction: Prediction | None, order: tuple[str, ...], excluded: Mapping[str, str], own: str | None, default: str, leave_gain: float
) -> tuple[str, str]:
    """The first to be asked of an order if no lots are drawn, and why; somebody can answer."""
    best = next(name for name in order if name not in excluded)
    # A prediction for an input unlike the training data is no reason to leave.
    sure = prediction if _is_sure(prediction) else None
    if own is not None and own in order and own not in excluded and (sure is None or _gain(sure, best, own) <= leave_gain):
        return own, "kept"
    if sure is not None:
        return best, "router" if best == order[0] else "next"
    if default not in order or default in excluded:
        return best, "next"
    return default, "late" if prediction is None else "far"


def _is_sure(prediction: Prediction | None) -> bool:
    return prediction is not None and not prediction.is_far


def _gain(prediction: Prediction, best: str, own: str) -> float:
    posterior = dict(zip(prediction.experts, prediction.posterior, strict=True))
    return posterior.get(best, 0.0) - posterior.get(own, 0.0)


def _lots(prediction: Prediction | None, eligible: list[str]) -> list[str]:
    if prediction is None or not _is_sure(prediction):
        return []
    return [name for name in eligible if name in prediction.experts]


# How much a client wants quality to cost, and by which id its request goes: its headers, its
# route, its body.


TARGET_HEADERS = {f"x-mildroute-{name.replace('_', '-')}".encode(): name for name in (*TARGETS, "preset")}
"""Headers, of which a request may have one, each with the member of a body that means the same."""

REQUEST_ID = b"x-request-id"
LONGEST_ID = 256
_SPACE = " \t"
"""What HTTP allows around a value of a header, and does not count as a part of it."""
_is_id = re.compile(f"[ -~]{{1,{LONGEST_ID}}}").fullmatch


def target_headers(headers: Iterable[Header]) -> dict[str, str]:
    """What a client wishes in its headers, by the name of the member that means the same.

    Example:
        >>> target_headers([(b"accept", b"*/*"), (b"x-mildroute-quality", b"0.95")])
        {'quality': '0.95'}
    """
    found: dict[str, str] = {}
    for name, value in headers:
        wish = TARGET_HEADERS.get(name)
        if wish is not None:
            if wish in found:
                raise APIError(400, f"the header {name.decode()} must come once, got it twice.", param=wish)
            found[wish] = value.decode("latin-1").strip(_SPACE)
    return found


def target_of(given: Mapping[str, Any], model: str, rules: RoutingConfig) -> Target | None:
    """What to choose the operating point by, or none for the router's own.

    Args:
        given: What the client names under ``price_weight``, ``quality``, ``budget`` and ``preset``; a number counts before a preset.
        model: A route, whose target counts if the client names none.
        rules: Presets and routes.

    Raises:
        APIError: The client names what is not there, two numbers, or one that makes no sense.

    Example:
        >>> rules = RoutingConfig(presets={"cheap": 100.0}, routes={"fast": {"quality": 0.9}})
        >>> target_of({"preset": "cheap"}, "mildroute", rules), target_of({}, "fast", rules)
        (Target(kind='price weight', value=100.0), Target(kind='quality', value=0.9))
    """
    numbers = [name for name in TARGETS if given.get(name) is not None]
    if len(numbers) > 1:
        raise APIError(400, f"give one of price_weight, quality and budget, got {' and '.join(numbers)}.", param=numbers[1])
    if numbers:
        try:
            return target_named(numbers[0], given[numbers[0]])
        except ArgumentError as error:
            raise APIError(400, str(error), param=numbers[0]) from None
    preset = given.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in rules.presets:
            known = ", ".join(sorted(rules.presets)) or "none is set up"
            raise APIError(400, f"a preset must be one of the gateway's own: {known}.", param="preset")
        return target_of_setting(rules.presets[preset])
    route = rules.routes.get(model)
    return None if route is None else target_of_setting(route)


def request_id_of(headers: Iterable[Header]) -> str:
    """The client's id of a request; empty if it sends none.

    Example:
        >>> request_id_of([(b"x-request-id", b"req-1")])
        'req-1'
    """
    sent = [value.decode("latin-1").strip(_SPACE) for name, value in headers if name == REQUEST_ID]
    if len(sent) > 1:
        raise APIError(400, "the header x-request-id must come once, got it twice.", param="x-request-id")
    return checked_id(sent[0], "x-request-id") if sent and sent[0] else ""


def checked_id(value: Any, param: str) -> str:
    """The id, if it is one: it is hashed and logged, and comes from anybody.

    Example:
        >>> checked_id("req-1", "request_ids")
        'req-1'
        >>> checked_id("r" * 300, "request_ids")
        Traceback (most recent call last):
        mildroute.serving.http.errors.APIError: a request's id must be 1 to 256 printable ASCII characters, got 300 characters; ...
    """
    if not isinstance(value, str) or _is_id(value) is None:
        got = f"{len(value):,} characters" if isinstance(value, str) else f"{value!r:.60}"
        message = f"a request's id must be 1 to {LONGEST_ID} printable ASCII characters, got {got}; send a shorter one, or none."
        raise APIError(400, message, param=param)
    return value
