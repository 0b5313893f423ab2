from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.decision.decision import REASONS, Decision
from mildroute.decision.policy import decide, decide_pinned
from mildroute.decision.prediction import Prediction
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import ExplorationConfig, RoutingConfig
from mildroute.routers.frontier.operating_point import OperatingPoint, Vertex

OPINION = Prediction(("a", "b", "c"), (0.2, 0.5, 0.3))
FAR = Prediction(("a", "b", "c"), (0.2, 0.5, 0.3), is_out_of_distribution=True)
UP = {name: ExpertStatus() for name in "abc"}
DOWN, BUSY = ExpertStatus(is_available=False), ExpertStatus(has_capacity=False)


def asked(**settings: Any) -> DecisionRequest:
    """A later turn of a chat, unless the settings say otherwise."""
    return DecisionRequest("Hi", **{"path": "chat/completions", "is_first_turn": False} | settings)


def never_drawn() -> float:
    raise AssertionError("no lots are to be drawn here")


def decided(
    prediction: Prediction | None = OPINION,
    request: DecisionRequest | None = None,
    statuses: dict[str, ExpertStatus] | None = None,
    session_expert: str | None = None,
    default: str = "a",
    chance: float | None = None,
    exploration_rate: float = 0.0,
    **rules: Any,
) -> Decision:
    draw = never_drawn if chance is None else lambda: chance
    return decide(
        prediction,
        request or asked(),
        UP if statuses is None else statuses,
        RoutingConfig(exploration=ExplorationConfig(rate=exploration_rate), **rules),
        default,
        session_expert,
        draw,
    )


def test_the_router_decides_and_the_others_follow_in_its_order() -> None:
    assert decided() == Decision(("b", "c", "a"), "router", {}, {"a": 0.0, "b": 1.0, "c": 0.0})


def test_the_next_best_answers_for_one_that_cannot() -> None:
    assert decided(statuses=UP | {"b": DOWN}) == Decision(
        ("c", "a", "b"), "next_best", {"b": "circuit_open"}, {"a": 0.0, "b": 0.0, "c": 1.0}
    )


def test_that_another_one_than_the_best_is_down_is_no_reason() -> None:
    assert decided(statuses=UP | {"a": DOWN}).reason == "router"


@pytest.mark.parametrize(
    ("expert_status", "why"),
    [
        (DOWN, "circuit_open"),
        (BUSY, "rate_limited"),
        (ExpertStatus(context=149), "context"),
        (ExpertStatus(capabilities=frozenset({"tools"})), "vision"),
        (ExpertStatus(capabilities=frozenset({"vision"})), "tools"),
        (
            ExpertStatus(
                is_available=False, has_capacity=False, context=1, capabilities=frozenset()
            ),
            "tools",
        ),
    ],
)
def test_who_cannot_answer_is_left_out_with_the_reason(
    expert_status: ExpertStatus, why: str
) -> None:
    request = asked(tokens=150, needs=frozenset({"tools", "vision"}))
    decision = decided(request=request, statuses=UP | {"b": expert_status})
    # What may pass is tried in the end, when all others have failed.
    assert (decision.order, decision.excluded) == (
        ("c", "a", *(["b"] if why in ("circuit_open", "rate_limited") else [])),
        {"b": why},
    )


def test_a_request_that_just_fits_is_answered() -> None:
    fitting = ExpertStatus(context=150, capabilities=frozenset({"vision", "tools"}))
    request = asked(tokens=150, needs=frozenset({"vision"}))
    assert decided(request=request, statuses=UP | {"b": fitting}).expert == "b"
    assert decided(request=asked(tokens=150), statuses=UP | {"b": fitting}).expert == "b"


def test_where_nobody_is_up_those_over_their_rate_are_tried_before_those_that_are_down() -> None:
    decision = decided(statuses={"a": DOWN, "b": DOWN, "c": BUSY})
    assert (decision.order, decision.reason) == (("c", "b", "a"), "next_best")
    assert decision.excluded == {"a": "circuit_open", "b": "circuit_open", "c": "rate_limited"}
    assert decision.propensities == {"a": 0.0, "b": 0.0, "c": 1.0}


def test_who_is_too_small_or_unable_is_not_tried_even_then() -> None:
    blind = ExpertStatus(capabilities=frozenset())
    request = asked(needs=frozenset({"vision"}), tokens=10)
    assert decided(
        request=request, statuses={"a": DOWN, "b": blind, "c": ExpertStatus(context=9)}
    ).order == ("a",)
    nobody = decided(request=request, statuses={"b": blind})
    assert (nobody.order, nobody.expert) == ((), None)
    assert set(nobody.propensities.values()) == {0.0}


