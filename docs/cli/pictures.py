"""Pictures of a real report, taken by Chromium.

Its top for the README, and parts of it for the guide.

Run, after the commands of docs/guide/report.md:

    python docs/cli/pictures.py report.html
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parents[1]
DESK = {"width": 1000, "height": 900}
PHONE = {"width": 420, "height": 900}
# Pixels of the page that are left below what is shown.
BELOW = 20


def top(page: Any, last: str, target: Path) -> None:
    """The page from its beginning down to an element."""
    box = page.locator(last).first.bounding_box()
    clip = {
        "x": 0,
        "y": 0,
        "width": page.viewport_size["width"],
        "height": box["y"] + box["height"] + BELOW,
    }
    page.screenshot(path=target, clip=clip, full_page=True)


def main(report: Path) -> None:
    """Take all pictures of the light page.

    Those of the guide as on a phone, so that they can be read on one.
    """
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        desk = browser.new_page(viewport=DESK, color_scheme="light")
        desk.goto(report.resolve().as_uri())
        top(desk, "figure", DOCS / "cli" / "report.png")
        phone = browser.new_page(viewport=PHONE, color_scheme="light", device_scale_factor=2)
        phone.goto(report.resolve().as_uri())
        top(phone, ".cards", DOCS / "guide" / "report-top.png")
        phone.locator("figure").screenshot(path=DOCS / "guide" / "report-money.png")
        phone.locator(".explore .panel").screenshot(path=DOCS / "guide" / "report-target.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
