"""Clients in a process of their own, with their own books.

Requests arrive at a pace that does not wait for answers.

    traffic = Traffic(port, keys, rate=50, seconds=20, book=path); traffic.start(); ...; records =
    traffic.finish()

Each request has a number that is in its prompt ("#123") and names its conversation, so that the
gateway's log, the experts' books and the clients' records can be held against each other. A client
tries again, as a load balancer would, if nobody listens or if its connection is closed before a
single byte of an answer; that is counted apart.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httptools
from expert import tokens_of

KNOWN = [f"add the numbers of line {place} and sing about the sea" for place in range(50)]
_CONTENT = re.compile(r'"(?:content|text)": ?"([^"]*)"')
_PARAMETERS = {"type": "object", "properties": {"usage": {"type": "object"}}}
_TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": _PARAMETERS}}]
# For an answer, and for a gateway that is restarted.
_SECONDS, _AWAY = 30.0, 120.0


@dataclass
class Job:
    """What to do.

    With a rate of 0 each of ``most_at_once`` clients asks again as soon as it is answered.
    """

    port: int
    keys: dict[str, str]
    rate: float
    seconds: float
    book: str
    first_number: int = 1
    kinds: dict[str, float] = field(
        default_factory=lambda: {"chat": 4, "known": 2, "stream": 3, "tools": 1, "responses": 1}
    )
    most_at_once: int = 400
    seed: int = 0
    # Whether requests that went well are written down, too; else they are only counted.
    keeps_good: bool = True
    # Requests after which they stop, and requests on a connection; 0 for no limit.
    count: int = 0
    requests_per_connection: int = 0
    retries: bool = True
    # What most requests name; for the others the gateway's setting counts.
    max_tokens: int = 64
    # Whether each request names a conversation of its own, which no gateway knows.
    names_conversations: bool = True


@dataclass
class Told:
    """What one client has seen of one request."""

    number: int
    kind: str
    key: str
    status: int = 0
    decision_id: str = ""
    expert: str = ""
    text: str = ""
    tokens: tuple[int, int] = (0, 0)
    error: str = ""
    retries: int = 0
    at: float = 0.0
    late: float = 0.0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.status == 200 and not self.error


@dataclass
class Totals:
    """All requests together."""

    requests: int = 0
    good: int = 0
    retried: int = 0
    # Answers that nobody had asked for.
    unasked: int = 0
    # Seconds by which the clients themselves were late at most.
    latest: float = 0.0
    seconds: list[float] = field(default_factory=list)
    # By key and expert, with a space in between.
    tokens: dict[str, list[int]] = field(default_factory=dict)

    def add(self, told: Told) -> None:
        self.requests += 1
        self.good += told.is_good
        self.retried += told.retries > 0
        self.latest = max(self.latest, told.late)
        self.seconds.append(round(told.seconds, 5))
        if told.is_good:
            sums = self.tokens.setdefault(f"{told.key} {told.expert}", [0, 0])
            sums[0] += told.tokens[0]
            sums[1] += told.tokens[1]


class UpstreamError(Exception):
    """The connection ended; ``heard`` tells whether an answer had begun."""

    def __init__(self, heard: bool) -> None:
        super().__init__()
        self.heard = heard


class Line(asyncio.Protocol):
    """One connection to the gateway."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] | None = None
        self.is_open, self.spoilt = True, 0
        self.requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, request: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: dict[bytes, bytes] = {}
        self.body, self.heard = bytearray(), False
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.done
        self.done = None
        return self.parser.get_status_code(), self.headers, bytes(self.body)

    def data_received(self, data: bytes) -> None:
        if self.done is None or self.done.done():
            self.spoilt += 1  # an answer that nobody asked for
            self.transport.close()
            return
        self.heard = True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        if not self.parser.should_keep_alive():
            self.is_open = False
            self.transport.close()
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_open = False
        if self.done is not None and not self.done.done():
            self.done.set_exception(UpstreamError(self.heard))


