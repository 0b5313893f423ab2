"""A key that is given by an environment variable is found nowhere after a run, however it went."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.collection.store import AnswerStore
from tests.collection.command import Finished, collect
from tests.collection.pools import write_queries
from tests.collection.traces import spellings_of, traces_in_text, traces_of
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    answers,
    completion,
    hangs,
    says,
    sends,
    status,
)

VARIABLE = "MARKED_KEY"
# All that can be logged goes to a file, and what ends the program is shown as error reporters show
# it, with all local variables.
DEBUGGED = """
import logging, sys, traceback
logging.basicConfig(level=logging.DEBUG, filename="debug.log")
from mildroute.cli.app import app
try:
    code = app(standalone_mode=False)
except BaseException as error:
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    print("".join(trace.format()), file=sys.stderr)
    sys.exit(3)
sys.exit(code)
"""
PLUGIN = """
import os
from mildroute.experts.base import Expert
from mildroute.judges.base import Judge, Verdict

class Leaky(Expert):
    version, concurrency = "1", 2

    def __init__(self, settings):
        self.name = settings["name"]

    async def answer(self, batch):
        headers = {"Authorization": "Bearer " + os.environ["MARKED_KEY"]}
        request = {"headers": headers, "content": batch[0].input}
        raise RuntimeError(f"no route for a request of {len(request)} parts")

class Clumsy(Judge):
    name, version, calls = "clumsy", "1", 0

    async def judge(self, query, text):
        Clumsy.calls += 1
        if Clumsy.calls == 5:
            raise ZeroDivisionError("the judge is tired")
        return Verdict(1.0, text)
