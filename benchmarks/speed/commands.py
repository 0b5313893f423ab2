"""What a command costs from its start to its end.

Beside it stands the least that any program for the same job must do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_most, reported
from timing import ratio

DATA = "MILDROUTE_DATA"
PANDAS = (
    "import sys, pandas; t = pandas.read_parquet(sys.argv[1]); print(t.groupby('group')[[c for c in"
    " t if c.startswith('score:')]].mean())"
)


def run(*words: str) -> None:
    subprocess.run(words, capture_output=True, check=True)


def command_rows(quick: bool) -> Iterator[Row]:
    """Process start included; both sides in turn, so that a busy machine slows both."""
    rounds = 1 if quick else 15
    command = str(Path(sys.executable).parent / "mildroute")
    value, ours, theirs = ratio(
        lambda: run(command, "--help"),
        lambda: run(sys.executable, "-c", "import typer"),
        rounds=rounds,
        repeats=1,
    )
    yield at_most(
        "mildroute --help / python -c 'import typer'",
        value,
        2.5,
        f"{ours:.2f} and {theirs:.2f} s, median of {rounds} pairs",
        full_only=True,
    )
    if DATA not in os.environ:
        yield reported(
            "mildroute inspect mmlu57 / pandas read and groupby",
            float("nan"),
            f"not measured: set {DATA}",
        )
        return
    table = str(Path(os.environ[DATA]) / "mmlu57.parquet")
    value, ours, theirs = ratio(
        lambda: run(command, "inspect", table),
        lambda: run(sys.executable, "-c", PANDAS, table),
        rounds=rounds,
        repeats=1,
    )
    note = f"{ours:.2f} and {theirs:.2f} s, median of {rounds} pairs"
    name = "mildroute inspect mmlu57 / pandas read and groupby"
    yield at_most(name, value, 3.0, note, full_only=True)
