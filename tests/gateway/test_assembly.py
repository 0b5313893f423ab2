from __future__ import annotations

import os
from pathlib import Path

import pytest

from mildroute import TextRouter
from mildroute.gateway.config import DecisionLogConfig, GatewayConfig
from mildroute.gateway.factory import load_gateway
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.persistence import save_router
from mildroute.routers.baselines import BestSingleRouter
from tests.support.records import record

EXPERTS = """prices_date: 2026-11-01
experts:
  small: {kind: openai, base_url: "http://127.0.0.1:9/v1", model: small-1}
  large: {kind: openai, base_url: "http://127.0.0.1:9/v1", model: large-1}
"""


def plain_router() -> TextRouter:
    """One that is fitted at once."""
    costs = [[0.0, 1.0]] * 8 + [[1.0, 0.0]] * 8
    return TextRouter(router=BestSingleRouter()).fit(
        [f"add {place}" for place in range(16)], costs, experts=("small", "large")
    )


def test_lines_that_a_full_disk_takes_from_the_log_are_told_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_router(plain_router(), tmp_path / "router")
    (tmp_path / "experts.yaml").write_text(EXPERTS)
    services = load_gateway(
        tmp_path / "router",
        tmp_path / "experts.yaml",
        GatewayConfig(log=DecisionLogConfig(tmp_path / "log")),
    )
    metrics = services.metrics
    assert isinstance(metrics, GatewayMetrics)

    def fail(file: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    assert b'mildroute_log_lost_lines_total{log="decisions"} 0.0' in metrics.render()
    monkeypatch.setattr(os, "write", fail)
    for _ in range(2):
        services.log.write(record())
    assert services.feedback is not None
    assert not services.feedback.write("d1", 1.0, "team-a")
    page = metrics.render()
    assert b'mildroute_log_lost_lines_total{log="decisions"} 2.0' in page
    assert b'mildroute_log_lost_lines_total{log="feedback"} 1.0' in page
    monkeypatch.undo()
    for part in (services.log, services.feedback, services.manager):
        part.close()
