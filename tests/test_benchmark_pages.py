"""The pages about benchmarks are what the stored results say, to the byte.

So is the caption of the first picture.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES, FIGURES = ROOT / "docs" / "benchmarks", ROOT / "docs" / "figures"
RUNS = sorted((ROOT / "benchmarks" / "results" / "speed").glob("*.json"))
NAMES = (
    *("generate", "quality_page", "reproduction_page", "peers", "peers_page"),
    *("wording", "frontier", "drawing"),
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The generator, whose modules are no package and must not stay behind."""
    sys.path[:0] = added = [str(PAGES), str(FIGURES)]
    kept = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    try:
        return importlib.import_module("generate")
    finally:
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        sys.path[:] = [path for path in sys.path if path not in added]


@pytest.mark.parametrize(
    "name", ["index.md", "quality.md", "peers.md", "speed.md", "reproduction.md"]
)
def test_a_page_regenerates_to_the_byte(generate: ModuleType, name: str) -> None:
    assert generate.pages()[name].encode() == (PAGES / name).read_bytes()


def test_the_measured_part_of_the_comparison_regenerates_to_the_byte(generate: ModuleType) -> None:
    assert generate.compared().encode() == (ROOT / "docs" / "compare.md").read_bytes()


def test_the_caption_of_the_first_picture_is_computed(generate: ModuleType) -> None:
    frontier = sys.modules.get("frontier") or generate.measured.__globals__["frontier"]
    assert frontier.fragment(frontier.stored()).encode() == (FIGURES / "frontier.md").read_bytes()
    for name in ("frontier", "frontier-dark", "frontier-phone", "frontier-phone-dark"):
        for kind in ("svg", "png"):
            assert (FIGURES / f"{name}.{kind}").stat().st_size > 10_000


def test_every_limit_that_was_missed_stands_on_the_first_page(generate: ModuleType) -> None:
    missed = [
        row["name"] for row in generate.bounded(generate.stored_runs().values()) if not row["ok"]
    ]
    page = (PAGES / "index.md").read_text(encoding="utf-8")
    assert all(generate.mark_options(name) in page for name in missed)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_stored_run_says_how_it_came_about_and_its_verdicts_fit_its_figures(path: Path) -> None:
    run = json.loads(path.read_text(encoding="utf-8"))
    assert run["command"].startswith("python benchmarks/")
    assert (ROOT / run["command"].split()[1]).exists()
    assert {"architecture", "cores", "cpu", "python", "numpy"} <= set(run["machine"])
    assert run["date"] >= "2026-11-15"
    for row in run["rows"]:
        assert set(row) == {"name", "value", "limit", "ok", "note"}
        assert row["ok"] or row["limit"] is not None
        assert math.isfinite(row["value"]) or row["limit"] is None


def test_a_limit_is_told_with_its_direction(generate: ModuleType) -> None:
    row = {"name": "", "note": ""}
    assert generate.limit({**row, "value": 3.0, "limit": 2, "ok": False}) == "at most 2"
    assert generate.limit({**row, "value": 1.0, "limit": 2, "ok": True}) == "at most 2"
    assert generate.limit({**row, "value": 3.0, "limit": 0.8, "ok": True}) == "at least 0.8"
    assert generate.limit({**row, "value": 0.0, "limit": 0, "ok": True}) == "0"
    assert generate.limit({**row, "value": 0.0, "limit": None, "ok": True}) == ""
