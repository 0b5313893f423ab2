"""Asks a gateway questions, two at a time, and tells it which answers were right.

A request that gets no answer is sent again. Answers are noted in asked.jsonl.

Run: python ask.py --port 8000 --requests 300
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from colors import LEARNED, questions, right_answer
from experts import PRICES

NOTES = Path("asked.jsonl")
_GIVE_UP = 120.0


class Application:
    """A client of the gateway."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/v1", timeout=120, trust_env=False
        )
        self._lock = threading.Lock()
        self.again = 0

    def ask(self, question: str) -> dict[str, Any]:
        """Ask, tell the score, and note both."""
        messages = [{"role": "user", "content": question}]
        body = {"model": "mildroute", "max_tokens": 4, "messages": messages}
        answer = self._post("/chat/completions", body)
        document = answer.json()
        expert = answer.headers["x-mildroute-expert"]
        is_right = right_answer(question) in document["choices"][0]["message"]["content"]
        note = {
            "decision_id": answer.headers["x-mildroute-decision-id"],
            "expert": expert,
            "is_learned": right_answer(question) in LEARNED,
            "is_right": is_right,
            "dollars": document["usage"]["total_tokens"] * PRICES[expert] / 1e6,
        }
        score = {"decision_id": note["decision_id"], "score": int(is_right)}
        self._post("/feedback", score)
        with self._lock, NOTES.open("a") as file:
            file.write(json.dumps(note) + "\n")
        return note

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send it until it is answered: the gateway may be about to be started again."""
        end = time.monotonic() + _GIVE_UP
        while True:
            try:
                answer = self._http.post(path, json=body)
                if answer.status_code == 200:
                    return answer
                problem = answer.text
            except httpx.TransportError as error:
                problem = str(error)
            if time.monotonic() > end:
                raise SystemExit(f"no answer within two minutes: {problem}")
            with self._lock:
                self.again += 1
            time.sleep(0.5)


def main() -> None:
    """Send requests, then say what came of them."""
    parser = argparse.ArgumentParser(description="Ask a gateway questions about colors.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--requests", type=int, default=2000, help="at most")
    parser.add_argument("--per-second", type=float, default=6.0, help="at most")
    options = parser.parse_args()
    done = len(NOTES.read_text().splitlines()) if NOTES.exists() else 0
    rest = questions()[done : done + options.requests]
    application = Application(options.port)
    notes: list[dict[str, Any]] = []
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(rest), 10):
            began = time.monotonic()
            notes += pool.map(application.ask, rest[start : start + 10])
            time.sleep(max(0.0, began + 10 / options.per_second - time.monotonic()))
    right = sum(note["is_right"] for note in notes) / max(len(notes), 1)
    experts = Counter(note["expert"] for note in notes)
    told = ", ".join(f"{name} {count}" for name, count in sorted(experts.items()))
    sys.stdout.write(
        f"{len(notes)} requests, {right:.0%} right, sent again {application.again}; {told}\n"
    )


if __name__ == "__main__":
    main()
