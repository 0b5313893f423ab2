"""``/admin``: what the operator alone may do, with a key of its own."""

from __future__ import annotations

import hashlib
import hmac

from mildroute.errors import ArtifactError
from mildroute.experts.secret import Secret
from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.documents import send_document
from mildroute.serving.parts import Minded

__all__ = ["Admin"]


class Admin:
    """Replaces the router.

    Args:
        holder: Has it.
        secret: The operator's key.

    Example:
        >>> Admin.__name__
        'Admin'
    """

    def __init__(self, holder: Minded, secret: Secret) -> None:
        self._holder = holder
        # Digests have one length, so that not even the length of the key can be measured.
        self._wanted = hashlib.sha256(secret.bearer()).digest()

    async def reload(self, caller: Caller) -> None:
        """Read the router's folder anew; a bad one is refused and the old router stays."""
        sent = hashlib.sha256(caller.header(b"authorization") or b"").digest()
        if not hmac.compare_digest(sent, self._wanted):
            raise ComplaintError(401, "the operator's own key is needed, as 'Authorization: Bearer ...'.")
        try:
            digest = await self._holder.reload(None)
        except ArtifactError as error:
            raise ComplaintError(422, f"the router was not replaced: {error}", code="bad_artifact") from None
        await send_document(caller, {"object": "mildroute.router", "router": digest})
