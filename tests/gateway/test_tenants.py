"""One hostile tenant, and what another client notices of it.

Each test names what an audit measured before, and the number that it gave the attack. The slow ones
run the attacks at the audit's size on a real process and compare delays within one run; the others
are small versions, within this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute import CostTable, fit
from mildroute.decision.log import DecisionRecord, read_log
from mildroute.decision.prompt import prompt_of_messages
from mildroute.gateway.config import FailoverConfig, GatewayConfig, RequestLimits
from mildroute.gateway.http.body import parse_request, read_object
from mildroute.gateway.http.decoder import BodyDecoder
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.key_changes import add_client, revoke_key
from mildroute.gateway.keys import KeyStore
from mildroute.persistence import save_router
from tests.experts.hostile_server import Behavior, Call, HostileServer, Writer, says
from tests.gateway.running import Running, running, until

# Bytes: just below the limit of a body.
LARGE = 7_500_000
# Seconds that the expert takes: a fast one.
EXPERT_SECONDS = 0.03
MAX_IN_FLIGHT = 64
# Seconds between two requests of each of an attack's threads.
PAUSE = 0.25
# Seconds for which the event loop may stand still.
MAX_STALL = 0.1
WORDS = ["cat", "mat", "sea", "song", "river", "stone", "cloud", "glass"]


def says_late(seconds: float) -> Behavior:
    async def behave(call: Call, writer: Writer) -> bool:
        await asyncio.sleep(seconds)
        return await says("4")(call, writer)

    return behave


def script(call: Call) -> Behavior:
    """Requests that say so are kept waiting."""
    if len(call.body) > 400:
        call.body = call.body[:200] + call.body[-200:]
    return says_late(2.0 if b"wait" in call.body else EXPERT_SECONDS)


class Gateway:
    """``mildroute serve``, with a hostile tenant and another client."""

    def __init__(self, folder: Path, router: Path, expert: str, **settings: Any) -> None:
        self.folder = folder
        self.keys = {
            name: add_client(folder / "keys.yaml", name) for name in ("hostile", "other", "third")
        }
        (folder / "experts.yaml").write_text(
            "experts:\n"
            + "".join(
                f"  {name}: {{kind: openai, base_url: '{expert}', model: m}}\n"
                for name in ("small", "large")
            )
        )
        (folder / "gateway.yaml").write_text(
            json.dumps({"log": {"folder": "log"}, "keys": "keys.yaml", **settings})
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        command = [sys.executable, "-m", "mildroute", "serve", str(router)]
        options = ["--experts", "experts.yaml", "--settings", "gateway.yaml"]
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options, "--port", str(self.port)],
                cwd=folder,
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        until(self._is_ready, 60)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "output.txt").read_text()
        try:
            return self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def call(
        self, method: str, path: str, body: bytes = b"", key: str = "other"
    ) -> tuple[int, dict[str, Any]]:
        return post(self.port, path, body, self.keys[key], method)

    def chat(self, text: str, key: str = "other", **fields: Any) -> tuple[int, dict[str, Any]]:
        return self.call("POST", "/v1/chat/completions", chat_body(text, **fields), key)

    def seconds_of_chats(self, count: int) -> np.ndarray:
        """What the other client waits for each of its requests, which must all be answered."""
        rng = np.random.default_rng()
        found = []
        for number in range(count):
            begun = time.perf_counter()
            status, _ = self.chat(f"sum {number} {' '.join(rng.choice(WORDS, 6))}")
            found.append(time.perf_counter() - begun)
            assert status == 200
        return np.array(found)

    def decisions(self, key: str = "other") -> list[DecisionRecord]:
        return [record for record in read_log(self.folder / "log") if record.key == key]

    @property
    def memory(self) -> int:
        """Bytes that the process holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def post(
    port: int, path: str, body: bytes, key: str, method: str = "POST"
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def chat_body(text: str, **fields: Any) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "mildroute", **fields, "messages": [message]}).encode()


