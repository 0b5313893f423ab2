"""Run what gateway.md or learning.md shows, and put what is printed below each command.

Run: MILDROUTE_LITELLM_ENV=FOLDER python -m docs.tutorials.generate_gateway [FOLDER]
     python -m docs.tutorials.generate_gateway --learning [FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from docs.tutorials.generate import environment, free_port

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"```text\n\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<shown>.*?)```"
    r"|```python\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```",
    flags=re.DOTALL,
)
_MARK = "--- end of"
# A session of Python: a line of JSON is code, the line that comes back is what it printed.
_PYTHON = """
import contextlib, io, json, sys
names = {}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""


@dataclass(frozen=True)
class Step:
    """One block of the page: a command or some Python, and what the page says that it prints."""

    code: str
    shown: str
    is_python: bool

    @property
    def needs_litellm(self) -> bool:
        """Whether it runs in LiteLLM's environment."""
        return self.is_python and "litellm" in self.code


@dataclass(frozen=True)
class Tutorial:
    """A page that is executed.

    Args:
        page: The page.
        ports: That it names; others that are free take their place.
        examples: Folders that its commands need, of those of the examples; the reader is in the
            first.
    """

    page: Path
    ports: tuple[str, ...]
    examples: tuple[str, ...]


GATEWAY = Tutorial(
    ROOT / "docs" / "tutorials" / "gateway.md", ("8080", "8081", "8000"), ("gateway", "local_llm")
)
LEARNING = Tutorial(
    ROOT / "docs" / "tutorials" / "learning.md",
    ("8080", "8081", "8000"),
    ("learning", "local_llm"),
)


def steps(tutorial: Tutorial = GATEWAY) -> list[Step]:
    """All blocks, in their order."""
    text = tutorial.page.read_text(encoding="utf-8")
    found = [match.groupdict() for match in BLOCK.finditer(text)]
    return [
        (
            Step(block["command"], block["shown"], is_python=False)
            if block["code"] is None
            else Step(block["code"], block["printed"], is_python=True)
        )
        for block in found
    ]


@dataclass
class Session:
    """One shell and two Pythons, which keep what they know from step to step."""

    folder: Path
    environment: dict[str, str]
    shell: subprocess.Popen[str]
    kept: ExitStack
    pythons: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    jobs: list[IO[str]] = field(default_factory=list)

    def printed_by(self, step: Step) -> str:
        """Do what a block says; if it fails, everything ends."""
        if step.is_python:
            return self._python(step)
        if step.code.endswith("&"):
            return self._start(step.code)
        if "-HUP" not in step.code:
            return self._command(step.code)
        # The gateway logs that it has reloaded; what it logged before, of experts that failed, is
        # not of this step.
        for job in self.jobs:
            job.read()
        return self._command(step.code) + self._news(step.code, "is in use")

    def _command(self, command: str) -> str:
        _write(self.shell.stdin, f"{{ {command}\n}} 2>&1; echo; echo {_MARK} $?\n")
        lines: list[str] = []
        while self.shell.stdout and (line := self.shell.stdout.readline()):
            if line.startswith(_MARK):
                break
            lines.append(line)
        else:
            raise SystemExit(f"{command}\nthe shell has ended:\n{''.join(lines)}")
        if line.split()[-1] != "0":
            raise SystemExit(f"{command}\n{''.join(lines)}")
        return _tidy("".join(lines)[:-1])

    def _start(self, command: str) -> str:
        """Start what stays, and wait for its first line."""
        said = self.folder / f"job-{len(self.jobs) + 1}.txt"
        said.touch()
        self.jobs.append(self.kept.enter_context(said.open(encoding="utf-8")))
        self._command(f"{command.removesuffix('&')} > {said} 2>&1 &")
        return self._news(command)

    def _news(self, command: str, wanted: str = "") -> str:
        """What one of those that stay says next, until it has said what is wanted."""
        end = time.monotonic() + 120
        text = ""
        while not text.endswith("\n") or wanted not in text:
            text += "".join(job.read() for job in self.jobs)
            if time.monotonic() > end:
                raise SystemExit(f"{command}\nnothing was said for two minutes.")
            time.sleep(0.02)
        return _tidy(text)

    def _python(self, step: Step) -> str:
        home = (
            Path(self.environment["MILDROUTE_LITELLM_ENV"]) / "bin" / "python"
            if step.needs_litellm
            else Path(sys.executable)
        )
        python = self.pythons.get(str(home))
        if python is None:
            python = self.pythons[str(home)] = self.kept.enter_context(
                subprocess.Popen(
                    [home, "-c", _PYTHON],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=self.folder,
                    env=self.environment,
                )
            )
        _write(python.stdin, json.dumps(step.code) + "\n")
        answer = python.stdout.readline() if python.stdout else ""
        if not answer:
            raise SystemExit(f"{step.code}\nit failed; see above.")
        return _tidy(json.loads(answer))


