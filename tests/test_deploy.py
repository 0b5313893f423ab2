"""What operators run agrees with the code.

Metrics and labels in queries, ports, paths and options in containers.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from mildroute.cli.app import app
from mildroute.decision.decision import REASONS
from mildroute.decision.drift import Drift
from mildroute.gateway.observability.metrics import GatewayMetrics
from tests.gateway.test_metrics import RECORD

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "mildroute"
FILES = sorted(path for path in DEPLOY.rglob("*.yaml") if "templates" not in path.parts)
OF_PROMETHEUS = {"job", "instance", "le"}
PORT = 8000
ADMIN_PORT = 8001


@cache
def labels_of_metrics() -> dict[str, set[str]]:
    """Every sample that a gateway in full use tells, with the names of its labels."""
    metrics = GatewayMetrics()
    metrics.set_router("ab12", Drift(("small", "large")))
    metrics.set_experts(("small", "large"), "large")
    metrics.record_decision("small", "router", 0.001)
    metrics.record_request(RECORD)
    metrics.record_request(RECORD.__class__(**{**vars(RECORD), "shadow": "small"}))
    metrics.record_fallback("small", "timeout")
    metrics.record_rejection(503, "overloaded")
    metrics.watch(
        circuits=lambda: {"small": "open"},
        lost=lambda: {"decisions": 1},
        budgets=lambda: [("team-a", 1.0, 0.0)],
    )
    metrics.record_prediction("ab12", (0.5, 0.5), None, 0)
    metrics.record_exploration(0.01)
    metrics.record_sample("full")
    metrics.record_sampled_call("small", 0.01)
    metrics.record_attempt("small", "timeout")
    metrics.record_feedback(is_known=True)
    metrics.record_cut("small", "timeout")
    found: dict[str, set[str]] = {
        "up": set(),
        "process_resident_memory_bytes": set(),
        "process_cpu_seconds_total": set(),
    }
    for metric in metrics.registry.collect():
        assert metric.samples, f"{metric.name}: record it above, or no test sees its queries"
        for sample in metric.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())  # type: ignore[no-any-return]


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return group["rules"]  # type: ignore[no-any-return]


def shown_queries() -> list[str]:
    return [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])
    ]


def queries() -> list[str]:
    return (
        shown_queries()
        + [note["expr"] for note in dashboard()["annotations"]["list"]]
        + [rule["expr"] for rule in rules()]
    )


def serve_parameters(arguments: list[str]) -> dict[str, Any]:
    """What the command makes of its arguments; an unknown option is an error."""
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return command.make_context("serve", list(arguments)).params  # type: ignore[no-any-return]


def instruction(name: str) -> str:
    return re.findall(rf"^{name} (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[-1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert all(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("query", queries())
def test_every_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    known = labels_of_metrics() | {rule["record"]: {"job"} for rule in rules() if "record" in rule}
    names = re.findall(r"(?:mildroute|process)[a-z0-9_:]+|\bup\b", query)
    assert names
    assert [name for name in names if name not in known] == []
    labels = OF_PROMETHEUS.union(*(known[name] for name in names))
    grouped = re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", query)
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query)
    assert {name.strip() for group in grouped for name in group.split(",")} | set(matched) <= labels
    assert query.count("(") == query.count(")")


def test_every_metric_of_the_gateway_is_on_the_dashboard() -> None:
    shown = "\n".join(shown_queries())
    stems = {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for name in labels_of_metrics()
        if name.startswith("mildroute_")
    }
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\w+", shown)}
    assert sorted(stems - names) == []


def test_reasons_in_queries_are_reasons_of_decisions() -> None:
    named = {reason for query in queries() for reason in re.findall(r'reason="(\w+)"', query)}
    assert named
    assert named <= set(REASONS)


def test_codes_in_alerts_are_codes_of_the_gateway() -> None:
    named = {code for rule in rules() for code in re.findall(r'code="(\w+)"', rule["expr"])}
    assert named == {"overloaded", "limits_unavailable"}
    source = Path(__file__).parents[1] / "src" / "mildroute" / "gateway"
    text = "".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    assert all(f'"{code}"' in text for code in named)


def test_the_alert_on_a_missing_router_sees_a_gateway_that_has_none() -> None:
    (alert,) = [rule for rule in rules() if rule.get("alert") == "MildrouteNoRouter"]
    assert 'mildroute_router_info{digest=""}' in alert["expr"]
    metrics = GatewayMetrics()
    metrics.set_experts(("small", "large"), "large")
    assert b'mildroute_router_info{baseline="large",digest=""} 1.0' in metrics.render()
    metrics.set_router("ab12", Drift(("small", "large")))
    assert b'mildroute_router_info{baseline="large",digest=""} 0.0' in metrics.render()


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 5
    assert all(
        rule["labels"]["severity"] in {"warning", "critical"}
        and rule["annotations"]["summary"]
        and rule["for"]
        for rule in alerts
    )  # type: ignore[index]


def test_the_image_starts_the_gateway_with_options_that_it_has() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["mildroute", "serve"]
    parameters = serve_parameters(json.loads(instruction("CMD")))
    assert parameters["host"] == "0.0.0.0"  # noqa: S104
    assert parameters["keys"] is not None
    assert parameters["port"] == PORT == int(instruction("EXPOSE"))


def test_the_image_is_not_run_as_root_and_looks_after_itself() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert instruction("USER").split(":")[0].isdigit()
    assert int(instruction("USER").split(":")[0]) > 0
    assert f"http://127.0.0.1:{PORT}/healthz" in text
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    copied = [
        name
        for line in re.findall(r"^COPY ([^-].*)$", text, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert all(f"!{name}" in ignored for name in copied)
    assert all((DEPLOY.parent / name).exists() for name in copied)


def test_compose_starts_the_gateway_likewise_and_opens_ports_to_this_machine_alone() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert serve_parameters(services["gateway"]["command"])["port"] == PORT
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"]
    )
    assert services["gateway"]["ports"] == [
        f"127.0.0.1:{port}:{port}" for port in (PORT, ADMIN_PORT)
    ]
    assert serve_parameters(services["gateway"]["command"])["admin_port"] == ADMIN_PORT
    mounts = [
        mount.split(":")[0]
        for service in services.values()
        for mount in service["volumes"]
        if mount.startswith("./")
    ]
    # The configuration is the operator's own.
    assert all((DEPLOY / mount).exists() for mount in mounts if mount != "./config")


def test_prometheus_scrapes_where_the_gateway_tells() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())[
        "scrape_configs"
    ]
    assert (job["job_name"], job["metrics_path"], job["dns_sd_configs"][0]["port"]) == (
        "mildroute",
        "/metrics",
        ADMIN_PORT,
    )
    assert 'job="mildroute"' in next(
        rule["expr"] for rule in rules() if rule.get("alert") == "MildrouteDown"
    )


def test_the_chart_names_values_that_there_are() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = {
        name
        for path in (CHART / "templates").iterdir()
        for name in re.findall(r"\.Values\.([\w.]+)", path.read_text())
    }
    for name in used:
        found: Any = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]
    assert set(values) == {name.split(".")[0] for name in used}


def test_the_chart_starts_the_gateway_with_options_that_it_has() -> None:
    text = (CHART / "templates" / "deployment.yaml").read_text()
    options = re.findall(r"^ +- (--\S+)$", text, re.MULTILINE)
    parameters = serve_parameters(["router", *options])
    assert parameters["port"] == PORT
    assert parameters["admin_port"] == ADMIN_PORT
    assert len(options) == 10
    assert f"{{name: http, containerPort: {PORT}," in text
    assert f"{{name: admin, containerPort: {ADMIN_PORT}," in text
    probed = re.findall(r"httpGet: \{path: (\S+), port: (\S+)\}", text)
    assert set(probed) == {("/healthz", "admin"), ("/readyz", "admin")}
    assert f'prometheus.io/port: "{ADMIN_PORT}"' in text
    assert "prometheus.io/path: /metrics" in text


def test_the_chart_waits_longer_than_requests_under_way_are_given() -> None:
    from mildroute.gateway.config import FailoverConfig

    before_stop = 5
    assert (
        yaml.safe_load((CHART / "values.yaml").read_text())["terminationGracePeriodSeconds"]
        > FailoverConfig().shutdown_delay + FailoverConfig().drain_timeout + before_stop
    )


def test_the_chart_s_experts_can_be_read(tmp_path: Path) -> None:
    from mildroute.experts.config import read_experts

    path = tmp_path / "experts.yaml"
    path.write_text(yaml.safe_load((CHART / "values.yaml").read_text())["experts"])
    assert [spec.name for spec in read_experts(path).experts] == ["small", "large"]


def test_templates_open_and_close_their_blocks() -> None:
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        assert text.count("{{") == text.count("}}"), path.name
        opened = re.findall(r"\{\{-? *(?:if|with|range|define)\b", text)
        assert len(opened) == len(re.findall(r"\{\{-? *end\b", text)), path.name
