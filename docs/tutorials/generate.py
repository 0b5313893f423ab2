"""Runs the commands of collecting.md and puts what they print below each.

Run: MILDROUTE_DATA=... python docs/tutorials/generate.py [FOLDER]
     python docs/tutorials/generate.py --support [FOLDER]

With ``--replay`` no model is asked: the answers that the example keeps are used instead; the blocks
of the server, of collect and of the second story stay as they are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "collecting.md"
EXAMPLE = ROOT / "examples" / "local_llm"
# The first tutorial, on support emails, whose answers are canned.
SUPPORT = ROOT / "docs" / "tutorials" / "support.md"
BLOCK = re.compile(r"```text\n\$ ([^\n]*)\n(.*?)```", flags=re.DOTALL)
PORT = "8080"
SECOND_STORY = "## When routing saves nothing"


def blocks(page: Path = PAGE) -> list[tuple[str, str]]:
    """Each command of a page, and what the page says that it prints."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def replayable() -> list[str]:
    """Commands for which the example keeps what models answered.

    Those of the first story, but for the server's.
    """
    first, _, _ = PAGE.read_text(encoding="utf-8").partition(SECOND_STORY)
    return [command for command, _ in BLOCK.findall(first) if not command.endswith("&")]


def environment() -> dict[str, str]:
    """Return the environment in which the commands run.

    One thread, nothing from a hub, tables no narrower than they are, and the commands of this
    Python first.
    """
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def output_of(command: str, folder: Path) -> str:
    """What a command prints in a folder; if it fails, everything ends."""
    start = time.perf_counter()
    shell = shutil.which("bash") or "/bin/sh"
    run = subprocess.run(
        [shell, "-c", command],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env=environment(),
    )
    if run.returncode:
        raise SystemExit(f"{command}\n{run.stdout}{run.stderr}")
    print(f"{time.perf_counter() - start:6.1f} s  {command}", file=sys.stderr)
    return "".join(line.rstrip() + "\n" for line in run.stdout.splitlines())


@contextmanager
def serving(command: str, folder: Path) -> Iterator[str]:
    """Run a server in the background; gives its first line."""
    words = [
        sys.executable if word == "python" else word for word in command.removesuffix("&").split()
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment()
    ) as server:
        try:
            yield server.stdout.readline() if server.stdout else ""
        finally:
            server.terminate()


def replayed(command: str) -> str:
    """The command with answers that were given before."""
    return command.replace("experts.yaml", "replay.yaml")


def lay_out(folder: Path, port: str = PORT) -> None:
    """A copy of the example, whose experts are asked at a port."""
    shutil.copytree(
        EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    experts = folder / "experts.yaml"
    experts.write_text(experts.read_text(encoding="utf-8").replace(PORT, port), encoding="utf-8")


def free_port() -> str:
    """A free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def run_replayed(folder: Path) -> dict[str, str]:
    """What the commands print without a server, by command."""
    lay_out(folder)
    return {command: output_of(replayed(command), folder) for command in replayable()}


def run_for_real(folder: Path) -> dict[str, str]:
    """What the commands print, by command, with the server of the first one."""
    port = free_port()
    lay_out(folder, port)
    (server, _), *rest = blocks()
    with serving(server.replace(PORT, port), folder) as said:
        printed = {server: said.replace(port, PORT)}
        return printed | {command: output_of(command, folder) for command, _ in rest}


def run_support(folder: Path) -> dict[str, str]:
    """What the commands of the first tutorial print, by command."""
    shutil.copytree(ROOT / "examples" / "support", folder, dirs_exist_ok=True)
    return {command: output_of(command, folder) for command, _ in blocks(SUPPORT)}


def main() -> None:
    """Write a page again."""
    parser = argparse.ArgumentParser(description="Execute the tutorial.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to work; it keeps the report")
    parser.add_argument(
        "--replay", action="store_true", help="with the answers that the example keeps"
    )
    parser.add_argument("--support", action="store_true", help="the tutorial on support emails")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    if options.support:
        page, printed = SUPPORT, run_support(folder)
    else:
        page = PAGE
        printed = run_replayed(folder) if options.replay else run_for_real(folder)
    text = page.read_text(encoding="utf-8")
    for command, shown in blocks(page):
        is_kept = command not in printed or (options.replay and "collect" in command)
        new = shown if is_kept else printed[command]
        text = text.replace(f"$ {command}\n{shown}```", f"$ {command}\n{new}```")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
