"""The pages that people read, by hand or generated, and the scripts that write them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
MADE_BY_THE_SITE = (ROOT / "docs" / "api", ROOT / "docs" / "gallery")


def markdown_pages() -> list[Path]:
    folders = [
        page
        for name in ("docs", "examples", "deploy", ".github")
        for page in (ROOT / name).rglob("*.md")
    ]
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(
                page
                for page in folders
                if not any(made in page.parents for made in MADE_BY_THE_SITE)
            ),
        ]
    )


def generator(path: Path) -> ModuleType:
    """The script that writes a page, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
