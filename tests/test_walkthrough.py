"""The committed output belongs to the commands that the README shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_walkthrough_shows_the_commands_of_the_readme() -> None:
    section = (ROOT / "README.md").read_text().split("## From a table to a decision")[1].split("\n## ")[0]
    written = [line for block in re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL) for line in block.splitlines()]
    shown = re.findall(r"^\$ (.*)$", (ROOT / "docs" / "cli" / "walkthrough.md").read_text(), flags=re.MULTILINE)
    assert written == shown
    assert {line.split()[1] for line in written} == {"inspect", "compare", "fit", "evaluate", "route"}