def test_without_experts_there_is_nobody_to_ask() -> None:
    assert decided(statuses={}).order == ()
    assert decided(prediction=None, statuses={}).order == ()


def test_an_input_unlike_the_training_data_goes_to_the_safe_default_first() -> None:
    assert decided(FAR) == Decision(
        ("a", "b", "c"), "out_of_distribution", {}, {"a": 1.0, "b": 0.0, "c": 0.0}
    )
    down = decided(FAR, statuses=UP | {"a": DOWN})
    assert (down.order, down.reason) == (("b", "c", "a"), "next_best")


def test_a_router_that_had_no_time_leaves_it_to_the_safe_default() -> None:
    late = decided(None, default="c")
    assert (late.order, late.reason) == (("c", "a", "b"), "router_timeout")
    assert decided(None, statuses=UP | {"c": DOWN}, default="c").reason == "next_best"


def test_a_default_that_the_router_does_not_know_is_heeded() -> None:
    assert decided(FAR, statuses=UP | {"new": ExpertStatus()}, default="new").order == (
        "new",
        "b",
        "c",
        "a",
    )


def test_an_expert_that_the_router_does_not_know_comes_last_and_is_never_drawn() -> None:
    statuses = {"new": ExpertStatus()} | UP
    assert decided(statuses=statuses).order == ("b", "c", "a", "new")
    drawn = {
        decided(statuses=statuses, exploration_rate=1.0, chance=number / 100).expert
        for number in range(100)
    }
    assert drawn == {"a", "b", "c"}
    alone = decided(statuses={"new": ExpertStatus(), "b": DOWN})
    assert (alone.order, alone.reason, alone.propensities["new"]) == (
        ("new", "b"),
        "next_best",
        1.0,
    )


def test_an_expert_that_the_gateway_does_not_know_is_left_out() -> None:
    decision = decided(statuses={"a": ExpertStatus()})
    assert (decision.order, decision.reason, decision.excluded) == (
        ("a",),
        "next_best",
        {"b": "absent", "c": "absent"},
    )


def test_a_conversation_stays_unless_another_expert_is_better_by_more_than_the_gain() -> None:
    kept = decided(session_expert="a", switch_threshold=0.3)
    assert (kept.order, kept.reason, kept.propensities) == (
        ("a", "b", "c"),
        "sticky",
        {"a": 1.0, "b": 0.0, "c": 0.0},
    )
    left = decided(session_expert="a", switch_threshold=0.29)
    assert (left.order, left.reason) == (("b", "c", "a"), "router")


def test_the_gain_is_that_of_the_best_who_can_answer() -> None:
    assert (
        decided(session_expert="a", switch_threshold=0.2, statuses=UP | {"b": DOWN}).reason
        == "sticky"
    )


def test_a_conversation_leaves_an_expert_that_cannot_answer() -> None:
    assert decided(session_expert="c", statuses=UP | {"c": DOWN}).order == ("b", "a", "c")
    assert decided(session_expert="gone").order == ("b", "c", "a")


def test_a_conversation_stays_where_the_router_cannot_judge() -> None:
    for prediction in (FAR, None):
        assert (
            decided(prediction, session_expert="c", switch_threshold=0.0).order[0],
            decided(prediction, session_expert="c").reason,
        ) == ("c", "sticky")
    assert (
        decided(FAR, session_expert="c", statuses=UP | {"c": DOWN}).reason == "out_of_distribution"
    )


def test_conversations_may_be_switched_off_and_a_first_turn_has_no_expert_yet() -> None:
    assert decided(session_expert="a", session_affinity=False).reason == "router"
    assert decided(session_expert="a", request=asked(is_first_turn=True)).reason == "router"


def test_a_tool_loop_stays_with_its_expert_whatever_the_router_says() -> None:
    loop = asked(is_tool_result=True)
    rules = {"session_expert": "a", "switch_threshold": 0.0}
    assert decided(request=asked(), **rules).order[0] == "b"
    stayed = decided(request=loop, **rules)
    assert (stayed.order[0], stayed.reason) == ("a", "sticky")
    assert stayed.propensities["a"] == 1.0
    assert decided(request=loop, session_affinity=False, **rules).order[0] == "a"
    # No lots are drawn in the middle of a loop.
    assert decided(request=loop, exploration_rate=0.3, chance=0.0, **rules).order[0] == "a"
    assert decided(request=loop, tool_affinity=False, **rules).order[0] == "b"
    assert decided(request=loop, statuses=UP | {"a": DOWN}, **rules).order[0] == "b"
    assert decided(request=loop, session_expert=None).reason == "router"


