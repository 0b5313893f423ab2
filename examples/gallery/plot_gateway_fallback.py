"""
Gateway fallback while an expert is down
========================================

An application speaks to one address. Behind it the gateway asks the expert that the router prefers
and, if that one fails, the next best.
Here a real gateway stands before two real servers, one of which breaks down for two seconds.
"""

# %%
# Two experts
# -----------
# Each is a small HTTP server on this machine that answers like an OpenAI-compatible model. It can
# be told to fail.

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mildroute import MildRouter, TextRouter, save_router

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])


class Expert(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.calls.append(time.monotonic())
        answer = {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello."},
                    "finish_reason": "stop",
                }
            ]
        }
        body = json.dumps({"error": "down"} if self.server.is_down else answer).encode()
        self.send_response(503 if self.server.is_down else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing on the console."""


def start_expert():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Expert)
    server.is_down, server.calls = False, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


small, large = start_expert(), start_expert()

# %%
# A router and its gateway
# ------------------------
# The router has learned that ``small`` will do for a chat and not for sums. The gateway is the
# command ``mildroute serve`` in a process of
# its own. Three failures in a row open an expert's circuit: it is not called for up to half a
# second, then tried with one call, and not
# called for up to a second if that fails, too.

folder = Path(tempfile.mkdtemp())
chats = [
    f"{ask} {thing}"
    for ask in ("Tell me about", "Do you like")
    for thing in ("cats", "rain", "tea", "snow", "bread")
]
sums = [f"What is {number} times {number + 7}" for number in range(10)]
costs = pd.DataFrame({"small": [0.0] * 10 + [1.0] * 10, "large": [0.1] * 20})
save_router(
    TextRouter(router=MildRouter(features="raw", random_state=0)).fit(chats + sums, costs),
    folder / "router",
)
(folder / "experts.yaml").write_text(f"""experts:
  small: {{kind: openai, model: small, base_url: "http://127.0.0.1:{small.server_port}/v1"}}
  large: {{kind: openai, model: large, base_url: "http://127.0.0.1:{large.server_port}/v1"}}
""")
(folder / "gateway.yaml").write_text(
    "breaker: {consecutive_failures: 3, cooldown: 0.5, max_cooldown: 1}\n"
    "routing: {session_affinity: false}\n"
)
command = [
    Path(sys.executable).with_name("mildroute"),
    "serve",
    "router",
    "--experts",
    "experts.yaml",
    "--settings",
    "gateway.yaml",
]
gateway = subprocess.Popen([*command, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True)
address = re.search(r"http://\S+/v1", gateway.stdout.readline())[0]

# %%
# Five seconds of traffic
# -----------------------
# Chat requests arrive all the time. After one second ``small`` breaks down, after three it is
# well again. The headers of each answer
# say who gave it, and the metrics tell the state of the circuit.

seen = []
with httpx.Client(base_url=address, trust_env=False) as client:
    start = time.monotonic()
    while (now := time.monotonic() - start) < 5:
        small.is_down = 1 < now < 3
        message = {"role": "user", "content": chats[len(seen) % 10]}
        answer = client.post("chat/completions", json={"model": "mildroute", "messages": [message]})
        is_open = (
            'mildroute_breaker_state{expert="small"} 0.0'
            not in client.get(address.replace("/v1", "/metrics")).text
        )
        seen.append(
            (
                now,
                answer.headers["x-mildroute-expert"] == "large",
                answer.elapsed.total_seconds(),
                is_open,
                answer.status_code,
            )
        )
        time.sleep(0.03)
gateway.terminate()
gateway.wait()
when, by_large, seconds, is_open, status = np.array(seen).T
print(
    f"{len(seen)} requests, {(status == 200).sum()} answered, {by_large.sum():.0f} of them by large"
)

# %%
# What the client noticed
# -----------------------
# Nothing. The first requests after the breakdown fail at ``small`` and are answered by ``large``,
# within milliseconds. Then the circuit
# opens, and ``small`` gets a probe now and then. The first one after it is well closes the circuit,
# up to a second late.

figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(8, 4.8), sharex=True, height_ratios=(3, 2), layout="constrained"
)
top.scatter(when, 3 - by_large, c=np.where(by_large, "C1", "C0"), s=9)
top.plot(np.array(small.calls) - start, np.ones(len(small.calls)), "|", color="0.3")
top.fill_between(when, -0.25, 0.25, where=is_open > 0, color="C3", step="post")
top.set_yticks(
    range(4),
    ["circuit of small is open", "calls that small gets", "answered by large", "answered by small"],
)
top.set(ylim=(-0.6, 3.6), title="small is down (shaded), and every request is answered")
bottom.plot(when, 1000 * seconds, ".", color="0.3")
bottom.set(xlabel="seconds", ylabel="ms until answered", ylim=(0, None))
for axes in (top, bottom):
    axes.axvspan(1, 3, color="C2", alpha=0.15, linewidth=0)
plt.show()
