"""A gateway in the middle of a storm, as real processes; benchmarks/service/chaos.py is the same for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "benchmarks" / "service"


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the benchmarks, which is no package."""
    monkeypatch.syspath_prepend(str(SERVICE.parent))
    monkeypatch.syspath_prepend(str(SERVICE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_while_experts_and_artifacts_fail_requests_succeed_and_three_books_agree(tmp_path: Path) -> None:
    import chaos

    found = chaos.rage(tmp_path, chaos.Plan(3.5, 20.0, beat=0.4, reload_every=0.5, restarts=False))
    rows = {row.name: row for row in chaos.rows_of(found)}
    assert [row for row in rows.values() if not row.ok] == []
    assert found.audit.lines == 90
    assert found.faults >= 4
    assert found.reloads >= 1
    assert found.refused >= 1


def test_a_book_that_does_not_agree_is_noticed(tmp_path: Path) -> None:
    from books import audit
    from traffic import Told, conversation_of

    from mildroute.serving.config import DecisionLogConfig
    from mildroute.serving.observability.decision_log import DecisionLog
    from mildroute.serving.routing.affinity import named_conversation
    from tests.serving.records import record

    log = DecisionLog(DecisionLogConfig(tmp_path))
    # By hand: 30 is asked with 20 + 30 % 30 = 20 tokens and answered with 1 + 30 % 7 = 3; small takes 0.1 and 0.2 dollars a million.
    dollars = (0.1 * 20 + 0.2 * 3) / 1e6
    good = {"answered": "small", "status": 200, "tokens_in": 20, "tokens_out": 3, "dollars": dollars, "path": "chat/completions"}
    for number, changes in ((30, {}), (240, {"dollars": 9.0}), (450, {"key": "team-2"}), (660, {"decision_id": "another"})):
        conversation = named_conversation(conversation_of(number), str(changes.get("key", "team-1")))
        log.write(record(**{**good, "decision_id": f"d{number}", "key": "team-1", "conversation": conversation, **changes}))
    log.close()
    told = [Told(number, "chat", "team-1", 200, f"d{number}", "small", f"small:{number}", (20, 3)) for number in (30, 240, 450, 660, 870)]
    found = audit(told, tmp_path, {"small": [30, 240, 450, 660]})
    assert found.good == 5
    assert found.faults == {
        "lines with other dollars": 1,
        "decisions without a line": 2,
        "lines that belong to no request, or to another key": 1,
        "lines with another decision id": 1,
        "keys with another bill": 1,
    }
