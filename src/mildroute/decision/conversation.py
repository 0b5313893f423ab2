"""Names for conversations, so that each can stay with its expert."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["conversation_digest", "named_conversation"]

# Longer parts of a conversation are told apart by three samples.
_MAX_PART = 1 << 12
# Characters of a sample.
_SAMPLE = 1 << 10


def conversation_digest(parts: Iterable[str], salt: str = "") -> str:
    """Return a short name for what a conversation began with.

    Args:
        parts: The beginning; where one part ends and the next begins counts. Of parts over 4,096
            characters the length, the beginning, the middle and the end are taken.
        salt: Whose conversation it is, such as the name of the client's key: the same words of two
            clients are two conversations.

    Returns:
        32 hexadecimal digits.
    """
    data = [_sample(part).encode("utf-8", "surrogatepass") for part in (salt, *parts)]
    return blake2b(
        b"".join([b"%d:%b" % (len(part), part) for part in data]), digest_size=16
    ).hexdigest()


def named_conversation(name: str, salt: str = "") -> str:
    """Return the digest of a conversation that has a name.

    The name comes from ``metadata.conversation_id``, or is the id of an earlier response.
    """
    return conversation_digest(("named", name), salt)


def _sample(part: str) -> str:
    if len(part) <= _MAX_PART:
        return part
    # Pictures and whole books: their length and three samples distinguish them, and megabytes need
    # not be hashed while others wait.
    middle = len(part) // 2
    return f"{len(part)}:{part[:_SAMPLE]}{part[middle : middle + _SAMPLE]}{part[-_SAMPLE:]}"
