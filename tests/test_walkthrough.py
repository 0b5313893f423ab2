"""The walkthrough shows every step from a table to a decision, twice, with what was printed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = ["inspect", "compare", "fit", "evaluate", "route"]


def test_the_walkthrough_shows_every_step_with_its_output() -> None:
    blocks = re.findall(
        r"```text\n\$ mildroute (\w+)[^\n]*\n(.*?)```",
        (ROOT / "docs/cli/walkthrough.md").read_text(),
        flags=re.DOTALL,
    )
    assert [command for command, _ in blocks] == STEPS * 2
    assert all(printed.strip() for _, printed in blocks)
