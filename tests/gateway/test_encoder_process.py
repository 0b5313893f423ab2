"""One encoder process for all workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import stat
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders.models import tiny_bert

from mildroute import TextRouter
from mildroute.decision.batching import EncoderQueue
from mildroute.decision.predictor import Predictor
from mildroute.encoders import SentenceEncoder
from mildroute.encoders.text import TfidfEncoder
from mildroute.exceptions import ArtifactError
from mildroute.gateway.config import EncoderConfig
from mildroute.gateway.routing.encoder_process import EncoderServer, SharedEncoderQueue
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import has_network, read_manifest
from mildroute.routers.base import named_costs
from tests.cli.test_serve import SONGS, SUMS, ask, experts_file, fitted, running
from tests.cli.test_workers import metric, until, workers_of
from tests.experts.hostile_server import HostileServer, says
from tests.support.processes import BackgroundLoad

CONFIG = EncoderConfig(timeout=20.0)
TEXTS = [*SUMS[:6], *SONGS[:6], "", "\U0001f600 \ud800", "x" * 20_000]


def save_heavy(folder: Path, *, max_tokens: int = 32, encoder: Any = None) -> TextRouter:
    """A router whose encoder is a small BERT; the number of tokens changes its vectors."""
    costs = named_costs([[0.0, 1.0]] * 40 + [[1.0, 0.0]] * 40, ("small", "large"))
    encoder = encoder or SentenceEncoder(tiny_bert(), max_tokens=max_tokens, threads=1)
    router = TextRouter(encoder=encoder).fit([*SUMS, *SONGS], costs)
    save_router(router, folder)  # type: ignore[arg-type]
    return router


def digest_of(folder: Path) -> str:
    return str(read_manifest(folder)["sha256"])


class Serving:
    """A server in this process; what it has loaded, and what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "encoder.sock")
        self.loaded: list[str] = []
        self.closed: list[str] = []

    def load(self, folder: str, digest: str) -> EncoderQueue:
        queue = Predictor.load(folder, CONFIG, digest).queue
        self.loaded.append(digest)
        close = queue.close

        def closing() -> None:
            self.closed.append(digest)
            close()

        queue.close = closing  # type: ignore[method-assign]
        return queue

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Event]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self.path)
            listener.listen()
            is_over = asyncio.Event()

            async def parent() -> None:
                await is_over.wait()

            serving = EncoderServer(self.load, CONFIG).serve(listener, parent())
            task = asyncio.get_running_loop().create_task(serving)
            try:
                yield is_over
                is_over.set()
                await asyncio.wait_for(task, 20)
            finally:
                task.cancel()


async def later(is_so: Any) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


def test_vectors_are_those_of_the_artifact_and_it_is_unloaded_with_its_last_queue(
    tmp_path: Path,
) -> None:
    routers = [save_heavy(tmp_path / str(tokens), max_tokens=tokens) for tokens in (32, 3)]
    folders = [tmp_path / "32", tmp_path / "3"]
    serving = Serving(tmp_path)

    async def connected(folder: Path) -> Predictor:
        arguments = (folder, CONFIG, digest_of(folder), serving.path)
        return await asyncio.to_thread(Predictor.load, *arguments)

    async def run() -> None:
        async with serving.running():
            predictors = [await connected(folder) for folder in (*folders, folders[0])]
            assert [type(predictor.queue) for predictor in predictors] == [SharedEncoderQueue] * 3
            assert serving.loaded == [digest_of(folder) for folder in folders]
            for predictor, router in zip(predictors, (*routers, routers[0]), strict=True):
                for text in TEXTS:
                    short = text if len(text) < 8_000 else f"{text[:4_000]}\n{text[-4_000:]}"
                    row = await predictor.queue.encode(text)
                    expected = router.encoder_.transform([short])[0]
                    np.testing.assert_array_equal(row, expected)
                    assert row.dtype == expected.dtype
                rows = await predictor.queue.encode_batch(SUMS)
                np.testing.assert_allclose(rows, router.encoder_.transform(SUMS), atol=1e-6)
            predictors[0].close()
            await later(lambda: len(serving.closed) == 0)
            predictors[1].close()
            await later(lambda: serving.closed == [digest_of(folders[1])])
            predictors[2].close()
            await later(lambda: len(serving.closed) == 2)

    asyncio.run(run())


