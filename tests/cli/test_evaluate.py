from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute.costs.table import CostTable
from mildroute.persistence import load_router

Fitted = tuple[Path, Path, dict[str, Any]]


def test_figures_are_those_of_the_routers_own_choice(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    found = json.loads(mildroute("evaluate", router, held_out, "--json").stdout)
    table = CostTable.read(held_out)
    choice = [each.expert for each in load_router(router).explain(table.inputs)]  # type: ignore[union-attr]
    score = table.scores[range(len(table)), choice].mean()
    dollars = 1000 * table.dollars[range(len(table)), choice].mean()  # type: ignore[index]
    assert found["evaluation"]["score"]["value"] == pytest.approx(score)
    assert found["evaluation"]["dollars_per_1000"]["value"] == pytest.approx(dollars)
    assert found["promise"]["verdict"] in ("met", "not decided")
    assert found["warnings"] == [
        "only 48 rows were measured: with fewer than 50, intervals are too narrow and p-values"
        " rough; measure more rows"
    ]


def test_another_price_weight_is_another_point(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    bills = [
        json.loads(
            mildroute("evaluate", router, held_out, "--price-weight", weight, "--json").stdout
        )["evaluation"]["dollars_per_1000"]
        for weight in (0, 1000)
    ]
    assert bills[0]["value"] > bills[1]["value"]


def test_a_budget_or_a_quality_is_another_point_and_is_judged(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    cheap = json.loads(mildroute("evaluate", router, held_out, "--budget", 2, "--json").stdout)
    assert cheap["promise"]["target"] == "at most 2 dollars per 1,000 queries"
    good = json.loads(mildroute("evaluate", router, held_out, "--quality", 0.99, "--json").stdout)
    assert (
        good["evaluation"]["dollars_per_1000"]["value"]
        > cheap["evaluation"]["dollars_per_1000"]["value"]
    )
    assert (
        "give only one of"
        in mildroute("evaluate", router, held_out, "--budget", 2, "--quality", 0.9).stderr
    )
    assert "did you mean 0.95?" in mildroute("evaluate", router, held_out, "--quality", 95).stderr


def test_people_see_what_is_kept_and_saved_first(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    lines = mildroute("evaluate", router, held_out).stdout.splitlines()
    title = r"48 queries: keeps [\d.]+% of the score of large; \d+% cheaper"
    place = next(number for number, line in enumerate(lines) if re.match(title, line))
    assert any(line.strip().startswith("your baseline") for line in lines[:place])
    figures = [line.strip() for line in lines[place + 4 :]]
    assert figures[0].startswith("saved of large's bill")
    assert figures[1].startswith("kept of large's score")


def test_the_report_is_one_file_that_needs_no_network(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    result = mildroute("evaluate", router, held_out, "--report", tmp_path / "report.html")
    assert result.exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert not re.findall(r"url\((?!#)", page)
    for words in (
        "Money against quality",
        "Who answers",
        "By group",
        "Where it loses most",
        "Provenance",
        "prefers-color-scheme: dark",
    ):
        assert words in page
    assert page.count("<svg") == 2


def test_a_report_that_cannot_be_written_is_said(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    router, held_out, _ = fitted
    result = mildroute(
        "evaluate", router, held_out, "--report", tmp_path / "no" / "such" / "folder.html"
    )
    assert result.exit_code == 2
    assert "choose another path" in result.stderr


def test_a_table_without_an_expert_of_the_router_is_refused(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    table = CostTable.from_data({"input": ["a"], "score:small": [1], "score:other": [0]}).save(
        tmp_path / "other.parquet"
    )
    result = mildroute("evaluate", fitted[0], table)
    assert result.exit_code == 2
    assert "no expert is called 'large'" in result.stderr


def test_a_report_does_not_replace_what_is_no_page(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "table.csv").write_text("a,b")
    result = mildroute("evaluate", fitted[0], fitted[1], "--report", tmp_path / "table.csv")
    assert result.exit_code == 2
    assert (tmp_path / "table.csv").read_text() == "a,b"


def test_experts_that_the_router_does_not_know_need_no_price(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    columns = CostTable.read(fitted[1]).arrow.to_pydict()
    columns = {name: values for name, values in columns.items() if not name.startswith("cost:")}
    columns["score:third"] = columns["score:small"]
    table = CostTable.from_data(columns).save(tmp_path / "three.parquet")
    (tmp_path / "prices.json").write_text(json.dumps({"small": 1, "large": 10}))
    result = mildroute(
        "evaluate", fitted[0], table, "--prices", tmp_path / "prices.json", "--output-tokens", 10
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_report_without_its_packages_names_the_command_before_the_router_is_read(
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mildroute: Callable[..., Any],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = mildroute(
        "evaluate", tmp_path / "no_router", "no_table", "--report", tmp_path / "report.html"
    )
    assert result.exit_code == 2
    assert re.search(rf"{package}; run: pip install .*\[report", result.stderr)
