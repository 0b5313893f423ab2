"""A key that is used and never shown: not by repr, str, pickle, a traceback's locals or a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from mildroute.errors import ArgumentError
from mildroute.experts.spellings import MANY, marks_of, pattern_of

__all__ = ["HIDDEN", "LONGEST", "Secret", "checked_variable"]

HIDDEN = "[secret]"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
LONGEST = 4096
"""Characters of the longest key."""


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
        variable: Name of the environment variable: capital letters, digits and underscores, so that a key written here by mistake is
            refused and not shown.
        environment: Where it is looked up; the process's own environment by default.

    Example:
        >>> Secret("SMALL_KEY", {"SMALL_KEY": "sk-1234"})
        Secret('SMALL_KEY')
    """

    __slots__ = ("_marks", "_pattern", "_value", "variable")

    def __init__(self, variable: str, environment: Mapping[str, str] | None = None) -> None:
        checked_variable(variable)
        value = (os.environ if environment is None else environment).get(variable, "").strip()
        if not value:
            raise ArgumentError(f"the environment variable {variable} must hold the key, got nothing; export it before you start.")
        if len(value) > LONGEST or not value.isascii() or not value.isprintable() or " " in value:
            raise ArgumentError(
                f"the key in {variable} must be at most {LONGEST:,} printable ASCII characters without spaces; export it again."
            )
        self.variable = variable
        self._value = _HiddenBytes(value.encode())
        self._pattern, self._marks = pattern_of(value), tuple(map(_HiddenText, marks_of(value)))

    def bearer(self) -> bytes:
        """Value of the Authorization header; its repr is hidden, too.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).bearer() == b"Bearer sk-1234"
            True
        """
        return _HiddenBytes(b"Bearer " + self._value)

    def scrub(self, text: str) -> str:
        """A text of others without the key, in any spelling that HTTP, JSON, HTML, base64 or Python give it.

        Example:
            >>> Secret("KEY", {"KEY": "sk-1234"}).scrub("bad key SK-1234")
            'bad key [secret]'
        """
        # Almost no text holds it, and to look for plain texts is far quicker than to match a pattern.
        folded = text.lower()
        return self._pattern.sub(HIDDEN, text) if any(mark in folded for mark in self._marks) else text

    def scrub_answer(self, text: str) -> str:
        """An answer without the key; a short key, as local servers take it, may be a word of the answer and is left.

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


def checked_variable(variable: str) -> str:
    """The name itself, if it is that of an environment variable; its value is not read.

    Example:
        >>> checked_variable("SMALL_KEY")
        'SMALL_KEY'
    """
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ArgumentError(
            "a key is named by an environment variable of capital letters, digits and underscores, such as SMALL_KEY, got something "
            "else (not shown: it may be the key); export the key under such a name and give the name."
        )
    return variable
