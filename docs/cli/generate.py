"""Runs the commands of walkthrough.md and puts what they print below each.

Run: MILDROUTE_DATA=... python docs/cli/generate.py [FOLDER for the reports]
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli" / "walkthrough.md"
BLOCK = re.compile(r"```text\n\$ ([^\n]*)\n(.*?)```", flags=re.DOTALL)


def output_of(command: str, folder: Path) -> str:
    """What a command prints, in a folder of its own, without the place of data and examples."""
    start = time.perf_counter()
    words = [os.path.expandvars(word) for word in shlex.split(command, comments=True)]
    words[0] = str(Path(sys.executable).parent / "mildroute")
    run = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    if run.returncode:
        raise SystemExit(f"{command}\n{run.stdout}{run.stderr}")
    print(f"{time.perf_counter() - start:6.1f} s  {command}", file=sys.stderr)
    return "\n".join(
        line.rstrip()
        for line in run.stdout.replace(os.environ["MILDROUTE_DATA"], "$MILDROUTE_DATA").splitlines()
    )


def main() -> None:
    """Run all of them in one folder; a folder as argument gets the reports."""
    if "MILDROUTE_DATA" not in os.environ:
        raise SystemExit("set MILDROUTE_DATA to the folder of the benchmark data.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "examples", folder / "examples")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            BLOCK.sub(
                lambda found: f"```text\n$ {found[1]}\n{output_of(found[1], folder)}\n```", page
            ),
            encoding="utf-8",
        )
        for report in folder.glob("*.html"):
            if len(sys.argv) > 1:
                shutil.copy(report, sys.argv[1])


if __name__ == "__main__":
    main()
