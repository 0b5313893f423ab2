"""A small expert for the tutorial of a fleet: it answers every chat, and bills a token a word.

Run: python expert.py --port 8080
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Expert(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat in the shape of OpenAI's API."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": f"I am {request['model']}."}
        words = len(request["messages"][-1]["content"].split())
        answer = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": words, "completion_tokens": 5, "total_tokens": words + 5},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(description="Serve a small expert.")
    parser.add_argument("--port", type=int, default=8080)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Expert)
    sys.stdout.write(f"serving at http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
