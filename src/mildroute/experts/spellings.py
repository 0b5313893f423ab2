"""All the ways in which a server, a log or a traceback may write a key."""

from __future__ import annotations

import base64
import re

__all__ = ["MANY", "marks_of", "pattern_of"]

MANY = 16
"""Characters from which on a key is no word of a language, and its codes are no accident."""

_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_BACKSLASH = r"(?:\\|%(?:25){0,4}5c|&(?:amp;){0,4}#(?:92|x5c);)"
_ESCAPE = _BACKSLASH + "{0,8}"
_BACKSLASHES = _BACKSLASH + "{1,64}(?:(?:u00|x)5c)?"
_RUN = re.compile(r"[A-Za-z0-9]+")


def pattern_of(value: str) -> re.Pattern[str]:
    r"""Matches a key as it is, escaped for JSON, Python, URLs or HTML, even twice or in part, and, if it is long, in base64 or hexadecimal.

    Args:
        value: The key, in ASCII.

    Example:
        >>> pattern_of('a"b').sub("*", r'a"b a\"b a\\\"b a%22b a%2522b a&quot;b a\u0022b')
        '* * * * * * *'
    """
    # Longest first, so that no part of a longer spelling is left over.
    found = sorted({value, *_codes(value)}, key=lambda code: (-len(code), code))
    return re.compile("|".join(map(_loosely, found)), re.IGNORECASE)


def marks_of(value: str) -> tuple[str, ...]:
    """Texts in small letters, one of which is in whatever the pattern matches, so that most texts need not be matched.

    Args:
        value: The key, in ASCII.

    Example:
        >>> marks_of("sk-live-2026")
        ('live',)
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
    """Letters and digits stand for themselves, all else may be escaped; in one way alone, or matching could take forever."""
    parts = re.split(r"(\\+)", code)
    # Backslashes of the key and those that escape what follows cannot be told apart: they are matched together.
    return "".join(_BACKSLASHES if part.startswith("\\") else _run(part, bare=place > 0) for place, part in enumerate(parts))


def _run(part: str, *, bare: bool) -> str:
    return "".join(
        letter if letter.isalnum() else _sign(letter, "" if bare and not place else _ESCAPE) for place, letter in enumerate(part)
    )


def _sign(letter: str, escape: str) -> str:
    code = f"{ord(letter):02x}"
    names = "|".join([f"#0{{0,4}}{ord(letter)}", f"#x0{{0,4}}{code}", *([_ENTITIES[letter]] if letter in _ENTITIES else [])])
    return rf"{escape}(?:{re.escape(letter)}|u00{code}|x{code}|%(?:25){{0,4}}{code}|&(?:amp;){{0,4}}(?:{names});)"
