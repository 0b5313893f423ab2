"""The pages about benchmarks are what the stored results say, to the byte.

So is the caption of the first picture.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.rows import Row, line_of

ROOT = Path(__file__).parents[1]
PAGES, FIGURES = ROOT / "docs" / "benchmarks", ROOT / "docs" / "figures"
RUNS = sorted((ROOT / "benchmarks" / "results" / "speed").glob("*.json"))
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
NAMES = (
    *("generate", "quality_page", "peers", "peers_page"),
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


@pytest.mark.parametrize("name", ["index.md", "quality.md", "peers.md", "speed.md"])
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


# Sentences by hand that quote a stored run, with the beginning of the row that they quote: {0} is
# its value, the others are the numbers in its note.
QUOTES = {
    "gateway": {
        "requests per second / bare httpx proxy": [
            ("docs/faq.md", "{1:.0f} requests a second with known texts"),
            (
                "docs/operations/capacity.md",
                "texts already cached | {1:.0f} | bare Starlette and httpx proxy: {2:.0f} |",
            ),
        ],
        "requests per second / LiteLLM proxy": [
            ("README.md", "serves {0:.1f} times the requests of the LiteLLM proxy"),
            (
                "docs/operations/capacity.md",
                "in another round | {1:.0f} | LiteLLM proxy with a mock model: {2:.0f} |",
            ),
        ],
        "requests per second / bare MiniLM": [
            ("README.md", "it reaches {0:.3f} of the bare encoder"),
            ("docs/faq.md", "{1:.0f} with MiniLM and new prompts, which is {0:.3f} of the bare"),
            ("docs/operations/capacity.md", "| {1:.0f} | the bare encoder alone: {2:.0f} |"),
            ("docs/operations/capacity.md", "{0:.3f} was reached here"),
            ("docs/operations/capacity.md", "a text waits 64 ÷ {1:.0f} = "),
        ],
        "decision without encoding, p50": [
            ("docs/operations/capacity.md", "without encoding, p50 and p95 | {0:.2f} and "),
        ],
        "decision without encoding, p95": [
            ("README.md", "decides in {0:.2f} ms (p95"),
            ("docs/operations/capacity.md", " and {0:.2f} ms | |"),
        ],
        "added to the first byte at one connection, p50": [
            ("docs/faq.md", "it adds {0:.1f} ms at the median until the first byte"),
            ("docs/faq.md", "It adds {0:.1f} ms until the first byte at the median"),
            ("docs/operations/capacity.md", "one connection, p50 and p99 | {0:.2f} and "),
        ],
        "added to the first byte at one connection, p99": [
            ("docs/faq.md", "and {0:.2f} ms at the 99th percentile"),
            ("docs/operations/capacity.md", " and {0:.2f} ms | bare proxy: "),
        ],
    },
    "soak": {
        "requests that failed": [
            ("docs/operations/capacity.md", "tools among them | {4:,.0f} | | failed | {0:.0f} |"),
        ],
        "seconds of a request, p50": [
            ("docs/operations/capacity.md", "{0:.3f} and {2:.3f} s; worst {3:.1f} s"),
        ],
        "memory slope": [
            ("docs/faq.md", "Memory grew by {0:.4f} MiB a minute in a soak of an hour"),
            (
                "docs/operations/capacity.md",
                "+ {0:.4f} MiB a minute ({2:.1f} to {3:.1f} MiB in {4:.0f} minutes)",
            ),
        ],
    },
    "collect": {
        "MiB resident at most, with the table": [
            ("docs/guide/scaling.md", "with {0:.0f} MiB at most for a million of them"),
        ],
    },
    "collect-ray": {
        "cells a second": [
            (
                "docs/guide/scaling.md",
                "100,000 cells went through at {0:.2f} times the rate of bare Ray Data actors that"
                " make the same calls ({1:.0f} and {2:.0f} cells a second;",
            ),
        ],
    },
}


@pytest.mark.parametrize("name", QUOTES)
def test_sentences_that_quote_a_run_have_its_figures(name: str) -> None:
    run = json.loads((RUNS[0].parent / f"{name}.json").read_text(encoding="utf-8"))
    for start, quotes in QUOTES[name].items():
        (row,) = (row for row in run["rows"] if row["name"].startswith(start))
        numbers = [float(number.replace(",", "")) for number in NUMBER.findall(row["note"])]
        for page, quote in quotes:
            text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
            assert quote.format(row["value"], *numbers) in text, page


def test_the_sample_output_is_the_stored_run() -> None:
    run = json.loads((RUNS[0].parent / "gateway.json").read_text(encoding="utf-8"))
    lines = [line_of(Row(**row)).rstrip() for row in run["rows"]]
    page = (ROOT / "docs" / "operations" / "capacity.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in page


def test_the_table_of_learning_from_traffic_is_the_stored_run() -> None:
    stored = (ROOT / "benchmarks" / "results" / "traffic.md").read_text(encoding="utf-8")
    figures = {
        name: [value, *map(float, re.findall(r"-?\d+\.\d+", note))]
        for name, value, note in (
            (cells[0], float(cells[1]), cells[4])
            for cells in (line.strip("| ").split(" | ") for line in stored.splitlines())
            if len(cells) == 5 and cells[1] != "value"
        )
    }
    names = {
        "MMLU, three models": "mmlu57 trio",
        "MMLU, four models": "mmlu57 four",
        "RouterBench": "routerbench",
        "routerdc7": "routerdc7",
        "MMLU-Pro, four models": "mmlu_pro four",
    }
    text = (ROOT / "docs" / "guide" / "feedback.md").read_text(encoding="utf-8")
    page = text.partition("## Gain from traffic")[2].partition("\n## ")[0]
    whole = "300 rows: share of the gain of full information"
    for label, stream in names.items():
        (line,) = re.findall(rf"^\| {re.escape(label)} \| (.*) \|$", page, flags=re.MULTILINE)
        shown = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", line)]
        share, gain = figures[f"{stream}, {whole}, stream"]
        last, _ = figures[f"{stream}, {whole}, last quarter"]
        found = [gain, 100 * share, 100 * last, *figures[f"{stream}: ours minus the best bandit"]]
        for number, known, unit in zip(shown, found, (1e-3, 1, 1, 1e-4, 1e-4, 1e-4), strict=True):
            assert number == pytest.approx(known, abs=0.51 * unit), label
    gap, low, high = figures["mmlu57 trio, no rows: ours minus LinUCB"]
    assert f"our cost is {gap:.4f} [{low:.4f}, {high:.4f}] higher" in page