def test_lots_are_drawn_below_the_share_and_evenly() -> None:
    assert decided(exploration_rate=0.3, chance=0.0).order == ("b", "c", "a")
    assert decided(exploration_rate=0.3, chance=0.15).order == ("c", "b", "a")
    assert decided(exploration_rate=0.3, chance=0.29).order == ("a", "b", "c")
    assert decided(exploration_rate=0.3, chance=0.29).reason == "exploration"
    router = decided(exploration_rate=0.3, chance=0.3)
    assert (router.order, router.reason) == (("b", "c", "a"), "router")
    assert router.propensities == pytest.approx({"a": 0.1, "b": 0.8, "c": 0.1})


@pytest.mark.parametrize(
    "settings",
    [
        {"session_expert": "a"},
        {"session_expert": "gone"},
        {"prediction": FAR},
        {"prediction": None},
        {"statuses": {"a": DOWN, "b": DOWN}},
        {"statuses": {"a": UP["a"]}},
    ],
)
def test_no_lots_are_drawn_in_a_conversation_nor_without_a_judgment_nor_without_a_choice(
    settings: dict[str, Any],
) -> None:
    decision = decided(exploration_rate=1.0, **settings)
    assert decision.reason != "exploration"
    assert decision.propensities[decision.order[0]] == 1.0


def test_a_tiny_share_and_a_chance_just_below_the_share_do_not_leave_the_list() -> None:
    assert decided(exploration_rate=5e-324, chance=0.5).reason == "router"
    for share in (0.1, 0.7, 1.0 / 3.0):
        below = share - 1e-17 if share - 1e-17 < share else share * (1 - 2**-53)
        assert decided(exploration_rate=share, chance=below).expert == "a"


def test_a_named_expert_is_asked_alone() -> None:
    assert decide_pinned("a", asked(), UP) == Decision(("a",), "pinned", {}, {"a": 1.0})


@pytest.mark.parametrize(
    ("expert_status", "why", "order"),
    [
        (DOWN, "circuit_open", ("a",)),
        (BUSY, "rate_limited", ("a",)),
        (ExpertStatus(context=1), "context", ("a",)),
        (ExpertStatus(capabilities=frozenset()), "vision", ()),
    ],
)
def test_a_named_expert_is_tried_unless_it_is_unable(
    expert_status: ExpertStatus, why: str, order: tuple[str, ...]
) -> None:
    decision = decide_pinned(
        "a", asked(tokens=5, needs=frozenset({"vision"})), {"a": expert_status}
    )
    assert (decision.order, decision.excluded) == (order, {"a": why})


def test_a_name_that_nobody_has_is_nobody() -> None:
    assert decide_pinned("x", asked(), UP) == Decision((), "pinned", {"x": "absent"}, {"x": 0.0})


NAMES = ["a", "b", "c", "d", "e"]
ABILITIES = st.frozensets(st.sampled_from(["tools", "vision", "json"]))
STANDINGS = st.dictionaries(
    st.sampled_from([*NAMES, "new"]),
    st.builds(
        ExpertStatus,
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 20),
        st.none() | ABILITIES,
    ),
)


@st.composite
def predictions(draw: st.DrawFn) -> Prediction | None:
    experts = tuple(draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1)))
    posterior = draw(st.lists(st.floats(0, 1), min_size=len(experts), max_size=len(experts)))
    return draw(
        st.sampled_from(
            [
                None,
                Prediction(experts, tuple(posterior), is_out_of_distribution=draw(st.booleans())),
            ]
        )
    )


REQUESTS = st.builds(
    asked,
    needs=ABILITIES,
    tokens=st.integers(0, 29),
    is_first_turn=st.booleans(),
)
RULES = st.builds(
    RoutingConfig,
    exploration=st.builds(
        ExplorationConfig,
        kind=st.sampled_from(["uniform", "gap"]),
        rate=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    ),
    switch_threshold=st.floats(0, 1),
    session_affinity=st.booleans(),
)
SOMEBODY = st.sampled_from([*NAMES, "new"])


