"""What answers to a visitor: the search, the list of versions, and the figure of the decision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    yield page
    page.close()


def test_the_search_finds_a_page_by_its_words(tab: Any, address: str) -> None:
    tab.goto(f"{address}/search.html?q=exploration+propensity")
    tab.wait_for_selector("#search-results li a")
    assert any(
        "feedback" in link.get_attribute("href")
        for link in tab.query_selector_all("#search-results li a")
    )


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("dataframe", "cost-tables"),
        ("pandas", "cost-tables"),
        ("rate limit", "serving"),
        ("fallback", "serving"),
        ("Anthropic", "faq"),
        ("LiteLLM", "migration"),
    ],
)
def test_the_search_finds_what_people_look_for(
    tab: Any, address: str, words: str, page: str
) -> None:
    tab.goto(f"{address}/search.html?q={words.replace(' ', '+')}")
    tab.wait_for_selector(f"#search-results li a[href*='{page}']")


def test_tabs_of_the_home_page_show_python_command_line_and_gateway(tab: Any, address: str) -> None:
    tab.goto(f"{address}/index.html")
    for name, words in (
        ("Python", "mildroute.fit("),
        ("Command line", "mildroute evaluate"),
        ("Gateway", "x-mildroute-expert"),
    ):
        tab.get_by_text(name, exact=True).locator("visible=true").first.click()
        assert words in tab.locator(".sd-tab-content:visible").inner_text()


def test_the_list_of_versions_has_those_beside_this_one(tab: Any, address: str, site: Path) -> None:
    tab.goto(f"{address}/theory/decision.html")
    tab.wait_for_function("document.getElementById('versions').options[0].value !== ''")
    shown = tab.eval_on_selector_all(
        "#versions option", "all => all.map(each => each.textContent.trim())"
    )
    assert site.name in shown
    assert set(shown) <= {folder.name for folder in site.parent.iterdir() if folder.is_dir()}


def test_the_figure_of_the_decision_follows_its_sliders(tab: Any, address: str) -> None:
    tab.goto(f"{address}/theory/decision.html")
    told = tab.locator("#decision-text")
    before = told.inner_text()
    tab.get_by_label("Margin of expert 1").first.fill("1")
    assert told.inner_text() != before
    assert "expert 1, right" in told.inner_text()
