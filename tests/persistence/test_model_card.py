"""The model card says what a router is, whatever its experts are called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest
from mildroute.persistence.model_card import escape, render_model_card
from mildroute.routers.regression import RegressionRouter
from persistence.stored import problem

NASTY = [
    "a|b",
    "line\nbreak",
    "# title",
    "**bold**",
    "`code`",
    "<script>alert(1)</script>",
    "[x](http://e.vil)",
    "![i](x)",
    "\\",
    "",
    " ",
    "~~s~~",
]
NASTY += [
    "\u2028",
    "\u202eevil",
    "\ud800",
    "a\0b",
    "| --- | --- |",
    "&amp;",
    "$x$",
    "@user",
    "www.evil.org",
    "http://evil.org",
    "```",
    "\r\n\r\n## New",
]


def manifest(**changes: Any) -> dict[str, Any]:
    plain = {
        "experts": ["small", "large"],
        "n_features_in": 4,
        "router": {"class": "MildRouter"},
        "versions": {"mildroute": "0.1"},
    }
    return plain | {"data_hash": None, "rows": None, "prices": None, "metrics": None} | changes


def rows_of(card: str, title: str) -> list[list[str]]:
    """Cells of the tables of a section, read as a Markdown parser would."""
    section = card.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]] for line in lines
    ]


def test_the_card_of_a_full_manifest_says_everything() -> None:
    prices = {
        "date": "2026-01-31",
        "source": "vendor page",
        "experts": {"small": 0.25, "large": {"input": 2, "output": 10.5}},
    }
    metrics = {
        "deferral loss": {"value": 0.3125, "low": 0.30, "high": 0.325},
        "regret": {"value": 0.1, "interval": [0.0, 0.2]},
        "share": 0.5,
    }
    how = {
        "reward": "gap",
        "margins": [1.0, 2.5],
        "alpha": "inf",
        "decision": "consistent",
        "features": "topics",
    }
    card = render_model_card(
        manifest(
            rows=120,
            data_hash="abc",
            prices=prices,
            metrics=metrics,
            licence="MIT",
            notes="For *tests*.",
            **how,
        )
    )
    assert card.startswith("# MildRouter between 2 experts\n")
    assert rows_of(card, "Experts")[2:] == [["0", "small", "1"], ["1", "large", "2.5"]]
    assert rows_of(card, "Training data")[2:] == [
        ["Rows", "120"],
        ["Data hash", "abc"],
        ["Numbers per input", "4"],
    ]
    assert ["Margins", "one per expert, see above"] in rows_of(card, "How it decides")
    assert ["Penalty", "inf"] in rows_of(card, "How it decides")
    assert ["Date", "2026-01-31"] in rows_of(card, "Prices")
    assert ["large", "input 2, output 10.5"] in rows_of(card, "Prices")
    assert rows_of(card, "Validation")[2:] == [
        ["deferral loss", "0.3125", "0.3 to 0.325"],
        ["regret", "0.1", "0 to 0.2"],
        ["share", "0.5", "not recorded"],
    ]
    assert ["mildroute", "0.1"] in rows_of(card, "Versions")
    assert "Licence: MIT." in card
    assert card.endswith("## Notes\n\nFor \\*tests\\*.\n")


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    card = render_model_card(manifest())
    assert rows_of(card, "Experts")[2:] == [["0", "small"], ["1", "large"]]
    assert ["Rows", "not recorded"] in rows_of(card, "Training data")
    assert "without prices" in card
    assert "without validation metrics" in card
    assert "No licence was recorded" in card
    assert "How it decides" not in card


@pytest.mark.parametrize(
    "metric",
    [
        None,
        "0.3",
        [0.1, 0.2],
        {"low": 0.1},
        {"value": 0.3, "low": 0.1},
        {"value": 0.3, "interval": "wide"},
    ],
)
def test_a_metric_of_another_form_is_shown_without_interval(metric: Any) -> None:
    assert (
        rows_of(render_model_card(manifest(metrics={"loss": metric})), "Validation")[2][2]
        == "not recorded"
    )


def test_prices_of_another_form_are_shown_as_they_are() -> None:
    assert ["Experts", "\\[1, 2\\]"] in rows_of(
        render_model_card(manifest(prices={"experts": [1, 2]})), "Prices"
    )


@pytest.mark.parametrize("name", NASTY)
def test_no_name_breaks_the_card(name: str) -> None:
    calm = render_model_card(
        manifest(prices={"experts": {"x": 1}, "source": "x"}, metrics={"x": 1}, reward="x")
    )
    named = {
        "experts": [name, "large"],
        "reward": name,
        "prices": {"experts": {name: 1}, "source": name},
        "metrics": {name: 1},
    }
    card = render_model_card(manifest(**named))
    assert len(card.splitlines()) == len(calm.splitlines())
    for title in ("Experts", "Prices", "Validation", "How it decides"):
        assert [len(row) for row in rows_of(card, title)] == [
            len(row) for row in rows_of(calm, title)
        ]
    assert card.count("\n#") == calm.count("\n#")
    assert card.count("```") == 2


@given(st.text())
def test_escaped_text_is_one_visible_line_without_markup(text: str) -> None:
    escaped = escape(text)
    assert escaped
    assert escaped.isprintable()
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>|~&#$!@]", escaped)


def test_long_names_are_cut() -> None:
    assert len(escape("x" * 10_000)) == 301


def test_the_stored_card_is_that_of_the_manifest_and_its_snippet_runs(tmp_path: Path) -> None:
    X, costs = problem()
    router = RegressionRouter().fit(X, costs)
    router.experts_[0] = "gpt|4\n\ud800"
    folder = save_router(router, tmp_path / "router", card={"notes": "n"})
    card = (folder / "CARD.md").read_text()
    assert card == render_model_card(read_manifest(folder))
    snippet = (
        card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder))
    )
    names: dict[str, Any] = {"X": X}
    exec(snippet, names)  # noqa: S102
    assert np.array_equal(names["choice"], load_router(folder).predict(X))
    assert set(names["names"]) <= set(router.experts_)
