"""One encoder process for all workers: its server, and the queue by which a worker asks it.

A connection belongs to one artifact, which its first frame names by folder and digest; so a vector
can never come from the encoder of another artifact, and an encoder that has no connection left is
unloaded. Every frame is its length and a payload: JSON in the first frames, then a header with the
texts as JSON in one direction, and with the raw numbers of their rows in the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.decision.batching import EncoderQueue
from mildroute.exceptions import ArtifactError, MildrouteError
from mildroute.gateway.config import EncoderConfig

__all__ = ["EncoderServer", "SharedEncoderQueue"]


_LOG = logging.getLogger(__name__)
_LENGTH = struct.Struct("<I")
# Number of the request, and whether it may wait.
_HEADER = struct.Struct("<I?")
_NUMBER = struct.Struct("<I")
# What a row may consist of.
_DTYPES = ("<f4", "<f8")
# Seconds in which the encoder of a new artifact must have been loaded.
_LOAD_TIMEOUT = 120.0
# Seconds between two attempts to reach the process.
_RETRY_DELAY = 0.1
# Seconds for which inputs that may wait do so while the process is away: it starts in 2 to 12,
# those of a machine that is busy with other things.
_BACKGROUND_PATIENCE = 30.0
# JSON writes a character beyond the basic plane as two escapes of six bytes.
_BYTES_PER_CHARACTER = 12


def _frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


async def _read_frame(reader: asyncio.StreamReader, limit: int) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > limit:
        raise ConnectionAbortedError(f"a frame may have {limit} bytes, got {size}.")
    return await reader.readexactly(size)


# In the encoder process.


class _Encoder:
    """The encoder of one artifact, loaded or about to be, and its number of connections."""

    def __init__(self, queue: asyncio.Future[EncoderQueue]) -> None:
        self.queue = queue
        self.connections = 0


class EncoderServer:
    """Encodes the texts of all workers, those of one artifact in one queue.

    Args:
        load: From the folder and the digest of an artifact to a queue of its encoder; called on a
            thread. A MildrouteError is passed on to the worker.
    """

    def __init__(self, load: Callable[[str, str], EncoderQueue], config: EncoderConfig) -> None:
        self._load = load
        self._max_requests = config.max_queue_size
        text = _BYTES_PER_CHARACTER * (config.max_chars + 1)
        self._max_frame = 65_536 + config.max_batch_size * text
        self._encoders: dict[str, _Encoder] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._is_idle = asyncio.Event()

    async def serve(self, listener: socket.socket, parent: Awaitable[None]) -> None:
        """Answer workers.

        Args:
            listener: A Unix socket that listens.
            parent: Done once the parent is gone; workers that still drain are served to their end.
        """
        async with await asyncio.start_server(self._serve_worker, sock=listener):
            await parent
            while self._connections:
                self._is_idle.clear()
                await self._is_idle.wait()

    async def _serve_worker(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections.add(writer)
        try:
            hello = json.loads(await _read_frame(reader, self._max_frame))
            async with self._encoder(hello["folder"], hello["digest"]) as queue:
                writer.write(_frame(json.dumps(await _describe_rows(queue)).encode()))
                await self._answer_all(queue, reader, writer)
        except MildrouteError as error:
            writer.write(_frame(json.dumps({"error": str(error)}).encode()))
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, ConnectionAbortedError):
                _LOG.error("a worker was disconnected: %s", error)
        finally:
            self._connections.discard(writer)
            if not self._connections:
                self._is_idle.set()
            writer.close()

    @contextlib.asynccontextmanager
    async def _encoder(self, folder: str, digest: str) -> AsyncIterator[EncoderQueue]:
        encoder = self._encoders.get(digest)
        if encoder is None:
            loop = asyncio.get_running_loop()
            loading = loop.run_in_executor(None, self._load, folder, digest)
            encoder = self._encoders[digest] = _Encoder(loading)
        encoder.connections += 1
        try:
            yield await asyncio.shield(encoder.queue)
        finally:
            encoder.connections -= 1
            if not encoder.connections:
                del self._encoders[digest]
                encoder.queue.add_done_callback(_close_queue)

    async def _answer_all(
        self, queue: EncoderQueue, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                payload = await _read_frame(reader, self._max_frame)
                while len(tasks) >= self._max_requests:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                task = loop.create_task(_answer(queue, payload, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for task in tasks:
                task.cancel()


async def _answer(queue: EncoderQueue, payload: bytes, writer: asyncio.StreamWriter) -> None:
    number, is_background = _HEADER.unpack_from(payload)
    texts = json.loads(payload[_HEADER.size :])
    rows: list[Any] = [None]
    try:
        if is_background:
            rows = await queue.encode_batch(texts)
        else:
            # A worker sends the inputs of requests one by one; this queue makes the batches.
            rows = [await queue.encode(text) for text in texts]
    except Exception as error:  # noqa: BLE001 - the worker must not wait forever
        # Its text may quote an input.
        _LOG.error("the encoder failed on %d inputs: %s", len(texts), type(error).__name__)
    numbers = b"" if any(row is None for row in rows) else b"".join(row.tobytes() for row in rows)
    writer.write(_frame(_NUMBER.pack(number) + numbers))


async def _describe_rows(queue: EncoderQueue) -> dict[str, Any]:
    """Form of a row, or an empty dtype if it is no plain array of floats."""
    (row,) = await queue.encode_batch([""])
    is_plain = isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype.str in _DTYPES
    return {"dtype": row.dtype.str if is_plain else "", "width": row.shape[-1]}


def _close_queue(loading: asyncio.Future[EncoderQueue]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        loading.result().close()


# In a worker.


class SharedEncoderQueue(EncoderQueue):
    """A queue whose rows another process computes, together with those of other workers.

    While that process is away inputs have no rows, and those that may wait do so for some time.

    Args:
        path: Of the process's socket.
        folder: Of the artifact.
        digest: Its digest.

    Attributes:
        dtype: Of a row.
    """

    def __init__(
        self, path: str, folder: str | os.PathLike[str], digest: str, config: EncoderConfig
    ) -> None:
        super().__init__(self._compute, config)
        # The other process makes the batches.
        self._max_running = config.max_queue_size
        self._path = path
        hello = {"folder": str(Path(folder).absolute()), "digest": digest}
        self._hello = _frame(json.dumps(hello).encode())
        self.dtype = np.dtype(np.float32)
        self._width = 0
        # Connected while the artifact is loaded, before there is an event loop, which takes it.
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_tried = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._requests = 0
        self._lost_at = 0.0
        self._refusal = ""

    def connect(self) -> bool:
        """Wait until the encoder is loaded; false if its rows are sparse.

        Raises:
            ArtifactError: It cannot be loaded, or not in time.
        """
        end = time.monotonic() + _LOAD_TIMEOUT
        while True:
            try:
                self._socket = self._dial()
                return self._accept(self._receive())
            except OSError as error:
                if time.monotonic() >= end:
                    raise ArtifactError(
                        f"the encoder process must load an artifact in {_LOAD_TIMEOUT:g} seconds,"
                        f" got: {error}; look at its log, or set encoder.process to own."
                    ) from error
                time.sleep(_RETRY_DELAY)

    def close(self) -> None:
        """Leave the process."""
        super().close()
        if self._task is not None:
            self._task.cancel()
        elif self._socket is not None:
            self._socket.close()

    def _dial(self) -> socket.socket:
        if self._socket is not None:
            self._socket.close()
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_LOAD_TIMEOUT)
        try:
            link.connect(self._path)
            link.sendall(self._hello)
        except OSError:
            link.close()
            raise
        return link

    def _accept(self, payload: bytes) -> bool:
        reply = json.loads(payload)
        if "error" in reply:
            raise ArtifactError(reply["error"])
        if reply["dtype"] not in _DTYPES:
            return False
        self.dtype = np.dtype(reply["dtype"])
        self._width = reply["width"]
        return True

    def _compute(self, texts: list[str]) -> Any:
        """The rows of some texts before there is an event loop."""
        self._socket.sendall(_request_frame(0, texts, is_background=True))  # type: ignore[union-attr]
        return self._to_rows(self._receive()[_NUMBER.size :], len(texts))

    def _receive(self) -> bytes:
        (size,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))  # type: ignore[union-attr]
            if not part:
                raise ConnectionResetError("the encoder process has ended")
            data += part
        return data

    def _to_rows(self, numbers: bytes, count: int) -> NDArray[Any]:
        # A copy: some routers refuse to read arrays that cannot be written.
        return np.frombuffer(bytearray(numbers), self.dtype).reshape(count, self._width)

    def _submit(
        self, loop: asyncio.AbstractEventLoop, texts: list[str], *, is_background: bool
    ) -> asyncio.Future[Any]:
        if self._task is None:
            self._task = loop.create_task(self._stay_connected())
        return loop.create_task(self._request(texts, is_background=is_background))

    async def _request(self, texts: list[str], *, is_background: bool) -> Any:
        await self._is_tried.wait()
        patience = _BACKGROUND_PATIENCE if is_background else 0.0
        while True:
            with contextlib.suppress(ConnectionError):
                numbers = await self._exchange(texts, is_background=is_background)
                # Without numbers the encoder had no time, or failed.
                return self._to_rows(numbers, len(texts)) if numbers else [None] * len(texts)
            if asyncio.get_running_loop().time() >= self._lost_at + patience:
                return [None] * len(texts)
            await asyncio.sleep(_RETRY_DELAY)

    async def _exchange(self, texts: list[str], *, is_background: bool) -> bytes:
        if self._writer is None:
            raise ConnectionResetError
        self._requests = (self._requests + 1) % 2**32
        number = self._requests
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._writer.write(_request_frame(number, texts, is_background=is_background))
            return await answer  # type: ignore[no-any-return]
        finally:
            del self._answers[number]

    async def _stay_connected(self) -> None:
        """Deliver rows, and connect again when the process has been started again."""
        is_accepted = True
        while True:
            try:
                link = self._socket if is_accepted else self._dial()
                await self._deliver_rows(link, is_accepted=is_accepted)
            except ArtifactError as refusal:
                if str(refusal) != self._refusal:
                    _LOG.error("the encoder process refuses the router: %s", refusal)
                self._refusal = str(refusal)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                self._is_tried.set()
            is_accepted = False
            await asyncio.sleep(_RETRY_DELAY)

    async def _deliver_rows(self, link: socket.socket | None, *, is_accepted: bool) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=link)
        limit = _NUMBER.size + self._config.max_batch_size * self._width * self.dtype.itemsize
        try:
            if not is_accepted:
                self._accept(await _read_frame(reader, 65_536))
            self._writer = writer
            self._is_tried.set()
            while True:
                payload = await _read_frame(reader, limit)
                answer = self._answers.get(_NUMBER.unpack_from(payload)[0])
                if answer is not None and not answer.done():
                    answer.set_result(payload[_NUMBER.size :])
        finally:
            writer.close()
            if self._writer is not None:
                self._lose()

    def _lose(self) -> None:
        self._writer = None
        self._lost_at = asyncio.get_running_loop().time()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError())


def _request_frame(number: int, texts: list[str], *, is_background: bool) -> bytes:
    return _frame(_HEADER.pack(number, is_background) + json.dumps(texts).encode())