def can_ever(expert_status: ExpertStatus, request: DecisionRequest) -> bool:
    is_able = expert_status.capabilities is None or not request.needs - expert_status.capabilities
    return is_able and (expert_status.context is None or request.tokens <= expert_status.context)


@given(
    predictions(),
    REQUESTS,
    STANDINGS,
    RULES,
    SOMEBODY,
    st.none() | SOMEBODY,
    st.floats(0, 1, exclude_max=True),
)
def test_whatever_comes_only_those_are_asked_who_can_answer_each_once(
    prediction: Prediction | None,
    request: DecisionRequest,
    statuses: dict[str, ExpertStatus],
    rules: RoutingConfig,
    default: str,
    held: str | None,
    chance: float,
) -> None:
    decision = decide(prediction, request, statuses, rules, default, held, lambda: chance)
    able = {name for name, expert_status in statuses.items() if can_ever(expert_status, request)}
    well = {name for name in able if statuses[name].is_available and statuses[name].has_capacity}
    assert set(decision.order[: len(well)]) == well
    assert sorted(decision.order) == sorted(able)
    assert decision.reason in REASONS
    assert set(decision.excluded) == (
        {*statuses, *(prediction.experts if prediction else ())} - well
    )
    assert {name for name, share in decision.propensities.items() if share > 0} <= set(
        decision.order
    )
    assert sum(decision.propensities.values()) == pytest.approx(1.0 if decision.order else 0.0)
    assert not decision.order or decision.propensities[decision.order[0]] > 0


@given(predictions(), REQUESTS, STANDINGS, RULES, SOMEBODY, st.none() | SOMEBODY)
def test_the_first_is_the_first_as_often_as_its_propensity_says(
    prediction: Prediction | None,
    request: DecisionRequest,
    statuses: dict[str, ExpertStatus],
    rules: RoutingConfig,
    default: str,
    held: str | None,
) -> None:
    draws = 600
    decisions = [
        decide(
            prediction, request, statuses, rules, default, held, lambda at=at: (at + 0.5) / draws
        )
        for at in range(draws)
    ]
    assert all(decision.propensities == decisions[0].propensities for decision in decisions)
    firsts = Counter(decision.expert for decision in decisions)
    for name, propensity in decisions[0].propensities.items():
        # a grid of draws misses each of the at most six borders by one at most
        assert firsts[name] / draws == pytest.approx(propensity, abs=2 / draws)


def between(
    *, coin: float, chance: float = 0.75, is_out_of_distribution: bool = False
) -> Prediction:
    """Three of four requests go by the order b, c, a; the others by a, b, c."""
    vertices = ((chance, ("b", "c", "a")), (1 - chance, ("a", "b", "c")))
    return Prediction(
        ("a", "b", "c"),
        (0.35, 0.4, 0.25),
        vertices=vertices,
        coin=coin,
        is_out_of_distribution=is_out_of_distribution,
        default="c",
    )


def test_the_coin_decides_between_two_vertices_and_each_lends_its_probability() -> None:
    low, high = decided(between(coin=0.7499)), decided(between(coin=0.75))
    assert (low.order, low.reason) == (("b", "c", "a"), "split")
    assert (high.order, high.reason) == (("a", "b", "c"), "split")
    assert low.propensities == high.propensities == {"a": 0.25, "b": 0.75, "c": 0.0}


def test_a_vertex_lends_its_probability_to_the_first_who_can_answer() -> None:
    without_b = UP | {"b": DOWN}
    assert decided(between(coin=0.1), statuses=without_b).order == ("c", "a", "b")
    decision = decided(between(coin=0.9), statuses=without_b)
    assert (decision.order, decision.reason) == (("a", "c", "b"), "split")
    assert decision.propensities == {"a": 0.25, "b": 0.0, "c": 0.75}


def test_where_both_vertices_come_to_the_same_expert_nothing_was_split() -> None:
    without_a = UP | {"a": BUSY}
    low, high = (
        decided(between(coin=0.1), statuses=without_a),
        decided(between(coin=0.9), statuses=without_a),
    )
    assert (low.expert, low.reason, high.expert, high.reason) == ("b", "router", "b", "next_best")
    assert low.propensities == high.propensities == {"a": 0.0, "b": 1.0, "c": 0.0}
    thirds = Prediction(
        ("a", "b"), (0.4, 0.6), vertices=((1 / 3, ("b", "a")), (1 - 1 / 3, ("b", "a"))), coin=0.9
    )
    assert decided(thirds, statuses={"a": UP["a"], "b": UP["b"]}).propensities["b"] == 1.0


