"""The tutorial on a fleet is executed, with a real Redis and a real Postgres."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.tutorials.generate_gateway import FLEET, ROOT, run_fleet, steps
from mildroute.experts.config import read_experts
from mildroute.serving.config import read_config
from tests.test_tutorial_gateway import FITTED, READY, SERVING, _fitted, needs_curl

# The progress of an upload, and what the pointer says now.
PUBLISHED = r"(?s).*[0-9a-f]{16} serves"
ALL = r"[0-9a-f]{16} serves all requests\.\n"
BOTH = r'(\{"status": "ready", "router": "[0-9a-f]{16}", "canary": .*\n){2}'
GATEWAY = (
    r"serving 2 experts at http://127\.0\.0\.1:%d/v1  \(model: mildroute\)\n"
    r"metrics and administration at http://127\.0\.0\.1:%d\n"
)
# A word of each block, and what it prints.
SHAPES = (
    ("redis-server", r"PONG\n"),
    ("export DATABASE", r""),
    ("expert.py --port 8080", SERVING.format(port=8080)),
    ("expert.py --port 8081", SERVING.format(port=8081)),
    ("--rows 300", FITTED.format(rows=300)),
    ("openssl", r""),
    ("rollout publish", PUBLISHED + r" all requests\.\n"),
    ("keys team", r"The limits of team 'research' are in postgresql://\S+\n"),
    ("export ADMIN_KEY", r""),
    ("--log log-1", GATEWAY % (8000, 9000)),
    ("--log log-2", GATEWAY % (8001, 9001)),
    ("/metrics", r"404\nmildroute_store_available 1\.0\n"),
    ("-o alice.json", r'\{"object": "list", "data": \[\{"name": "alice", "key": "mr-.{3}\n'),
    ("export KEY", r""),
    ("9001/admin/keys", r'\{"object": "list", "data": \[\{"name": "alice", "status": "valid".*\n'),
    ("ask()", r""),
    ("for turn", r"(200\n){5,6}(429\n){4,5}\{.*insufficient_quota.*\n"),
    ("readyz", READY + READY),
    ("--rows 400", FITTED.format(rows=400)),
    ("--canary 0.25", PUBLISHED + r", and the canary [0-9a-f]{16} gets 0\.25 of the requests\.\n"),
    ("readyz", BOTH),
    ("promote", ALL + READY + READY),
    ("rollback", ALL + READY + READY),
    ("-X DELETE", r'\{"object": "mildroute\.key", "name": "alice", "status": "expired"\}\n'),
    ("ask 127", r"401\n401\n\{.*key_expired.*\n"),
    ("log ship", r"([23] lines shipped to shipped in 1 object\.\n){2}"),
    ("spend ingest", r"([23] calls are new in postgresql://\S+\n){2}"),
    ("spend report", r"(?s)Spend\n.* research +alice +large +[56] +\d+ +\d+ +0\.0000\d+\n\n?"),
    ("kill %3", READY),
    ("kill %4", r""),
)


def check(printed: list[str]) -> None:
    for step, now, (word, shape) in zip(steps(FLEET), printed, SHAPES, strict=True):
        assert word in step.code
        assert re.fullmatch(shape, now), f"{step.code}\n{now}"


def test_what_stands_on_the_page_has_the_shape_that_is_tested() -> None:
    check([step.shown for step in steps(FLEET)])


@needs_curl
@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-server and redis-cli")
@pytest.mark.slow
def test_the_page_runs_and_its_two_gateways_act_as_one(tmp_path: Path) -> None:
    """Every block but the fits, which take their time."""
    for number in (1, 2):
        _fitted(tmp_path / f"fitted-{number}", seed=number)

    def quickly(command: str) -> str:
        if "mildroute fit" not in command:
            return command
        number = 2 if "--rows 400" in command else 1
        told = rf"router in router, learned from {number + 2}00 queries\nat some price weight\n"
        return f"rm -rf router && cp -r ../fitted-{number} router && printf '{told}'"

    printed = [text or "" for text in run_fleet(tmp_path, quickly)]
    check(printed)
    first, _, promoted, back = (
        re.findall('"router": "([0-9a-f]{16})"', found)
        for step, found in zip(steps(FLEET), printed, strict=True)
        if "echo; curl" in step.code
    )
    # Both serve the same router, then the next one, and the first one again.
    assert len(set(first)) == len(set(promoted)) == 1
    assert first == back != promoted


def test_the_files_of_the_page_can_be_read() -> None:
    folder = ROOT / "examples" / "fleet"
    assert read_config(folder / "gateway.yaml").store.url == "redis://127.0.0.1:6379"
    experts = read_experts(folder / "experts.yaml").experts
    assert [spec.name for spec in experts] == ["small", "large"]
