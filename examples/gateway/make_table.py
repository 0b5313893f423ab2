"""Writes questions that were asked before, with a grade and a price for each of two experts.

The grades are made up: the small expert knows facts and small talk, and gets most sums and puzzles
wrong.

Run: python make_table.py --rows 400
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

COUNTRIES = (
    "France",
    "Japan",
    "Kenya",
    "Peru",
    "Norway",
    "India",
    "Chile",
    "Spain",
    "Egypt",
    "Canada",
    "Greece",
    "Poland",
    "Italy",
    "Nepal",
)
THINGS = (
    "cats",
    "rain",
    "tea",
    "music",
    "snow",
    "bread",
    "trains",
    "winter",
    "gardens",
    "books",
    "birds",
    "football",
    "soup",
    "bicycles",
)
EASY = (
    "What is the capital of {country}?",
    "Which language do people speak in {country}?",
    "On which continent is {country}?",
    "Say something nice about {thing}.",
    "Tell me a short joke about {thing}.",
    "Do you like {thing}?",
)
HARD = (
    "What is {a} times {b}?",
    "I had {a} apples, ate {c} and bought {b} more. How many are left?",
    "A train needs {c} hours for {a} miles. How long does it need for {b} miles?",
    "Sort the numbers {a}, {b} and {c}, and add the two largest.",
    "What is {a} percent of {b}, rounded down?",
    "If {a} is more than {b}, say yes, else divide {a} by {c}.",
)
PRICES = {"small": 0.00001, "large": 0.0001}
RIGHT = {"easy": {"small": 0.95, "large": 0.95}, "hard": {"small": 0.1, "large": 0.9}}


def row(number: int, lots: random.Random) -> dict[str, object]:
    """One question."""
    kind, forms = lots.choice((("easy", EASY), ("hard", HARD)))
    words = {"country": lots.choice(COUNTRIES), "thing": lots.choice(THINGS)}
    text = lots.choice(forms).format(
        a=lots.randint(20, 99), b=lots.randint(20, 99), c=lots.randint(2, 19), **words
    )
    scores = {f"score:{name}": int(lots.random() < chance) for name, chance in RIGHT[kind].items()}
    return {
        "query_id": f"q{number}",
        "input": text,
        **scores,
        **{f"cost:{name}": price for name, price in PRICES.items()},
    }


def main() -> None:
    """Write graded.jsonl."""
    parser = argparse.ArgumentParser(description="Write graded.jsonl.")
    parser.add_argument("--rows", type=int, default=400)
    options = parser.parse_args()
    lots = random.Random(0)  # noqa: S311 - nothing is kept secret by it
    lines = [json.dumps(row(number, lots)) + "\n" for number in range(options.rows)]
    Path("graded.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