class Clients:
    """All clients of a job."""

    def __init__(self, job: Job) -> None:
        self.job, self.totals = job, Totals()
        self.free: list[Line] = []
        self.rng = random.Random(job.seed)  # noqa: S311
        self.kinds, self.weights = list(job.kinds), list(job.kinds.values())
        self.names, self.place = list(job.keys), 0

    async def run(self) -> None:
        with Path(self.job.book).open("a", buffering=1) as book:
            await (self.at_a_pace(book) if self.job.rate else self.at_their_best(book))
        for line in self.free:
            line.transport.close()

    async def at_a_pace(self, book: Any) -> None:
        job, loop = self.job, asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        begun = loop.time()
        while (due := begun + self.place / job.rate) < begun + job.seconds:
            await asyncio.sleep(max(0.0, due - loop.time()))
            if len(tasks) >= job.most_at_once:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            task = loop.create_task(self.one(self.next(), due, book))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=_AWAY + _SECONDS)

    async def at_their_best(self, book: Any) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.job.seconds

        async def ask() -> None:
            while loop.time() < until and (not self.job.count or self.place < self.job.count):
                await self.one(self.next(), loop.time(), book)

        await asyncio.gather(*(ask() for _ in range(self.job.most_at_once)))

    def next(self) -> Told:
        self.place += 1
        kind = self.rng.choices(self.kinds, self.weights)[0]
        return Told(self.job.first_number + self.place - 1, kind, self.rng.choice(self.names))

    async def one(self, told: Told, due: float, book: Any) -> None:
        loop = asyncio.get_running_loop()
        told.at, told.late = time.time(), loop.time() - due
        await self.ask(told)
        told.seconds = loop.time() - due
        self.totals.add(told)
        if self.job.keeps_good or not told.is_good:
            book.write(json.dumps(asdict(told)) + "\n")

    async def ask(self, told: Told) -> None:
        request = request_of(told, self.job)
        until = asyncio.get_running_loop().time() + _AWAY
        while True:
            line = None
            try:
                line = self.free.pop() if self.free else None
                if line is None or not line.is_open:
                    _, line = await asyncio.get_running_loop().create_connection(
                        Line, "127.0.0.1", self.job.port
                    )
                status, headers, body = await asyncio.wait_for(line.ask(request), _SECONDS)
            except TimeoutError:
                told.error = "no answer in time"
                return
            except (OSError, UpstreamError) as error:
                if isinstance(error, UpstreamError) and error.heard:
                    told.status, told.error = (
                        (line.parser.get_status_code() if line else 0),
                        "cut off",
                    )
                    return
                if not self.job.retries:
                    told.error = "cut off before a byte"
                    return
                if asyncio.get_running_loop().time() > until:
                    told.error = "unreachable"
                    return
                told.retries += 1
                await asyncio.sleep(0.05)
                continue
            self.totals.unasked += line.spoilt
            self.keep(line)
            note(told, status, headers, body.decode(errors="replace"))
            return

    def keep(self, line: Line) -> None:
        """For the next request, unless it has carried as many as it may."""
        line.requests += 1
        if line.is_open and line.requests == self.job.requests_per_connection:
            line.transport.close()
        elif line.is_open:
            self.free.append(line)


def request_of(told: Told, job: Job) -> bytes:
    """The request with its number."""
    name, path = f"#{told.number}", "chat/completions"
    document: dict[str, Any] = {"model": "mildroute"}
    if job.names_conversations:
        document["metadata"] = {"conversation_id": conversation_of(told.number)}
    if told.kind == "responses":
        path = "responses"
        document["input"] = f"prove that {name} is a number"
    elif told.kind == "known":
        document["messages"] = [
            {"role": "system", "content": name},
            {"role": "user", "content": KNOWN[told.number % len(KNOWN)]},
        ]
    else:
        document["messages"] = [{"role": "user", "content": f"sing {name} of the songs"}]
    if told.kind == "stream":
        document["stream"] = True
        if wants_usage(told):
            document["stream_options"] = {"include_usage": True}
    if told.kind == "tools":
        document["tools"] = _TOOLS
    if told.number % 4:
        # Most clients bound what a request can cost; for the others the gateway's setting does.
        document["max_output_tokens" if told.kind == "responses" else "max_tokens"] = job.max_tokens
    body = json.dumps(document).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nhost: 127.0.0.1:{job.port}\r\nauthorization: Bearer"
        f" {job.keys[told.key]}\r\n"
    )
    return (
        f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )


def wants_usage(told: Told) -> bool:
    """Whether a client asks for the usage of its stream: every second one does."""
    return told.number % 2 == 0


def conversation_of(number: int) -> str:
    """Name of a request's conversation."""
    return f"n{number}"


def note(told: Told, status: int, headers: dict[bytes, bytes], body: str) -> None:
    """Read an answer as a client would."""
    told.status = status
    told.decision_id = headers.get(b"x-mildroute-decision-id", b"").decode()
    told.expert = headers.get(b"x-mildroute-expert", b"").decode()
    if status != 200:
        told.error = body[:200]
        return
    if told.kind == "stream":
        told.text = "".join(_CONTENT.findall(body))
        if "data: [DONE]" not in body:
            told.error = (
                "an error event: " + body[-200:]
                if '"error"' in body
                else "an answer without its end"
            )
    else:
        found = _CONTENT.findall(body)
        told.text = found[0] if found else ""
    counts = [
        int(value)
        for value in re.findall(r'"(?:prompt|input|completion|output)_tokens": ?(\d+)', body)
    ]
    told.tokens = (counts[0], counts[1]) if len(counts) == 2 else (0, 0)
    if told.kind == "stream" and not wants_usage(told):
        # The gateway asks its expert for the usage, bills by it, and keeps it from this client.
        if counts:
            told.error = told.error or "usage that the client did not ask for"
        told.tokens = tokens_of(told.number)


class Traffic:
    """Clients that run while something else happens.

    Args:
        job: What they do.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def start(self) -> Traffic:
        Path(self.job.book).unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(self.job)))
        self.process.stdin.close()
        self.process.stdin = None
        return self

    def finish(self) -> tuple[list[Told], Totals]:
        """What clients have written down, and all of it together."""
        try:
            said, _ = self.process.communicate(timeout=self.job.seconds + _AWAY + 3 * _SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        return list(read_book(Path(self.job.book))), Totals(**json.loads(said))


def read_book(path: Path) -> Iterable[Told]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield Told(**{**row, "tokens": tuple(row["tokens"])})


if __name__ == "__main__":
    clients = Clients(Job(**json.load(sys.stdin)))
    asyncio.run(clients.run())
    print(json.dumps(asdict(clients.totals)))
