from __future__ import annotations

import os
from pathlib import Path

import pytest

from mildroute.encoders.text_router import TextRouter
from mildroute.routers.artifact import save
from mildroute.routers.named_costs import named_costs
from mildroute.routers.single import BestSingleRouter
from mildroute.serving.assembly import assemble
from mildroute.serving.settings import LogRules, Settings
from mildroute.serving.telemetry import Telemetry
from tests.serving.records import record

EXPERTS = """prices_date: 2026-11-01
experts:
  small: {kind: openai, base_url: "http://127.0.0.1:9/v1", model: small-1}
  large: {kind: openai, base_url: "http://127.0.0.1:9/v1", model: large-1}
"""


def plain_router() -> TextRouter:
    """One that is fitted at once."""
    costs = named_costs([[0.0, 1.0]] * 8 + [[1.0, 0.0]] * 8, ("small", "large"))
    return TextRouter(router=BestSingleRouter()).fit([f"add {place}" for place in range(16)], costs)


def test_lines_that_a_full_disk_takes_from_the_log_are_told_in_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(plain_router(), tmp_path / "router")
    (tmp_path / "experts.yaml").write_text(EXPERTS)
    parts = assemble(tmp_path / "router", tmp_path / "experts.yaml", Settings(log=LogRules(tmp_path / "log")))
    telemetry = parts.telemetry
    assert isinstance(telemetry, Telemetry)

    def fail(file: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    assert b'mildroute_log_lost_lines_total{log="decisions"} 0.0' in telemetry.render()[0]
    monkeypatch.setattr(os, "write", fail)
    for _ in range(2):
        parts.log.write(record())
    assert parts.feedback is not None
    assert not parts.feedback.write("d1", 1.0, "team-a")
    page = telemetry.render()[0]
    assert b'mildroute_log_lost_lines_total{log="decisions"} 2.0' in page
    assert b'mildroute_log_lost_lines_total{log="feedback"} 1.0' in page
    monkeypatch.undo()
    for part in (parts.log, parts.feedback, parts.holder):
        part.close()