def test_what_cannot_be_shared_is_said_or_encoded_in_the_worker(tmp_path: Path) -> None:
    save_heavy(tmp_path / "router")
    sparse = TfidfEncoder()
    save_heavy(tmp_path / "sparse", encoder=sparse)
    serving = Serving(tmp_path)
    shared = EncoderConfig(timeout=20.0, process="shared")

    async def run() -> None:
        async with serving.running():
            wrong = SharedEncoderQueue(serving.path, tmp_path / "router", "0" * 64, CONFIG)
            with pytest.raises(ArtifactError, match="must hold the router 0000"):
                await asyncio.to_thread(wrong.connect)
            wrong.close()
            loaded = await asyncio.to_thread(
                Predictor.load, tmp_path / "sparse", shared, None, serving.path
            )
            assert type(loaded.queue) is EncoderQueue
            loaded.close()

    asyncio.run(run())


def test_a_worker_stays_without_vectors_and_never_waits_for_a_process_that_is_gone(
    tmp_path: Path,
) -> None:
    save_heavy(tmp_path / "router")
    serving = Serving(tmp_path)

    async def run() -> None:
        async with serving.running():
            predictor = await asyncio.to_thread(
                Predictor.load, tmp_path / "router", CONFIG, None, serving.path
            )
            queue = predictor.queue
            assert await queue.encode("a") is not None
            # As after a kill: its connections are cut.
            queue._task.cancel()  # type: ignore[attr-defined]
            await later(lambda: serving.closed)
            async with asyncio.timeout(5):
                assert await queue.encode("b") is None
            assert await queue.encode("a") is not None  # cached
        predictor.close()

    asyncio.run(run())


def test_frames_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    serving = Serving(tmp_path)

    async def run() -> None:
        async with serving.running():
            reader, writer = await asyncio.open_unix_connection(serving.path)
            writer.write((2**31).to_bytes(4, "little"))
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())
    assert re.search("a frame may have [0-9]+ bytes, got 2147483648", caplog.text)


def test_a_router_without_its_network_decides_on_vectors(tmp_path: Path) -> None:
    router = save_heavy(tmp_path / "router")
    fitted(tmp_path / "light")
    assert has_network(read_manifest(tmp_path / "router"))
    assert not has_network(read_manifest(tmp_path / "light"))
    bare: Any = load_router(tmp_path / "router", networks=False)
    assert not hasattr(bare.encoder_, "onnx_")
    vectors = router.encoder_.transform(TEXTS)
    found = bare.router_.predict_proba(vectors)
    np.testing.assert_array_equal(found, router.router_.predict_proba(vectors))


# With real processes.


def has_onnxruntime(pid: int) -> bool:
    return "onnxruntime" in Path(f"/proc/{pid}/maps").read_text()


def encoder_of(process: Any) -> list[int]:
    return [pid for pid in workers_of(process) if has_onnxruntime(pid)]


def route(address: str, **body: Any) -> Any:
    request = urllib.request.Request(  # noqa: S310
        f"{address}/route", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.loads(answer.read())


class NewTexts(BackgroundLoad):
    """Clients each of whose texts is new, so that no cache has its vector."""

    def __init__(self, address: str, clients: int = 2) -> None:
        super().__init__()
        self._address = address
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        self.reasons: list[str] = []
        self.failed: list[Exception] = []

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                _, headers = ask(self._address, f"add {next(self._numbers)} and 9")
                self.reasons.append(headers["x-mildroute-reason"])
            except OSError as error:
                self.failed.append(error)


@pytest.fixture
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, TextRouter]]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    router = save_heavy(tmp_path / "router")
    # Of a slow machine as well.
    (tmp_path / "gateway.yaml").write_text("encoder: {timeout: 5}\n")
    with HostileServer([says("done")]) as server:
        experts_file(tmp_path, server.url)
        yield tmp_path, router


# The reason of requests that had no vector.
TIMEOUT = "router_timeout"
OPTIONS = ("--workers", "2", "--settings", "gateway.yaml")


