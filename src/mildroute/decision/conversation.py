"""Names for conversations, so that each can stay with its expert."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["conversation_digest", "named_conversation"]

# Maximum characters of a part that is hashed in full. A longer part is identified by three samples.
_MAX_PART = 1 << 12
# Characters of a sample.
_SAMPLE = 1 << 10


def conversation_digest(parts: Iterable[str], salt: str = "") -> str:
    """Return a short name for the beginning of a conversation.

    Args:
        parts: Texts at the beginning; the boundaries between them matter. A part of more than 4,096
            characters is identified by its length, beginning, middle and end.
        salt: Owner of the conversation, such as the name of the client's key, so that the same
            words from two clients are two conversations.

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
    # The part may be an image or a whole book. Its length and three samples identify it, so other
    # requests need not wait while megabytes are hashed.
    middle = len(part) // 2
    return f"{len(part)}:{part[:_SAMPLE]}{part[middle : middle + _SAMPLE]}{part[-_SAMPLE:]}"
