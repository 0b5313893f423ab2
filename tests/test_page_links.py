"""Links between the pages of the repository lead somewhere, also where nobody builds the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT, markdown_pages

LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#[^)\s]*)?\)")
CODE = re.compile(
    r"^( *)(`{3,})(?:console|python|text|yaml|json).*?^\1\2", flags=re.DOTALL | re.MULTILINE
)
# Folders of the site that come into being when it is built.
GENERATED = ("/gallery/", "/api/")


@pytest.mark.parametrize("page", markdown_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    links = {link for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))) if link}
    lost = [
        link
        for link in links
        if not (page.parent / link).exists() and not any(part in f"/{link}" for part in GENERATED)
    ]
    assert lost == []
