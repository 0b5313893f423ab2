"""The books of benchmarks/service/chaos.py, which tests/test_benchmarks.py runs for seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "benchmarks" / "service"


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the benchmarks, which is no package."""
    monkeypatch.syspath_prepend(str(SERVICE.parent))
    monkeypatch.syspath_prepend(str(SERVICE))


def test_a_book_that_does_not_agree_is_noticed(tmp_path: Path) -> None:
    from books import audit
    from traffic import Told, conversation_of

    from mildroute.decision.conversation import named_conversation
    from mildroute.decision.log import DecisionLog
    from mildroute.gateway.config import DecisionLogConfig
    from tests.support.records import record

    log = DecisionLog(DecisionLogConfig(tmp_path))
    # By hand: 30 is asked with 20 + 30 % 30 = 20 tokens and answered with 1 + 30 % 7 = 3; small
    # takes 0.1 and 0.2 dollars a million; it is not sure of multiples of three.
    dollars = (0.1 * 20 + 0.2 * 3) / 1e6
    good = {
        "served_by": "small",
        "status": 200,
        "tokens_in": 20,
        "tokens_out": 3,
        "cost_usd": dollars,
        "path": "chat/completions",
    }
    for number, changes in (
        (30, {}),
        (240, {"cost_usd": 9.0}),
        (450, {"key": "team-2"}),
        (660, {"decision_id": "another"}),
    ):
        conversation = named_conversation(
            conversation_of(number), str(changes.get("key", "team-1"))
        )
        log.write(
            record(
                **{
                    **good,
                    "decision_id": f"d{number}",
                    "key": "team-1",
                    "conversation": conversation,
                    **changes,
                }
            )
        )
    log.close()
    told = [
        Told(
            number, "chat", "team-1", 200, f"d{number}", "small", f"small:{number} perhaps", (20, 3)
        )
        for number in (30, 240, 450, 660, 870)
    ]
    found = audit(told, tmp_path, {"small": [30, 240, 450, 660]})
    assert found.good == 5
    assert found.faults == {
        "lines with other dollars": 1,
        "decisions without a line": 2,
        "lines that belong to no request, or to another key": 1,
        "lines with another decision id": 1,
        "keys with another bill": 1,
    }
