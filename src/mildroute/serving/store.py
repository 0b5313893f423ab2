"""Shared state of several gateways in Redis or Valkey: a connection, its scripts, its absence."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

from mildroute.exceptions import ArgumentError, MildrouteError, MissingExtraError
from mildroute.serving.config import StoreConfig

__all__ = ["RedisStore", "Script", "StoreError", "StoreWait"]


_LOG = logging.getLogger(__name__)
# Seconds that the store may be in a request's way, over all calls, and of them the last one's: when
# a timer is due, a loop that is late has not yet read what lies in its socket.
_REQUEST_TIMEOUT = 0.01
_LAST_LOOK = 0.001
# Seconds that are left for a further call after one that was answered: what it took may have been
# the delay of the event loop, which is no reason to refuse a request. With less, keys were refused
# of which up to 40% was left.
_LEAST = 0.002
# Seconds for what no request waits for: connecting, and calls of background tasks.
_BACKGROUND_TIMEOUT = 1.0
# Seconds between attempts to reach a store that is away: the first, doubled up to the last.
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 0.25
_PORT = 6379
# Seconds between two lines about a store that is away, and between two about rejections.
_LOG_INTERVAL = 10.0
# Seconds without a failure after which a store is no longer one that was away just now.
_STEADY = 1.0
# The most characters of an error message of the store in a log line.
_MAX_REASON = 200
_NO_SCRIPT = "NOSCRIPT"
# Replies of a store that responds but cannot write, in the words of Redis 7 and of scripts in Redis
# 6: after a failover, with a full memory or disk, without permission, while it loads. Errors about
# one entry are not among them: one client could then make the store unavailable to all others.
_DENIED_IN_SCRIPT = "ACL failure in script|The user executing the script"
_UNUSABLE = re.compile(
    r"(?:^|-)(READONLY|OOM|MISCONF|NOAUTH|WRONGPASS|NOPERM|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS"
    rf"|BUSY|CROSSSLOT)\b|{_DENIED_IN_SCRIPT}"
)
# Replies that waiting does not change: the settings are wrong.
_DENIED = re.compile(
    r"NOAUTH|WRONGPASS|NOPERM|ERR (invalid password|AUTH|Client sent AUTH|(invalid )?DB index)"
    rf"|.*({_DENIED_IN_SCRIPT}|CROSSSLOT)",
    re.IGNORECASE,
)
# Errors in reading a reply: what has sent it is no Redis, or one with other entries.
_MISREAD = (TypeError, ValueError, LookupError, AttributeError)


class StoreError(MildrouteError):
    """The store did not respond in time, is away, or rejected a call."""


class StoreWait:
    """What one request may still wait for the store, over all its calls.

    The calls themselves continue: other requests may wait for them, and a store that is slow is not
    away.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _REQUEST_TIMEOUT

    @property
    def is_over(self) -> bool:
        """Whether the request must continue without the store."""
        return self._left <= 0

    async def wait(self, calls: Iterable[asyncio.Future[Any]]) -> bool:
        """Wait until all of them are done, or the time is over; whether one took all the time."""
        started = perf_counter()
        is_first = self._left == _REQUEST_TIMEOUT
        pending = (await asyncio.wait(calls, timeout=max(0.0, self._left - _LAST_LOOK)))[1]
        if pending:
            pending = (await asyncio.wait(pending, timeout=min(_LAST_LOOK, self._left)))[1]
        self._left = 0.0 if pending else max(self._left - (perf_counter() - started), _LEAST)
        return is_first and bool(pending)


class Script:
    """A script that the store runs as one step, known to it by its digest.

    Args:
        source: The script, or its file, which is read when the script is first used.
    """

    def __init__(self, name: str, source: str | Path) -> None:
        self.name = name
        self._source = source

    @cached_property
    def source(self) -> str:
        """In Lua."""
        return (
            self._source.read_text(encoding="utf-8")
            if isinstance(self._source, Path)
            else self._source
        )

    @cached_property
    def digest(self) -> str:
        """By which the store knows it."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


# Whether the store can be written to, by every command that a gateway uses. The first write must be
# one that a full memory refuses: behind a DEL, Redis lets a script write. A server with another run
# id than before begins a new epoch of shared limits; one that does not tell its id is trusted.
_PROBE = Script(
    "probe",
    """
