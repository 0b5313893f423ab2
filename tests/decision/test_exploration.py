"""Exploration: which experts are drawn, at what price, and that every propensity is exact."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chisquare

from mildroute.decision.days import DAY
from mildroute.decision.decision import Decision
from mildroute.decision.exploration import ExplorationBudget
from mildroute.decision.policy import decide, resolve_look
from mildroute.decision.prediction import Prediction
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import ExplorationConfig, RoutingConfig
from mildroute.gateway.config import GatewayConfig
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.fakes import FakePredictor
from tests.gateway.running import running

REQUEST = DecisionRequest("Hi", path="chat/completions")
LATER = DecisionRequest("Hi", path="chat/completions", is_first_turn=False)
UP = {name: ExpertStatus() for name in "abcd"}
DOWN = ExpertStatus(is_available=False)
# Errors .10, .15, .20 and .60; at a price weight of 10 the costs are .11, .18, .21 and .70.
SCORES = (0.9, 0.85, 0.8, 0.4)
DOLLARS = (0.001, 0.003, 0.001, 0.01)
SURE = Prediction(("a", "b", "c", "d"), (0.7, 0.1, 0.1, 0.1), 10.0, SCORES, DOLLARS)
MIXED = Prediction(
    ("a", "b", "c", "d"),
    (0.4, 0.3, 0.2, 0.1),
    10.0,
    SCORES,
    DOLLARS,
    vertices=((0.3, ("a", "b", "c", "d")), (0.7, ("b", "c", "a", "d"))),
)
FAR = Prediction(
    ("a", "b", "c", "d"), (0.7, 0.1, 0.1, 0.1), 10.0, SCORES, DOLLARS, is_out_of_distribution=True
)


def explore(
    prediction: Prediction | None,
    number: Callable[[], float],
    statuses: Mapping[str, ExpertStatus] = UP,
    *,
    request: DecisionRequest = REQUEST,
    session: str | None = None,
    affords: Callable[[float], bool] = lambda _dollars: True,
    **settings: Any,
) -> Decision:
    given = {"kind": "gap", "rate": 0.2, "gamma": 100.0, **settings}
    config = RoutingConfig(exploration=ExplorationConfig(**given))
    return decide(prediction, request, statuses, config, "a", session, number, affords)


def never() -> float:
    raise AssertionError("nothing is to be drawn here")


def test_the_probability_falls_with_the_gap() -> None:
    """By hand: the gaps to a are .07, .10 and .59, so that of 4 experts b has 1 / (4 + 7)."""
    raw = {"b": 1 / 11, "c": 1 / 14, "d": 1 / 63}
    found = explore(SURE, lambda: 0.99, rate=1.0).propensities
    assert found == pytest.approx({**raw, "a": 1 - sum(raw.values())})
    scaled = explore(SURE, lambda: 0.99, rate=0.1).propensities
    shares = {name: 0.1 * share / sum(raw.values()) for name, share in raw.items()}
    assert scaled == pytest.approx({**shares, "a": 0.9})


def test_an_expert_costs_less_than_one_over_gamma() -> None:
    for gamma in (1.0, 100.0, 1000.0):
        found = explore(SURE, lambda: 0.99, rate=1.0, gamma=gamma).propensities
        gaps = {"b": 0.07, "c": 0.10, "d": 0.59}
        assert all(found[name] * gap < 1 / gamma for name, gap in gaps.items())


def test_a_choice_that_is_not_the_best_of_the_model_is_kept_and_the_best_is_drawn_most() -> None:
    other = Prediction(("a", "b", "c", "d"), (0.1, 0.1, 0.1, 0.7), 10.0, SCORES, DOLLARS)
    found = explore(other, lambda: 0.99, rate=0.3)
    assert found.expert == "d"
    assert found.propensities["d"] == pytest.approx(0.7)
    assert found.propensities["a"] == max(found.propensities[name] for name in "abc")


def test_below_the_lowest_quality_none_is_drawn() -> None:
    found = explore(SURE, lambda: 0.0, min_quality=0.9)
    assert found.propensities["d"] == found.propensities["c"] == 0.0  # .8 is below .9 x .9
    assert found.expert == "b"
    assert explore(SURE, never, min_quality=1.0).propensities["a"] == 1.0
    uniform = explore(SURE, lambda: 0.0, kind="uniform", min_quality=0.9)
    assert uniform.propensities == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0, "d": 0.0})


@pytest.mark.parametrize(
    "settings",
    [
        {"prediction": FAR},
        {"prediction": None},
        {"session": "b", "request": LATER},
        {"statuses": {"a": UP["a"]}},
        {"affords": lambda _dollars: False},
        {"rate": 0.0},
        {"prediction": Prediction(("a", "b"), (0.7, 0.3))},
        {"prediction": Prediction(("a", "b"), (0.7, 0.3)), "kind": "uniform", "min_quality": 0.5},
        {
            "prediction": Prediction(("a", "b"), (0.7, 0.3), None, (0.5, 0.5)),
            "max_dollars_per_day": 1.0,
        },
    ],
)
def test_nothing_is_drawn_where_it_must_not_or_cannot_be_checked(settings: dict[str, Any]) -> None:
    given = {"prediction": SURE, **settings}
    decision = explore(given.pop("prediction"), never, **given)
    assert decision.reason != "exploration"
    assert sorted(decision.propensities.values())[-2:] == [0.0, 1.0] or settings.get("statuses")
    assert decision.propensities[decision.order[0]] == 1.0


def test_the_price_is_asked_before_the_draw_and_counted_for_what_was_drawn() -> None:
    asked: list[float] = []

    def affords(dollars: float) -> bool:
        asked.append(dollars)
        return True

    spent = {}
    for number in (0.0, 0.17, 0.5):
        decision = explore(SURE, lambda number=number: number, affords=affords)
        spent[decision.expert] = decision.exploration_usd
    assert asked == pytest.approx([0.009] * 3)  # of d, whatever is drawn
    assert spent == {"b": pytest.approx(0.002), "d": pytest.approx(0.009), "a": 0.0}


CASES: dict[str, dict[str, Any]] = {
    "one vertex": {"prediction": SURE},
    "uniform": {"prediction": SURE, "kind": "uniform"},
    "two vertices": {"prediction": MIXED},
    "two vertices, uniform": {"prediction": MIXED, "kind": "uniform", "rate": 0.5},
    "the first choice of both is down": {
        "prediction": MIXED,
        "statuses": {**UP, "a": DOWN, "b": DOWN},
    },
    "one of them is down": {"prediction": MIXED, "statuses": {**UP, "a": DOWN}},
    "a strange expert": {"prediction": MIXED, "statuses": {**UP, "new": ExpertStatus()}},
    "a floor": {"prediction": MIXED, "min_quality": 0.9},
    "steep": {"prediction": MIXED, "gamma": 5.0, "rate": 1.0},
    "the budget is used up": {"prediction": MIXED, "affords": lambda _dollars: False},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_drawn_follows_the_propensities(case: dict[str, Any]) -> None:
    """20,000 requests by the real coin and the real draw, against the chances in their log."""
    case = dict(case)
    prediction = case.pop("prediction")
    rng = random.Random(19)  # noqa: S311
    counts: Counter[str] = Counter()
    found = set()
    for _ in range(20_000):
        coin = rng.random()
        decision = explore(replace(prediction, coin=coin), rng.random, **case)
        counts[decision.order[0]] += 1
        found.add(tuple(sorted(decision.propensities.items())))
    assert len({tuple(round(value, 12) for _, value in each) for each in found}) == 1
    chances = dict(found.pop())
    assert math.fsum(chances.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(chances[name] > 0 for name in counts)
    likely = [name for name, chance in chances.items() if chance > 0]
    if len(likely) > 1:
        expected = np.array([20_000 * chances[name] for name in likely])
        result = chisquare([counts[name] for name in likely], expected * 20_000 / expected.sum())
        assert result.pvalue > 1e-4


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0.01, 1e4),
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 1e300]),
    st.sampled_from(["gap", "uniform"]),
    st.randoms(use_true_random=False),
)
def test_whatever_comes_chances_add_up_and_equal_the_measure_of_the_draws(
    outcomes: list[tuple[float, float]],
    rate: float,
    split: float,
    gamma: float,
    floor: float,
    weight: float,
    kind: str,
    rng: random.Random,
) -> None:
    """Exactly: each vertex's draws partition [0, 1), and the chances are lengths of their parts."""
    names = tuple("abcde"[: len(outcomes)])
    orders = [tuple(rng.sample(names, len(names))) for _ in range(2)]
    statuses = {name: DOWN if rng.random() < 0.2 else ExpertStatus() for name in names}
    prediction = Prediction(
        names,
        (1 / len(names),) * len(names),
        weight,
        tuple(score for score, _ in outcomes),
        tuple(dollars for _, dollars in outcomes),
        vertices=((split, orders[0]), (1 - split, orders[1])),
    )
    if all(status is DOWN for status in statuses.values()):
        return
    settings: dict[str, Any] = {
        "rate": rate,
        "gamma": gamma,
        "kind": kind,
        "min_quality": floor,
        "statuses": statuses,
    }
    measured = dict.fromkeys(names, 0.0)
    steps = 500
    for vertex, chance in enumerate((split, 1 - split)):
        coin = split / 2 if vertex == 0 else (1 + split) / 2
        if chance <= 0 or coin >= 1:
            continue
        tossed = replace(prediction, coin=coin)
        for step in range(steps):
            decision = explore(tossed, lambda step=step: (step + 0.5) / steps, **settings)
            measured[decision.order[0]] += chance / steps
    found = explore(prediction, lambda: 0.5, **settings).propensities
    assert math.fsum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert measured == pytest.approx(found, abs=len(names) / steps)