def objects_body(size: int) -> bytes:
    return b'{"model":"mildroute","messages":[' + b",".join([b"{}"] * (size // 3)) + b"]}"


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    words = rng.choice(WORDS, (120, 6))
    texts = [f"{('sum', 'verse')[row % 2]} {' '.join(words[row])}" for row in range(120)]
    first = [float(row % 2) for row in range(120)]
    columns = {
        "query_id": [str(row) for row in range(120)],
        "input": texts,
        "score:small": first,
        "score:large": [1 - value for value in first],
        "cost:small": [0.001] * 120,
        "cost:large": [0.001] * 120,
    }
    fitted = fit(CostTable.from_data(columns), thorough=False)
    return save_router(fitted.router, tmp_path_factory.mktemp("router") / "artifact")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, router: Path) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    command = [sys.executable, "-m", "tests.gateway.test_tenants", "expert"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as expert:
        assert expert.stdout is not None
        url = expert.stdout.readline().decode().strip()
        found = Gateway(folder, router, url, limits={"max_in_flight": MAX_IN_FLIGHT})
        try:
            found.seconds_of_chats(20)
            yield found
        finally:
            found.process.terminate()
            found.process.wait(30)
            expert.kill()


class Attack:
    """A process of the hostile tenant that sends the same request again and again."""

    def __init__(self, gateway: Gateway, path: str, body: bytes, threads: int) -> None:
        file = gateway.folder / "attack.json"
        file.write_bytes(body)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.gateway.test_tenants", "attack", str(gateway.port)),
                *(path, gateway.keys["hostile"], str(file), str(threads)),
            ],
            stdout=subprocess.PIPE,
        )
        self.statuses: set[int] = set()

    def __enter__(self) -> Attack:
        assert self._process.stdout is not None
        self.statuses.add(int(self._process.stdout.readline()))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        output, _ = self._process.communicate()
        self.statuses |= {int(line) for line in output.split()[:-1]}


def attack(port: int, path: str, key: str, body: bytes, threads: int) -> None:
    def repeat() -> None:
        while True:
            sys.stdout.write(f"{post(port, path, body, key)[0]}\n")
            sys.stdout.flush()
            time.sleep(PAUSE)

    for _ in range(threads):
        threading.Thread(target=repeat).start()


def check_other_client(
    gateway: Gateway, path: str, body: bytes, *, threads: int, requests: int = 100
) -> set[int]:
    """The other client's p99 at most doubles, and it loses no decision of the router.

    In one of three runs: others work on this machine, too.

    Returns:
        The statuses that the hostile tenant got.
    """
    found = []
    for _ in range(3):
        before = len(gateway.decisions())
        alone = gateway.seconds_of_chats(requests)
        with Attack(gateway, path, body, threads) as attack:
            attacked = gateway.seconds_of_chats(requests)
        reasons = [record.reason for record in gateway.decisions()[before:]]
        ratio = np.quantile(attacked, 0.99) / np.quantile(alone, 0.99)
        lost = reasons.count("router_timeout")
        quantiles = [np.quantile(times, q) for times in (alone, attacked) for q in (0.5, 0.99)]
        found.append(([round(1000 * value) for value in quantiles], lost))
        sys.stdout.write(f"{found[-1]}\n")
        if ratio <= 2 and not lost:
            return attack.statuses
    raise AssertionError(
        f"p50 and p99 alone and attacked in ms, decisions without the router: {found}"
    )


def long_inputs(count: int) -> bytes:
    rng = np.random.default_rng(1)
    inputs = [" ".join(rng.choice(WORDS, 1500)) for _ in range(count)]
    return json.dumps({"inputs": inputs}).encode()


ESCAPED = 'say "hi"\n to, the [cat] '
CHAT = "/v1/chat/completions"


@pytest.mark.slow
class TestAnotherClient:
    def test_18_megabytes_of_objects(self, gateway: Gateway) -> None:
        """T7: the loop stood still for 1.95 s. Now they are refused before they are decoded."""
        assert check_other_client(gateway, CHAT, objects_body(LARGE), threads=1) == {400}

    def test_19_megabytes_of_text(self, gateway: Gateway) -> None:
        body = chat_body(ESCAPED * 280_000)
        assert check_other_client(gateway, CHAT, body, threads=1) == {200}

    def test_4_calls_of_1000_long_inputs(self, gateway: Gateway) -> None:
        """T17: 66 of 75 decisions without the router, p50 2 -> 260 ms."""
        assert check_other_client(gateway, "/v1/route", long_inputs(1000), threads=4) <= {200}

    def test_all_places(self, gateway: Gateway) -> None:
        """T8b: one key took 256 of 256 places, and all others got a 503."""
        threads = MAX_IN_FLIGHT + 16
        assert 429 in check_other_client(gateway, CHAT, chat_body("wait"), threads=threads)

    def test_40_bodies_of_19_megabytes(self, gateway: Gateway) -> None:
        """T13: 55 MB for each, 2.9 times its size; 32 of them filled a pod of 2 GiB.

        512 MiB is for all, and one key gets half of it.
        """
        body = chat_body("x" * LARGE, user="wait")
        before = highest = gateway.memory
        with ThreadPoolExecutor(40) as pool:
            calls = [pool.submit(gateway.call, "POST", CHAT, body, "hostile") for _ in range(40)]
            while not all(call.done() for call in calls):
                highest = max(highest, gateway.memory)
                time.sleep(0.01)
        statuses = [call.result()[0] for call in calls]
        assert set(statuses) == {200, 429}
        assert highest - before <= 1.3 * (256 << 20)