local entry = KEYS[1]
for _, call in ipairs({
  {'TIME'}, {'SET', entry, 1, 'PX', 1000}, {'GET', entry}, {'MGET', entry},
  {'PEXPIRE', entry, 1000}, {'EXPIRE', entry, 1}, {'DEL', entry},
  {'HSET', entry, 'a', 1}, {'HGETALL', entry}, {'HMGET', entry, 'a'}, {'HDEL', entry, 'a'},
  {'ZADD', entry, 1, 'a'}, {'ZCARD', entry}, {'ZREMRANGEBYSCORE', entry, '-inf', 1},
  {'EXPIREAT', entry, 1}, {'UNLINK', entry},
}) do redis.call(unpack(call)) end
local server = redis.pcall('INFO', 'server')
local run = type(server) == 'string' and string.match(server, 'run_id:(%w+)')
if run and redis.call('GET', KEYS[2]) ~= run then
  local clock = redis.call('TIME')
  redis.call('SET', KEYS[2], run)
  redis.call('SET', KEYS[3], clock[1] .. '.' .. string.format('%06d', clock[2]))
end
""",
)


# The client is written by hand on hiredis, which packs commands and parses replies in C.
# Microseconds of processor time for one call of a small script on uvloop, 1 and 16 in flight, on a
# busy machine: 59 and 13 here, 146 and 115 by redis.asyncio 8.1 with the same parser. A request
# takes about 450.
class _Connection(asyncio.Protocol):
    """One connection: commands go out in order, and replies come back in that order."""

    def __init__(self, on_lost: Callable[[_Connection], None]) -> None:
        import hiredis  # optional: only gateways with a store need it

        self._pack = hiredis.pack_command
        self._reader = hiredis.Reader(
            protocolError=StoreError, replyError=StoreError, notEnoughData=_INCOMPLETE
        )
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, parts: Sequence[Any]) -> asyncio.Future[Any]:
        """Send a command; what is sent in one turn of the loop goes out as one packet."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append(self._pack(tuple(parts)))
        self._waiting.append(reply)
        return reply

    def _flush(self) -> None:
        if self._transport is not None and self._unsent:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                waiting = self._waiting.popleft()
                if waiting.done():
                    continue
                if isinstance(reply, StoreError):
                    waiting.set_exception(reply)
                else:
                    waiting.set_result(reply)
        except (StoreError, IndexError):  # not what a Redis sends
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - lost is lost
        self._transport = None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(StoreError("the connection to the store was lost."))
        self._waiting.clear()
        self._unsent.clear()
        self._on_lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_INCOMPLETE: Any = object()


