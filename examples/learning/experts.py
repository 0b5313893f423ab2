"""Three experts that name colors, and a referee that knows them, behind one OpenAI-compatible API.

``linear`` is a classifier that has learned four colors well, and two from labels half of which are
wrong. ``brief`` and ``shots`` are SmolLM2 with two prompts and temperatures. The server counts its
own dollars: GET /v1/spend.

Run: python experts.py --model http://127.0.0.1:8080/v1 --port 8081
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from colors import LEARNED, questions, right_answer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

# Dollars per million tokens, as in experts.yaml.
PRICES = {"brief": 10, "shots": 40, "linear": 5, "referee": 5}
# One token is enough for a color. A slot of its own keeps the examples of each prompt cached.
CONFIGURATIONS = {
    "brief": {"temperature": 1.0, "max_tokens": 1, "id_slot": 0},
    "shots": {"temperature": 0.0, "max_tokens": 1, "id_slot": 1},
}
EXAMPLES = (
    ("Ann has a red car from Max. The car is", "red"),
    ("Leo has a green cup from Ida. The cup is", "green"),
)

Reply = tuple[str, int, int]


class Experts:
    """What each model answers, and what it has charged."""

    def __init__(self, model: str) -> None:
        self._url = f"{model}/chat/completions"
        known = questions(seed=1)[:600]
        words = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=1000))
        self._classifier = words.fit(known, _labels(known))
        self._lock = threading.Lock()
        self.calls = dict.fromkeys(PRICES, 0)
        self.dollars = dict.fromkeys(PRICES, 0.0)

    def reply(self, name: str, text: str) -> dict[str, Any]:
        """A chat completion, which is charged."""
        answers: dict[str, Callable[[str], Reply]] = {"linear": self._linear, "referee": _grade}
        if name in answers:
            content, read, written = answers[name](text)
        else:
            content, read, written = self._ask_model(name, text)
        with self._lock:
            self.calls[name] += 1
            self.dollars[name] += (read + written) * PRICES[name] / 1e6
        usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {"object": "chat.completion", "model": name, "choices": [choice], "usage": usage}

    def _linear(self, text: str) -> Reply:
        chances = self._classifier.predict_proba([text])[0]
        # Sharper than they are, so that it is sure of what it has learned well.
        color = random.choices(self._classifier.classes_, chances**3)[0]
        return str(color), len(text.split()), 1

    def _ask_model(self, name: str, text: str) -> Reply:
        messages = []
        for question, color in EXAMPLES[: 1 if name == "brief" else 2]:
            messages += [
                {"role": "user", "content": question},
                {"role": "assistant", "content": color},
            ]
        messages.append({"role": "user", "content": text})
        settings = {**CONFIGURATIONS[name], "seed": random.randrange(10**6)}
        body = json.dumps({"messages": messages, **settings}).encode()
        request = urllib.request.Request(  # noqa: S310
            self._url, body, {"content-type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as response:
            found = json.load(response)
        usage = found["usage"]
        content = found["choices"][0]["message"]["content"] or ""
        return content or "?", usage["prompt_tokens"], usage["completion_tokens"]


def _labels(texts: list[str]) -> list[str]:
    """Right ones for the colors of which the classifier is to learn well, half of the others."""
    generator = random.Random(0)
    return [
        color if color in LEARNED or generator.random() < 0.53 else LEARNED[0]
        for color in map(right_answer, texts)
    ]


def _grade(prompt: str) -> Reply:
    """What a judge that knows the truth says of an answer to a question, both between tags."""
    question, answer = (
        re.findall(rf"<{name}-\w+>\n(.*?)\n</{name}-", prompt, flags=re.DOTALL)[-1]
        for name in ("question", "answer")
    )
    is_right = right_answer(question) in answer
    return f"Grade: {10 if is_right else 1}", len(prompt.split()), 3


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    experts: Experts

    def do_POST(self) -> None:
        """Answer a chat."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        self._send(self.experts.reply(asked["model"], asked["messages"][-1]["content"]))

    def do_GET(self) -> None:
        """What was charged."""
        self._send({"calls": self.experts.calls, "dollars": self.experts.dollars})

    def _send(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """Says nothing of clients that are gone: they are killed on purpose."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until the process is stopped; the first line says where."""
    parser = argparse.ArgumentParser(description="Serve three experts and a referee.")
    parser.add_argument("--model", required=True, help="URL of SmolLM2")
    parser.add_argument("--port", type=int, default=8081)
    options = parser.parse_args()
    Handler.experts = Experts(options.model)
    server = Server(("127.0.0.1", options.port), Handler)
    sys.stdout.write(f"serving at http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