@contextmanager
def small_gateway(
    tmp_path: Path, limits: RequestLimits, **clients: Any
) -> Iterator[tuple[Running, Path, dict[str, str]]]:
    """A gateway in this process; its keys are those of a file."""
    file = tmp_path / "keys.yaml"
    keys = {name: add_client(file, name, **settings) for name, settings in clients.items()}
    config = GatewayConfig(limits=limits, failover=FailoverConfig(drain_timeout=1.0))
    with (
        HostileServer(script) as expert,
        running(config, services={"key_store": KeyStore.read(file)}, small=expert.url) as gateway,
    ):
        yield gateway, file, keys


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_a_key_that_takes_all_places_leaves_some_to_others(tmp_path: Path) -> None:
    """T8b, small: of 16 places one key gets 8, and the other is served at once."""
    limits = RequestLimits(max_in_flight=16)
    with (
        small_gateway(tmp_path, limits, hostile={}, other={}) as (gateway, _, keys),
        ThreadPoolExecutor(16) as pool,
    ):
        calls = [
            pool.submit(gateway.chat, "wait", headers=bearer(keys["hostile"])) for _ in range(16)
        ]
        until(lambda: sum(call.done() for call in calls) == 8)
        assert gateway.app.limiter.in_flight == 8
        assert gateway.chat(headers=bearer(keys["other"])).status_code == 200
        statuses = [call.result().status_code for call in calls]
    assert (statuses.count(200), statuses.count(429)) == (8, 8)
    refused = next(call.result() for call in calls if call.result().status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert "holds its share" in refused.json()["error"]["message"]


def test_bytes_under_way_are_shared_and_bounded(tmp_path: Path) -> None:
    """T13, small: of 1 MB one key gets half, counted before a byte of the body is read."""
    limits = RequestLimits(max_bytes_in_flight=1_000_000)
    with (
        small_gateway(tmp_path, limits, hostile={}, other={}) as (gateway, _, keys),
        ThreadPoolExecutor(4) as pool,
    ):
        calls = [
            pool.submit(gateway.chat, "x" * 300_000, user="wait", headers=bearer(keys["hostile"]))
            for _ in range(4)
        ]
        until(lambda: sum(call.done() for call in calls) == 2)
        other = bearer(keys["other"])
        assert gateway.chat("x" * 200_000, headers=other).status_code == 200
        too_much = gateway.chat("x" * 900_000, headers=other)
        assert (too_much.status_code, too_much.json()["error"]["code"]) == (503, "overloaded")
        statuses = sorted(call.result().status_code for call in calls)
        until(lambda: gateway.app.limiter.in_flight == 0)
        assert gateway.app.limiter.body_bytes == 0
    assert statuses == [200, 200, 429, 429]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_body_is_held_decoded_and_written_again_and_no_more(tmp_path: Path) -> None:
    # Not by tracemalloc: it counts what orjson reserves while it writes, eight times the text. The
    # gateway holds two copies, the expert in this process two more; buffers may hold another two.
    with small_gateway(tmp_path, RequestLimits(), hostile={}, other={}) as (gateway, _, keys):
        body = chat_body("x" * LARGE, user="wait")
        headers = bearer(keys["hostile"])
        headers["content-length"] = str(len(body))

        def pieces() -> Iterator[bytes]:
            for start in range(0, len(body), 50_000):
                yield body[start : start + 50_000]

        before = resident_bytes()
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(gateway.http.post, CHAT, content=pieces(), headers=headers)
            until(lambda: gateway.app.limiter.body_bytes > 0)
            time.sleep(0.5)
            held = resident_bytes() - before
            assert call.result().status_code == 200
    assert held <= 6 * len(body)


@pytest.mark.parametrize(
    "body",
    [
        objects_body(LARGE),
        b'{"model":"m","messages":[{"role":"user","content":[' + b"7," * 3_700_000 + b"7]}]}",
        b'{"model":"m","messages":[' + b'{"a":{}},' * 66_000 + b"{}]}" + b" " * 6_500_000,
        chat_body(ESCAPED * 280_000),
        chat_body("x" * LARGE),
        json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": ESCAPED * 2900}] * 96}
        ).encode(),
        chat_body("\u6771\u4eac" * 600_000),
    ],
    ids=["objects", "numbers", "nested", "escapes", "plain", "many strings", "japanese"],
)
def test_a_large_body_stalls_the_loop_for_at_most_100_ms(body: bytes) -> None:
    """T7: 1.95 s for objects, 1.67 s for numbers."""

    async def longest_gap() -> float:
        loop = asyncio.get_running_loop()
        parsing = asyncio.ensure_future(
            BodyDecoder().decode(
                "hostile",
                len(body),
                lambda: parse_request("chat/completions", read_object(body)),
            )
        )
        longest = 0.0
        at = loop.time()
        while not parsing.done():
            await asyncio.sleep(0.001)
            longest = max(longest, loop.time() - at)
            at = loop.time()
        with contextlib.suppress(APIError):
            await parsing
        return longest

    gc.collect()
    gc.freeze()
    try:
        gaps = [asyncio.run(longest_gap()) for _ in range(3)]
    finally:
        gc.unfreeze()
    assert min(gaps) <= MAX_STALL, gaps


