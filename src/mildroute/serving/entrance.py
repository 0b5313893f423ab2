"""Who may come in: the client's key and what it may still ask and spend."""

from __future__ import annotations

from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.gatekeeper import Gatekeeper, Refusal
from mildroute.serving.keys import Client, KeyRing

__all__ = ["Entrance"]


class Entrance:
    """Knows clients by their keys.

    Args:
        keyring: All clients.
        gatekeeper: What each may ask and spend.

    Example:
        >>> Entrance(KeyRing(), Gatekeeper()).client_of(Caller({"headers": []}, None, None)).name
        ''
    """

    def __init__(self, keyring: KeyRing, gatekeeper: Gatekeeper) -> None:
        self._keyring, self._gatekeeper = keyring, gatekeeper

    def client_of(self, caller: Caller) -> Client:
        """Who calls; a ComplaintError if nobody has that key."""
        sent = caller.header(b"authorization")
        client = self._keyring.find(None if sent is None else sent.decode("latin-1"))
        if client is None:
            raise ComplaintError(401, "a key of this gateway is needed, as 'Authorization: Bearer mr-...'; ask its operator for one.")
        return client

    def admit(self, client: Client) -> None:
        """Let one request in, or complain; each that is let in must be followed by one :meth:`charge`."""
        _complain(self._gatekeeper.admit(client))

    def admit_free(self, client: Client) -> None:
        """Let in a request that costs nothing, or complain; no charge follows."""
        _complain(self._gatekeeper.admit_free(client))

    def charge(self, client: Client, dollars: float) -> None:
        """Count what a request has cost."""
        self._gatekeeper.charge(client, dollars)


def _complain(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise ComplaintError(refusal.status, refusal.message, code=refusal.code, retry_after=float(refusal.retry_after))
