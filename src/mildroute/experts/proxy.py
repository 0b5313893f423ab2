"""The proxy that the environment names for an address."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["proxy_for"]


def proxy_for(url: str) -> str | None:
    """What ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say of an address, in capital or small letters.

    Args:
        url: The address.

    Returns:
        Address of the proxy, or none.

    Example:
        >>> from unittest.mock import patch
        >>> with patch.dict("os.environ", {"https_proxy": "10.0.0.1:3128", "no_proxy": "localhost"}, clear=True):
        ...     proxy_for("https://example.com/v1"), proxy_for("https://localhost:8080/v1")
        ('http://10.0.0.1:3128', None)
    """
    parts, proxies = urlsplit(url), getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return None
    return found if "://" in found else f"http://{found}"
