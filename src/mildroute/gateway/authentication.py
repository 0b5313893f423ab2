"""Authentication of clients and operators by their keys."""

from __future__ import annotations

import hashlib
import hmac

from mildroute.experts.secrets import Secret
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.origin import check_site
from mildroute.gateway.http.request import Request
from mildroute.gateway.keys import APIClient, KeyStore
from mildroute.gateway.limits.base import Limits, Reservation
from mildroute.gateway.limits.refusals import LimitExceeded

__all__ = ["AdminAuth", "Authenticator", "check_model"]


class Authenticator:
    """An authenticator of clients, which also applies their limits.

    Args:
        key_store: All clients.
        limits: Rate limits and budgets of clients.
    """

    def __init__(self, key_store: KeyStore, limits: Limits) -> None:
        self._key_store = key_store
        self._limits = limits

    def authenticate(self, request: Request) -> APIClient:
        """Return the client of a request; raise an APIError if the request has no valid key."""
        if self._key_store.is_open:
            check_site(request)
        client = self._key_store.find(request.headers.get("authorization"))
        if client is None and (key := request.headers.get("x-api-key")) is not None:
            # Anthropic's clients use this header, perhaps along with an Authorization header.
            client = self._key_store.find(f"Bearer {key}")
        if client is None:
            raise APIError(
                401,
                "a key of this gateway is required, as 'Authorization: Bearer mr-...' or"
                " 'x-api-key: mr-...'; ask its operator for one.",
            )
        request.scope["mildroute.key"] = client.name  # for the access log
        return client

    def admit(self, client: APIClient, request: Request) -> None:
        """Count a request as in flight, before its body is read.

        Raises:
            APIError: The client has too many requests in flight, or its limits refuse any request.
        """
        if request.slot is not None:
            # With a single client, there is no other client to protect.
            request.slot.assign(client.name, is_shared=len(self._key_store) > 1)
        _raise_if_exceeded(self._limits.refusal(client))

    async def reserve(
        self,
        client: APIClient,
        dollars: float = 0.0,
        *,
        requests: int = 1,
        is_bounded: bool = True,
    ) -> Reservation | None:
        """Count a request and hold its maximum cost; raise an APIError if limits refuse it."""
        reservation = await self._limits.reserve(
            client, dollars, requests=requests, is_bounded=is_bounded
        )
        if isinstance(reservation, LimitExceeded):
            raise _to_api_error(reservation)
        return reservation

    def settle(self, reservation: Reservation | None, dollars: float) -> None:
        """Replace the dollars held for a request by its actual cost."""
        self._limits.settle(reservation, dollars)


def check_model(client: APIClient, model: str) -> None:
    """Raise an APIError if the client is not allowed to use this route or expert."""
    if not client.may_use(model):
        allowed = ", ".join(sorted(client.models or ()))
        raise APIError(
            403,
            f"this key may use {allowed:.2000}, got another model; ask the gateway's operator for"
            " access.",
            code="model_not_allowed",
            param="model",
        )


def _raise_if_exceeded(exceeded: LimitExceeded | None) -> None:
    if exceeded is not None:
        raise _to_api_error(exceeded)


def _to_api_error(exceeded: LimitExceeded) -> APIError:
    retry_after = exceeded.retry_after if exceeded.status in (429, 503) else None
    return APIError(exceeded.status, exceeded.message, code=exceeded.code, retry_after=retry_after)


class AdminAuth:
    """A check of the admin key, which differs from every client key."""

    def __init__(self, secret: Secret) -> None:
        # Digests have the same length, so timing does not reveal the length of the key.
        self._digest = hashlib.sha256(secret.bearer()).digest()

    def check(self, request: Request) -> None:
        """Raise an APIError if the request does not carry the admin key."""
        sent = hashlib.sha256(request.headers.get("authorization", "").encode("latin-1")).digest()
        if not hmac.compare_digest(sent, self._digest):
            raise APIError(401, "this path requires the admin key, as 'Authorization: Bearer ...'.")