class RedisStore:
    """A Redis or Valkey that several gateways share.

    No call stays in a request's way for longer than 10 ms. After a failure the store counts as
    away, and calls fail at once, until a background task has reached it again.

    Args:
        scripts: That are loaded with each connection.
        record: Gets the name of each call, its seconds, and whether it failed.

    Attributes:
        gateway: Name of this process among those that share the store, new with each start.
        is_available: Whether it responds.
        recovered: Set when it responds again; the one who waits for it clears it.
        connections: That were made: behind a new one there may be another store.
        config: Where it is, and what to do without it.
    """

    def __init__(
        self,
        config: StoreConfig,
        scripts: Sequence[Script] = (),
        record: Callable[[str, float, bool], None] | None = None,
    ) -> None:
        try:
            import hiredis  # noqa: F401 - said here, before a port is opened
        except ImportError:
            raise MissingExtraError.for_package(
                "hiredis", extra="fleet", user="store in gateway.yaml"
            ) from None
        if config.password_env is not None and not _password_of(config.password_env):
            raise ArgumentError(
                f"the environment variable {config.password_env} must hold the store's password,"
                " got nothing; export it before you start."
            )
        self.config = config
        self.gateway = os.urandom(8).hex()
        self.is_available = False
        self._scripts = scripts
        self._record = record or _record_nothing
        self._connection: _Connection | None = None
        self.recovered = asyncio.Event()
        self._failed = asyncio.Event()
        self.connections = 0
        self._logged_at = -math.inf
        # Whether the log says that it is away.
        self._is_logged = False
        self._rejected_at = -math.inf
        # Why it was away the last time.
        self._reason = ""
        self._task: asyncio.Task[None] | None = None

    async def check_access(self) -> None:
        """Connect; a store that is away raises nothing, since it may still appear.

        Raises:
            ArgumentError: The store responds, and does not let this gateway in.
        """
        if not await self._recover() and _DENIED.match(self._reason):
            raise ArgumentError(
                f"the store must let this gateway read and write, got: {self._reason}; check"
                " store.url and the variable that store.password_env names."
            )

    async def start(self) -> None:
        """Connect, and stay connected until :meth:`close`; a store that is away is logged."""
        if not await self._recover():
            self._log_away()
            self._failed.set()
        self._task = asyncio.get_running_loop().create_task(self._maintain())

    async def close(self) -> None:
        """Disconnect."""
        self.is_available = False
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._connection is not None:
            self._connection.close()

    def key(self, *parts: str) -> str:
        """The name of an entry."""
        return ":".join((self.config.prefix, *parts))

    async def call(self, name: str, *parts: Any, in_background: bool = False) -> Any:
        """Send a command and wait for its reply.

        Args:
            name: Of the call in the metrics.
            parts: The command and its arguments.
            in_background: Whether no request waits for it: then it may take a second.

        Raises:
            StoreError: There was none in time.
        """
        return await self._await_reply(name, self._send(parts), in_background=in_background)

    def post(self, name: str, *parts: Any) -> None:
        """Send a command whose reply is awaited by none; nothing happens if the store is away."""
        if self.is_available and self._connection is not None:
            started = perf_counter()
            reply = self._connection.send(parts)
            reply.add_done_callback(
                lambda done: self._record(
                    name,
                    perf_counter() - started,
                    done.cancelled() or done.exception() is not None,
                )
            )

    async def run(
        self, script: Script, keys: Sequence[str], values: Sequence[Any], *, in_background: bool
    ) -> Any:
        """Run a script on entries; a StoreError if there was no reply in time."""
        rest = (len(keys), *keys, *values)
        try:
            return await self.call(
                script.name, "EVALSHA", script.digest, *rest, in_background=in_background
            )
        except StoreError as error:
            if not str(error).startswith(_NO_SCRIPT):  # an operator ran SCRIPT FLUSH
                raise
        return await self.call(
            script.name, "EVAL", script.source, *rest, in_background=in_background
        )

    def mark_away(self, reason: str = "no reply in time") -> None:
        """No call is tried in a request's way until the store has responded in the background."""
        if self.is_available:
            self.is_available = False
            self._reason = reason[:_MAX_REASON]
            self._log_away()
        self._failed.set()

    def _log_away(self) -> None:
        if perf_counter() - self._logged_at > _LOG_INTERVAL:
            self._logged_at = perf_counter()
            self._is_logged = True
            fields = {"reason": self._reason, "limits": self.config.on_failure}
            _LOG.warning("the store is away", extra={"fields": fields})

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read a reply; one that has not the shape of a Redis reply is a StoreError, and logged."""
        try:
            yield
        except _MISREAD as error:
            found = StoreError(f"a reply of the store cannot be read: {error}.")
            self._note(found)
            raise found from error

    def _send(self, parts: Sequence[Any]) -> asyncio.Future[Any]:
        if self._connection is None or not self.is_available:
            raise StoreError("the store is away.")
        return self._connection.send(parts)

    async def _await_reply(
        self, name: str, reply: asyncio.Future[Any], *, in_background: bool
    ) -> Any:
        started = perf_counter()
        limit = _BACKGROUND_TIMEOUT if in_background else _REQUEST_TIMEOUT
        # Not asyncio.timeout: it would drop a reply that arrived while the loop itself was late.
        timer = asyncio.get_running_loop().call_later(limit - _LAST_LOOK, _expire, reply)
        is_failed = True
        try:
            found = await reply
            is_failed = False
        except StoreError as error:
            self._note(error)
            raise
        finally:
            timer.cancel()
            self._record(name, perf_counter() - started, is_failed)
        return found

    def _note(self, error: StoreError) -> None:
        """Count a store as away that is late or cannot write; log other rejections."""
        if isinstance(error, _TimedOutError):
            self.mark_away()
        elif _UNUSABLE.search(str(error)):
            self.mark_away(str(error))
        elif self.is_available and not str(error).startswith(_NO_SCRIPT):
            now = perf_counter()
            if now - self._rejected_at > _LOG_INTERVAL:
                self._rejected_at = now
                fields = {"reason": str(error)[:_MAX_REASON]}
                _LOG.warning("the store rejected a call", extra={"fields": fields})

    async def _maintain(self) -> None:
        """Reach the store again whenever it was away."""
        pause = _FIRST_PAUSE
        recovered_at = -math.inf
        while True:
            await self._failed.wait()
            # A probe may succeed where calls do not: they are slower, or those of another shape.
            is_recovered = False
            if perf_counter() - recovered_at > _STEADY:
                pause = _FIRST_PAUSE
                is_recovered = await self._recover()
            while not is_recovered:
                if not self._is_logged:
                    self._log_away()
                await asyncio.sleep(pause)
                pause = min(_LAST_PAUSE, 2 * pause)
                is_recovered = await self._recover()
            recovered_at = perf_counter()
            self.recovered.set()
            if self._is_logged:
                self._is_logged = False
                _LOG.info("the store responds again")

    async def _recover(self) -> bool:
        """Whether the store can be used on the connection that there is, or on a new one."""
        self._failed.clear()
        started = perf_counter()
        try:
            async with asyncio.timeout(_BACKGROUND_TIMEOUT):
                if self._connection is None:
                    self._connection = await self._connect()
                    self.connections += 1
                keys = (self.key("probe", self.gateway), self.key("run"), self.key("epoch"))
                await self._connection.send(("EVALSHA", _PROBE.digest, len(keys), *keys))
        except (StoreError, OSError, TimeoutError) as error:
            self._reason = self._without_password(str(error))[:_MAX_REASON] or "no reply in time"
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self.is_available = self._connection is not None
        self._record("connect", perf_counter() - started, not self.is_available)
        return self.is_available

    def _without_password(self, reason: str) -> str:
        """Some servers repeat a command that they do not know, with the start of its arguments."""
        reason = reason.partition(", with args beginning")[0]
        password = self.config.password_env and _password_of(self.config.password_env)
        return reason.replace(password, "[secret]") if password else reason

    async def _connect(self) -> _Connection:
        url = urlsplit(self.config.url or "")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._lost),
            url.hostname or "",
            url.port or _PORT,
            ssl=True if url.scheme == "rediss" else None,
        )
        try:
            if self.config.password_env is not None:
                password = _password_of(self.config.password_env)
                user = (url.username,) if url.username else ()
                await connection.send(("AUTH", *user, password))
            if url.path.strip("/"):
                await connection.send(("SELECT", url.path.strip("/")))
            for script in (*self._scripts, _PROBE):
                await connection.send(("SCRIPT", "LOAD", script.source))
        except BaseException:
            connection.close()
            raise
        return connection

    def _lost(self, connection: _Connection) -> None:
        if connection is self._connection:
            self._connection = None
            self.mark_away("the connection was lost")


class _TimedOutError(StoreError):
    """No reply in time."""


def _expire(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.get_loop().call_later(_LAST_LOOK, _fail, reply)


def _fail(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(_TimedOutError("the store did not respond in time."))


def _password_of(variable: str) -> str:
    # Files of secrets end with a new line.
    return os.environ.get(variable, "").strip()


def _record_nothing(_name: str, _seconds: float, _is_failed: bool) -> None:
    pass