def test_if_all_are_down_the_coin_says_who_is_tried_first_and_its_chances_are_known() -> None:
    decision = decided(between(coin=0.9), statuses=dict.fromkeys("abc", DOWN))
    assert (decision.order, decision.reason) == (("a", "b", "c"), "next_best")
    assert decision.propensities == {"a": 0.25, "b": 0.75, "c": 0.0}


def test_lots_and_the_coin_add_up() -> None:
    for chance, expert, reason in (
        (0.0, "b", "exploration"),
        (0.29, "a", "exploration"),
        (0.3, "b", "split"),
    ):
        decision = decided(between(coin=0.1), exploration_rate=0.3, chance=chance)
        assert (decision.expert, decision.reason) == (expert, reason)
        assert decision.propensities == pytest.approx(
            {"a": 0.1 + 0.7 * 0.25, "b": 0.1 + 0.7 * 0.75, "c": 0.1}
        )


def test_a_conversation_is_kept_at_each_vertex_by_itself() -> None:
    # the mean posterior: b is better than c by 0.15, a by 0.10
    for coin in (0.1, 0.9):
        kept = decided(between(coin=coin), session_expert="c", switch_threshold=0.2)
        assert (kept.expert, kept.reason, kept.propensities) == (
            "c",
            "sticky",
            {"a": 0.0, "b": 0.0, "c": 1.0},
        )
    left, stayed = (
        decided(between(coin=coin), session_expert="c", switch_threshold=0.12)
        for coin in (0.1, 0.9)
    )
    assert (left.expert, left.reason, stayed.expert, stayed.reason) == ("b", "split", "c", "sticky")
    assert left.propensities == stayed.propensities == {"a": 0.0, "b": 0.75, "c": 0.25}


def test_a_far_input_has_no_coin_unless_the_default_cannot_answer() -> None:
    far = decided(between(coin=0.9, is_out_of_distribution=True), default="c")
    assert (far.order, far.reason, far.propensities) == (
        ("c", "a", "b"),
        "out_of_distribution",
        {"a": 0.0, "b": 0.0, "c": 1.0},
    )
    without = decided(
        between(coin=0.9, is_out_of_distribution=True), default="c", statuses=UP | {"c": DOWN}
    )
    assert (without.expert, without.reason, without.propensities) == (
        "a",
        "next_best",
        {"a": 0.25, "b": 0.75, "c": 0.0},
    )


def test_an_operating_point_of_one_expert_says_so() -> None:
    point = replace(OperatingPoint.at_weight(1.0, 3), vertices=(Vertex(1.0, 1, 1.0),))
    alone = replace(OPINION, point=point)
    assert decided(alone).reason == "single"
    assert decided(alone, statuses=UP | {"b": DOWN}).reason == "next_best"
    assert decided(replace(OPINION, point=OperatingPoint.at_weight(1.0, 3))).reason == "router"


@given(
    REQUESTS,
    STANDINGS,
    RULES,
    SOMEBODY,
    st.none() | SOMEBODY,
    st.permutations(NAMES),
    st.permutations(NAMES),
    st.booleans(),
)
def test_over_all_coins_and_lots_the_first_is_the_first_as_often_as_its_propensity_says(
    request: DecisionRequest,
    statuses: dict[str, ExpertStatus],
    rules: RoutingConfig,
    default: str,
    held: str | None,
    one: list[str],
    other: list[str],
    is_out_of_distribution: bool,
) -> None:
    vertices = ((0.625, tuple(one)), (0.375, tuple(other)))
    posterior = (0.3, 0.3, 0.2, 0.1, 0.1)
    firsts: Counter[str | None] = Counter()
    coins, draws = 8, 60
    for coin in range(coins):
        prediction = Prediction(
            tuple(NAMES),
            posterior,
            is_out_of_distribution=is_out_of_distribution,
            vertices=vertices,
            coin=coin / coins,
        )
        for at in range(draws):
            decision = decide(
                prediction,
                request,
                statuses,
                rules,
                default,
                held,
                lambda at=at: (at + 0.5) / draws,
            )
            firsts[decision.expert] += 1
    for name, propensity in decision.propensities.items():
        assert firsts[name] / (coins * draws) == pytest.approx(propensity, abs=2 / draws)
    assert sum(decision.propensities.values()) == pytest.approx(1.0 if decision.order else 0.0)
