"""API keys, which are read from the environment, sent in headers and removed from texts.

A server may repeat a key in an answer, an error or a header, and a library may log it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from mildroute.exceptions import ArgumentError
from mildroute.experts.redaction import MIN_UNIQUE, literal_hints, redaction_pattern

__all__ = [
    "HIDDEN",
    "LONGEST",
    "LogGuard",
    "RequestHeaders",
    "Secret",
    "SecretSet",
    "validate_headers",
    "validate_variable",
]

# The text that replaces a key.
HIDDEN = "[secret]"
# Maximum characters of a key.
LONGEST = 4096
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
_is_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}").fullmatch
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Headers that describe the bytes of one request, or the expected encoding of the answer.
_SET_BY_US = frozenset(
    {
        "accept-encoding",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
    }
)
_HEADER_FORM = "write a string, or {env: VARIABLE} with an optional prefix"
# Loggers of HTTP libraries and SDKs. httpcore logs response headers, which may repeat the key.
_SCRUBBED = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.proxy",
    "httpcore.socks",
    "openai._base_client",
    "LiteLLM",
)


class _HiddenBytes(bytes):
    """Bytes whose repr is hidden.

    HTTP libraries keep headers in local variables, which some error trackers record.
    """

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class _HiddenText(str):
    """Text whose repr is hidden."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class Secret:
    """The value of an environment variable, for use in request headers only.

    A pickle contains only the name of the variable; loading reads the variable again.

    Args:
        variable: Name of the environment variable: capital letters, digits and underscores, so that
            a key that is passed by mistake is rejected without being shown.
        environment: Values of the variables; defaults to the process's own environment.

    Example:
        >>> Secret("SMALL_KEY", {"SMALL_KEY": "sk-1234"})
        Secret('SMALL_KEY')
    """

    __slots__ = ("_hints", "_pattern", "_value", "variable")

    def __init__(self, variable: str, environment: Mapping[str, str] | None = None) -> None:
        validate_variable(variable)
        value = (os.environ if environment is None else environment).get(variable, "").strip()
        if not value:
            raise ArgumentError(
                f"the environment variable {variable} must hold the key, got nothing; export it"
                " before you start."
            )
        if len(value) > LONGEST or not value.isascii() or not value.isprintable() or " " in value:
            raise ArgumentError(
                f"the key in {variable} must be at most {LONGEST:,} printable ASCII characters"
                " without spaces; export it again."
            )
        self.variable = variable
        self._value = _HiddenBytes(value.encode())
        self._pattern = redaction_pattern(value)
        self._hints = tuple(map(_HiddenText, literal_hints(value)))

    def bearer(self) -> bytes:
        """Return the value of the Authorization header, whose repr is hidden.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).bearer() == b"Bearer sk-1234"
            True
        """
        return _HiddenBytes(b"Bearer " + self._value)

    def header(self, prefix: bytes = b"") -> bytes:
        """Return the value of another header, with a prefix; the value's repr is hidden.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).header(b"Token ") == b"Token sk-1234"
            True
        """
        return _HiddenBytes(prefix + self._value)

    def scrub(self, text: str) -> str:
        """Return a text from a server or a library without the key.

        The key is recognized in any encoding used by HTTP, JSON, HTML, base64 or Python.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).scrub("bad key SK-1234")
            'bad key [secret]'
        """
        # Few texts contain the key, and searching for plain text is much faster than matching a
        # pattern.
        folded = text.lower()
        has_hint = any(hint in folded for hint in self._hints)
        return self._pattern.sub(HIDDEN, text) if has_hint else text

    def scrub_answer(self, text: str) -> str:
        """Return an answer without the key.

        A short key, as used for local servers, is not removed, because it may be an ordinary word.

        Example:
            >>> Secret("KEY", {"KEY": "none"}).scrub_answer("There are none.")
            'There are none.'
        """
        return self.scrub(text) if len(self._value) >= MIN_UNIQUE else text

    def __repr__(self) -> str:
        """Return a representation with only the variable's name."""
        return f"Secret({self.variable!r})"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Pickle only the variable's name."""
        return Secret, (self.variable,)

    def __getstate__(self) -> NoReturn:
        """Raise an error, because the state would contain the key."""
        raise ArgumentError("a key is never stored; store the name of its environment variable.")

    def __copy__(self) -> Secret:
        """Return the same object, because it is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        """Return the same object, because it is immutable."""
        return self


def validate_variable(variable: str) -> str:
    """Return the name of an environment variable if it is valid, without reading the variable."""
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ArgumentError(
            "a key must be given as the name of an environment variable of capital letters, digits"
            " and underscores, such as SMALL_KEY, got something else (not shown: it may be the"
            " key); export the key and give the variable's name."
        )
    return variable


def validate_headers(headers: Any, *, has_key: bool = False) -> Mapping[str, Any]:
    """Return the headers if they are valid, without reading environment variables.

    Args:
        headers: A string for each name, or a mapping with ``env``, the name of an environment
            variable, and an optional ``prefix`` for its value.
        has_key: Whether ``api_key_env`` is set, which sets Authorization.
    """
    if not isinstance(headers, Mapping):
        raise ArgumentError("headers must be a mapping from names to values; write Name: value.")
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header_name(name, has_key=has_key)
        if name.lower() in seen:
            raise ArgumentError(f"each header must be given only once, got {name.lower()!r} twice.")
        seen.add(name.lower())
        _check_header_value(name, value)
    return headers


def _check_header_name(name: Any, *, has_key: bool) -> None:
    if not isinstance(name, str) or not _is_header_name(name):
        raise ArgumentError(
            f"the name of a header must be letters, digits and dashes, got {name!r:.60}."
        )
    lower = name.lower()
    if lower in _HOP_BY_HOP:
        raise ArgumentError(
            f"headers must not contain {name!r}, which belongs to one connection; leave it out."
        )
    if lower in _SET_BY_US:
        raise ArgumentError(
            f"headers must not contain {name!r}, which mildroute sets itself; leave it out."
        )
    if lower == "authorization" and has_key:
        raise ArgumentError(
            f"headers must not contain {name!r} together with api_key_env, which sets it; leave one"
            " of them out."
        )


def _check_header_value(name: str, value: Any) -> None:
    """Check a value without repeating it in an error message, because it may be a key."""
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in ("env", "prefix")]
        if unknown or "env" not in value:
            raise ArgumentError(f"the header {name!r} must name a variable; {_HEADER_FORM}.")
        validate_variable(value["env"])
        value = value.get("prefix", "")
    elif not value:
        raise ArgumentError(f"the header {name!r} must have a value; {_HEADER_FORM}.")
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ArgumentError(
            f"the value of header {name!r} must be printable ASCII characters, got something else"
            f" (not shown: it may be a key); {_HEADER_FORM}."
        )


class SecretSet:
    """A set of keys to remove from texts.

    Args:
        secrets: The keys.
    """

    __slots__ = ("secrets",)

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self.secrets = tuple(secrets)

    @property
    def has_secrets(self) -> bool:
        """Return whether there are any keys."""
        return bool(self.secrets)

    def scrub(self, text: str) -> str:
        """Return a text from a server or a library without the keys; see :meth:`Secret.scrub`."""
        for secret in self.secrets:
            text = secret.scrub(text)
        return text

    def scrub_answer(self, text: str) -> str:
        """Return an answer without the keys; see :meth:`Secret.scrub_answer`."""
        for secret in self.secrets:
            text = secret.scrub_answer(text)
        return text


class RequestHeaders(SecretSet):
    """The headers of every request to an expert: its key and its configured headers.

    Values from the environment are hidden and scrubbed like keys. A pickle contains only the names
    of their variables.

    Args:
        added: Headers in the form of :func:`validate_headers`.
        secret: The key for Authorization, if any.
        environment: Values of the variables; defaults to the process's own environment.

    Attributes:
        names: Lowercase names of the headers.

    Example:
        >>> added = {"api-key": {"env": "AZURE_KEY"}, "X-Team": "sales"}
        >>> headers = RequestHeaders(added, environment={"AZURE_KEY": "sk-1234"})
        >>> [name for name, _ in headers.pairs()]
        [b'api-key', b'x-team']
        >>> headers.scrub("bad key sk-1234")
        'bad key [secret]'
    """

    __slots__ = ("_parts", "names")

    def __init__(
        self,
        added: Mapping[str, Any] | None = None,
        secret: Secret | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        parts: list[tuple[bytes, bytes, Secret | None]] = []
        if secret is not None:
            parts.append((b"authorization", b"Bearer ", secret))
        for name, value in validate_headers(added or {}, has_key=secret is not None).items():
            has_variable = isinstance(value, Mapping)
            text = value.get("prefix", "") if has_variable else value
            hidden = Secret(value["env"], environment) if has_variable else None
            parts.append((name.lower().encode(), text.encode(), hidden))
        self._parts = tuple(parts)
        super().__init__(secret for _, _, secret in parts if secret is not None)
        self.names = frozenset(name for name, _, _ in parts)

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Return lowercase names and values; values from the environment hide their repr."""
        return [
            (name, text if secret is None else secret.header(text))
            for name, text, secret in self._parts
        ]

    def __repr__(self) -> str:
        """Return a representation with only the names."""
        return f"RequestHeaders({sorted(name.decode() for name in self.names)})"


class LogGuard(logging.Filter):
    """A logging filter that removes keys from the logs of HTTP libraries and SDKs."""

    def __init__(self, secrets: SecretSet) -> None:
        super().__init__()
        self._scrub = secrets.scrub

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the keys from a record."""
        record.msg, record.args = self._scrub(record.getMessage()), ()
        return True

    def on(self) -> None:
        """Start filtering."""
        for name in _SCRUBBED:
            logging.getLogger(name).addFilter(self)

    def off(self) -> None:
        """Stop filtering."""
        for name in _SCRUBBED:
            logging.getLogger(name).removeFilter(self)
