"""Word patterns for scikit-learn's vectorizers, including scripts without spaces.

Scripts such as Chinese or Thai put no spaces between words, so a whole sentence would be one word
that no other text contains. In those scripts each character is its own word, and word n-grams
become character n-grams. All other scripts are split at spaces and symbols.
"""

from __future__ import annotations

from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["LONG_WORDS", "WORDS_AND_SIGNS", "vectorizer_settings"]

_ANALYZERS = {"word": "word", "character": "char_wb"}

# The ranges below form an ``re`` character class. They contain no digits, so that a number is one
# word in every script.

# Chinese, Japanese and Yi: one character, one word.
_IDEOGRAPHS = "".join(
    (
        r"\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c",  # iteration marks, numerals
        r"\u3041-\u3096\u309d-\u309f",  # Hiragana
        r"\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f",  # Katakana
        r"\u3105-\u312f\u31a0-\u31bf",  # Bopomofo
        r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",  # Han
        r"\ua000-\ua48c",  # Yi
        r"\U0001aff0-\U0001b16f",  # historic kana
        r"\U00020000-\U0003fffd",  # Han, planes 2 and 3
    )
)
# Scripts of Southeast Asia, in which vowels, tones and stacked consonants attach to a letter.
_CLUSTERED = "".join(
    (
        r"\u0e01-\u0e3a\u0e40-\u0e4e",  # Thai
        r"\u0e81-\u0ece\u0edc-\u0edf",  # Lao
        r"\u1000-\u103f\u1050-\u108f\u109a-\u109d",  # Myanmar
        r"\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f",  # Myanmar, other languages
        r"\u1780-\u17d3\u17d7\u17dc\u17dd",  # Khmer
        r"\u1950-\u1974\u1980-\u19c9",  # Tai Le, New Tai Lue
        r"\u1a20-\u1a7f\u1aa7\uaa80-\uaadd",  # Tai Tham, Tai Viet
    )
)
_UNSPACED = _IDEOGRAPHS + _CLUSTERED
# Signs that stack the next consonant under the previous one: Myanmar, Khmer, Tai Tham.
_STACKERS = r"\u1039\u17d2\u1a60"
# A letter with its marks, and with the consonants stacked under it. ``\w`` matches no marks, so
# ``(?!\w)`` leaves only marks. The Japanese marks voice a kana that is written in two parts.
_CHARACTER = (
    rf"[{_UNSPACED}](?:(?!\w)[{_CLUSTERED}\u3099\u309a]|(?<=[{_STACKERS}])[{_CLUSTERED}])*+"
)

# Symbols count as words: formulas, code and quotes help to choose the expert.
WORDS_AND_SIGNS = rf"[^\W{_UNSPACED}]++|{_CHARACTER}|[^\w\s]"
# Words without symbols or single letters, like scikit-learn's ``\b\w\w+\b``.
LONG_WORDS = rf"[^\W{_UNSPACED}]{{2,}}+|{_CHARACTER}"


def vectorizer_settings(unit: str, ngrams: tuple[int, int], words: str) -> dict[str, Any]:
    """Return scikit-learn vectorizer settings for n-grams of words or characters.

    Args:
        unit: ``"word"`` or ``"character"``.
        ngrams: Lengths of the shortest and the longest n-gram.
        words: Word pattern; ignored for characters.
    """
    if unit not in _ANALYZERS:
        raise ArgumentError(f"unit must be one of {', '.join(_ANALYZERS)}, got {unit!r}.")
    if len(ngrams) != 2 or not 1 <= ngrams[0] <= ngrams[1]:
        raise ArgumentError(
            f"ngrams must be a minimum and a maximum length of at least 1, got {ngrams!r};"
            " use (1, 2)."
        )
    settings: dict[str, Any] = {"analyzer": _ANALYZERS[unit], "ngram_range": tuple(ngrams)}
    # scikit-learn warns about a word pattern combined with character n-grams.
    return settings | {"token_pattern": words} if unit == "word" else settings
