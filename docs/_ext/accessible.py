"""What theme and extensions leave out for people who read with a screen reader or a keyboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["setup"]

_THUMBNAIL = re.compile(
    r'<a class="reference internal" (href="[^"]*")><span class="(doc|std'
    r' std-ref)">([^<]*)</span></a>'
)
_REPLACED = (
    ('role="heading">', 'role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    # The word of scikit-learn's pages.
    (">Variables<span", ">Attributes<span"),
    # What scrolls sideways must be reachable without a mouse.
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)


def improved(page: str) -> str:
    """A page with names for its landmarks and with parts that the keyboard can scroll."""
    for before, after in _REPLACED:
        page = page.replace(before, after)
    # The text of a link over a thumbnail is hidden.
    return _THUMBNAIL.sub(
        r'<a class="reference internal" aria-label="\3" \1><span class="\2">\3</span></a>', page
    )


def improve_all(app: Any, failure: Exception | None) -> None:
    """Improve every page that was written."""
    if failure is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            page = path.read_text(encoding="utf-8")
            if (better := improved(page)) != page:
                path.write_text(better, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Improve the pages at the end."""
    app.connect("build-finished", improve_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
