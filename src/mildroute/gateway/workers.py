"""Several processes that serve one port, and the parent that starts and watches them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mildroute.decision.batching import EncoderQueue
from mildroute.decision.predictor import Predictor
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.gateway.app import Gateway
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.factory import load_gateway
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.observability.logs import log_event, log_to_stderr
from mildroute.gateway.observability.metrics import GatewayMetrics, Snapshot, merge_snapshots
from mildroute.gateway.routing.encoder_process import EncoderServer
from mildroute.gateway.server import serve

__all__ = ["Channel", "serve_workers"]


_LOG = logging.getLogger(__name__)
# A fresh interpreter: threads of encoders and of OpenMP do not survive a fork.
_PROCESSES = multiprocessing.get_context("spawn")
# Seconds until a worker that died is started again: doubled if it died soon, up to the last.
_MIN_DELAY = 0.1
_MAX_DELAY = 30.0
_HEALTHY_SECONDS = 60.0
# Seconds that a worker has beyond its drain before it is killed.
_KILL_DELAY = 10.0
# Seconds after which the last known figures of a worker are taken.
_SNAPSHOT_TIMEOUT = 1.0
_MERGE_TIMEOUT = 5.0
# What the encoder process counts; all else is counted by workers.
_ENCODER_METRICS = ("mildroute_encoder_batch_size", "process_")

Handler = Callable[..., Awaitable[Any]]


class Channel:
    """Calls between two processes, in both directions, over one socket.

    Args:
        **handlers: What the other process may call, by name; arguments and results are JSON.
    """

    def __init__(self, **handlers: Handler) -> None:
        self._handlers = handlers
        self._results: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._is_closed = False
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, link: socket.socket) -> None:
        """Take a connected socket; calls may begin."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=link)

    async def run(self) -> None:
        """Serve calls until the other process is gone, or has closed its end."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                self._receive(*json.loads(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._is_closed = True
            self._writer.close()
            for result in self._results.values():
                if not result.done():
                    result.set_exception(ConnectionResetError())

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a handler of the other process.

        Returns:
            Its result, or none if it failed.

        Raises:
            ConnectionResetError: The other process is gone.
        """
        if self._is_closed:
            raise ConnectionResetError
        self._calls += 1
        number = self._calls
        result = asyncio.get_running_loop().create_future()
        self._results[number] = result
        try:
            self._writer.write(frame(number, name, arguments))
            return await result
        finally:
            del self._results[number]

    def _receive(self, number: int, name: str | None, value: Any) -> None:
        if name is not None:
            task = asyncio.get_running_loop().create_task(self._answer(number, name, value))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (result := self._results.get(number)) is not None and not result.done():
            result.set_result(value)

    async def _answer(self, number: int, name: str, arguments: list[Any]) -> None:
        value = None
        try:
            value = await self._handlers[name](*arguments)
        except Exception:  # noqa: BLE001 - whatever it was, it is logged
            # The caller must not wait forever.
            _LOG.exception("a call of another process failed")
        if not self._is_closed:
            self._writer.write(frame(number, None, value))


def frame(number: int, name: str | None, value: Any) -> bytes:
    """A call with its arguments, or its result if it has no name."""
    message = json.dumps([number, name, value]).encode()
    return len(message).to_bytes(4, "big") + message


@dataclass(frozen=True)
class _Job:
    """What each worker serves, and where."""

    router: str | None
    experts: Path
    config: GatewayConfig
    traces: bool
    host: str
    addresses: tuple[tuple[int, Any], ...]
    admin_addresses: tuple[tuple[int, Any], ...]
    encoder_socket: str | None
    is_public: bool


