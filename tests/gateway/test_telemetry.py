from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from math import inf, isnan, nan

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mildroute.decision.decision import REASONS
from mildroute.decision.drift import Drift, DriftReference
from mildroute.decision.log import DecisionRecord
from mildroute.gateway.observability.metrics import GatewayMetrics, Snapshot, merge_snapshots

RECORD = DecisionRecord(
    decision_id="d1",
    time=1.0,
    key="team-a",
    path="chat/completions",
    model="mildroute",
    router="ab12",
    experts=("small", "large"),
    posterior=(0.8, 0.2),
    price_weight=None,
    reason="router",
    selected="small",
    propensity=1.0,
    propensities=(1.0, 0.0),
    served_by="small",
    attempts=({},),
    status=200,
    tokens_in=100,
    tokens_out=50,
    cost_usd=0.001,
    baseline_cost_usd=0.01,
    decision_seconds=0.0004,
    first_byte_seconds=0.3,
    seconds=2.0,
)


def value(metrics: GatewayMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"mildroute_{name}", labels)


def test_choices_are_counted_by_expert_and_reason() -> None:
    metrics = GatewayMetrics()
    for reason in REASONS:
        metrics.record_decision("small", reason, 0.001)
    metrics.record_decision(None, "next_best", 0.001)
    assert all(
        value(metrics, "choices_total", expert="small", reason=reason) == 1 for reason in REASONS
    )
    assert value(metrics, "choices_total", expert="none", reason="next_best") == 1


def test_the_time_of_a_decision_that_the_client_made_is_not_observed() -> None:
    metrics = GatewayMetrics()
    metrics.record_decision("small", "pinned", 0.00001)
    assert value(metrics, "decision_seconds_count") == 0
    metrics.record_decision("small", "router", 0.0004)
    assert value(metrics, "decision_seconds_bucket", le="0.0005") == 1
    assert value(metrics, "decision_seconds_sum") == 0.0004


def test_an_answer_feeds_tokens_money_and_times() -> None:
    metrics = GatewayMetrics()
    metrics.record_request(RECORD, added=0.002)
    assert value(metrics, "requests_total", path="chat/completions", status="200") == 1
    assert value(metrics, "tokens_total", expert="small", direction="in") == 100
    assert value(metrics, "tokens_total", expert="small", direction="out") == 50
    assert value(metrics, "spend_dollars_total", expert="small") == 0.001
    assert value(metrics, "baseline_dollars_total", expert="small") == 0.01
    assert value(metrics, "key_spend_dollars_total", key="team-a") == 0.001
    assert value(metrics, "first_byte_seconds_bucket", expert="small", le="0.5") == 1
    assert value(metrics, "request_seconds_sum", expert="small") == 2.0
    assert value(metrics, "added_seconds_bucket", le="0.0025") == 1


def test_money_saved_may_be_negative_and_no_counter_falls() -> None:
    metrics = GatewayMetrics()
    metrics.record_request(replace(RECORD, cost_usd=0.05, baseline_cost_usd=0.01))
    saved = (value(metrics, "baseline_dollars_total", expert="small") or 0) - (
        value(metrics, "spend_dollars_total", expert="small") or 0
    )
    assert saved == pytest.approx(-0.04)


def test_a_request_that_nobody_answered_is_counted_and_charges_nobody() -> None:
    metrics = GatewayMetrics()
    metrics.record_request(replace(RECORD, served_by="", status=503))
    assert value(metrics, "requests_total", path="chat/completions", status="503") == 1
    assert value(metrics, "spend_dollars_total", expert="") is None
    assert value(metrics, "key_spend_dollars_total", key="team-a") is None


@pytest.mark.parametrize("wrong", [-1, nan, inf, 1e300])
def test_figures_that_cannot_be_true_do_not_spoil_the_sums(wrong: float) -> None:
    metrics = GatewayMetrics()
    metrics.record_request(RECORD, added=wrong)
    metrics.record_request(
        replace(
            RECORD,
            tokens_in=wrong,
            tokens_out=wrong,
            cost_usd=wrong,
            baseline_cost_usd=wrong,
            seconds=wrong,
        )
    )  # type: ignore[arg-type]
    assert value(metrics, "tokens_total", expert="small", direction="in") == 100
    assert value(metrics, "spend_dollars_total", expert="small") == 0.001
    assert value(metrics, "request_seconds_sum", expert="small") == 2.0


