"""The README's Python is run, and prints what it says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Tutorials need their servers: they have tests of their own.
PAGES = [
    ROOT / "README.md",
    *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "tutorials"),
]
SNIPPETS = [
    (page, code)
    for page in PAGES
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
]


@pytest.mark.parametrize(
    ("page", "code"),
    SNIPPETS,
    ids=[f"{page.stem}-{number}" for number, (page, _) in enumerate(SNIPPETS)],
)
def test_snippets_run_and_print_what_they_promise(page: Path, code: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    # A call over several lines has its comment behind the last bracket.
    promised = re.findall(r"^print\((?:.*|\n(?: +.*\n)+)\)  # (.*)$", code, flags=re.MULTILINE)
    assert run.stdout.splitlines() == promised
