"""One spelling for what looks the same, and LaTeX as text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# One spelling for all that looks the same: what a model writes, before anything is read out of
# it.


_HEAD, _TAIL = 4_000, 16_000
_SUPERSCRIPTS = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207f]+")
_FRACTION_AFTER_DIGIT = re.compile("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])")
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u300c\u300d", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        **dict.fromkeys("\u3002\uff61", "."),
        **dict.fromkeys("\u2028\u2029\u0085\x0b\x0c", "\n"),
        "\u2044": "/",
        "\u3001": ",",
        "\u066b": ".",
        "\u066c": ",",
        "\r": "\n",
        "\t": " ",
    }
)
_TAG = re.compile(r"</?(?:b|strong|i|em|u|p|br|span|code|mark)\s*/?>", re.IGNORECASE)
_BLANKS = re.compile(r"[^\S\n]+")
# all of \s and what is invisible: a pattern for both ends is quadratic in the spaces inside
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\u2060\ufeff"
_BLANK_LINES = re.compile(r"\n\s*\n")


def clipped(text: str) -> str:
    """A text of at most 20,000 characters.

    Of a longer one its beginning and, above all, its end, where answers stand.
    """
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def at_ends(found: Sequence[T]) -> Sequence[T]:
    """At most 1,000 of the places found in a text: some at its beginning, most at its end.

    Each costs some tenths of a millisecond, and a text that repeats one number has 10,000.
    """
    return found if len(found) <= 1000 else [*found[:100], *found[-900:]]


def trimmed(text: str) -> str:
    """A text without space, visible or not, around it."""
    return text.strip(SPACES)


def without_thinking(text: str) -> str:
    """What follows the last ``</think>``.

    All of it where there is none, and the thoughts themselves where nothing follows.
    """
    before, closed, after = text.rpartition("</think>")
    return after if closed and after.strip() else (before or text).replace("<think>", "")


def plain(text: str) -> str:
    """Text with one kind of quote, dash, space and line end, without invisible characters.

    Compatibility forms are unfolded.

    Superscripts become ``^`` and digits, because 10 squared is not 102; fractions of one character
    become ``1/2``.
    """
    text = _SUPERSCRIPTS.sub(lambda found: "^" + found[0], clipped(text).replace("\r\n", "\n"))
    text = unicodedata.normalize("NFKC", _FRACTION_AFTER_DIGIT.sub(" ", text))
    text = text.translate(_SPELLINGS)
    text = text if text.isascii() else "".join(map(_spelled, text))
    return _BLANK_LINES.sub("\n\n", _BLANKS.sub(" ", _TAG.sub("", text))).strip()


def _spelled(character: str) -> str:
    """Nothing for invisible characters, and 0 to 9 for the digits of all scripts."""
    if character.isascii():
        return character
    category = unicodedata.category(character)
    return (
        ""
        if category == "Cf"
        else str(unicodedata.decimal(character))
        if category == "Nd"
        else character
    )


def without_emphasis(text: str) -> str:
    """Plain text without Markdown's stars, back-ticks and double underscores.

    Their place inside a sentence says nothing.
    """
    return text.replace("*", "").replace("`", "").replace("__", "")


# LaTeX as plain text: ``\frac{1}{2}`` is 1/2, and what stands in ``\boxed{}`` gets a line and a
# mark of its own.


# Stands before a text that its writer set apart as the answer.
BOX = "\ue000"

_MAX_BOXES = 50
_MAX_BOX = 2000
_BOX_START = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_TAGGED = re.compile(
    r"<(answer|label|result|final_answer)>(.{0,2000}?)</\1>", re.IGNORECASE | re.DOTALL
)
_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|mbox|operatorname|underline|bm|boldsymbol)\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(
    r"(\d\s*)?\\[dtc]?frac\s*(?:\{([^{}]{0,100})\}\s*\{([^{}]{0,100})\}|(\d)\s*(\d))"
)
_EXPONENT = re.compile(r"\^\s*\{([^{}]{0,100})\}")
_COMMANDS = {
    "times": "×", "cdot": "×", "approx": "≈", "pm": "±", "pi": "π", "sqrt": "√", "circ": "°",  # noqa: RUF001
    "left": "", "right": "", "quad": " ",
}  # fmt: skip
_COMMAND = re.compile(rf"\^?\\(circ)(?![A-Za-z])|\\({'|'.join(_COMMANDS)})(?![A-Za-z])")
_SYMBOLS = (
    ("\\%", "%"), ("\\$", "$"), ("\\#", "#"), ("\\&", "&"), ("\\_", "_"),
    ("\\(", " "), ("\\)", " "), ("\\[", " "), ("\\]", " "), ("$$", " "),
    ("\\,", " "), ("\\;", " "), ("\\:", " "), ("\\!", ""), ("\\ ", " "), ("\\\\", "\n"),
)  # fmt: skip


def unfolded(text: str) -> str:
    r"""Text whose LaTeX is written plainly."""
    text = _TAGGED.sub(lambda found: _set_apart(found[2]), text)
    text = text.replace("{,}", ",")
    if "\\" in text:
        for _ in range(3):
            text = _STYLE.sub(r"\1", text)
            text = _FRACTION.sub(_quotient, text)
        text = _without_boxes(text)
    text = _COMMAND.sub(lambda found: _COMMANDS[found[1] or found[2]], _EXPONENT.sub(r"^\1", text))
    for symbol, meaning in _SYMBOLS:
        text = text.replace(symbol, meaning)
    return text


def _set_apart(inside: str) -> str:
    return f"\n{BOX}{inside.strip()}\n"


def _quotient(found: re.Match[str]) -> str:
    whole, over, under, digit_over, digit_under = found.groups()
    over, under = (over or digit_over or "").strip(), (under or digit_under or "").strip()
    plain = all(re.fullmatch(r"-?[\d.,]+", part) for part in (over, under))
    value = f"{over}/{under}" if plain else f"({over})/({under})"
    return f"{whole.strip()} {value}" if whole else value


def _without_boxes(text: str) -> str:
    pieces, at = [], 0
    for _ in range(_MAX_BOXES):
        start = _BOX_START.search(text, at)
        if start is None:
            break
        end = _closing_brace(text, start.end())
        pieces += [text[at : start.start()], _set_apart(text[start.end() : end])]
        at = end + 1
    return "".join(pieces) + text[at:]


def _closing_brace(text: str, start: int) -> int:
    """Where the brace opened before ``start`` is closed, or the end of the text or of patience."""
    depth, stop = 1, min(len(text), start + _MAX_BOX)
    for at in range(start, stop):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return stop
