from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mildroute.decision.decision import REASONS
from mildroute.decision.drift import Drift, DriftReference
from mildroute.decision.log import DecisionRecord
from mildroute.gateway.observability.metrics import GatewayMetrics

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
    metrics.record_request(RECORD)
    assert value(metrics, "requests_total", path="chat/completions", status="200") == 1
    assert value(metrics, "tokens_total", expert="small", direction="in") == 100
    assert value(metrics, "tokens_total", expert="small", direction="out") == 50
    assert value(metrics, "spend_dollars_total", expert="small") == 0.001
    assert value(metrics, "baseline_dollars_total", expert="small") == 0.01
    assert value(metrics, "key_spend_dollars_total", key="team-a") == 0.001
    assert value(metrics, "first_byte_seconds_bucket", expert="small", le="0.5") == 1
    assert value(metrics, "request_seconds_sum", expert="small") == 2.0


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
    metrics.record_request(replace(RECORD, first_byte_seconds=wrong))
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
    metrics, queue, lost = GatewayMetrics(), [1, 2], {"decisions": 3}
    metrics.watch(in_flight=lambda: 7, queue=lambda: len(queue))
    metrics.watch(lost=lambda: lost, budgets=lambda: [("team-a", 4.5, 0.5)])
    queue.append(3)
    assert value(metrics, "in_flight") == 7
    assert value(metrics, "encoder_queue") == 3
    assert value(metrics, "log_lost_lines_total", log="decisions") == 3
    assert value(metrics, "key_budget_left_dollars", key="team-a") == 4.5
    lost["decisions"] = 5
    assert value(metrics, "log_lost_lines_total", log="decisions") == 5


def test_attempts_feedback_and_reloads_are_counted() -> None:
    metrics = GatewayMetrics()
    metrics.record_attempt("small", "")
    metrics.record_attempt("small", "timeout")
    metrics.record_feedback(is_known=True)
    metrics.record_reload("keys", is_loaded=False)
    metrics.record_cut("small", "timeout")
    assert value(metrics, "attempts_total", expert="small", error_type="") == 1
    assert value(metrics, "attempts_total", expert="small", error_type="timeout") == 1
    assert value(metrics, "feedback_total", known="yes") == 1
    assert value(metrics, "reloads_total", kind="keys", result="rejected") == 1
    assert value(metrics, "streams_cut_total", expert="small", reason="timeout") == 1


def test_gauges_without_a_source_are_unknown() -> None:
    metrics = GatewayMetrics()
    for name in ("store_available", "sampling_left_dollars"):
        assert isnan(value(metrics, name) or 0.0)
    metrics.watch(store=lambda: False, sampling=lambda: 2.0)
    assert value(metrics, "store_available") == 0
    assert value(metrics, "sampling_left_dollars") == 2


def test_a_swap_replaces_the_router_and_its_reference_and_ignores_opinions_of_the_one_before() -> (
    None
):
    metrics = GatewayMetrics()
    metrics.set_router("old", Drift(("a", "b", "c")))
    metrics.set_experts(("a", "b", "c"), "c")
    metrics.set_router("new", Drift(("a", "b"), DriftReference((0.5, 0.5), (0, 0, 1, 1), rows=500)))
    metrics.set_experts(("a", "b"), "b")
    assert value(metrics, "router_info", digest="old", baseline="c") == 0
    assert value(metrics, "router_info", digest="new", baseline="b") == 1
    metrics.record_prediction("old", (0.1, 0.1, 0.8), None, 2)
    assert isnan(value(metrics, "drift_level", of="shares") or 0.0)
    for _ in range(100):
        metrics.record_prediction("new", (0.9, 0.1), None, 0)
    assert value(metrics, "drift_level", of="shares") == 2


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
    page = metrics.render()
    read = {
        sample.name: sample
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }
    assert read["mildroute_key_spend_dollars_total"].labels == {"key": 'quo"te\\new\nline'}
    assert read["mildroute_decision_seconds_count"].value == 1


WORKER = """
import sys
from mildroute.gateway.observability.metrics import GatewayMetrics
metrics = GatewayMetrics()
number = int(sys.argv[1])
metrics.watch(in_flight=lambda: number, circuits=lambda: {"small": ("closed", "open")[number - 1]})
for _ in range(number):
    metrics.record_rejection(401, "invalid_api_key")
    metrics.record_decision("small", "router", 0.0004)
metrics.refresh()
print("ready", flush=True)
sys.stdin.readline()
print(metrics.render().decode(), flush=True)
"""


def values_on(page: str, name: str) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def test_any_worker_reports_the_metrics_of_all_and_no_gauges_of_dead_ones(tmp_path: Path) -> None:
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2, 2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    workers[2].kill()
    workers[2].communicate()
    pages = [worker.communicate("\n", timeout=60)[0] for worker in workers[:2]]
    # Counters and histograms of the killed worker stay.
    assert values_on(pages[0], "mildroute_decision_seconds_count") == [5]
    assert sorted(values_on(pages[0], "mildroute_rejected_total")) == [0, 0, 5]
    assert values_on(pages[0], "mildroute_in_flight") == [3]
    assert values_on(pages[0], "mildroute_breaker_state") == [2]
