"""What an encoder is: a digest of all that its vectors depend on, and a copy of it that runs on fewer threads."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from mildroute.routers.storage.encode import encode

__all__ = ["identity_of", "with_threads"]


def identity_of(encoder: Any) -> str:
    """A digest of a fitted encoder's parameters and fitted numbers; the number of its threads does not count.

    Args:
        encoder: One that an artifact can hold.

    Returns:
        Thirty-two hexadecimal digits.

    Example:
        >>> from mildroute.encoders.hashing import HashingEncoder
        >>> one, two = (HashingEncoder(columns=width).fit(["a"]) for width in (8, 16))
        >>> identity_of(one) == identity_of(copy.deepcopy(one)), identity_of(one) == identity_of(two)
        (True, False)
    """
    tensors: dict[str, NDArray[Any]] = {}
    tree = encode(with_threads(encoder, None), ("encoder",), tensors)
    hasher = hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        hasher.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        hasher.update(tensor.tobytes())
    return hasher.hexdigest()


def with_threads(encoder: Any, threads: int | None) -> Any:
    """A copy of an encoder whose models run on so many threads each.

    Args:
        encoder: Fitted or not.
        threads: Threads, or none to leave it to the library.

    Returns:
        The copy.

    Example:
        >>> from mildroute.encoders.image import ImageEncoder
        >>> with_threads(ImageEncoder(threads=4), 1).threads
        1
    """
    copied = copy.deepcopy(encoder)
    for each in _nested(copied):
        if hasattr(each, "threads"):
            each.threads = threads
    return copied


def _nested(encoder: Any) -> Iterator[Any]:
    yield encoder
    for name in ("encoder", "encoder_"):
        if getattr(encoder, name, None) is not None:
            yield from _nested(getattr(encoder, name))
    for name in ("encoders", "encoders_"):
        for inner in getattr(encoder, name, ()):
            yield from _nested(inner)