def serve_workers(
    router: str | None,
    experts: Path,
    config: GatewayConfig,
    *,
    host: str,
    port: int,
    workers: int,
    announce: Callable[[int, str], None],
    traces: bool = False,
    is_public: bool = False,
) -> None:
    """Serve with several processes until SIGINT or SIGTERM, which all of them are told.

    A worker that dies is started again. SIGHUP makes all of them read the artifact, the experts
    and the keys again. One more process encodes for all of them, if the encoder is heavy.

    Args:
        router: Folder of the artifact, or the URL of a pointer to one; none to pass requests
            through.
        experts: The file of experts.
        config: How the gateway behaves; what it limits, it limits in each process.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        workers: Their number.
        announce: Called with the number of experts and the base URL once all of them listen.
        traces: Whether spans are sent.
        is_public: Whether a gateway without keys may be called under any host.

    Raises:
        ArgumentError: The first worker cannot start, or the system cannot share a port.
    """
    if sys.platform != "linux":
        raise ArgumentError(
            f"several workers share a port on Linux alone, got {sys.platform}; leave out --workers,"
            " and start several gateways behind a load balancer."
        )
    # Bound and not listening: they hold the port while all workers are being started.
    reserved = list(_bind(_addresses_of(host, port)))
    admin = []
    if config.admin_port is not None:
        admin = list(_bind(_addresses_of(config.admin_host, config.admin_port)))
    try:
        with _encoder_listener(config) as listener:
            path = None if listener is None else listener.getsockname()
            addresses = (_names_of(reserved), _names_of(admin))
            job = _Job(router, experts, config, traces, host, *addresses, path, is_public)
            supervisor = _Supervisor(job, workers, announce, listener)
            asyncio.run(supervisor.run())
    finally:
        for bound in (*reserved, *admin):
            bound.close()
    if supervisor.failure:
        raise ArgumentError(supervisor.failure)
    if any(code not in (0, -signal.SIGTERM) for code in supervisor.exit_codes):
        sys.exit(1)
    # As a process without workers ends.
    signal.raise_signal(supervisor.signal)


def _addresses_of(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]


def _names_of(sockets: Iterable[socket.socket]) -> tuple[tuple[int, Any], ...]:
    return tuple((int(bound.family), bound.getsockname()) for bound in sockets)


def _bind(addresses: Iterable[tuple[int, Any]]) -> Iterable[socket.socket]:
    """A socket for each address, all with one port, that other processes may bind, too."""
    port = 0
    for family, (host, wanted, *rest) in addresses:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, wanted or port, *rest))
        port = bound.getsockname()[1]
        yield bound


@contextlib.contextmanager
def _encoder_listener(config: GatewayConfig) -> Iterator[socket.socket | None]:
    """The socket of the encoder process, in a folder that no other user can enter; or none.

    The parent listens, so that workers can connect before that process runs, and start it thereby.
    """
    if config.encoder.process == "own":
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mildroute-"))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(f"{folder}/encoder.sock")
            listener.listen()
        except OSError as error:
            # A read-only file system, or a path of more than 107 bytes.
            _LOG.warning("each worker has its own encoder, for lack of a socket: %s", error)
            listener = None
        yield listener


# The encoder process.


def _run_encoder(job: _Job, workers: int, listener: socket.socket, link: socket.socket) -> None:
    # It ends with its parent and after the last worker, so that workers that drain have vectors.
    os.setpgrp()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with log_to_stderr(job.config.logging):
        asyncio.run(_serve_encoder(job, workers, listener, link))


async def _serve_encoder(
    job: _Job, workers: int, listener: socket.socket, link: socket.socket
) -> None:
    metrics = GatewayMetrics()
    own = job.config.encoder
    config = replace(
        own, threads=workers * own.threads, max_queue_size=workers * own.max_queue_size
    )

    def load(folder: str, digest: str) -> EncoderQueue:
        queue = Predictor.load(folder, config, digest).queue
        queue.on_batch = metrics.record_batch
        return queue

    async def snapshot() -> Snapshot:
        return [family for family in metrics.snapshot() if family[0].startswith(_ENCODER_METRICS)]

    channel = Channel(snapshot=snapshot)
    await channel.open(link)
    await EncoderServer(load, config).serve(listener, channel.run())


# A worker.


def _run_worker(job: _Job, link: socket.socket) -> None:
    # What a terminal sends to all of its processes comes from the parent, once.
    os.setpgrp()
    with log_to_stderr(job.config.logging):
        try:
            services = load_gateway(
                job.router,
                job.experts,
                job.config,
                traces=job.traces,
                encoder_socket=job.encoder_socket,
            )
            services = replace(services, is_public=job.is_public)
            worker = _Worker(link, services.metrics, len(services.experts.experts))
            # Any worker answers on the admin port for all, and the last to drain continues with it.
            serve(
                services,
                job.host,
                0,
                worker.announce,
                sockets=list(_bind(job.addresses)),
                admin_sockets=list(_bind(job.admin_addresses)),
                attach=worker.attach,
            )
        except MildrouteError as error:
            link.sendall(frame(0, "failed", [str(error)]))
            sys.exit(1)


