"""Make exam.csv: 800 exam questions and which of three LLMs got each one right, under odd headers.

Run: python examples/exam/make_table.py [FOLDER OF DOWNLOADS]

The answers are those that the authors of MMLU-Pro published (see mildroute.datasets); the first run
downloads them.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from mildroute.datasets import load_mmlu_pro

NAMES = {
    "Llama-3.1-8B": "Llama 8B",
    "gemini-1.5-flash": "Gemini Flash",
    "gemini-1.5-pro": "Gemini Pro",
}
ROWS, LONGEST = 800, 400


def main() -> None:
    """Draw the questions and write the table."""
    table = load_mmlu_pro(sys.argv[1] if len(sys.argv) > 1 else None)
    inputs = list(table.inputs or ())
    short = [row for row, text in enumerate(inputs) if len(text) < LONGEST]
    rows = np.sort(np.random.default_rng(0).choice(short, ROWS, replace=False))
    places = [table.experts.index(name) for name in NAMES]
    with (Path(__file__).parent / "exam.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\n")
        writer.writerow(["Question", *NAMES.values()])
        for row in rows:
            right = ["Y" if table.scores[row, place] else "N" for place in places]
            writer.writerow([inputs[row], *right])


if __name__ == "__main__":
    main()
