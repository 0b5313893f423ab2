"""Runs a benchmark and stores its rows with the command, the date and the machine, for the pages of the documentation.

Run: python -m benchmarks.record losses [--quick] [further options of that benchmark]
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "speed"
FOLDERS = ("speed", "service", "quality")
PACKAGES = ("mildroute", "numpy", "torch")


def script_of(name: str) -> Path:
    """The script of a benchmark, wherever it lies."""
    for folder in FOLDERS:
        if (HERE / folder / f"{name}.py").exists():
            return HERE / folder / f"{name}.py"
    raise SystemExit(f"the name must be that of a script in {', '.join(FOLDERS)}, got {name!r}.")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def rows_of(script: Path, options: list[str]) -> list[dict[str, Any]]:
    """Rows that a benchmark prints; one that misses a limit has rows too, and exits with 1."""
    run = subprocess.run([sys.executable, str(script), "--json", *options], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode not in (0, 1) or not run.stdout.strip():
        raise SystemExit(f"{script.name} ended with exit code {run.returncode} and told no rows.")
    rows: list[dict[str, Any]] = json.loads(run.stdout)
    return rows


def record(name: str, options: list[str]) -> Path:
    """Run one benchmark and store what it found; nothing is stored if it breaks."""
    script, load, start = script_of(name), os.getloadavg()[0], time.perf_counter()
    rows = rows_of(script, options)
    stored = {
        "name": name,
        "command": " ".join(["python", script.relative_to(HERE.parent).as_posix(), *options]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(time.perf_counter() - start),
        "load_before": round(load, 1),
        "machine": machine(),
        "rows": rows,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit((__doc__ or "").strip())
    print(record(sys.argv[1], sys.argv[2:]))