@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize(
    "text", ["x" * 300_000, ESCAPED * 20_000, "\u6771\u4eac \U0001f600" * 60_000]
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_large_body_is_passed_on_but_for_its_model(
    text: str, model_first: bool, is_ascii: bool
) -> None:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "Hi" + text}]
    fields = {"messages": messages, "stream": True}
    document = {"model": "m", **fields} if model_first else {**fields, "model": "m"}
    body = json.dumps(document, ensure_ascii=is_ascii).encode()
    parsed = parse_request("chat/completions", read_object(body))
    sent = json.loads(parsed.body_for("other", include_usage=True))
    assert sent == document | {"model": "other", "stream_options": {"include_usage": True}}
    assert parsed.text == f"Hi{text}"
    assert parsed.tokens_in == prompt_of_messages(messages).estimate()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"model":"m","x":"' + b"a" * 300_000 + b'\xff"}', "UTF-8"),
        (b'{"model":"m","x":"' + b"a" * 300_000 + b'\xe6\x9d"}', "UTF-8"),
        (
            b'{"model":"m","x":"' + b"a" * 300_000 + b"\n" + b"a" * 300_000 + b'"}',
            "control character",
        ),
        (b'{"model":"m","x":"' + b"a" * 300_000 + b"\\uzz" + b"a" * 300_000 + b'"}', "escape"),
        (b'{"model":"m","x":"' + b"a" * 300_000, "JSON"),
        (b'{"model":"m","x":[' + b"{}," * 200_001 + b"1]}", "at most 200,000 objects and lists"),
    ],
)
def test_a_large_body_that_is_wrong_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(APIError, match=words):
        parse_request("chat/completions", read_object(body))


def test_keys_name_their_models_and_end(tmp_path: Path) -> None:
    settings = {"models": ["mildroute"]}
    with small_gateway(tmp_path, RequestLimits(), a=settings) as (gateway, file, keys):
        key = bearer(keys["a"])
        refused = gateway.chat(model="small", headers=key)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
        models = gateway.http.get("/v1/models", headers=key).json()["data"]
        assert [model["id"] for model in models] == ["mildroute"]
        assert gateway.http.get("/v1/models/small", headers=key).status_code == 404
        assert gateway.chat(headers=key).status_code == 200
        revoke_key(file, "a")
        gateway.services.key_store.replace(KeyStore.read(file))
        assert gateway.chat(headers=key).status_code == 401


def test_inputs_of_a_call_count_as_requests(tmp_path: Path) -> None:
    """T17: 1,000 inputs took one of the rate."""
    client = {"requests_per_minute": 60}
    with small_gateway(tmp_path, RequestLimits(), a=client) as (gateway, _, keys):

        def route(count: int) -> int:
            body = {"inputs": ["sum"] * count}
            answer = gateway.http.post("/v1/route", json=body, headers=bearer(keys["a"]))
            return answer.status_code

        assert [route(11), route(9), route(9)] == [400, 200, 429]


def main(role: str, *arguments: str) -> None:
    """What runs in a process of its own: the experts, or an attack."""
    if role == "expert":
        with HostileServer(script) as expert:
            sys.stdout.write(f"{expert.url}\n")
            sys.stdout.flush()
            sys.stdin.read()
    else:
        port, path, key, file, threads = arguments
        attack(int(port), path, key, Path(file).read_bytes(), int(threads))


if __name__ == "__main__":
    main(*sys.argv[1:])
