"""A client for ``/v1/route``, for other gateways that do the calling themselves."""

from __future__ import annotations

import logging
from typing import Any

import httpx

from mildroute.experts.secrets import Secret
from mildroute.experts.settings import validate_base_url
from mildroute.routers.operating_point import Target

__all__ = ["RouteClient"]


_LOG = logging.getLogger("mildroute.route_client")


class RouteClient:
    """Calls ``POST /v1/route`` of a gateway.

    Args:
        url: Of the gateway, such as ``http://127.0.0.1:8000``.
        key_env: Environment variable of the client's key, or none.
        transport: Of the HTTP client, or none for the usual one.
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float = 0.25,
        key_env: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = f"{validate_base_url(url).removesuffix('/v1')}/v1/route"
        self._seconds = seconds
        self._transport = transport
        self._secret = None if key_env is None else Secret(key_env)
        self._client: httpx.AsyncClient | None = None
        self._is_well = True

    async def ranking(self, text: str, target: Target | None = None) -> tuple[str, ...] | None:
        """Experts in the order to ask them.

        None if the gateway cannot be reached, does not answer in time or refuses.
        """
        parsed: dict[str, Any] = {"input": text}
        if target is not None:
            parsed[target.kind.replace(" ", "_")] = target.value
        headers = [] if self._secret is None else [(b"authorization", self._secret.bearer())]
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._seconds, transport=self._transport)
        try:
            answer = await self._client.post(self._url, json=parsed, headers=headers)
        except httpx.HTTPError as error:
            self._note(type(error).__name__)
            return None
        found = _ranking(answer)
        self._note(f"status {answer.status_code}" if found is None else None)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _note(self, trouble: str | None) -> None:
        """Say once that there is trouble, and once that it is over.

        A busy proxy would fill its log with it.
        """
        if trouble is not None and self._is_well:
            _LOG.warning(
                "no decision from %s (%s); requests go to the default until it answers.",
                self._url,
                trouble,
            )
        if trouble is None and not self._is_well:
            _LOG.warning("decisions from %s again.", self._url)
        self._is_well = trouble is None


def _ranking(answer: httpx.Response) -> tuple[str, ...] | None:
    """Names from the answer, or none if it is not what a gateway says."""
    if answer.status_code != httpx.codes.OK:
        return None
    try:
        names = tuple(answer.json()["order"])
    except (ValueError, KeyError, TypeError):
        return None
    return names if names and all(isinstance(name, str) for name in names) else None
