"""The report in a real browser: its slider, its monthly bill, and all of it without a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mildroute import Target, fit
from mildroute._format import format_dollars
from mildroute.costs.table import CostTable
from mildroute.evaluation.report import report_html
from mildroute.evaluation.router_evaluation import evaluate
from tests.support.small_table import small_table
from website.test_pages import DESK, OVERFLOWING, PHONE, WIDER, faults_of

pytest.importorskip("playwright")

EVIL = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
WIDE = {"width": 1920, "height": 1080}
LOOKS = [(size, scheme) for size in (PHONE, DESK, WIDE) for scheme in ("light", "dark")]


def table_of(small: str, large: str, evil: str) -> CostTable:
    columns = small_table(400).arrow.to_pydict()
    for kind in ("score", "cost"):
        columns[f"{kind}:{small}"] = columns.pop(f"{kind}:small")
        columns[f"{kind}:{large}"] = columns.pop(f"{kind}:large")
    columns["input"] = [f"{text} {evil}" for text in columns["input"]]
    columns["group"] = [f"{name} {evil}" for name in columns["group"]]
    columns["query_id"] = [f"{name} {evil}" for name in columns["query_id"]]
    return CostTable.from_data(columns)


def page_of(table: CostTable, path: Path) -> str:
    train, held_out = table.split(0.3, seed=0)
    router = fit(train, target=Target("quality", 0.92), thorough=False).router
    path.write_text(report_html(evaluate(router, held_out)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(table_of("small", "large", ""), tmp_path_factory.mktemp("plain") / "report.html")


@pytest.fixture(scope="module")
def evil_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = table_of(f"small{EVIL}", f"owner/{'very-' * 30}large{EVIL}", EVIL)
    return page_of(table, tmp_path_factory.mktemp("evil") / "report.html")


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look[0]['width']}-{look[1]}")
@pytest.mark.parametrize("kind", ["address", "evil_address"])
def test_a_report_is_legible_named_in_order_and_as_wide_as_the_screen(
    browser: Any, request: pytest.FixtureRequest, kind: str, look: tuple[Any, str]
) -> None:
    context = browser.new_context(viewport=look[0], color_scheme=look[1], reduced_motion="reduce")
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(request.getfixturevalue(kind))
    assert errors == []
    assert page.evaluate(WIDER) <= 0, page.evaluate(OVERFLOWING)
    assert page.locator("h1").count() == 1
    assert faults_of(page) == []
    context.close()


def test_every_step_of_the_slider_shows_the_figures_of_its_target(tab: Any, address: str) -> None:
    tab.goto(address)
    data = json.loads(tab.locator("#data").text_content())
    slider = tab.locator("#target")
    assert int(slider.input_value()) == data["start"]
    tab.fill("#requests", "1000")
    for place, target in enumerate(data["targets"]):
        slider.fill(str(place))
        for name, text in target["text"].items():
            assert tab.locator(f"#target-{name}").text_content() == text
        assert tab.locator("#target-month").text_content() == target["text"]["bill"]
        shown = tab.locator("#target-shares li:visible b").all_text_contents()
        told = [
            text
            for text, share in zip(target["share_text"], target["shares"], strict=True)
            if share
        ]
        assert sorted(shown) == sorted(told)
        assert slider.get_attribute("aria-valuetext") == f"keep {target['text']['target']}"


def test_the_slider_answers_to_the_keyboard_and_moves_the_mark(tab: Any, address: str) -> None:
    tab.goto(address)
    mark = tab.locator(".wide .mark")
    before = mark.get_attribute("cx")
    tab.focus("#target")
    tab.keyboard.press("Home")
    assert tab.locator("#target").input_value() == "0"
    assert mark.get_attribute("cx") == tab.locator(".wide .spots use").first.get_attribute("x")
    assert mark.get_attribute("cx") != before


def test_the_monthly_bill_follows_the_volume(tab: Any, address: str) -> None:
    tab.goto(address)
    data = json.loads(tab.locator("#data").text_content())
    for requests in (2_500_000, 1000, 0):
        tab.fill("#requests", str(requests))
        ours = data["bill"] * requests / 1000
        assert tab.locator("#month-ours").text_content() == format_dollars(ours)
        saved = abs(data["reference_bill"] - data["bill"]) * requests / 1000
        assert tab.locator("#month-difference").text_content() == format_dollars(saved)
    tab.fill("#requests", "-1")
    assert tab.locator("#requests-hint").is_visible()
    assert tab.locator("#month-ours").text_content() == "none"


def test_the_script_writes_money_as_the_library_does(tab: Any, address: str) -> None:
    tab.goto(address)
    amounts = [0, 0.00012, 0.0625, 0.125, 0.996, 1, 2.125, 2.275, 2.375, 1234.5, 1e6, 98765432.1]
    assert tab.evaluate("all => all.map(asDollars)", amounts) == [
        format_dollars(x) for x in amounts
    ]


def test_an_expert_under_the_pointer_tells_its_figures(tab: Any, address: str) -> None:
    tab.set_viewport_size(DESK)
    tab.goto(address)
    tab.locator(".wide .spots use").last.hover()
    assert tab.locator("#tip").is_visible()
    assert tab.locator("#tip").text_content().startswith("oracle; score ")
    tab.locator("h1").hover()
    assert tab.locator("#tip").is_hidden()


def test_nothing_of_a_table_runs(tab: Any, evil_address: str) -> None:
    tab.goto(evil_address)
    tab.locator("#target").fill("0")
    tab.locator(".wide .spots use").last.hover()
    assert tab.evaluate("window.hit === undefined")
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 2


def test_all_is_readable_without_a_script_and_on_paper(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    for words in ("cheaper than large", "Who answers", "At 1,000,000 requests a month: $"):
        assert words in page.locator("main").inner_text()
    assert page.locator("#target").is_hidden()
    assert page.locator("#requests").is_hidden()
    page.get_by_text("All targets as a table").click()
    assert page.get_by_role("region", name="All targets").is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".headline").is_visible()
    context.close()