def test_keys_beyond_the_bound_are_counted_together() -> None:
    metrics = GatewayMetrics(keys=3)
    for place in range(100):
        metrics.record_request(replace(RECORD, key=f"key-{place}"))
    names = [
        sample.labels["key"]
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if "key" in sample.labels
    ]
    assert names == ["key-0", "key-1", "key-2", "other"]
    assert value(metrics, "key_spend_dollars_total", key="other") == pytest.approx(0.097)


def test_no_flood_of_labels_grows_the_page_without_bound() -> None:
    metrics = GatewayMetrics()
    for place in range(5000):
        metrics.record_request(
            replace(RECORD, path=f"path-{place}", served_by=f"expert-{place}", key=f"key-{place}")
        )
        metrics.record_fallback(f"expert-{place}", f"why-{place}")
        metrics.record_decision(f"expert-{place}", "router", 0.1)
    assert metrics.render()[0].count(b"\n") < 12_000


def test_agreement_with_the_shadow_is_about_the_routers_alone() -> None:
    metrics = GatewayMetrics()
    metrics.record_request(
        replace(RECORD, shadow="small", first_choice="small", selected="large", reason="sticky")
    )
    metrics.record_request(replace(RECORD, shadow="large", first_choice="small"))
    metrics.record_request(RECORD)
    assert value(metrics, "shadow_decisions_total", agrees="yes") == 1
    assert value(metrics, "shadow_decisions_total", agrees="no") == 1


def test_breakers_and_fallbacks() -> None:
    metrics, states = GatewayMetrics(), {"small": "closed"}
    metrics.watch(circuits=lambda: states)
    for state, number in (("open", 2), ("half-open", 1), ("closed", 0)):
        states["small"] = state
        assert value(metrics, "breaker_state", expert="small") == number
    metrics.record_fallback("small", "timeout")
    assert value(metrics, "fallbacks_total", expert="small", reason="timeout") == 1


def test_refusals_are_counted_by_status_and_code_and_those_of_a_full_gateway_begin_at_zero() -> (
    None
):
    metrics = GatewayMetrics()
    assert value(metrics, "rejected_total", status="503", code="overloaded") == 0
    for _ in range(2):
        metrics.record_rejection(401, "invalid_api_key")
    metrics.record_rejection(400, None)
    assert value(metrics, "rejected_total", status="401", code="invalid_api_key") == 2
    assert value(metrics, "rejected_total", status="400", code="none") == 1


def test_what_is_watched_is_asked_when_metrics_are_collected() -> None:
    metrics, queue = GatewayMetrics(), [1, 2]
    metrics.watch(in_flight=lambda: 7, queue=lambda: len(queue))
    metrics.watch(lost=lambda: {"decisions": 3})
    queue.append(3)
    metrics.record_batch(5)
    assert value(metrics, "in_flight") == 7
    assert value(metrics, "encoder_queue") == 3
    assert value(metrics, "log_lost_lines_total", log="decisions") == 3
    assert value(metrics, "encoder_batch_size_bucket", le="8.0") == 1


def test_a_swap_replaces_the_router_and_its_reference_and_ignores_opinions_of_the_one_before() -> (
    None
):
    metrics = GatewayMetrics()
    metrics.set_router("old", Drift(("a", "b", "c")))
    metrics.set_experts(("a", "b", "c"), "c")
    metrics.set_router("new", Drift(("a", "b"), DriftReference((0.5, 0.5), (0, 0, 1, 1), rows=500)))
    metrics.set_experts(("a", "b"), "b")
    assert value(metrics, "router_info", digest="old", baseline="c") is None
    assert value(metrics, "router_info", digest="new", baseline="b") == 1
    metrics.record_prediction("old", (0.1, 0.1, 0.8), None, 2)
    assert value(metrics, "drift_decisions") == 0
    for _ in range(100):
        metrics.record_prediction("new", (0.9, 0.1), None, 0)
    assert value(metrics, "drift_decisions") == 100
    assert value(metrics, "drift_level", of="shares") == 2
    assert value(metrics, "drift_reference_info", source="training") == 1
    corrected, index = (
        value(metrics, "drift_corrected", of="shares"),
        value(metrics, "drift_index", of="shares"),
    )
    assert corrected is not None
    assert index is not None
    assert 0.25 < corrected < index


