"""Normalization of text: one spelling for characters that look the same."""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "SPACES",
    "drop_emphasis",
    "drop_thinking",
    "normalize_text",
    "strip_spaces",
]

# Everything that \s matches and invisible characters, for ``str.strip``: a pattern anchored at
# both ends is quadratic in the spaces inside a text.
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\u2060\ufeff"

_HEAD_CHARS = 4_000
_TAIL_CHARS = 16_000
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
_BLANK_LINES = re.compile(r"\n\s*\n")


def _clip(text: str) -> str:
    """Return a text of at most 20,000 characters.

    A longer text keeps only its first 4,000 and last 16,000 characters, because answers come at
    the end.
    """
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def strip_spaces(text: str) -> str:
    """Return a text without leading or trailing spaces, visible or invisible."""
    return text.strip(SPACES)


def drop_thinking(text: str) -> str:
    """Return the text after the last ``</think>``.

    Return the whole text without such a tag, and the thoughts if nothing follows the tag.
    """
    before, tag, after = text.rpartition("</think>")
    return after if tag and after.strip() else (before or text).replace("<think>", "")


def normalize_text(text: str) -> str:
    """Return a text with one kind of quote, dash, space and line end.

    Invisible characters are removed and compatibility forms are unfolded. Superscripts become ``^``
    and digits, because 10 squared is not 102; fractions of one character become ``1/2``. A text of
    more than 20,000 characters is clipped first.
    """
    text = _clip(text).replace("\r\n", "\n")
    text = _SUPERSCRIPTS.sub(lambda match: "^" + match[0], text)
    text = unicodedata.normalize("NFKC", _FRACTION_AFTER_DIGIT.sub(" ", text))
    text = text.translate(_SPELLINGS)
    if not text.isascii():
        text = "".join(map(_normalize_character, text))
    text = _BLANKS.sub(" ", _TAG.sub("", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def _normalize_character(character: str) -> str:
    """Drop an invisible character, and convert any script's digit to 0 to 9."""
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category == "Cf":
        return ""
    return str(unicodedata.decimal(character)) if category == "Nd" else character


def drop_emphasis(text: str) -> str:
    """Return a text without Markdown's stars, backticks and double underscores.

    Inside a sentence these marks carry no meaning.
    """
    return text.replace("*", "").replace("`", "").replace("__", "")