def test_looks_of_a_cascade_are_drawn_by_their_own_outcomes() -> None:
    prediction = Prediction(
        ("a", "b", "a?b"), (0.6, 0.2, 0.2), 10.0, (0.8, 0.85, 0.9), (0.001, 0.01, 0.004)
    )
    statuses = {"a": ExpertStatus(), "b": ExpertStatus(), "a?b": ExpertStatus()}
    looks = {"a?b": ("a",)}
    found = [
        resolve_look(explore(prediction, lambda n=n: n, statuses, rate=0.3), looks)
        for n in (0.01, 0.9)
    ]
    assert [(each.selected, each.order[0]) for each in found] == [("a?b", "a"), ("a", "a")]
    # The costs are .21, .25 and .14: the look is the best of the model, with a gap of 0.
    raw = {"b": 1 / (3 + 100 * 0.11), "a?b": 1 / 3}
    shares = {name: 0.3 * share / sum(raw.values()) for name, share in raw.items()}
    assert found[0].propensities == pytest.approx({**shares, "a": 0.7})
    assert found[0].exploration_usd == pytest.approx(0.003)


class TestBudget:
    def test_a_day_is_spent_once_and_the_next_begins_at_zero(self) -> None:
        now = [100 * DAY]
        config = ExplorationConfig(max_dollars_per_day=1.0)
        budget = ExplorationBudget(config, lambda: now[0])
        assert budget.covers(1.0)
        assert not budget.covers(1.1)
        budget.spend(0.75)
        assert (budget.covers(0.25), budget.covers(0.26)) == (True, False)
        budget.spend(0.25)
        assert (budget.left, budget.covers(0.0)) == (0.0, False)
        now[0] += DAY
        assert (budget.left, budget.covers(1.0)) == (1.0, True)

    def test_without_a_limit_everything_is_covered(self) -> None:
        budget = ExplorationBudget(ExplorationConfig())
        budget.spend(1e9)
        assert budget.covers(1e9)
        assert math.isnan(budget.left)


