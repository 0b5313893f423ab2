"""Paths that need the operator's own key."""

from __future__ import annotations

import hashlib
import hmac

from mildroute.experts.secret import Secret
from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError

__all__ = ["Guard"]


class Guard:
    """Lets in who has a key that is none of the clients'.

    Args:
        secret: The key.

    Example:
        >>> guard = Guard(Secret("OPERATOR", {"OPERATOR": "open-sesame"}))
        >>> guard.check(Caller({"headers": [(b"authorization", b"Bearer open-sesame")]}, None, None))
    """

    def __init__(self, secret: Secret) -> None:
        # Digests have one length, so that not even the length of the key can be measured.
        self._wanted = hashlib.sha256(secret.bearer()).digest()

    def check(self, caller: Caller) -> None:
        """A ComplaintError for everyone else."""
        sent = hashlib.sha256(caller.header(b"authorization") or b"").digest()
        if not hmac.compare_digest(sent, self._wanted):
            raise ComplaintError(401, "the operator's own key is needed, as 'Authorization: Bearer ...'.")
