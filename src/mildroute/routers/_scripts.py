"""The script in which most letters of a text are written."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

SCRIPTS = (
    "Latin",
    "Han",
    "Japanese",
    "Hangul",
    "Cyrillic",
    "Arabic",
    "Devanagari",
    "Thai",
    "other",
)


# First and last code point of the letters of each script.
_BLOCKS = sorted(
    [
        (0x0041, 0x024F, "Latin"),
        (0x1E00, 0x1EFF, "Latin"),
        (0xFF21, 0xFF5A, "Latin"),
        (0x3005, 0x3007, "Han"),
        (0x3400, 0x4DBF, "Han"),
        (0x4E00, 0x9FFF, "Han"),
        (0xF900, 0xFAFF, "Han"),
        (0x20000, 0x323AF, "Han"),
        (0x3041, 0x30FF, "Japanese"),
        (0x31F0, 0x31FF, "Japanese"),
        (0xFF66, 0xFF9F, "Japanese"),
        (0x1100, 0x11FF, "Hangul"),
        (0x3130, 0x318F, "Hangul"),
        (0xA960, 0xA97F, "Hangul"),
        (0xAC00, 0xD7FF, "Hangul"),
        (0x0400, 0x052F, "Cyrillic"),
        (0x1C80, 0x1C8F, "Cyrillic"),
        (0x2DE0, 0x2DFF, "Cyrillic"),
        (0xA640, 0xA69F, "Cyrillic"),
        (0x0600, 0x06FF, "Arabic"),
        (0x0750, 0x077F, "Arabic"),
        (0x0870, 0x08FF, "Arabic"),
        (0xFB50, 0xFDFF, "Arabic"),
        (0xFE70, 0xFEFF, "Arabic"),
        (0x0900, 0x097F, "Devanagari"),
        (0xA8E0, 0xA8FF, "Devanagari"),
        (0x0E00, 0x0E7F, "Thai"),
    ]
)


_FIRST_CODE_POINTS = [first for first, _, _ in _BLOCKS]
# Minimum share of kana in Japanese, which mixes kana with more Han characters; Chinese has hardly
# any kana.
_KANA_SHARE = 0.05


def script_of(text: str) -> str:
    """Return the script of most letters of a text, or ``"other"`` if it has no letters.

    Example:
        >>> [script_of(text) for text in ("Hello, Мир", "東京タワーへ行く", "東京", "1 + 1")]
        ['Latin', 'Japanese', 'Han', 'other']
    """
    counts = dict.fromkeys(SCRIPTS, 0)
    for character, count in Counter(text).items():
        if character.isalpha():
            counts[_script_of_letter(ord(character))] += count
    if counts["Japanese"] > _KANA_SHARE * (counts["Japanese"] + counts["Han"]):
        counts["Japanese"] += counts.pop("Han")
    script = max(counts, key=lambda name: counts[name])
    return script if counts[script] else "other"


def _script_of_letter(code_point: int) -> str:
    block = bisect_right(_FIRST_CODE_POINTS, code_point) - 1
    if block < 0 or code_point > _BLOCKS[block][1]:
        return "other"
    return _BLOCKS[block][2]