def test_a_gateway_stops_exploring_when_the_day_is_spent_and_says_so_in_its_log() -> None:
    with HostileServer([says("Hi.")]) as expert:
        exploration = ExplorationConfig(rate=1.0, max_dollars_per_day=0.5)
        settings = GatewayConfig(routing=RoutingConfig(exploration=exploration))
        predictor = Priced("a", "b")
        numbers = {"random": lambda: 0.75}  # the second one, always
        free = {"base_url": expert.url, "price": 0}
        with running(settings, predictor, numbers, a=free, b=free) as gateway:
            for _ in range(4):
                assert gateway.chat().status_code == 200
            records = gateway.records(4)
            assert [record.reason for record in records] == ["exploration"] * 2 + ["router"] * 2
            assert [record.propensities for record in records] == [(0.5, 0.5)] * 2 + [
                (1.0, 0.0)
            ] * 2
            page = gateway.http.get("/metrics").text
            assert "mildroute_exploration_dollars_total 0.5" in page
            assert 'mildroute_choices_total{expert="b",reason="exploration"} 2.0' in page


class Priced(FakePredictor):
    """The second expert costs 0.25 dollars more."""

    def _predict_row(self, *arguments: Any) -> Prediction:
        found = super()._predict_row(*arguments)
        return replace(found, dollars=(0.25, 0.5))