"""
POINTS = """
[mildroute.experts]
leaky = plugin:Leaky
[mildroute.judges]
clumsy = plugin:Clumsy
"""


@pytest.fixture
def key() -> str:
    """Long, unique, and with characters that every code writes in its own way."""
    return f'sk-"{secrets.token_urlsafe(24)}/+&\\<%{secrets.token_hex(4)}'


def write_pool(folder: Path, url: str, queries: int, *lines: str) -> None:
    write_queries(folder, queries)
    settings = (
        f"kind: openai, base_url: '{url}', model: tiny, api_key_env: {VARIABLE}, concurrency: 2,"
        " retries: 0, timeout: 30"
    )
    (folder / "experts.yaml").write_text(
        "\n".join(
            ["experts:", *(lines or [f"  {name}: {{{settings}}}" for name in ("one", "two")])]
        )
    )


def write_plugin(folder: Path) -> None:
    about = folder / "plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    (folder / "plugin.py").write_text(PLUGIN)


def run(
    folder: Path,
    key: str,
    *more: str,
    judge: str = "exact",
    start: str = DEBUGGED,
    interrupt_when: Callable[[], bool] | None = None,
) -> Finished:
    known = os.environ.get("PYTHONPATH", "")
    environment = {
        VARIABLE: key,
        "PYTHONPATH": f"{folder}{os.pathsep}{known}",
        "PYTHONASYNCIODEBUG": "1",
    }
    return collect(
        folder,
        "--json",
        *more,
        judge=judge,
        start=start,
        environment=environment,
        interrupt_when=interrupt_when,
    )


def key_of(call: Call) -> str:
    return call.headers["authorization"].removeprefix("Bearer ")


def told(make: Callable[[str], Behavior]) -> Behavior:
    """A behavior that is made of the key that the server was sent."""

    async def behave(call: Call, writer: Writer) -> bool:
        return await make(key_of(call))(call, writer)

    return behave


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CODES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "header": lambda key: f"Bearer {key}",
    "capitals": str.upper,
    "JSON": lambda key: json.dumps(key),
    "URL": lambda key: f"https://127.0.0.1/?key={quote(key, safe='')}",
    "path": quote,
    "base64": in_base64,
    "base64 of the header": lambda key: in_base64(f"Bearer {key}"),
    "base64 of user and key": lambda key: in_base64(f"me:{key}"),
    "URL base64": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "hexadecimal": lambda key: key.encode().hex(),
    "far behind": lambda key: f"{'x' * 190}{key}",
}
WAYS: dict[str, Callable[[str], Behavior]] = {
    "an answer": lambda said: says(f"your key is {said}"),
    "a complaint": lambda said: status(
        401, {}, f'{{"error": {{"message": {json.dumps("bad key " + said)}}}}}'
    ),
    "an error": lambda said: status(500, {}, said),
    "an empty account": lambda said: status(429, {}, f"insufficient_quota of {said}"),
    "a broken body": lambda said: status(200, {}, f"<html>{said}"),
    "a wrong type": lambda said: answers({"choices": [{"message": {"content": {"key": said}}}]}),
    "a finish": lambda said: answers(
        completion(None, choices=[{"message": {"content": None}, "finish_reason": said}])
    ),
    "a redirect": lambda said: status(307, {"Location": quote(said, safe="/:?=&%+")}),
    "no HTTP": lambda said: sends(f"{said}\r\n\r\n".encode()),
    "headers": lambda said: status(200, {"X-Request": said}, json.dumps(completion("4"))),
    "a bad header": lambda said: sends(f"HTTP/1.1 200 OK\r\n{said}\r\n\r\n".encode()),
}


def test_a_server_that_repeats_the_key_in_every_code_gets_it_into_no_file_log_or_output(
    tmp_path: Path, key: str
) -> None:
    echoes = [
        told(lambda key, way=way, code=code: way(code(key)))
        for code in CODES.values()
        for way in WAYS.values()
    ]

    def echo(call: Call) -> Behavior:
        """By the query, every second one a plain answer: 20 failures in a row would end the run."""
        number, is_plain = divmod(int(re.findall(r"\d+", call.prompt)[0]), 2)
        return says("4") if is_plain else echoes[number]

    with HostileServer(echo) as server:
        write_pool(tmp_path, server.url, 2 * len(echoes))
        done = run(tmp_path, key)
        assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {key}"}
        assert len(server.calls) == 4 * len(echoes)
    assert done.code == 0, done.err
    assert "receive_response_headers" in (tmp_path / "debug.log").read_text()
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        rows = list(archive.entries("answers"))
    assert "your key is [secret]" in {row["text"] for row in rows}
    assert sum("[secret]" in row["error"] for row in rows) > 2 * len(CODES)
    assert traces_of(key, tmp_path) == []


def test_a_judge_that_raises_in_the_middle_shows_no_key(tmp_path: Path, key: str) -> None:
    write_plugin(tmp_path)
    with HostileServer([told(lambda key: says(f"with {key}"))]) as server:
        write_pool(tmp_path, server.url, 20)
        done = run(tmp_path, key, judge="clumsy")
    assert done.code == 3
    assert "the judge is tired" in done.err
    assert "with [secret]" in done.err
    assert traces_of(key, tmp_path) == []


def test_an_expert_of_another_package_that_raises_with_the_key_in_its_frame_shows_no_key(
    tmp_path: Path, key: str
) -> None:
    write_plugin(tmp_path)
    write_pool(tmp_path, "", 5, "  leaky: {kind: leaky}")
    done = run(
        tmp_path,
        key,
        start=(
            "import logging; logging.basicConfig(level=10); from mildroute.cli.app import app;"
            " app()"
        ),
    )
    assert done.code == 1
    assert "no route for a request of 2 parts" in done.err
    assert traces_of(key, tmp_path) == []


def test_ctrl_c_in_the_middle_of_calls_shows_no_key(tmp_path: Path, key: str) -> None:
    def script(call: Call) -> Behavior:
        return says("4") if call.number < 6 else hangs()

    with HostileServer(script) as server:
        write_pool(tmp_path, server.url, 20)
        done = run(tmp_path, key, interrupt_when=lambda: len(server.calls) >= 10)
    assert done.code == 1
    assert re.search(
        r"^stopped: \d+ of 40 kept, .* paid.*; the same command resumes it$", done.err, re.MULTILINE
    )
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        assert len(list(archive.entries("answers"))) >= 6
    assert traces_of(key, tmp_path) == []


def test_the_search_itself_finds_a_key_in_every_code_and_in_compressed_files(
    tmp_path: Path, key: str
) -> None:
    assert all(traces_in_text(key, f"before {code(key)} behind") for code in CODES.values())
    assert traces_in_text(key, key[3:20])
    assert traces_in_text(key, "nothing of it") == []
    assert len(spellings_of(key)) > 10
    pq.write_table(
        pa.table({"text": ["x" * 100, key] * 20, "number": [1, 2] * 20}),
        tmp_path / "a.parquet",
        compression="zstd",
    )
    pq.write_table(
        pa.table({"text": ["a"]}).replace_schema_metadata({"key": key}), tmp_path / "b.parquet"
    )
    (tmp_path / "c.log.gz").write_bytes(gzip.compress(f"x{key}".encode()))
    (tmp_path / key[4:30]).touch()
    found = {Path(trace.partition(": ")[0]).name for trace in traces_of(key, tmp_path)}
    assert found == {"a.parquet", "b.parquet", "c.log.gz", key[4:30]}
