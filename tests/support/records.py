"""Records of the decision log for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mildroute.decision.log import DecisionRecord

ATTEMPT = {
    "expert": "small",
    "reason": "",
    "status": 200,
    "tokens_in": 10,
    "tokens_out": 20,
    "cached_tokens": 0,
    "cost_usd": 0.001,
    "seconds": 0.5,
}
PLAIN = DecisionRecord(
    decision_id="d0",
    time=1000.0,
    key="team-a",
    path="chat/completions",
    model="mildroute",
    router="abc",
    experts=("small", "large"),
    posterior=(0.7, 0.3),
    price_weight=None,
    reason="router",
    selected="small",
    propensity=0.975,
    propensities=(0.975, 0.025),
    served_by="small",
    attempts=(ATTEMPT,),
    status=200,
    tokens_in=10,
    tokens_out=20,
    cost_usd=0.001,
    baseline_cost_usd=0.01,
    decision_seconds=0.001,
    first_byte_seconds=0.2,
    seconds=0.5,
)


def record(decision_id: str = "d0", **changes: Any) -> DecisionRecord:
    return replace(PLAIN, decision_id=decision_id, **changes)
