"""Who is asked, and in which order: a pure function of what the router thinks and of what is known of the experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mildroute.serving.asked import Asked
from mildroute.serving.decision import Decision
from mildroute.serving.opinion import Opinion
from mildroute.serving.settings import PolicyRules
from mildroute.serving.standing import Standing

__all__ = ["decide", "decide_named"]

_PASSING = ("rate", "down")
"""Hindrances that may have passed when the call is made; who is over its rate is alive at least."""


def decide(
    opinion: Opinion | None,
    asked: Asked,
    standings: Mapping[str, Standing],
    rules: PolicyRules,
    default: str,
    held: str | None,
    draw: Callable[[], float],
) -> Decision:
    """Choose the experts for a request that leaves the choice to the gateway.

    Left out is who is down, over its rate, too small for the request or unable to do what it needs. Of the others the first is, in this
    order: the conversation's own expert, unless another one is better by more than ``rules.leave_gain``; the safe default, if the router
    did not answer or the input is unlike its training data; one drawn by lot, with probability ``rules.explore``, in first turns; the
    router's best. Where the operating point lies between two vertices, the opinion's coin says which vertex's order is the router's, and
    each vertex lends its probability to whom it would choose of those who can answer. The rest follows in the router's order, and behind
    it, in the gateway's order, experts that the router does not know, which are never drawn. Experts that are left out because of rates
    and outages alone stand at the very end, and are tried if all others have failed: they may be well again, and a refusal would be
    certain. An expert that is too small or unable is never tried.

    Args:
        opinion: What the router thinks, or none if it had no time.
        asked: The request.
        standings: Every expert of the gateway that can serve such requests, by name.
        rules: When a conversation changes its expert, and the share of lots.
        default: Expert for inputs that the router cannot judge.
        held: The conversation's expert, or none; not heeded in a first turn.
        draw: A number from 0 to just below 1, evenly spread; called only where lots are drawn.

    Returns:
        The order, why its first is the first, why others were left out, and the probability of each to be the first.

    Example:
        >>> asked = Asked("chat/completions", "mildroute", "Hi", b"", (0, 0), needs=frozenset({"vision"}))
        >>> standings = {"small": Standing(capabilities=frozenset()), "large": Standing()}
        >>> decide(Opinion(("small", "large"), (0.8, 0.2)), asked, standings, PolicyRules(), "large", None, lambda: 0.5)
        Decision(order=('large',), reason='next', excluded={'small': 'vision'}, propensities={'small': 0.0, 'large': 1.0})
    """
    vertices, drawn = _vertices(opinion, standings)
    ranking = vertices[drawn][1]
    excluded = {name: why for name in ranking if (why := _hindrance(standings.get(name), asked))}
    propensities = dict.fromkeys(ranking, 0.0)
    if len(excluded) == len(ranking):
        return _last_resort(vertices, drawn, excluded, propensities)
    own = None if asked.is_first_turn or not rules.keep_conversations else held
    choices = [_choice(opinion, order, excluded, own, default, rules.leave_gain) for _, order in vertices]
    first, reason = choices[drawn]
    if all(other == first for other, _ in choices):
        propensities[first] = 1.0
        if reason == "router" and opinion is not None and opinion.is_single:
            reason = "single"
    else:
        for (chance, _), (name, _) in zip(vertices, choices, strict=True):
            propensities[name] += chance
        if _is_sure(opinion) and reason != "kept":
            reason = "split"
    eligible = [name for name in ranking if name not in excluded]
    lots = _lots(opinion, eligible) if own is None and rules.explore > 0 else []
    if len(lots) > 1:
        share = rules.explore / len(lots)
        propensities.update({name: share + (1.0 - rules.explore) * propensities[name] for name in lots})
        if (chance := draw()) < rules.explore:
            # The same number tells whom: below the share it is spread evenly, too. Rounding may reach the end, hence the bound.
            first, reason = lots[min(int(chance / rules.explore * len(lots)), len(lots) - 1)], "explored"
    spare = _spare(ranking, excluded)
    return Decision((first, *(name for name in eligible if name != first), *spare), reason, excluded, propensities)


def decide_named(name: str, asked: Asked, standings: Mapping[str, Standing], reason: str = "named") -> Decision:
    """Decide for a request that names its expert, or that goes on from an answer of its: that one or none.

    It is tried although it is down or over its rate, and although the request seems too long for it, which it can tell better itself.
    It is not tried if it cannot do what the request needs.

    Args:
        name: The expert.
        asked: The request.
        standings: Every expert of the gateway, by name.
        reason: Why this one.

    Returns:
        An order of this expert alone, or an empty one.

    Example:
        >>> decide_named("small", Asked("completions", "small", "Hi", b"", (0, 0)), {"small": Standing(is_up=False)})
        Decision(order=('small',), reason='named', excluded={'small': 'down'}, propensities={'small': 1.0})
    """
    why = _hindrance(standings.get(name), asked)
    order = (name,) if why in ("", "context", *_PASSING) else ()
    return Decision(order, reason, {name: why} if why else {}, {name: float(len(order))})


_Vertices = Sequence[tuple[float, tuple[str, ...]]]


def _vertices(opinion: Opinion | None, standings: Mapping[str, Standing]) -> tuple[_Vertices, int]:
    """Probability and order of each vertex, experts that the router does not know last, and the vertex on which the coin falls."""
    if opinion is None:
        return ((1.0, tuple(standings)),), 0
    known = opinion.experts
    strange = tuple([name for name in standings if name not in known])
    orders = opinion.orders
    return ([(chance, order + strange) for chance, order in orders] if strange else orders), opinion.drawn


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


def _hindrance(standing: Standing | None, asked: Asked) -> str:
    """What keeps an expert from answering, what will not pass before what may; empty if nothing does."""
    if standing is None:
        return "absent"
    if standing.capabilities is not None and not asked.needs <= standing.capabilities:
        return min(asked.needs - standing.capabilities)
    if standing.context is not None and asked.tokens_in + (asked.tokens_out or 0) > standing.context:
        return "context"
    if not standing.is_up:
        return "down"
    return "" if standing.has_room else "rate"


def _choice(
    opinion: Opinion | None, order: tuple[str, ...], excluded: Mapping[str, str], own: str | None, default: str, leave_gain: float
) -> tuple[str, str]:
    """The first to be asked of an order if no lots are drawn, and why; somebody can answer."""
    best = next(name for name in order if name not in excluded)
    # An opinion on an input unlike the training data is no reason to leave.
    sure = opinion if _is_sure(opinion) else None
    if own is not None and own in order and own not in excluded and (sure is None or _gain(sure, best, own) <= leave_gain):
        return own, "kept"
    if sure is not None:
        return best, "router" if best == order[0] else "next"
    if default not in order or default in excluded:
        return best, "next"
    return default, "late" if opinion is None else "far"


def _is_sure(opinion: Opinion | None) -> bool:
    return opinion is not None and not opinion.is_far


def _gain(opinion: Opinion, best: str, own: str) -> float:
    posterior = dict(zip(opinion.experts, opinion.posterior, strict=True))
    return posterior.get(best, 0.0) - posterior.get(own, 0.0)


def _lots(opinion: Opinion | None, eligible: list[str]) -> list[str]:
    if opinion is None or not _is_sure(opinion):
        return []
    return [name for name in eligible if name in opinion.experts]
