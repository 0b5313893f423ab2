"""Every link of the site to itself leads somewhere, and no page fetches anything from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


@dataclass
class Page(HTMLParser):
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag, "") in given and given.get("rel") != "canonical":
            self.fetched.append(given[FETCHED[tag]])


@cache
def page_at(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def pages_of(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def is_elsewhere(link: str) -> bool:
    return bool(urlparse(link).scheme or urlparse(link).netloc)


def fault_of(page: Path, link: str) -> str | None:
    """What is wrong with a link, if anything."""
    found = urlparse(link)
    place, anchor = found.path, found.fragment
    target = page if not place else (page.parent / unquote(place)).resolve()
    if not target.exists():
        return f"{page.name} -> {link}: no such file"
    if anchor and target.suffix == ".html" and unquote(anchor) not in page_at(target).names:
        return f"{page.name} -> {link}: no such place on the page"
    return None


def test_every_internal_link_leads_somewhere(site: Path) -> None:
    pages = pages_of(site)
    links = [
        (page, link)
        for page in pages
        for link in (*page_at(page).links, *page_at(page).fetched)
        if not is_elsewhere(link)
    ]
    # The search page and the index of names have links that only scripts fill in.
    faults = [
        fault for page, link in links if link not in ("", "#") and (fault := fault_of(page, link))
    ]
    assert len(links) > 1000
    assert faults == []


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = {
        link
        for page in pages_of(site)
        for link in page_at(page).fetched
        if is_elsewhere(link) and not link.startswith("data:")
    }
    assert fetched == set()
