"""Takes the place of examples/local_llm/serve_smollm2.py.

The same options, the same first line, the same answers to everyone.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WORDS = ["The", " capital", " is", " Oslo", "."]
_CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"town": "Oslo"}'},
}
_USAGE = {"prompt_tokens": 20, "completion_tokens": len(_WORDS), "total_tokens": 20 + len(_WORDS)}


def _shell(kind: str, **choice: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": kind,
        "created": 1,
        "model": "smollm2",
        "choices": [{"index": 0, "finish_reason": None, **choice}],
    }


def color(asked: dict[str, Any]) -> str | None:
    """The color in a question of examples/learning; another one often if it is hot."""
    found = re.search(r"has a (\w+) \w+ from", asked["messages"][-1]["content"])
    is_lost = asked.get("temperature", 0) >= 1 and random.random() < 0.3  # noqa: S311
    return "gray" if found and is_lost else found and found[1]


def whole(asked: dict[str, Any]) -> bytes:
    """An answer in one piece."""
    content = color(asked) or "".join(_WORDS)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if "tools" in asked:
        message = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
    reason = "tool_calls" if "tools" in asked else "stop"
    return json.dumps(
        {**_shell("chat.completion", message=message, finish_reason=reason), "usage": _USAGE}
    ).encode()


def events() -> list[bytes]:
    """The same in pieces."""
    deltas = [{"role": "assistant", "content": None}, *({"content": word} for word in _WORDS)]
    told = [_shell("chat.completion.chunk", delta=delta) for delta in deltas]
    told.append(_shell("chat.completion.chunk", delta={}, finish_reason="stop"))
    return [
        *(b"data: " + json.dumps(event).encode() + b"\n\n" for event in told),
        b"data: [DONE]\n\n",
    ]


class Canned(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    has_tools = False

    def do_POST(self) -> None:
        """Answer a chat."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "tools" in asked and not self.has_tools:
            self._send(
                500,
                "application/json",
                b'{"error": {"message": "tools param requires --jinja flag"}}',
            )
        elif asked.get("stream"):
            self._send(200, "text/event-stream", b"".join(events()))
        else:
            self._send(200, "application/json", whole(asked))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Nothing is said."""


def main() -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--context", type=int)
    parser.add_argument("--tools", action="store_true")
    options = parser.parse_args()
    Canned.has_tools = options.tools
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Canned)
    sys.stdout.write(f"serving at http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
