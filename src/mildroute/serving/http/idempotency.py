"""Idempotency keys: a request that is sent again gets the response of the first, paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mildroute.serving.config import IdempotencyConfig
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import ClientDisconnect, Header, Request, parse_body
from mildroute.serving.store import RedisStore, Script, StoreError

__all__ = ["IdempotencyCache", "IdempotentRequest", "RecordedResponse"]


# The header is that of Stripe and of the IETF's draft-ietf-httpapi-idempotency-key-header. OpenAI's
# client for Node sends a new one with each request and the same one with its retries, so that what
# is kept must be bounded and cheap.
#
# An entry of the store begins with its kind: a request in flight with its gateway, a response, or a
# response that is not in the store. The digest of the request follows.


_REPLAYED = (b"idempotent-replayed", b"true")
_is_valid = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?").fullmatch
_DIGEST = 32
_IN_FLIGHT = b"?"
_RESPONSE = b"="
_NOT_STORED = b"-"
_GATEWAY = 16
# A response may take this part of all bytes that are kept.
_MAX_PART = 8
_OVERHEAD = 512
# A marker is taken by none but its own gateway, which may have lost the reply to its first call.
_CLAIM = Script(
    "claim_key",
    f"""
local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, {1 + _GATEWAY}) ~= string.sub(ARGV[1], 1, {1 + _GATEWAY}) then
  return found
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
""",
)
_FREE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class RecordedResponse(NamedTuple):
    """A response that can be sent again."""

    status: int
    headers: Sequence[Header]
    body: bytes

    def encode(self) -> bytes:
        """For the store."""
        headers = [[part.decode("latin-1") for part in header] for header in self.headers]
        return json.dumps([self.status, headers]).encode() + b"\n" + self.body

    @classmethod
    def decode(cls, encoded: bytes) -> RecordedResponse:
        """From the store."""
        head, _, body = encoded.partition(b"\n")
        status, headers = json.loads(head)
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return cls(status, pairs, body)

    async def replay(self, request: Request) -> None:
        """Send it again; a stream comes at once."""
        await request.send_response(self.status, [*self.headers, _REPLAYED], self.body)


class IdempotentRequest:
    """A request with an idempotency key, and its response as far as it has come.

    Args:
        name: Digest of its client and its key.
        digest: Of its path, its target and its body.

    Attributes:
        response: Complete, or none if there is none yet or it was too large to be kept.
        expires_at: Until when it is kept.
        size: Bytes that it takes.
        is_shared: Whether the store may know of it.
        timer: Renews its marker in the store while it is in flight, or none.
    """

    __slots__ = (
        "_cache",
        "_chunks",
        "_head",
        "digest",
        "done",
        "expires_at",
        "is_shared",
        "name",
        "response",
        "size",
        "timer",
    )

    def __init__(self, cache: IdempotencyCache, name: str, digest: bytes) -> None:
        self._cache = cache
        self._head: tuple[int, Sequence[Header]] | None = None
        self._chunks: list[bytes] = []
        self.name = name
        self.digest = digest
        self.done: asyncio.Future[RecordedResponse | None]
        self.done = asyncio.get_running_loop().create_future()
        self.response: RecordedResponse | None = None
        self.expires_at = math.inf
        self.size = _OVERHEAD
        self.is_shared = False
        self.timer: asyncio.TimerHandle | None = None

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Record a response from here on; only a success is kept."""
        if status < 300:
            self._head = status, headers

    def write(self, chunk: bytes, *, is_last: bool) -> None:
        """Record a part of the body."""
        if self._head is None:
            return
        self.size += len(chunk)
        if self.size <= self._cache.max_response_bytes:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()
        if is_last:
            self._cache.keep(self, RecordedResponse(*self._head, b"".join(self._chunks)))

    def end(self) -> None:
        """Free the key if there was no complete response."""
        if not self.done.done():
            self._cache.free(self)


