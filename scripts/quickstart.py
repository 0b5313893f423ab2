#!/usr/bin/env python3
"""Do what a new user would, and time each step.

Makes a fresh environment, then runs every command and snippet of the pages, word for word.

Run: python3 scripts/quickstart.py [--env FOLDER | --wheel FILE] [PAGE ...]

The pages are README.md and docs/quickstart.md by default. The commands run in a clean clone of this
checkout's last commit. With ``--env`` that environment is used and lines with ``pip install`` are
left out. With ``--wheel`` they install that file instead of the clone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```(console|python)\n(.*?)```", flags=re.DOTALL)
MARK = "== took"


def steps_of(page: Path, wheel: Path | None) -> list[tuple[str, str]]:
    """Kind and text of each step: a line of a console block, or a whole snippet of Python."""
    steps: list[tuple[str, str]] = []
    for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = code.rstrip("\n").replace("\\\n", "").splitlines() if kind == "console" else [code]
        steps += [
            (kind, re.sub(r"\s+#.*$", "", line) if kind == "console" else line)
            for line in lines
            if line.strip()
        ]
    return steps if wheel is None else [(kind, with_wheel(code, wheel)) for kind, code in steps]


def with_wheel(command: str, wheel: Path) -> str:
    """The command that installs a wheel where the page installs the checkout."""
    installs = re.match(r"(python -m )?pip install ", command)
    return (
        re.sub(
            r"(?<= )'?\.(\[[\w,]+\])?'?(?= |$)", lambda found: f"'{wheel}{found[1] or ''}'", command
        )
        if installs
        else command
    )


def script_of(steps: list[tuple[str, str]]) -> str:
    """Return one shell for all steps of a page, so that background processes live until its end."""
    parts = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, (kind, code) in enumerate(steps):
        command = (
            code if kind == "console" else f"python - <<'END_OF_SNIPPET'\n{code}\nEND_OF_SNIPPET"
        )
        parts += [
            "started=$EPOCHREALTIME",
            command,
            f'printf "\\n{MARK} {number} %s %s\\n" "$started" "$EPOCHREALTIME"',
        ]
    return "\n".join(parts) + "\n"


def environment(fresh: Path) -> dict[str, str]:
    """The given environment first, one thread, and nothing of ours from elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return {
        **kept,
        "PATH": f"{fresh / 'bin'}{os.pathsep}{kept['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "140",
    }


def run(
    page: Path, fresh: Path, folder: Path, *, is_new: bool, wheel: Path | None
) -> list[tuple[float, str]]:
    """Seconds of each step of a page; what it prints goes through."""
    steps = [
        step
        for step in steps_of(page, wheel)
        if is_new or not re.match(r"(python -m )?pip install", step[1])
    ]
    shell = shutil.which("bash") or "/bin/bash"
    process = subprocess.Popen(
        [shell, "-c", script_of(steps)],
        cwd=folder,
        env=environment(fresh),
        text=True,
        stdout=subprocess.PIPE,
    )
    times = []
    for line in process.stdout or ():
        if line.startswith(MARK):
            _, _, number, start, end = line.split()
            times.append((float(end) - float(start), steps[int(number)][1]))
        else:
            sys.stdout.write(line)
    if process.wait():
        raise SystemExit(f"{page.name}: failed at: {steps[len(times)][1]}")
    return times


def say_origin(fresh: Path) -> None:
    """Print where the package that was used lies, which must be the fresh environment."""
    code = "import mildroute; print(mildroute.__file__)"
    used = Path(
        subprocess.check_output(
            [fresh / "bin" / "python", "-c", code], cwd=fresh, env=environment(fresh), text=True
        ).strip()
    )
    if not used.is_relative_to(fresh):
        raise SystemExit(f"the pages must run with the installed wheel, got {used}")
    sys.stdout.write(f"\nused the installed {used.relative_to(fresh)}\n")


def main() -> None:
    """Run the pages and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pages", nargs="*", type=Path, default=[Path("README.md"), Path("docs/quickstart.md")]
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--env", type=Path, help="use this environment, which has everything, instead of a new one"
    )
    source.add_argument("--wheel", type=Path, help="install this file instead of the clone")
    options = parser.parse_args()
    wheel = options.wheel and options.wheel.resolve(strict=True)
    with tempfile.TemporaryDirectory() as work:
        folder, fresh = Path(work) / "mildroute", options.env or Path(work) / "fresh"
        git = shutil.which("git") or "git"
        for page in options.pages:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([git, "clone", "--quiet", str(ROOT), str(folder)], check=True)
            if options.env is None:
                subprocess.run([sys.executable, "-m", "venv", "--clear", str(fresh)], check=True)
            start = time.perf_counter()
            times = run(folder / page, fresh, folder, is_new=options.env is None, wheel=wheel)
            if wheel:
                say_origin(fresh)
            sys.stdout.write(f"\n{page}, in all {time.perf_counter() - start:.0f} s\n")
            for seconds, code in times:
                sys.stdout.write(f"{seconds:7.1f} s  {code.strip().splitlines()[0][:110]}\n")


if __name__ == "__main__":
    main()
