"""API keys.

Read from the environment, redacted wherever text leaves the process, detected in files.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from mildroute._yaml import KeyPath, YamlDocument
from mildroute.exceptions import ArgumentError

__all__ = [
    "HIDDEN",
    "LONGEST",
    "MANY",
    "LogGuard",
    "RequestHeaders",
    "Secret",
    "SecretSet",
    "literal_hints",
    "redaction_pattern",
    "refuse_literal_secrets",
    "validate_headers",
    "validate_variable",
]


# The threat: a server repeats the key in an answer, an error or a header, or a library logs it.
#
# A list of the key's spellings does not do: encoders leave different characters as they are (a URL
# in a Location header keeps what a query must quote), so each character may be escaped or not.


# Characters from which on a key is no word of a language, and its codes are no accident.
MANY = 16

_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_BACKSLASH = r"(?:\\|%(?:25){0,4}5c|&(?:amp;){0,4}#(?:92|x5c);)"
_ESCAPE = _BACKSLASH + "{0,8}"
_BACKSLASHES = _BACKSLASH + "{1,64}(?:(?:u00|x)5c)?"
_RUN = re.compile(r"[A-Za-z0-9]+")


def redaction_pattern(value: str) -> re.Pattern[str]:
    r"""Return a pattern that matches a key in any spelling.

    It matches the plain key, the key escaped for JSON, Python, URLs or HTML, even twice or in part,
    and, if it is long, in base64 or hexadecimal.
    """
    # Longest first, so that no part of a longer spelling is left over.
    found = sorted({value, *_codes(value)}, key=lambda code: (-len(code), code))
    return re.compile("|".join(map(_loosely, found)), re.IGNORECASE)


def literal_hints(value: str) -> tuple[str, ...]:
    """Return lowercase texts, one of which occurs in every match of the pattern.

    With these hints, most texts need no matching.
    """
    runs = (max(_RUN.findall(code), key=len, default="") for code in (value, *_codes(value)))
    return tuple(dict.fromkeys(run.lower() for run in runs))


def _codes(value: str) -> list[str]:
    if len(value) < MANY:
        return []
    found = [value.encode().hex()]
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value.encode()).decode()
        # Letters that hold bits of what stands before or behind the key are left out.
        inside = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        found += [inside, inside.replace("+", "-").replace("/", "_")]
    return found


def _loosely(code: str) -> str:
    """Letters and digits stand for themselves, all else may be escaped.

    In one way alone, or matching could take forever.
    """
    parts = re.split(r"(\\+)", code)
    # Backslashes of the key and those that escape what follows cannot be distinguished: they are
    # matched together.
    return "".join(
        _BACKSLASHES if part.startswith("\\") else _run(part, bare=place > 0)
        for place, part in enumerate(parts)
    )


def _run(part: str, *, bare: bool) -> str:
    return "".join(
        letter if letter.isalnum() else _sign(letter, "" if bare and not place else _ESCAPE)
        for place, letter in enumerate(part)
    )


def _sign(letter: str, escape: str) -> str:
    code = f"{ord(letter):02x}"
    names = "|".join(
        [
            f"#0{{0,4}}{ord(letter)}",
            f"#x0{{0,4}}{code}",
            *([_ENTITIES[letter]] if letter in _ENTITIES else []),
        ]
    )
    return (
        rf"{escape}(?:{re.escape(letter)}|u00{code}|x{code}"
        rf"|%(?:25){{0,4}}{code}|&(?:amp;){{0,4}}(?:{names});)"
    )


# A key that is used and never shown: not by repr, str, pickle, a traceback's locals or a log.


HIDDEN = "[secret]"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
# Characters of the longest key.
LONGEST = 4096


class _HiddenBytes(bytes):
    """HTTP libraries keep headers in local variables, which some error reporters show."""

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class _HiddenText(str):
    """The same for text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class Secret:
    """The value of an environment variable, only for the header of a request.

    A pickle contains only the name of the variable, which is read again on loading.

    Args:
        variable: Name of the environment variable: capital letters, digits and underscores, so that
            a key written here by mistake is rejected and not shown.
        environment: Where it is looked up; the process's own environment by default.

    Example:
        >>> Secret("SMALL_KEY", {"SMALL_KEY": "sk-1234"})
        Secret('SMALL_KEY')
    """

    __slots__ = ("_marks", "_pattern", "_value", "variable")

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
        self._pattern, self._marks = (
            redaction_pattern(value),
            tuple(map(_HiddenText, literal_hints(value))),
        )

    def bearer(self) -> bytes:
        """Value of the Authorization header; its repr is hidden, too.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).bearer() == b"Bearer sk-1234"
            True
        """
        return _HiddenBytes(b"Bearer " + self._value)

    def header(self, prefix: bytes = b"") -> bytes:
        """Return the value of another header, after a prefix; its repr is hidden as well.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).header(b"Token ") == b"Token sk-1234"
            True
        """
        return _HiddenBytes(prefix + self._value)

    def scrub(self, text: str) -> str:
        """Return a text from elsewhere without the key.

        The key is found in any encoding used by HTTP, JSON, HTML, base64 or Python.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).scrub("bad key SK-1234")
            'bad key [secret]'
        """
        # Almost no text holds it, and to look for plain texts is far quicker than to match a
        # pattern.
        folded = text.lower()
        return (
            self._pattern.sub(HIDDEN, text) if any(mark in folded for mark in self._marks) else text
        )

    def scrub_answer(self, text: str) -> str:
        """An answer without the key.

        A short key, as used for local servers, may be a word of the answer and is not removed.

        Example:
            >>> Secret("KEY", {"KEY": "none"}).scrub_answer("There are none.")
            'There are none.'
        """
        return self.scrub(text) if len(self._value) >= MANY else text

    def __repr__(self) -> str:
        """The variable's name alone."""
        return f"Secret({self.variable!r})"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """The variable's name alone."""
        return Secret, (self.variable,)

    def __getstate__(self) -> NoReturn:
        """Raise an error: the state would contain the key."""
        raise ArgumentError("a key is never stored; store the name of its environment variable.")

    def __copy__(self) -> Secret:
        """Itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        """Itself: it never changes."""
        return self


def validate_variable(variable: str) -> str:
    """Return the name if it is that of an environment variable; its value is not read."""
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ArgumentError(
            "a key is named by an environment variable of capital letters, digits and underscores,"
            " such as SMALL_KEY, got something else (not shown: it may be the key); export the key"
            " under such a name and give the name."
        )
    return variable


# Headers that experts.yaml adds to the requests of an expert, such as the api-key of Azure.


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
# They belong to the bytes of one request, or say what the answer must look like to be read.
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
_HEADER_FORM = "write a text, or {env: VARIABLE}, perhaps with a prefix"


def validate_headers(headers: Any, *, has_key: bool = False) -> Mapping[str, Any]:
    """Return the headers if they can be sent; no environment variable is read.

    Args:
        headers: For each name a text, or a mapping with ``env``, the name of an environment
            variable, and optionally ``prefix``, a text before its value.
        has_key: Whether ``api_key_env`` is given, which sets Authorization.
    """
    if not isinstance(headers, Mapping):
        raise ArgumentError("headers must be a mapping from names to values; write Name: value.")
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header_name(name, has_key=has_key)
        if name.lower() in seen:
            raise ArgumentError(f"each header must be given once, got {name.lower()!r} twice.")
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
            f"headers must not hold {name!r}, which belongs to one connection; leave it out."
        )
    if lower in _SET_BY_US:
        raise ArgumentError(
            f"headers must not hold {name!r}, which mildroute sets itself; leave it out."
        )
    if lower == "authorization" and has_key:
        raise ArgumentError(
            f"headers must not hold {name!r} beside api_key_env, which sets it; leave one of them"
            " out."
        )


def _check_header_value(name: str, value: Any) -> None:
    """Check a value, which is never repeated in a message: it may be a key."""
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
            f"the header {name!r} must have printable ASCII characters as its value, got something"
            f" else (not shown: it may be a key); {_HEADER_FORM}."
        )


class SecretSet:
    """Several keys that are removed from texts together.

    Args:
        secrets: The keys, or none.
    """

    __slots__ = ("secrets",)

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self.secrets = tuple(secrets)

    @property
    def has_secrets(self) -> bool:
        """Whether any secrets are present."""
        return bool(self.secrets)

    def scrub(self, text: str) -> str:
        """Return a text from elsewhere without the keys; see :meth:`Secret.scrub`."""
        for secret in self.secrets:
            text = secret.scrub(text)
        return text

    def scrub_answer(self, text: str) -> str:
        """Return an answer without the keys; see :meth:`Secret.scrub_answer`."""
        for secret in self.secrets:
            text = secret.scrub_answer(text)
        return text


class RequestHeaders(SecretSet):
    """Headers of every request to an expert: its key, and those from its file.

    Values from the environment are hidden and scrubbed like keys. A pickle contains only the names
    of their variables.

    Args:
        added: Headers in the form of :func:`validate_headers`.
        secret: The key for Authorization, or none.
        environment: Where variables are looked up; the process's own environment by default.

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
            found = Secret(value["env"], environment) if isinstance(value, Mapping) else None
            text = value.get("prefix", "") if isinstance(value, Mapping) else value
            parts.append((name.lower().encode(), text.encode(), found))
        self._parts = tuple(parts)
        super().__init__(secret for _, _, secret in parts if secret is not None)
        self.names = frozenset(name for name, _, _ in parts)

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Names, in small letters, and values; those of the environment hide their repr."""
        return [
            (name, text if secret is None else secret.header(text))
            for name, text, secret in self._parts
        ]

    def __repr__(self) -> str:
        """The names alone."""
        return f"RequestHeaders({sorted(name.decode() for name in self.names)})"


# Keeps keys out of what HTTP libraries log while they are debugged.


_SCRUBBED = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.proxy",
    "httpcore.socks",
    "openai._base_client",
    "LiteLLM",
)


class LogGuard(logging.Filter):
    """Keeps keys out of the logs of the HTTP client.

    While it is on, httpx, httpcore and the SDKs log no key. httpcore logs response headers, in
    which a server may repeat the key.
    """

    def __init__(self, secrets: SecretSet) -> None:
        super().__init__()
        self._scrub = secrets.scrub

    def filter(self, record: logging.LogRecord) -> bool:
        """Scrub a record."""
        record.msg, record.args = self._scrub(record.getMessage()), ()
        return True

    def on(self) -> None:
        """Begin."""
        for name in _SCRUBBED:
            logging.getLogger(name).addFilter(self)

    def off(self) -> None:
        """End."""
        for name in _SCRUBBED:
            logging.getLogger(name).removeFilter(self)


# Finds keys that were written into a file in which they do not belong.


_NAMES = {
    "apikey",
    "apitoken",
    "accesstoken",
    "accesskey",
    "authorization",
    "bearer",
    "password",
    "secret",
    "secretkey",
    "token",
    "xapikey",
}
_SHAPES = re.compile(
    r"\b(?:sk|rk|pk|xai|pplx|nvapi|r8)[-_](?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"
    r"|\b(?:gsk|hf|ghp|gho|glpat|xoxb)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bAKIA[A-Z0-9]{16}\b|\bBearer\s+(?=\S*[0-9])\S{12,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\."
)
_WAY_OUT = (
    "export it as an environment variable and write the variable's name: api_key_env: SMALL_KEY."
    " Replace a key that was shared."
)


def refuse_literal_secrets(document: YamlDocument) -> None:
    """Raise at the first key, or text that looks like one; the message does not repeat it."""
    _search(document, document.value, ())


def _search(document: YamlDocument, value: Any, place: KeyPath) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_text(document, name, (*place, name))
            if (
                re.sub(r"[-_ ]", "", name).lower() in _NAMES
                and isinstance(inner, (str, int, float))
                and "prompt" not in place
            ):
                raise document.error(
                    (*place, name),
                    f"a file must not hold keys, got one under {name!r:.60}; {_WAY_OUT}",
                )
            _search(document, inner, (*place, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _search(document, inner, (*place, index))
    elif isinstance(value, str):
        _refuse_text(document, value, place)


def _refuse_text(document: YamlDocument, text: str, place: KeyPath) -> None:
    if _SHAPES.search(text):
        raise document.error(
            place, f"a file must not hold keys, got what looks like one; {_WAY_OUT}"
        )
