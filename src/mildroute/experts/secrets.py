"""API keys.

Read from the environment, redacted wherever text leaves the process, detected in files.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from mildroute._yaml import Place, YamlDocument
from mildroute.exceptions import ArgumentError

__all__ = [
    "HIDDEN",
    "LONGEST",
    "MANY",
    "Secret",
    "literal_hints",
    "redaction_pattern",
    "refuse_literal_secrets",
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

    It matches the key as it is, escaped for JSON, Python, URLs or HTML, even twice or in part, and,
    if it is long, in base64 or hexadecimal.
    """
    # Longest first, so that no part of a longer spelling is left over.
    found = sorted({value, *_codes(value)}, key=lambda code: (-len(code), code))
    return re.compile("|".join(map(_loosely, found)), re.IGNORECASE)


def literal_hints(value: str) -> tuple[str, ...]:
    """Texts in small letters, one of which is in whatever the pattern matches.

    With them most texts need not be matched.
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
    """The value of an environment variable, for the header of a request and for nothing else.

    Pickled, it is the name of its variable, which is read again where it is loaded.

    Args:
        variable: Name of the environment variable: capital letters, digits and underscores, so that
            a key written here by mistake is refused and not shown.
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

    def scrub(self, text: str) -> str:
        """Return a text of others without the key.

        The key is found in any spelling that HTTP, JSON, HTML, base64 or Python give it.

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

        A short key, as local servers take it, may be a word of the answer and is left.

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
        """Refused: it would hold the key."""
        raise ArgumentError("a key is never stored; store the name of its environment variable.")

    def __copy__(self) -> Secret:
        """Itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        """Itself: it never changes."""
        return self


def validate_variable(variable: str) -> str:
    """The name itself, if it is that of an environment variable; its value is not read."""
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ArgumentError(
            "a key is named by an environment variable of capital letters, digits and underscores,"
            " such as SMALL_KEY, got something else (not shown: it may be the key); export the key"
            " under such a name and give the name."
        )
    return variable


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
    """Raise at the first key, or text that looks like one; it is not repeated in the message."""
    _search(document, document.value, ())


def _search(document: YamlDocument, value: Any, place: Place) -> None:
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


def _refuse_text(document: YamlDocument, text: str, place: Place) -> None:
    if _SHAPES.search(text):
        raise document.error(
            place, f"a file must not hold keys, got what looks like one; {_WAY_OUT}"
        )
