"""The decision service: what it logs is what the gateway would have logged."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mildroute import TextRouter
from mildroute.decision import (
    Caller,
    DecisionRequest,
    DecisionService,
    ExpertStatus,
    Outcome,
    ServiceConfig,
)
from mildroute.decision.export import costs_from_log
from mildroute.decision.log import dollars_of_today, read_log
from mildroute.decision.settings import DecisionLogConfig, ExplorationConfig, RoutingConfig
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.experts.config import ExpertFile, ExpertSpec
from mildroute.persistence import save_router
from mildroute.routers.frontier.target import Target

TEXTS = [f"add {place} and {place + 1}" for place in range(60)] + [
    f"sing song number {place}" for place in range(60)
]
COSTS = [[0.0, 1.0]] * 60 + [[1.0, 0.0]] * 60
EXPERTS = ExpertFile(
    Path("experts.yaml"),
    (
        ExpertSpec("small", "openai", {"price": {"input": 1.0, "output": 2.0}, "context": 100}),
        ExpertSpec("large", "openai", {"price": {"input": 10.0, "output": 20.0}}),
    ),
    baseline="large",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = TextRouter().fit(TEXTS, COSTS, experts=("small", "large"))
    return save_router(router, tmp_path_factory.mktemp("artifact") / "router")


def config(log: Path, **routing: object) -> ServiceConfig:
    return ServiceConfig(
        log=DecisionLogConfig(log, log_prompts=True),
        routing=RoutingConfig(**routing),  # type: ignore[arg-type]
        reload_interval=0.05,
    )


def test_a_decision_is_in_the_log_before_its_outcome_is(folder: Path, tmp_path: Path) -> None:
    with DecisionService.load(folder, config(tmp_path), EXPERTS) as service:
        request = DecisionRequest("sing song number 7", request_id="r7", conversation="c")
        decision = service.decide(request, caller=Caller("litellm", "auto", "team", "ab" * 16))
        (record,) = read_log(tmp_path)
        assert record.decision_id == decision.decision_id
        assert (record.path, record.model, record.key) == ("litellm", "auto", "team")
        assert (record.selected, record.propensities) == ("large", (0.0, 1.0))
        assert (record.request_id, record.conversation) == ("r7", "c")
        assert (record.served_by, record.attempts, record.status) == ("", (), 200)
        outcome = Outcome("large", tokens_in=1_000, tokens_out=100, seconds=2.0)
        assert service.report_outcome(decision.decision_id, outcome)
        (record,) = read_log(tmp_path)
    assert record.served_by == "large"
    assert record.cost_usd == pytest.approx(0.012)  # 1,000 tokens at $10 and 100 at $20 a million
    assert record.baseline_cost_usd == pytest.approx(0.012)
    assert (record.tokens_in, record.tokens_out) == (1_000, 100)
    assert record.seconds == pytest.approx(2.0 + record.decision_seconds)
    assert record.attempts[0]["expert"] == "large"


def test_a_fallback_pays_for_both_calls_and_counts_for_no_expert(
    folder: Path, tmp_path: Path
) -> None:
    with DecisionService.load(folder, config(tmp_path), EXPERTS) as service:
        for text in ("sing song number 7", "add 3 and 4", "add 5 and 6"):
            decision = service.decide(DecisionRequest(text))
            service.report_score(decision.decision_id, 0.75)
            if text.startswith("sing"):
                failed = Outcome("large", 503, "5xx", cost_usd=0.5, seconds=1.0)
                service.report_outcome(decision.decision_id, failed)
            answered = Outcome("small", cost_usd=0.25, seconds=2.0, first_byte_seconds=0.5)
            service.report_outcome(decision.decision_id, answered)
    first, *_ = read_log(tmp_path)
    assert (first.selected, first.served_by, first.cost_usd) == ("large", "small", 0.75)
    assert [call["reason"] for call in first.attempts] == ["5xx", ""]
    assert first.seconds == pytest.approx(3.0 + first.decision_seconds)
    assert first.first_byte_seconds == pytest.approx(1.5 + first.decision_seconds)
    table = costs_from_log(tmp_path).arrow.to_pydict()
    assert table["score:small"] == [0.75, 0.75, 0.75]
    assert table["propensity"] == [None, 1.0, 1.0]
    assert table["cost:small"] == [0.75, 0.25, 0.25]
    assert dollars_of_today(tmp_path, time.time()) == {"": 1.25}


def test_decisions_without_outcomes_give_a_table_of_scores(folder: Path, tmp_path: Path) -> None:
    with DecisionService.load(folder, config(tmp_path)) as service:
        for text in ("sing song number 7", "add 3 and 4"):
            decision = service.decide(DecisionRequest(text))
            assert service.report_score(decision.decision_id, 1.0, "good")
        assert not service.report_score("00", 1.0)  # of another log
        with pytest.raises(ArgumentError, match="score must be a number"):
            service.report_score(decision.decision_id, 7)
    table = costs_from_log(tmp_path).arrow.to_pydict()
    assert table["score:small"] == [None, 1.0]
    assert table["score:large"] == [1.0, None]
    assert "cost:small" not in table


def test_exploration_is_logged_with_its_propensities(folder: Path, tmp_path: Path) -> None:
    exploring = ExplorationConfig(rate=0.4)
    with DecisionService.load(
        folder, config(tmp_path, exploration=exploring), random=lambda: 0.25
    ) as service:
        decision = service.decide(DecisionRequest("sing song number 7"))
    # Each of two experts gets half of the rate 0.4; 0.25 lies in the half of the second one.
    assert (decision.expert, decision.reason) == ("small", "exploration")
    (record,) = read_log(tmp_path)
    assert record.propensities == pytest.approx((0.2, 0.8))
    assert record.propensity == pytest.approx(0.2)


def test_a_conversation_stays_with_the_expert_that_answered(folder: Path, tmp_path: Path) -> None:
    with DecisionService.load(folder, config(tmp_path, switch_threshold=1.0), EXPERTS) as service:
        first = service.decide(DecisionRequest("add 3 and 4", conversation="c"))
        assert first.expert == "small"
        later = DecisionRequest("sing song number 7", conversation="c", is_first_turn=False)
        assert service.decide(later).reason == "sticky"
        service.report_outcome(first.decision_id, Outcome("large"), conversation="c")
        assert service.decide(later).expert == "large"
        too_long = DecisionRequest("add 3 and 4", tokens=101)
        assert service.decide(too_long).excluded == {"small": "context"}
        only_small = {"small": ExpertStatus()}
        assert service.decide(DecisionRequest("sing song number 7"), only_small).order == ("small",)


def test_a_new_artifact_is_in_use_soon_and_an_unreachable_target_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "router"
    swapped = [[1.0 - a, 1.0 - b] for a, b in COSTS]
    with DecisionService.load(place, config(tmp_path / "log"), EXPERTS) as service:
        request = DecisionRequest("sing song number 7")
        assert service.decide(request).reason == "passthrough"
        for costs, expert in ((COSTS, "large"), (swapped, "small")):
            save_router(TextRouter().fit(TEXTS, costs, experts=("small", "large")), place)
            deadline = time.monotonic() + 20
            while service.decide(request).reason == "passthrough" or (
                service.decide(request).expert != expert
            ):
                assert time.monotonic() < deadline
                time.sleep(0.02)
    with pytest.raises(ArtifactError, match="knows no prices"):
        DecisionService.load(folder, ServiceConfig(target=Target("quality", 0.9)))


def test_threads_decide_at_once_and_every_decision_is_logged_once(
    folder: Path, tmp_path: Path
) -> None:
    threads = set(threading.enumerate())
    with (
        DecisionService.load(folder, config(tmp_path)) as service,
        ThreadPoolExecutor(4) as pool,
    ):
        requests = [DecisionRequest(text) for text in TEXTS * 5]
        decisions = list(pool.map(service.decide, requests))
    logged = {record.decision_id: record.selected for record in read_log(tmp_path)}
    assert logged == {each.decision_id: each.expert for each in decisions}
    assert len(logged) == len(requests)
    assert set(threading.enumerate()) <= threads


@pytest.mark.anyio
async def test_the_event_loop_gets_the_same_decisions(folder: Path, tmp_path: Path) -> None:
    with DecisionService.load(folder, config(tmp_path)) as service:
        for text in TEXTS[::10]:
            request = DecisionRequest(text)
            there, here = await service.adecide(request), service.decide(request)
            assert (there.order, there.propensities) == (here.order, here.propensities)
            assert there.prediction == here.prediction
    assert len(list(read_log(tmp_path))) == 2 * len(TEXTS[::10])


def test_numbers_of_other_programs_are_checked() -> None:
    with pytest.raises(ArgumentError, match="tokens_out of an outcome"):
        Outcome("small", tokens_out=-1)
    with pytest.raises(ArgumentError, match="cost_usd of an outcome"):
        Outcome("small", cost_usd=float("nan"))
