"""Words of README, site and examples are in the dictionary or in docs/words.txt."""

from __future__ import annotations

import re

from spellchecker import SpellChecker

from tests.support.pages import ROOT, markdown_pages, prose_of

WORDS = ROOT / "docs" / "words.txt"
NOT_WORDS = re.compile(
    r"^---\n.*?\n---\n"  # settings of a page
    r"|^ *:[\w-]+:[^\n]*$"  # options of a directive
    r"|<style.*?</style>|<script.*?</script>"
    r"|\$\$.*?\$\$|\$[^$\n]+\$|`[^`\n]*`|<[^>\n]+>|\]\([^)]*\)|https?://\S+|\{[^}\n]*\}|&\w+;|\b[\w.-]*[_/\d@#=][\w./-]*",
    flags=re.DOTALL | re.MULTILINE,
)
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


def words_of(text: str) -> set[str]:
    """Words that a reader reads.

    Names in capitals, with capitals inside, with digits or in code are none.
    """
    plain = NOT_WORDS.sub(" ", prose_of(text))
    found = {word.removesuffix("'s") for word in WORD.findall(plain)}
    return {word for word in found if len(word) > 1 and word[1:] == word[1:].lower()}


def listed_words() -> list[str]:
    return [
        line
        for line in WORDS.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def test_every_word_is_spelt_as_in_the_dictionary() -> None:
    known, checker = set(listed_words()), SpellChecker(distance=1)
    wrong = {
        str(page.relative_to(ROOT)): sorted(strange)
        for page in markdown_pages()
        if (
            strange := {
                word
                for word in checker.unknown(words_of(page.read_text(encoding="utf-8")))
                if word not in known
            }
        )
    }
    assert wrong == {}, "mend the word, or add it to docs/words.txt"


def test_the_list_of_words_is_sorted_and_holds_no_word_that_nobody_uses() -> None:
    used = {
        word.lower()
        for page in markdown_pages()
        for word in words_of(page.read_text(encoding="utf-8"))
    }
    assert listed_words() == sorted(set(listed_words()))
    assert [word for word in listed_words() if word not in used] == []