def test_two_workers_decide_as_the_library_and_load_no_model(
    heavy: tuple[Path, TextRouter],
) -> None:
    folder, router = heavy
    with running(folder, *OPTIONS) as (process, address):
        (encoder,) = encoder_of(process)
        assert len(workers_of(process)) == 3
        (place,) = folder.glob("mildroute-*/encoder.sock")
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        for text in (*SUMS[:8], *SONGS[:8]):
            (expected,) = router.explain([text])
            found = route(address, input=text)
            assert (found["expert"], found["reason"]) == (expected.name, expected.reason)
            told = {each["expert"]: each["posterior"] for each in found["ranking"]}
            assert [told[name] for name in expected.experts] == pytest.approx(expected.posterior)
        ask(address, "add 1001 and 4")
        assert metric(address, "mildroute_encoder_batch_size_count") == 1
        assert metric(address, "mildroute_encoder_queue") == 0
        with NewTexts(address) as load:
            until(lambda: len(load.reasons) >= 10)
            # As a service manager may, which signals all processes of a gateway.
            os.kill(encoder, signal.SIGTERM)
            process.terminate()
            assert process.wait(30) == -signal.SIGTERM
        # Requests in flight had their vectors to the end.
        assert TIMEOUT not in load.reasons
        until(lambda: not Path(f"/proc/{encoder}").exists())
        assert not place.parent.exists()


def test_the_encoder_process_is_started_again_and_no_request_fails(
    heavy: tuple[Path, TextRouter],
) -> None:
    folder, _ = heavy
    with running(folder, *OPTIONS) as (process, address):
        (dead,) = encoder_of(process)
        with NewTexts(address) as load:
            until(lambda: len(load.reasons) >= 20)
            assert TIMEOUT not in load.reasons
            os.kill(dead, signal.SIGKILL)
            until(lambda: TIMEOUT in load.reasons)
            inputs = [f"sing song number {place}" for place in range(100, 140)]
            # Inputs that may wait do so.
            told = route(address, inputs=inputs)["data"]
            assert TIMEOUT not in {each["reason"] for each in told}
            until(lambda: TIMEOUT not in load.reasons[-10:])
        assert load.failed == []
        (alive,) = encoder_of(process)
        assert alive != dead
        process.kill()
        # The workers end with their parent, and the encoder process with them.
        until(lambda: not Path(f"/proc/{alive}").exists())
        assert process.stderr is not None
        assert "encoder process died exit_code=-9" in process.stderr.read()


def test_a_reload_switches_the_encoder_or_does_without(heavy: tuple[Path, TextRouter]) -> None:
    folder, _ = heavy
    loaded = re.escape('mildroute_reloads_total{kind="router",result="loaded"}')
    with running(folder, *OPTIONS) as (process, address):
        (encoder,) = encoder_of(process)
        other = save_heavy(folder / "router", max_tokens=3)
        process.send_signal(signal.SIGHUP)
        until(lambda: metric(address, loaded) == 2)
        for text in (*SUMS[:4], *SONGS[:4]):
            found = route(address, input=text)
            (expected,) = other.explain([text])
            assert found["router"] == digest_of(folder / "router")[:16]
            told = {each["expert"]: each["posterior"] for each in found["ranking"]}
            assert [told[name] for name in expected.experts] == pytest.approx(expected.posterior)
        assert encoder_of(process) == [encoder]
        fitted(folder / "router")
        process.send_signal(signal.SIGHUP)
        until(lambda: metric(address, loaded) == 4)
        assert route(address, input="add 3 and 9")["expert"] == "small"
        assert len(encoder_of(process)) == 1


@pytest.mark.parametrize("process", ["auto", "own"])
def test_a_light_encoder_stays_in_its_worker_and_each_has_its_own_if_told_so(
    tmp_path: Path, process: str
) -> None:
    (fitted if process == "auto" else save_heavy)(tmp_path / "router")
    (tmp_path / "gateway.yaml").write_text(f"encoder: {{timeout: 5, process: {process}}}\n")
    with HostileServer([says("done")]) as server:
        experts_file(tmp_path, server.url)
        with running(tmp_path, *OPTIONS) as (parent, address):
            assert route(address, input="add 3 and 9")["reason"] != TIMEOUT
            pids = workers_of(parent)
            assert len(pids) == 2
            assert [has_onnxruntime(pid) for pid in pids] == [process == "own"] * 2
