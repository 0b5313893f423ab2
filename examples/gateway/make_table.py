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
    "Brazil",
    "Mexico",
    "Cuba",
    "Ghana",
    "Ireland",
    "Iceland",
    "Turkey",
    "Vietnam",
    "Mongolia",
    "Finland",
    "Portugal",
    "Hungary",
    "Ethiopia",
    "Morocco",
    "Jamaica",
    "Bolivia",
    "Latvia",
    "Cambodia",
    "Senegal",
    "Uruguay",
    "Austria",
    "Malta",
    "Jordan",
    "Zambia",
    "Belgium",
    "Denmark",
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
    "castles",
    "rivers",
    "cheese",
    "dragons",
    "mountains",
    "letters",
    "clouds",
    "pirates",
    "violins",
    "cookies",
    "robots",
    "mushrooms",
    "lighthouses",
    "penguins",
    "markets",
    "candles",
    "islands",
    "horses",
    "umbrellas",
    "pancakes",
    "painters",
    "sailing",
    "chess",
    "owls",
    "deserts",
    "puzzles",
)
PEOPLE = (
    "Ann",
    "Tom",
    "Eva",
    "Max",
    "Ida",
    "Ben",
    "Zoe",
    "Leo",
    "Amy",
    "Jim",
    "Sue",
    "Bob",
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EASY = (
    "What is the capital of {country}?",
    "On which continent is {country}?",
    "Say something nice about {thing} to {person}, who has just come back from {country}.",
    "Tell {person} a short joke about {thing} in {country}.",
    "Do you like {thing}?",
    "Recommend a song about {thing} that people in {country} sing.",
)
HARD = (
    "What is {tens} times {more}?",
    "What is {a} times {b}, in {country}?",
    "What is {a} percent of {more} {thing}?",
    "{person} had {a} {thing}, lost {c} in {country} and bought {b} more. How many are left?",
    "Sort the prices {a}, {b} and {c} of {thing} in {country}, and add the two largest.",
    "{person} pays {a} for {thing} and {b} for a trip to {country}. What is {c} times that?",
)
PRICES = {"small": 0.00001, "large": 0.0001}
RIGHT = {"easy": {"small": 0.95, "large": 0.95}, "hard": {"small": 0.1, "large": 0.9}}


def row(number: int, lots: random.Random) -> dict[str, object]:
    """One question."""
    kind, forms = lots.choice((("easy", EASY), ("hard", HARD)))
    words = {
        "country": lots.choice(COUNTRIES),
        "thing": lots.choice(THINGS),
        "person": lots.choice(PEOPLE),
        "tens": f"{lots.choice(TENS)}-{lots.choice(ONES)}",
        "more": f"{lots.choice(TENS)}-{lots.choice(ONES)}",
    }
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
