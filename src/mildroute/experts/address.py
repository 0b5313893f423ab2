"""The address of an endpoint: http or https, and no key in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from mildroute.errors import ArgumentError

__all__ = ["checked_base_url"]


def checked_base_url(url: str) -> str:
    """The base URL without a slash at its end.

    Args:
        url: Such as ``https://api.example.com/v1``.

    Returns:
        The same address.

    Example:
        >>> checked_base_url("http://127.0.0.1:8080/v1/")
        'http://127.0.0.1:8080/v1'
    """
    if not isinstance(url, str) or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise ArgumentError("base_url must be text without spaces; write it as https://host/v1.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ArgumentError(f"base_url must be a valid address: {error}; write it as https://host/v1.") from None
    # What stands before an @ or behind a ? may be a key, so such an address is not shown.
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ArgumentError("base_url must hold no user, password, query or fragment; name the key's variable in api_key_env.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ArgumentError(f"base_url must start with http:// or https:// and name a host, got {url!r:.80}; write it as https://host/v1.")
    return url.rstrip("/")
