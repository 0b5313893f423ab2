"""Session affinity: which expert each conversation stays with."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b

from mildroute.serving.config import RoutingConfig

__all__ = ["SessionAffinity", "conversation_digest", "named_conversation"]


_LONGEST_PART = 1 << 12
_SAMPLE = 1 << 10


class SessionAffinity:
    """A memory that is bounded twice: by number, where the one that was silent for longest goes first, and by time.

    Args:
        rules: How many are remembered, and for how many silent seconds.
        clock: Seconds that only grow.

    Example:
        >>> memory = SessionAffinity(RoutingConfig(memory=1))
        >>> memory.keep("a", "small")
        >>> memory.keep("b", "large")
        >>> memory.held("a"), memory.held("b")
        (None, 'large')
    """

    __slots__ = ("_clock", "_entries", "_forget_after", "_most")

    def __init__(self, rules: RoutingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._forget_after, self._clock = rules.memory, rules.forget_after, clock
        # Each entry moves to the end when it is renewed, so the order is that of their times and the oldest is always in front.
        self._entries: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        """Conversations in memory; some may be too old already."""
        return len(self._entries)

    def held(self, conversation: str | None) -> str | None:
        """The expert of a conversation, or none."""
        entry = self._entries.get(conversation) if conversation is not None else None
        if entry is None or self._is_old(entry):
            return None
        return entry[0]

    def keep(self, conversation: str | None, expert: str) -> None:
        """Remember, or renew, the expert of a conversation; nothing happens where there is none."""
        if conversation is None or self._most <= 0:
            return
        entries = self._entries
        entries[conversation] = (expert, self._clock())
        entries.move_to_end(conversation)
        if len(entries) > self._most:
            entries.popitem(last=False)
        self._drop_one_old()

    def _drop_one_old(self) -> None:
        # One for each that comes is enough for the old ones to run out, and costs the same every time.
        oldest = next(iter(self._entries))
        if self._is_old(self._entries[oldest]):
            del self._entries[oldest]

    def _is_old(self, entry: tuple[str, float]) -> bool:
        return self._clock() - entry[1] > self._forget_after


def conversation_digest(parts: Iterable[str], salt: str = "") -> str:
    """A short name for what a conversation began with.

    Args:
        parts: What it began with; where one part ends and the next begins counts. Of parts over 4,096 characters the length, the begin,
            the middle and the end are taken.
        salt: Whose conversation it is, such as the name of the client's key: the same words of two clients are two conversations.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> conversation_digest(["system", "Be brief."]) == conversation_digest(["systemBe", " brief."])
        False
    """
    data = [_sample(part).encode("utf-8", "surrogatepass") for part in (salt, *parts)]
    return blake2b(b"".join([b"%d:%b" % (len(part), part) for part in data]), digest_size=16).hexdigest()


def _sample(part: str) -> str:
    if len(part) <= _LONGEST_PART:
        return part
    # Pictures and whole books: their length and three places tell them apart, and megabytes need not be hashed while others wait.
    middle = len(part) // 2
    return f"{len(part)}:{part[:_SAMPLE]}{part[middle : middle + _SAMPLE]}{part[-_SAMPLE:]}"


def named_conversation(name: str, salt: str = "") -> str:
    """The digest of a conversation that has a name: from a header, ``metadata.conversation_id``, or an earlier answer's id.

    Args:
        name: Its name.
        salt: Whose conversation it is.

    Example:
        >>> named_conversation("resp_1", "team-a") == named_conversation("resp_1", "team-b")
        False
    """
    return conversation_digest(("named", name), salt)
