"""Write support emails, two models' canned answers and three agents' labels, all made up.

Run: python make_emails.py [--emails 600] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

# Emails of each kind, and how often the small model, the large model and an agent label it right.
KINDS = {
    "password": (
        0.97, 0.98, 0.97,
        "I cannot log in to my {product} account since {day}, please reset my password.",
        "The reset link for {product} has expired, send me a new password link.",
    ),
    "invoice": (
        0.95, 0.97, 0.97,
        "Please send me the invoice for {product} from last {day}.",
        "Our accounting needs a copy of the invoice for {count} licenses of {product}.",
    ),
    "shipping": (
        0.93, 0.96, 0.97,
        "Where is my parcel? {product} should have arrived on {day}.",
        "The tracking number for {count} boxes of {product} does not work.",
    ),
    "bug": (
        0.60, 0.93, 0.95,
        "{product} crashes with error {count} when I export a report.",
        "Since the update on {day}, {product} freezes and loses {count} records.",
    ),
    "refund": (
        0.50, 0.85, 0.97,
        "I was charged twice for {product} and want {count} dollars back.",
        "{product} is not what was advertised, refund my money before {day}.",
    ),
    "legal": (
        0.30, 0.50, 0.98,
        "My lawyer will contact you about the contract for {product} by {day}.",
        "Under the data protection law I demand all my {product} data within {count} days.",
    ),
}  # fmt: skip
PRODUCTS = ("Atlas", "Beacon", "Cedar", "Delta", "Ember")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
# How emails begin and end, whatever they are about.
OPENINGS = (
    "",
    "Hello {agent}, this is {name} from {city}.",
    "{name} here, at our shop in {city}.",
    "Good morning, we spoke in {city} last {day}, my name is {name}.",
    "Dear {agent}, I am writing for the whole {team} team in {city}.",
)
ENDINGS = (
    "",
    "Thanks, {name}, {team} team",
    "I am in {city} until {day}, so please call {agent} instead.",
    "{agent} from your {city} office knows about this.",
    "Please answer {name} in {team}, not me.",
)
NAMES = ("Ada", "Bruno", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Igor", "Julia")
AGENTS = ("Karim", "Linda", "Marek", "Nadia", "Oscar", "Priya", "Quentin", "Rosa", "Stefan", "Tara")
CITIES = ("Berlin", "Nairobi", "Lisbon", "Osaka", "Denver", "Cairo", "Lima", "Oslo", "Leeds")
TEAMS = ("sales", "finance", "warehouse", "design", "research", "logistics", "training", "travel")
# Dollars of an answer: a few hundred tokens of a small and of a large model.
PRICES = {"small": 0.0002, "large": 0.004}


def label(rng: np.random.Generator, kind: str, right: float) -> str:
    """The right label as often as stated, else another one."""
    others = [name for name in KINDS if name != kind]
    return kind if rng.random() < right else str(rng.choice(others))


def main() -> None:
    """Write emails.jsonl and answers/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emails", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    emails: list[dict[str, object]] = []
    answers: dict[str, list[dict[str, object]]] = {name: [] for name in PRICES}
    for number in range(options.emails):
        kind = str(rng.choice(list(KINDS)))
        small, large, agent, *texts = KINDS[kind]
        parts = (rng.choice(OPENINGS), rng.choice(texts), rng.choice(ENDINGS))
        text = " ".join(str(part) for part in parts if part).format(
            product=rng.choice(PRODUCTS),
            day=rng.choice(DAYS),
            count=rng.integers(2, 400),
            name=rng.choice(NAMES),
            agent=rng.choice(AGENTS),
            city=rng.choice(CITIES),
            team=rng.choice(TEAMS),
        )
        votes = [label(rng, kind, float(agent)) for _ in range(3)]
        query_id = f"mail-{number}"
        emails.append({"query_id": query_id, "input": text, "reference": kind, "votes": votes})
        for name, right in (("small", small), ("large", large)):
            answer = f"This email is about: {label(rng, kind, float(right))}"
            row = {"query_id": query_id, "text": answer, "dollars": PRICES[name]}
            answers[name].append(row)
    Path("answers").mkdir(exist_ok=True)
    for path, rows in (
        ("emails.jsonl", emails),
        *((f"answers/{name}.jsonl", rows) for name, rows in answers.items()),
    ):
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sys.stdout.write(f"{len(emails)} emails, answers of {', '.join(PRICES)}\n")


if __name__ == "__main__":
    main()
