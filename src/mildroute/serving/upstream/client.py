"""The endpoint of one expert: where it is, how it is spoken to, and the connections to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from mildroute import __version__
from mildroute.exceptions import MissingExtraError
from mildroute.experts.config import ExpertSpec
from mildroute.experts.secrets import Secret
from mildroute.serving.http.body import ParsedRequest
from mildroute.serving.http.request import Header, forward_response_headers
from mildroute.serving.upstream._http1 import Connection, Deadlines, UpstreamError

__all__ = ["UpstreamClient"]


try:
    import httpx
except ImportError:
    raise MissingExtraError.for_package("httpx", extra="serve", user="mildroute.serving") from None


_KEPT_ALIVE = 30.0
_PORTS = {"http": 80, "https": 443}


class UpstreamClient:
    """Calls one expert of kind ``openai``; its address and key come from experts.yaml and from nowhere else.

    Connections are kept and used again, the latest first. One whose call was cancelled, cut off or answered with more than was asked for
    is closed. Redirects are not followed and proxies of the environment are not used.

    Args:
        spec: The expert.
        connect: Seconds until there is a connection.
        most: Calls at the same time where the file sets no ``concurrency``; more wait for their turn.

    Attributes:
        name: Of the expert.
        model: What it is called at its address.

    Example:
        >>> spec = ExpertSpec("small", "openai", {"base_url": "http://127.0.0.1:8080/v1", "model": "smollm2"})
        >>> UpstreamClient(spec).model
        'smollm2'
    """

    def __init__(self, spec: ExpertSpec, *, connect: float = 3.0, most: int = 1024) -> None:
        address = httpx.URL(spec.settings["base_url"].rstrip("/"))
        self.name, self.model = spec.name, str(spec.settings["model"])
        self._host, self._port = address.raw_host.decode(), address.port or _PORTS[address.scheme]
        # Whom to believe is the same as for collecting; making it takes a tenth of a second.
        self._trust = httpx.create_ssl_context() if address.scheme == "https" else None
        self._base = address.raw_path.rstrip(b"/")
        variable = spec.settings.get("api_key_env")
        self._secret = None if variable is None else Secret(variable)
        self._common = _common(address.netloc)
        self._connect, self._most = connect, int(spec.settings.get("concurrency", most))
        self._busy = 0
        self._free: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether a call would be made now or soon: no more calls wait than can be made at once."""
        return len(self._waiting) < self._most

    @property
    def connections(self) -> int:
        """Connections that are kept or in use."""
        return self._busy + sum(line.is_open for line in self._free)

    async def ask(self, parsed: ParsedRequest, forwarded_headers: bytes, patience: Deadlines) -> Connection:
        """Send a request; a UpstreamError says why there is no answer.

        Args:
            parsed: The request; only its model is changed.
            forwarded_headers: Further lines of the head.
            patience: How long to wait.

        Returns:
            The answer, whole, or from its first bytes on where pieces are wanted. Give it to :meth:`release` in any case.
        """
        await self._enter(patience)
        line = None
        try:
            line, is_fresh = await self._line()
            request = self._request(parsed, forwarded_headers)
            try:
                await line.exchange(request, patience, in_pieces=parsed.is_stream)
            except UpstreamError as error:
                if is_fresh or line.heard or error.why != "lost":
                    raise
                # The expert had closed the connection while nobody used it, so it cannot have read the request.
                line.end()
                line = await self._connected()
                await line.exchange(request, patience, in_pieces=parsed.is_stream)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self.release(line)
            raise _bare(error) from None
        return line

    def release(self, line: Connection | None) -> None:
        """Be done with an answer; at any time, also in the middle."""
        if line is not None and line.end():
            self._keep(line)
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1

    def scrubbed(self, error_response: bytes) -> bytes:
        """An error of this expert without our key, should it repeat it."""
        if self._secret is None:
            return error_response
        return self._secret.scrub(error_response.decode("latin-1")).encode("latin-1")

    def forward_response_headers(self, headers: list[Header]) -> list[Header]:
        """What a client is told of an answer's headers, without our key."""
        kept = forward_response_headers(headers)
        if self._secret is None:
            return kept
        return [(name, self._secret.scrub_answer(value.decode("latin-1")).encode("latin-1")) for name, value in kept]

    def close(self) -> None:
        """End all connections that are not in use; those in use end with their answers."""
        self._is_closed = True
        while self._free:
            self._free.pop().abort()

    async def _enter(self, patience: Deadlines) -> None:
        if self._busy < self._most:
            self._busy += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(min(patience.first_by, patience.end_by) - loop.time()):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(None)
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise UpstreamError("busy") from None
            raise

    async def _line(self) -> tuple[Connection, bool]:
        """A connection, and whether it is a new one."""
        oldest = asyncio.get_running_loop().time() - _KEPT_ALIVE
        while self._free:
            line = self._free.pop()
            if line.is_open and line.idle_since > oldest:
                return line, False
            line.abort()
        return await self._connected(), True

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect):
                host = None if self._trust is None else self._host
                _, line = await loop.create_connection(
                    lambda: Connection(loop), self._host, self._port, ssl=self._trust, server_hostname=host
                )
        except (OSError, UnicodeError):
            raise UpstreamError("connect") from None
        return line

    def _request(self, parsed: ParsedRequest, forwarded_headers: bytes) -> Sequence[bytes]:
        """Pieces that are never joined here: the key stays in an object that does not show it."""
        body = parsed.body_for(self.model)
        start = b"POST %b/%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n" % (
            self._base,
            parsed.path.encode(),
            self._common,
            forwarded_headers,
            len(body),
        )
        if self._secret is None:
            return start, b"\r\n", body
        return start, b"authorization: ", self._secret.bearer(), b"\r\n\r\n", body

    def _keep(self, line: Connection) -> None:
        if self._is_closed:
            line.abort()
            return
        self._free.append(line)
        self._drop_old(line.idle_since - _KEPT_ALIVE)

    def _drop_old(self, oldest: float) -> None:
        """One a call is enough for a burst's connections to run out."""
        if self._free[0].idle_since < oldest or not self._free[0].is_open:
            self._free.popleft().abort()


def _common(host: bytes) -> bytes:
    return b"host: %b\r\naccept-encoding: identity\r\nuser-agent: mildroute/%b\r\n" % (host, __version__.encode())


def _bare(error: BaseException) -> BaseException:
    """Without the frames that it came through, whose variables hold the request."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
