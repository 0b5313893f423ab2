"""The commit a benchmark was run on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """Return the commit that is checked out; ``+`` marks changes to code since then."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return "unknown"

    def run(*arguments: str) -> str:
        command = [git, "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    code = ("src", "benchmarks/*.py", "paper/*.py")
    changed = run("status", "--porcelain", "--untracked-files=no", "--", *code)
    return run("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