class _Worker:
    """The end of a worker's channel in its own process."""

    def __init__(self, link: socket.socket, metrics: GatewayMetrics, experts: int) -> None:
        self._link = link
        self._metrics = metrics
        self._experts = experts
        self._tasks: list[asyncio.Task[Any]] = []
        self._channel = Channel(snapshot=self._snapshot, reload=self._reload)
        self._gateway: Gateway

    async def attach(self, gateway: Gateway) -> None:
        """Let a gateway that is about to serve know of the other workers."""
        self._gateway = gateway
        self._metrics.gather = self._gather
        gateway.reloader.others = self._reload_others
        await self._channel.open(self._link)
        self._tasks.append(asyncio.get_running_loop().create_task(self._run()))

    def announce(self, address: str) -> None:
        """Tell the parent that this worker listens."""
        ready = self._channel.call("ready", self._experts, address)
        self._tasks.append(asyncio.get_running_loop().create_task(ready))

    async def _run(self) -> None:
        await self._channel.run()
        # Without its parent no one would stop it or count it.
        signal.raise_signal(signal.SIGTERM)

    async def _snapshot(self) -> Snapshot:
        return self._metrics.snapshot()

    async def _reload(self) -> bool:
        return await self._gateway.reloader.try_reload()

    async def _reload_others(self) -> list[bool]:
        found: list[bool] = await self._channel.call("reload")
        return found

    async def _gather(self) -> Snapshot:
        try:
            async with asyncio.timeout(_MERGE_TIMEOUT):
                found: Snapshot = await self._channel.call("metrics")
        except (TimeoutError, ConnectionResetError):
            raise APIError(
                503, "the metrics of the other workers are missing; retry later.", retry_after=1.0
            ) from None
        return found


# The parent.


