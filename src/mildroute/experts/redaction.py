"""Patterns that match a key in a server's text, in any spelling.

A server may repeat the key in an answer, an error or a header, and a library may log it. A list of
the key's spellings is not enough: encoders escape different characters (a URL in a Location header
leaves some characters that a query must quote), so each character may be escaped or not.
"""

from __future__ import annotations

import base64
import re

__all__ = ["MIN_UNIQUE", "literal_hints", "redaction_pattern"]

# Minimum length of a key that is not an ordinary word and whose encodings do not appear in other
# texts by chance.
MIN_UNIQUE = 16
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_BACKSLASH = r"(?:\\|%(?:25){0,4}5c|&(?:amp;){0,4}#(?:92|x5c);)"
_ESCAPE = _BACKSLASH + "{0,8}"
_BACKSLASHES = _BACKSLASH + "{1,64}(?:(?:u00|x)5c)?"
_RUN = re.compile(r"[A-Za-z0-9]+")


def redaction_pattern(value: str) -> re.Pattern[str]:
    r"""Return a pattern that matches a key in any spelling.

    The pattern matches the plain key, the key escaped for JSON, Python, URLs or HTML, even twice or
    in part, and a long key in base64 or hexadecimal.
    """
    # The longest spelling comes first, so that no part of it remains.
    codes = sorted({value, *_encodings(value)}, key=lambda code: (-len(code), code))
    return re.compile("|".join(map(_pattern_of, codes)), re.IGNORECASE)


def literal_hints(value: str) -> tuple[str, ...]:
    """Return lowercase texts, one of which occurs in every match of the pattern.

    With these hints, most texts need no matching.
    """
    runs = (max(_RUN.findall(code), key=len, default="") for code in (value, *_encodings(value)))
    return tuple(dict.fromkeys(run.lower() for run in runs))


def _encodings(value: str) -> list[str]:
    """Return a long key in hexadecimal, and in base64 at each of the three offsets."""
    if len(value) < MIN_UNIQUE:
        return []
    encodings = [value.encode().hex()]
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + value.encode()).decode()
        # Letters that share bits with the text before or after the key are excluded.
        own_letters = encoded[-(-offset * 8 // 6) : (offset + len(value)) * 8 // 6]
        encodings += [own_letters, own_letters.replace("+", "-").replace("/", "_")]
    return encodings


def _pattern_of(code: str) -> str:
    """Return a pattern in which letters and digits are literal and all else may be escaped.

    Each escaped text matches in one way only, so that matching takes linear time.
    """
    parts = re.split(r"(\\+)", code)
    # Backslashes of the key cannot be distinguished from those that escape the next character, so
    # they are matched together.
    return "".join(
        _BACKSLASHES if part.startswith("\\") else _part_pattern(part, after_backslash=index > 0)
        for index, part in enumerate(parts)
    )


def _part_pattern(part: str, *, after_backslash: bool) -> str:
    return "".join(
        letter
        if letter.isalnum()
        else _sign_pattern(letter, "" if after_backslash and not index else _ESCAPE)
        for index, letter in enumerate(part)
    )


def _sign_pattern(letter: str, escape: str) -> str:
    code = f"{ord(letter):02x}"
    entities = "|".join(
        [
            f"#0{{0,4}}{ord(letter)}",
            f"#x0{{0,4}}{code}",
            *([_ENTITIES[letter]] if letter in _ENTITIES else []),
        ]
    )
    return (
        rf"{escape}(?:{re.escape(letter)}|u00{code}|x{code}"
        rf"|%(?:25){{0,4}}{code}|&(?:amp;){{0,4}}(?:{entities});)"
    )
