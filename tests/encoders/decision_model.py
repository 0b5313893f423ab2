"""A decision model that knows nothing but the lengths of texts."""

from __future__ import annotations

import functools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def answer(question: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an answer whose probabilities follow from the length of the text."""
    if question["type"] == "noul":
        return {"type": "noul", "noul": 1 / (1 + len(text))}
    criteria = question["criteria"]
    keys = list(criteria) if question["type"] == "choice" else list(map(str, range(len(criteria))))
    weights = [1 + (len(text) + index) % 5 for index in range(len(keys))]
    odds = {key: weight / sum(weights) for key, weight in zip(keys, weights, strict=True)}
    return {"type": question["type"], "probabilities": odds, "confidence": 0.5}


class DecisionModel(ThreadingHTTPServer):
    """The server, in a thread of its own.

    Attributes:
        texts: Texts that it was asked about.
        authorizations: Header of each request, or ``None``.
        delay: Seconds before each answer.
        body: Body of all responses, or ``None``.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.authorizations: list[str | None] = []
        self.delay = 0.0
        self.body: bytes | None = None
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DecisionModel

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.texts.append(asked["state"])
        self.server.authorizations.append(self.headers["authorization"])
        time.sleep(self.server.delay)
        answers = {name: answer(one, asked["state"]) for name, one in asked["questions"].items()}
        usage = {"input_tokens": 1, "output_tokens": 0}
        body = json.dumps({"model": asked["model"], "answers": answers, "usage": usage}).encode()
        body = self.server.body or body
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def shared_model() -> DecisionModel:
    """Return a server for tests that change nothing about it; it lives as long as the process."""
    return DecisionModel()
