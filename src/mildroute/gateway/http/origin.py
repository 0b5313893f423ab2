"""Checks that requests to a gateway without keys come from this machine and not from a website."""

from __future__ import annotations

import ipaddress
import re

from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import Request

__all__ = ["check_local", "check_site", "is_local"]

_HOST = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")


def is_local(request: Request) -> bool:
    """Return whether a request comes from this machine and addresses this machine."""
    return _is_from_loopback(request) and _has_loopback_host(request)


def check_local(request: Request) -> None:
    """Reject a request from this machine that addresses another host or comes from a website.

    The check is for gateways without keys that only this machine can reach. A website whose name
    resolves to the gateway's address (DNS rebinding) calls the gateway by that name. A script can
    set any header except ``Host`` and ``Origin``, so the check relies on these two.
    """
    if not _is_from_loopback(request):
        return
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_own = origin is None or origin.partition("://")[2].lower() == host.lower()
    if not (_has_loopback_host(request) and is_own):
        raise _cross_site()


def check_site(request: Request) -> None:
    """Reject a request that a browser sends on behalf of another website."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise _cross_site()


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_loopback_host(request: Request) -> bool:
    """Return whether the ``Host`` header is a loopback name, which no website can have."""
    match = _HOST.fullmatch(request.headers.get("host", ""))
    return match is not None and _is_loopback((match[1] or match[2]).lower())


def _is_from_loopback(request: Request) -> bool:
    client = request.scope.get("client")
    return client is not None and _is_loopback(client[0])


def _cross_site() -> APIError:
    return APIError(
        403,
        "a gateway without client keys serves only requests to localhost, and none from other"
        " websites; configure client keys.",
        code="cross_site",
    )