class IdempotencyCache:
    """Responses to requests with idempotency keys, by client and key.

    A client is part of the name under which a response is kept, so that no other one finds it.

    Args:
        config: What is kept, and for how long.
        store: That gateways share, or none.
        on_replay: Called for each response that is sent again.

    Attributes:
        max_response_bytes: Of a response that is kept.
    """

    def __init__(
        self,
        config: IdempotencyConfig,
        store: RedisStore | None = None,
        on_replay: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._store = store
        self._on_replay = on_replay
        self._clock = clock
        self._in_flight: dict[str, IdempotentRequest] = {}
        self._kept: OrderedDict[str, IdempotentRequest] = OrderedDict()
        self._bytes = 0
        self.max_response_bytes = config.max_bytes // _MAX_PART

    def identify(self, key: bytes, client: str) -> str | None:
        """Name of a request by its key and its client, or none if keys are ignored.

        An APIError if it is no key.
        """
        if not self._config.ttl:
            return None
        if not _is_valid(key):
            raise APIError(
                400,
                "Idempotency-Key must have 1 to 255 ASCII characters, without control characters;"
                " send a UUID.",
                code="idempotency_key_invalid",
            )
        # No client's name has a NUL, so that no two pairs are the same text.
        return hashlib.sha256(client.encode() + b"\0" + key).hexdigest()

    def has_response(self, name: str) -> bool:
        """Whether a response is kept here."""
        return name in self._kept

    async def begin(
        self, name: str, head: str, body: bytes | bytearray, request: Request, *, is_stream: bool
    ) -> IdempotentRequest | None:
        """Begin a request, which must be ended; none if an earlier response was sent for it.

        A request that is in flight is waited for, unless it is streamed or at another gateway.

        Args:
            name: Of client and key.
            head: What, in addition to the body, makes two requests the same.
            body: Of the request.
            request: Gets the earlier response.
            is_stream: Whether the response is streamed.
        """
        digest = await parse_body(body, _digest, head, body)
        self._evict()
        known = self._in_flight.get(name) or self._kept.get(name)
        if known is None:
            entry = self._in_flight[name] = IdempotentRequest(self, name, digest)
            try:
                response = await self._claim(entry, request)
            except BaseException:
                entry.end()
                raise
            if response is None:
                return entry
        else:
            response = await _response_of(known, digest, request, is_stream=is_stream)
        self._on_replay()
        await response.replay(request)
        return None

    def keep(self, entry: IdempotentRequest, response: RecordedResponse) -> None:
        """Keep a complete response, and give it to the requests that wait for it."""
        self._remove(entry, response)
        if entry.size <= self.max_response_bytes:
            entry.response = response
        else:
            entry.size = _OVERHEAD
        entry.expires_at = self._clock() + self._config.ttl
        self._kept[entry.name] = entry
        self._bytes += entry.size
        if entry.is_shared and self._store is not None:
            value = _NOT_STORED + entry.digest
            if entry.response is not None and entry.size <= self._config.max_stored_bytes:
                value = _RESPONSE + entry.digest + response.encode()
            lifetime = math.ceil(1000 * self._config.ttl)
            self._store.post("set_response", "SET", _key(self._store, entry), value, "PX", lifetime)
        self._evict()

    def free(self, entry: IdempotentRequest) -> None:
        """Forget a request that has failed, so that it can be sent again."""
        self._remove(entry, None)
        if entry.is_shared and self._store is not None:
            marker = _marker(self._store, entry)
            self._store.post("free_key", "EVAL", _FREE, 1, _key(self._store, entry), marker)

    def _remove(self, entry: IdempotentRequest, response: RecordedResponse | None) -> None:
        del self._in_flight[entry.name]
        entry.done.set_result(response)
        if entry.timer is not None:
            entry.timer.cancel()

    def _evict(self) -> None:
        """Drop what has expired, and the oldest if there is too much.

        What is dropped here is dropped in the store: n gateways keep n times the bytes there.
        """
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            is_expired = oldest.expires_at <= now
            has_room = len(self._kept) <= self._config.max_keys and (
                self._bytes <= self._config.max_bytes
            )
            if has_room and not is_expired:
                break
            del self._kept[oldest.name]
            self._bytes -= oldest.size
            if oldest.is_shared and not is_expired and self._store is not None:
                self._store.post("drop_response", "UNLINK", _key(self._store, oldest))

    async def _claim(self, entry: IdempotentRequest, request: Request) -> RecordedResponse | None:
        """Claim a key in the store; the response if another gateway has it.

        Without the store, or if it is late, the key is that of this gateway alone.
        """
        store = self._store
        if store is None or not store.is_available:
            return None
        entry.is_shared = True
        marker = _marker(store, entry)
        lifetime = math.ceil(1000 * store.config.lease_ttl)
        run = store.run(_CLAIM, [_key(store, entry)], [marker, lifetime], in_background=False)
        call = asyncio.get_running_loop().create_task(run)
        call.add_done_callback(_ignore)
        await request.store_wait().wait([call])
        try:
            found = call.result() if call.done() else None
        except StoreError:
            found = None
        if found is None:
            self._renew_later(store, entry)
            return None
        entry.is_shared = False
        response = _decode(found, entry.digest)
        # Not kept: the store knows when it expires.
        self._remove(entry, response)
        return response

    def _renew_later(self, store: RedisStore, entry: IdempotentRequest) -> None:
        """Tell the store in time that a request is still in flight."""
        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(store.config.lease_ttl / 3, self._renew, store, entry)

    def _renew(self, store: RedisStore, entry: IdempotentRequest) -> None:
        lifetime = math.ceil(1000 * store.config.lease_ttl)
        store.post("renew_key", "SET", _key(store, entry), _marker(store, entry), "PX", lifetime)
        self._renew_later(store, entry)


def _digest(head: str, body: bytes | bytearray) -> bytes:
    found = hashlib.sha256(head.encode() + b"\0")
    found.update(body)
    return found.digest()


def _key(store: RedisStore, entry: IdempotentRequest) -> str:
    return store.key("idempotency", entry.name)


def _marker(store: RedisStore, entry: IdempotentRequest) -> bytes:
    return _IN_FLIGHT + store.gateway.encode() + entry.digest


def _decode(found: bytes, digest: bytes) -> RecordedResponse:
    """The response in an entry of the store; an APIError if there is none for this request."""
    kind = found[:1]
    start = 1 + _GATEWAY if kind == _IN_FLIGHT else 1
    _check_same(found[start : start + _DIGEST], digest)
    if kind == _IN_FLIGHT:
        raise _in_use()
    if kind != _RESPONSE:
        raise _not_kept()
    return RecordedResponse.decode(found[start + _DIGEST :])


async def _response_of(
    known: IdempotentRequest, digest: bytes, request: Request, *, is_stream: bool
) -> RecordedResponse:
    """The response of a request of this gateway, in flight or done; an APIError if it has none."""
    _check_same(known.digest, digest)
    response = known.response
    if known.done.done():
        if response is None:
            raise _not_kept()
        return response
    if is_stream:
        raise _in_use()
    request.watch_disconnect()
    try:
        response = await asyncio.shield(known.done)
    except asyncio.CancelledError:
        if not request.is_disconnected:
            raise
        asyncio.current_task().uncancel()  # type: ignore[union-attr]
        raise ClientDisconnect("the client went away while it waited.") from None
    finally:
        request.unwatch()
    if response is None:
        raise _in_use()
    return response


def _check_same(known: bytes, digest: bytes) -> None:
    if known != digest:
        raise APIError(
            422,
            "this Idempotency-Key was used for another request; use a new key for each request.",
            code="idempotency_key_reused",
        )


def _in_use() -> APIError:
    return APIError(
        409,
        "a request with this Idempotency-Key is in flight, or has just failed; send it again.",
        code="idempotency_key_in_use",
        retry_after=1.0,
    )


def _not_kept() -> APIError:
    return APIError(
        409,
        "this request was answered, and its response is too large to be sent again from here; use"
        " a new Idempotency-Key to pay for another one.",
        code="idempotency_response_not_kept",
    )


def _ignore(call: asyncio.Task[object]) -> None:
    """A reply that is late is of no use, and neither is its error."""
    if not call.cancelled():
        call.exception()
