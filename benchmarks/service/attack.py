"""One hostile request, and what an attacker knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BODY = b'{"model":"mildroute","messages":[{"role":"user","content":"PROMPT-MARK #7"}]}'
CLIENT_ERRORS = frozenset(range(400, 500))
ANY = frozenset({200, *CLIENT_ERRORS, 501, 505})


class Attack(NamedTuple):
    """Bytes to send over one connection.

    Args:
        name: What is tried.
        data: The bytes.
        allowed: Statuses of the first answer; none at all is allowed, too, as long as the
            connection ends.
        most: Answers that may come.
    """

    name: str
    data: bytes
    allowed: frozenset[int] = ANY
    most: int = 1


class Target(NamedTuple):
    """What an attacker knows.

    A key of its own, and where the server is that must never be called.
    """

    key: str
    canary: int

    def post(
        self,
        body: bytes = BODY,
        path: bytes = b"/v1/chat/completions",
        headers: bytes = b"",
        *,
        length: bool = True,
    ) -> bytes:
        """A sound request but for what is given."""
        size = b"content-length: %d\r\n" % len(body) if length else b""
        key = b"authorization: Bearer %b\r\n" % self.key.encode()
        return (
            b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type:"
            b" application/json\r\n%b%b%b\r\n%b" % (path, key, size, headers, body)
        )


def partial(attacks: Iterable[Attack], cut: float) -> Iterator[Attack]:
    """The same, broken off."""
    for attack in attacks:
        allowed = ANY | (
            attack.allowed & {100}
        )  # who asks whether to go on is told so, and then waited for in vain
        yield Attack(
            f"cut: {attack.name}", attack.data[: int(len(attack.data) * cut)], allowed, attack.most
        )
