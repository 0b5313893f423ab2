"""What happened, by the books of the application, the experts, the gateway and the learner.

Run: python books.py --trail
     python books.py --experts http://127.0.0.1:8081/v1
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import yaml

from mildroute.decision.feedback import read_feedback, read_samples
from mildroute.decision.log import read_decisions

_LOG = "decisions"


def lines(path: str) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def trail() -> list[dict[str, Any]]:
    """All entries of the learner, in their order."""
    return [
        json.loads(path.read_text()) for path in sorted(Path("learning", "trail").glob("*.jsonl"))
    ]


def figures(experts: str) -> dict[str, Any]:
    """All that the page tells and the test checks."""
    asked = lines("asked.jsonl")
    ids = [note["decision_id"] for note in asked]
    logged = {row["decision_id"] for row in read_decisions(_LOG, ("decision_id",))}
    scored = read_feedback(_LOG)
    samples = list(read_samples(_LOG))
    spent = httpx.get(f"{experts}/spend", trust_env=False).json()["dollars"]
    entries = trail()
    kills = Counter(end["name"] for end in lines("ends.jsonl") if end["code"] is None)
    promoted = [entry["candidate"][:16] for entry in entries if entry["event"] == "promoted"]
    counted = json.loads(Path(_LOG, "sampling.json").read_text())["dollars"]
    return {
        "requests": len(asked),
        "without a line": len(set(ids) - logged),
        "without a score": len(set(ids) - set(scored)),
        "samples": len(samples),
        "samples with all scores": sum(None not in sample["scores"] for sample in samples),
        "kills": dict(kills),
        "dollars of sampling, by the experts": sum(spent.values())
        - sum(note["dollars"] for note in asked),
        "dollars of sampling, by the gateway": counted,
        "cap": yaml.safe_load(Path("gateway.yaml").read_text())["sampling"]["max_dollars_per_day"],
        "events": dict(Counter(entry["event"] for entry in entries)),
        "promoted": promoted,
        "promoted twice": len(promoted) - len(set(promoted)),
        "pointer": json.loads(Path("routers/prod.json").read_text()),
    }


def main() -> None:
    """Print the trail without the looks at which nothing was done, or the figures."""
    parser = argparse.ArgumentParser(description="What happened.")
    parser.add_argument("--trail", action="store_true")
    parser.add_argument("--experts", default="http://127.0.0.1:8081/v1")
    options = parser.parse_args()
    if options.trail:
        for entry in trail():
            if entry["event"] not in ("waited", "intent"):
                candidate = entry.get("candidate", "")[:8]
                sys.stdout.write(
                    " ".join(filter(None, (f"{entry['number']}:", entry["event"], candidate)))
                    + f": {entry['why']}\n"
                )
        return
    for name, value in figures(options.experts).items():
        if name != "pointer":
            told = f"{value:.4f}" if isinstance(value, float) else json.dumps(value)
            sys.stdout.write(f"{name}: {told}\n")


if __name__ == "__main__":
    main()
