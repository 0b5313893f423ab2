"""Runs a benchmark and stores its rows with the command, the date and the machine.

They are for the pages of the documentation.

Run: python -m benchmarks.record NAME [--results FOLDER] [--as NAME] [--quick] [its other options]
     python -m benchmarks.record --list
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.commit import commit

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "speed"
# Where two folders have a script of the same name, the first of these has the plain name.
FIRST_FOLDERS = ("speed", "service", "quality")
PACKAGES = ("mildroute", "numpy", "torch")


def scripts() -> dict[str, Path]:
    """Every script below this folder that prints rows, by its name."""
    folders = {path.parent.name for path in HERE.glob("*/*.py")}
    found: dict[str, Path] = {}
    for folder in [*FIRST_FOLDERS, *sorted(folders.difference(FIRST_FOLDERS))]:
        for path in sorted((HERE / folder).glob("*.py")):
            if prints_rows(path):
                found[f"{folder}-{path.stem}" if path.stem in found else path.stem] = path
    return found


def prints_rows(path: Path) -> bool:
    """Tell whether a file is a script: it imports the entry of all benchmarks."""
    return any(
        isinstance(statement, ast.ImportFrom)
        and statement.module == "rows"
        and any(name.name == "main" for name in statement.names)
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
    )


def script_of(name: str) -> Path:
    """The script of this name, or of this path below ``benchmarks``."""
    known = scripts()
    named = {path.relative_to(HERE).as_posix(): path for path in known.values()} | known
    if name not in named:
        raise SystemExit(f"the name must be one of {', '.join(known)}, got {name!r}.")
    return named[name]


def needs_data(script: Path) -> bool:
    """Tell whether a script reads the benchmark data, which is not part of the repository."""
    return "Run: MILDROUTE_DATA=" in script.read_text(encoding="utf-8")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "architecture": platform.machine(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def rows_of(
    script: Path,
    options: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> list[dict[str, Any]]:
    """Rows that a benchmark prints; one that misses a limit has rows too, and exits with 1."""
    run = subprocess.run(
        [sys.executable, str(script), "--json", *options],
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        timeout=timeout,
        text=True,
        check=False,
    )
    if run.returncode not in (0, 1) or not run.stdout.strip():
        raise SystemExit(
            f"{script.name} ended with exit code {run.returncode} and printed no rows."
        )
    rows: list[dict[str, Any]] = json.loads(run.stdout)
    return rows


def record(
    name: str,
    options: Sequence[str],
    folder: Path = RESULTS,
    *,
    stored_as: str | None = None,
    timeout: float | None = None,
) -> Path:
    """Run one benchmark and store what it found; nothing is stored if it breaks."""
    script = script_of(name)
    name = stored_as or next(known for known, path in scripts().items() if path == script)
    load, start = os.getloadavg()[0], time.perf_counter()
    command = " ".join(["python", script.relative_to(HERE.parent).as_posix(), *options])
    # Before it runs: the files may change meanwhile.
    measured_on = commit()
    rows = rows_of(script, options, timeout=timeout)
    stored = {
        "name": name,
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": measured_on,
        "seconds": round(time.perf_counter() - start),
        "load_before": round(load, 1),
        "machine": machine(),
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Record the script that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", help="of the script")
    parser.add_argument("--list", action="store_true", help="print the names of all scripts")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the rows are stored")
    parser.add_argument(
        "--as",
        dest="stored_as",
        metavar="NAME",
        help="of the result, if not that of the script",
    )
    chosen, options = parser.parse_known_args()
    if chosen.list:
        for name, path in scripts().items():
            print(f"{name:<14} {path.relative_to(HERE.parent).as_posix()}")
    elif chosen.name is None:
        parser.error("say which script; --list prints their names.")
    else:
        print(record(chosen.name, options, chosen.results, stored_as=chosen.stored_as))


if __name__ == "__main__":
    main()