def _write(pipe: IO[str] | None, text: str) -> None:
    if pipe is not None:
        pipe.write(text)
        pipe.flush()


def _tidy(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    """A session in a folder; whatever was started in it ends with it."""
    known = {
        **environment(),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # else LiteLLM asks the network for prices
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        ExitStack() as kept,
        subprocess.Popen(
            [shutil.which("bash") or "/bin/sh"],
            text=True,
            cwd=folder,
            env=known,
            start_new_session=True,
            **pipes,
        ) as shell,  # type: ignore[call-overload]
    ):
        made = Session(folder, known, shell, kept)
        try:
            yield made
        finally:
            for python in made.pythons.values():
                python.kill()
            os.killpg(shell.pid, signal.SIGKILL)


def lay_out(folder: Path, tutorial: Tutorial) -> Path:
    """A copy of the examples; gives the folder in which the reader is."""
    for name in tutorial.examples:
        shutil.copytree(
            ROOT / "examples" / name,
            folder / name,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return folder / tutorial.examples[0]


def run(
    folder: Path,
    changed: Callable[[str], str] = lambda command: command,
    tutorial: Tutorial = GATEWAY,
    *,
    with_litellm: bool = True,
) -> list[str | None]:
    """What each block prints, in their order, with ports that are free.

    None for a block that was left out.

    Args:
        folder: Where to work.
        changed: Takes another command for one of the page.
        tutorial: The page.
        with_litellm: Whether LiteLLM's block is executed, too.
    """
    ports = {port: free_port() for port in tutorial.ports}
    here = lay_out(folder, tutorial)
    for file in here.glob("*.yaml"):
        file.write_text(_at_ports(file.read_text(encoding="utf-8"), ports), encoding="utf-8")
    back, printed = {free: port for port, free in ports.items()}, list[str | None]()
    with session(here) as live:
        for step in steps(tutorial):
            if step.needs_litellm and not with_litellm:
                printed.append(None)
                continue
            start = time.perf_counter()
            code = step.code if step.is_python else changed(step.code)
            printed.append(
                _at_ports(
                    live.printed_by(Step(_at_ports(code, ports), "", is_python=step.is_python)),
                    back,
                )
            )
            print(
                f"{time.perf_counter() - start:6.1f} s  {step.code.splitlines()[0]}",
                file=sys.stderr,
            )
    return printed


def _at_ports(text: str, ports: dict[str, str]) -> str:
    return re.sub(
        r"(127\.0\.0\.1:|--port |--admin-port |-p )(\d+)",
        lambda found: found[1] + ports.get(found[2], found[2]),
        text,
    )


def main() -> None:
    """Write the page again."""
    parser = argparse.ArgumentParser(description="Execute the tutorial on the gateway.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to work")
    parser.add_argument("--learning", action="store_true", help="that on learning from traffic")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    tutorial = LEARNING if options.learning else GATEWAY
    text = tutorial.page.read_text(encoding="utf-8")
    printed = iter(run(folder, tutorial=tutorial))
    tutorial.page.write_text(
        BLOCK.sub(lambda block: _filled(block, next(printed) or ""), text), encoding="utf-8"
    )


def _filled(block: re.Match[str], printed: str) -> str:
    """The same block with another output."""
    start = block.start("shown") if block["code"] is None else block.start("printed")
    return f"{block[0][: start - block.start()]}{printed}```"


if __name__ == "__main__":
    main()