def test_dollars_begin_at_zero_so_that_their_first_growth_is_seen() -> None:
    metrics = GatewayMetrics()
    metrics.set_experts(("small", "large"), "large")
    assert (
        value(metrics, "spend_dollars_total", expert="large")
        == value(metrics, "baseline_dollars_total", expert="large")
        == 0
    )


def test_two_gateways_share_nothing() -> None:
    one, other = GatewayMetrics(), GatewayMetrics()
    one.record_request(RECORD)
    assert value(other, "requests_total", path="chat/completions", status="200") is None


def test_the_page_can_be_read_back_and_labels_are_escaped() -> None:
    metrics = GatewayMetrics()
    metrics.set_router("ab12", Drift(("small", "large")))
    metrics.set_experts(("small",), "")
    metrics.record_request(replace(RECORD, key='quo"te\\new\nline'))
    metrics.record_decision("small", "router", 0.001)
    page, kind = metrics.render()
    read = {
        sample.name: sample
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }
    assert read["mildroute_key_spend_dollars_total"].labels == {"key": 'quo"te\\new\nline'}
    assert read["mildroute_decision_seconds_count"].value == 1
    assert kind.startswith("text/plain; version=0.0.4")


def sent(metrics: GatewayMetrics) -> Snapshot:
    """A snapshot as it comes out of another process."""
    found: Snapshot = json.loads(json.dumps(metrics.snapshot()))
    return found


def page_of(snapshot: Snapshot, accept: str = "") -> str:
    async def gather() -> Snapshot:
        return snapshot

    metrics = GatewayMetrics()
    metrics.gather = gather
    return asyncio.run(metrics.page(accept))[0].decode()


def values_of(snapshot: Snapshot, name: str) -> list[float]:
    return [value for *_, samples in snapshot for sample, _, value, _ in samples if sample == name]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_the_page_of_one_worker_is_that_of_one_process(accept: str) -> None:
    metrics = GatewayMetrics()
    metrics.set_router("ab12", Drift(("small", "large")))
    metrics.set_experts(("small",), "")
    metrics.record_request(RECORD, 0.001, "ab" * 16)
    merged = merge_snapshots([sent(metrics)])
    pages = (metrics.render(accept)[0].decode(), page_of(merged, accept))
    lines = [[one for one in page.splitlines() if "process_" not in one] for page in pages]
    assert lines[0] == lines[1]


def test_figures_of_workers_are_added_and_those_of_dead_ones_stay() -> None:
    workers = [GatewayMetrics() for _ in range(3)]
    states = ("open", "closed", "open")
    for number, (metrics, state) in enumerate(zip(workers, states, strict=True)):
        metrics.watch(
            in_flight=lambda number=number: number + 1,
            circuits=lambda state=state: {"small": state},
            budgets=lambda number=number: [("team-a", 5.0 - number, 1.0)],
        )
        metrics.set_router(f"router{number // 2}", Drift(("small", "large")))
        metrics.set_experts(("small",), "")
        for _ in range(number + 1):
            metrics.record_request(replace(RECORD, path=f"path{number}"), 0.001)
    first, second, dead = map(sent, workers)
    ended = merge_snapshots([], [merge_snapshots([], [dead])])
    merged = merge_snapshots([first, second], [ended])
    assert values_of(merged, "mildroute_requests_total") == [1, 2, 3]
    assert values_of(merged, "mildroute_added_seconds_count") == [6]
    assert values_of(merged, "mildroute_added_seconds_bucket")[-1] == 6
    assert values_of(merged, "mildroute_spend_dollars_total") == [pytest.approx(0.006)]
    # Of gauges, those of processes that run: added, the worst, or the same.
    assert values_of(merged, "mildroute_in_flight") == [3]
    assert values_of(merged, "mildroute_breaker_state") == [2]
    assert values_of(merged, "mildroute_key_budget_left_dollars") == [4]
    assert values_of(merged, "mildroute_reserved_dollars") == [2]
    assert values_of(merged, "mildroute_build_info") == [1]
    assert values_of(merged, "mildroute_router_info") == [1]
    assert all(isnan(one) for one in values_of(merged, "mildroute_drift_level"))
    list(text_string_to_metric_families(page_of(merged)))
