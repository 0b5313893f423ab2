"""The pages that people read in the repository or on the site, written by hand or generated from results."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE_BY_THE_SITE = (ROOT / "docs" / "api", ROOT / "docs" / "gallery")


def markdown_pages() -> list[Path]:
    folders = [page for name in ("docs", "examples", "deploy", ".github") for page in (ROOT / name).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *(page for page in folders if not any(made in page.parents for made in MADE_BY_THE_SITE))])
