"""``/admin``: what the operator alone may do, with a key of its own."""

from __future__ import annotations

from mildroute.errors import ArgumentError, ArtifactError
from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.documents import send_document
from mildroute.serving.guard import Guard
from mildroute.serving.renewal import Renewal

__all__ = ["Admin"]


class Admin:
    """Replaces the router and the keys of clients.

    Args:
        renewal: Reads them anew.
        guard: Knows the operator.

    Example:
        >>> Admin.__name__
        'Admin'
    """

    def __init__(self, renewal: Renewal, guard: Guard) -> None:
        self._renewal, self._guard = renewal, guard

    async def reload(self, caller: Caller) -> None:
        """Read the keys and the router's folder anew; what is bad is refused, and what was there stays."""
        self._guard.check(caller)
        clients, refusal = None, ""
        try:
            # First: who was shut out must be out, also where the router is bad.
            clients = await self._renewal.keys()
        except ArgumentError as error:
            refusal = f"{error}"
        try:
            digest = await self._renewal.router()
        except ArtifactError as error:
            said = f"{error} The keys stay as they were: {refusal}" if refusal else f"{error}"
            raise ComplaintError(422, f"the router was not replaced: {said}", code="bad_artifact") from None
        if refusal:
            raise ComplaintError(422, f"the router was replaced, but the keys stay as they were: {refusal}", code="bad_keys")
        told = {} if clients is None else {"clients": clients}
        await send_document(caller, {"object": "mildroute.router", "router": digest, **told})