class _Child:
    """A worker or the encoder process as its parent sees it.

    Args:
        target: What it runs.
        *arguments: Of the target, which gets its end of the channel as the last one.
        **handlers: What it may call.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any, **handlers: Handler) -> None:
        self.failure = ""
        self.snapshot: Snapshot = []
        self.channel = Channel(failed=self._failed, **handlers)
        self._link, theirs = socket.socketpair()
        self._process = _PROCESSES.Process(target=target, args=(*arguments, theirs))
        self._process.start()
        theirs.close()

    async def wait(self) -> int:
        """Serve its calls until it ends; its exit code, or the negative of its signal."""
        await self.channel.open(self._link)
        await self.channel.run()
        await asyncio.get_running_loop().run_in_executor(None, self._process.join)
        return self._process.exitcode or 0

    def signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self._process.exitcode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    async def refresh(self) -> None:
        """Ask for its figures; the last ones stay if it does not answer."""
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            async with asyncio.timeout(_SNAPSHOT_TIMEOUT):
                self.snapshot = await self.channel.call("snapshot") or self.snapshot

    async def _failed(self, failure: str) -> None:
        self.failure = failure


class _Delays:
    """Seconds until a process that died is started again.

    Args:
        event: What the log says of its death ...
        **fields: ... and of which process.
    """

    def __init__(self, event: str, **fields: Any) -> None:
        self._event = event
        self._fields = fields
        self._delay = _MIN_DELAY
        self._started = 0.0

    def start(self) -> None:
        """It is started."""
        self._started = time.monotonic()

    def next(self, exit_code: int) -> float:
        """It has died."""
        if time.monotonic() - self._started > _HEALTHY_SECONDS:
            self._delay = _MIN_DELAY
        delay = self._delay
        fields = self._fields | {"exit_code": exit_code, "restart": delay}
        log_event(_LOG, logging.ERROR, self._event, **fields)
        self._delay = min(2 * delay, _MAX_DELAY)
        return delay


async def _readable(link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(link, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(link)


class _Supervisor:
    """Starts workers, starts those again that die, and stops all of them.

    Attributes:
        failure: Why the first worker could not start, or empty.
        signal: That ended it, or 0.
        exit_codes: Of the workers that were told to stop.
    """

    def __init__(
        self,
        job: _Job,
        workers: int,
        announce: Callable[[int, str], None],
        encoder_listener: socket.socket | None,
    ) -> None:
        self._job = job
        self._encoder_listener = encoder_listener
        self._encoder: _Child | None = None
        self._count = workers
        self._announce = announce
        self._children: dict[int, _Child] = {}
        self._ready: set[_Child] = set()
        self._is_announced = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # Counters of workers that have died, as far as they were read: sums must not fall.
        self._ended: Snapshot = []
        # The first worker has started, or all are to stop.
        self._may_start = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self.failure = ""
        self.signal = 0
        self.exit_codes: list[int] = []

    async def run(self) -> None:
        """Until all workers have ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_all)
        encoder = loop.create_task(self._keep_encoder_running())
        await asyncio.gather(*(self._keep_running(number) for number in range(self._count)))
        encoder.cancel()
        await asyncio.wait([encoder])

    async def _keep_running(self, number: int) -> None:
        """Run one worker after the other."""
        delays = _Delays("worker died", worker=number)
        if number:
            # What is wrong is said once, by the first.
            await self._may_start.wait()
        while not self._is_stopping.is_set():
            delays.start()
            code = await self._run_child(number)
            if self._is_stopping.is_set():
                self.exit_codes.append(code)
            elif not self._may_start.is_set():
                self.exit_codes.append(code)
                self._is_stopping.set()
                self._may_start.set()
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_stopping.wait(), delays.next(code))

    async def _keep_encoder_running(self) -> None:
        """Run one encoder process after the other, the first as soon as a worker connects."""
        listener = self._encoder_listener
        if listener is None:
            return
        delays = _Delays("encoder process died")
        while True:
            await _readable(listener)
            delays.start()
            child = self._encoder = _Child(_run_encoder, self._job, self._count, listener)
            try:
                code = await child.wait()
            finally:
                # No worker is left if it still runs.
                child.signal(signal.SIGKILL)
                self._encoder = None
                self._ended = merge_snapshots([], [self._ended, child.snapshot])
            await asyncio.sleep(delays.next(code))

    async def _run_child(self, number: int) -> int:
        async def ready(experts: int, address: str) -> None:
            self._set_ready(child, experts, address)

        async def reload() -> list[bool]:
            others = [other for other in self._children.values() if other is not child]
            return await self._reload(others)

        child = _Child(_run_worker, self._job, ready=ready, reload=reload, metrics=self._metrics)
        self._children[number] = child
        try:
            return await child.wait()
        finally:
            self._ready.discard(child)
            del self._children[number]
            self._ended = merge_snapshots([], [self._ended, child.snapshot])
            if not self._may_start.is_set():
                self.failure = child.failure
            elif child.failure:
                _LOG.error("worker %d cannot start: %s", number, child.failure)

    def _set_ready(self, child: _Child, experts: int, address: str) -> None:
        self._ready.add(child)
        self._may_start.set()
        if len(self._ready) == self._count and not self._is_announced:
            self._is_announced = True
            self._announce(experts, address)

    def _stop(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_stopping.is_set():
            self.signal = number
            self._is_stopping.set()
            self._may_start.set()
            failover = self._job.config.failover
            grace = failover.shutdown_delay + failover.drain_timeout + _KILL_DELAY
            loop.call_later(grace, self._signal_all, signal.SIGKILL)
        # A second signal makes them hurry.
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)

    def _reload_all(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload(self._children.values()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self, children: Iterable[_Child]) -> list[bool]:
        # A worker that is being started takes the call when it listens.
        calls = [child.channel.call("reload") for child in children]
        results = await asyncio.gather(*calls, return_exceptions=True)
        # Of those that have died the next one reads it.
        return [result is True for result in results if not isinstance(result, OSError)]

    async def _metrics(self) -> Snapshot:
        await asyncio.gather(*(child.refresh() for child in self._counted()))
        return merge_snapshots([child.snapshot for child in self._counted()], [self._ended])

    def _counted(self) -> list[_Child]:
        return [*self._ready, *([] if self._encoder is None else [self._encoder])]
