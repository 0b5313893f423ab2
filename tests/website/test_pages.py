"""Every page in a real browser, wide and narrow, light and dark.

What axe-core finds, and what must be scrolled sideways.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SITE = Path(os.environ.get("MILDROUTE_SITE", "no-site"))
# Written for programs: an index of names, and the search page, which is empty without a question.
LEFT_OUT = {"genindex", "py-modindex", "search"}
PAGES = sorted(
    str(path.relative_to(SITE).with_suffix(""))
    for path in SITE.rglob("*.html")
    if path.stem not in LEFT_OUT
) or ["no-site"]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "best-practice"]}
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OVERFLOWING = """() => [...document.querySelectorAll('body *')]
    .filter(it => it.getBoundingClientRect().right > innerWidth + 1
        && !it.closest('.table-wrapper, pre, .math-block, .sidebar-drawer, .toc-drawer'))
    .slice(0, 3).map(it => it.outerHTML.slice(0, 120))"""


LOOKS = [(PHONE, "light"), (PHONE, "dark"), (DESK, "light"), (DESK, "dark")]
# Both schemes and both layouts; the other two only differ in what these two show.
EXAMINED = [(PHONE, "light"), (DESK, "dark")]


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


def faults_of(tab: Any) -> list[str]:
    """What axe-core finds: contrast, names of pictures and fields, order of headings, landmarks."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(tab, options=RULES).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'].splitlines()[-1][:160]}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_legible_named_in_order_and_as_wide_as_the_screen(
    tab: Any, address: str, name: str
) -> None:
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    answer = tab.goto(f"{address}/{name}.html", wait_until="load")
    assert answer.ok
    assert tab.locator("h1").count() == 1
    # Loaded once: a look is a size and a preference, which a page answers without another load.
    for size, scheme in LOOKS:
        tab.set_viewport_size(size)
        tab.emulate_media(color_scheme=scheme)
        assert tab.evaluate(WIDER) <= 0, (size, scheme, tab.evaluate(OVERFLOWING))
        assert (size, scheme) not in EXAMINED or faults_of(tab) == [], (size, scheme)
    assert errors == []
