"""Reading inputs from what users hold."""

from __future__ import annotations

import numpy as np
import pytest

from mildroute.encoders.inputs import as_list, as_texts
from mildroute.exceptions import ArgumentError


def test_texts_become_plain_strings() -> None:
    found = as_texts(np.array(["a", "b"]))
    assert [type(text) for text in found] == [str, str]


def test_an_iterator_is_read_once() -> None:
    assert as_list(letter for letter in "ab") == ["a", "b"]


def test_half_a_character_becomes_a_question_mark_and_whole_ones_stay() -> None:
    assert as_texts(["a\ud800b", "é🙂"]) == ["a?b", "é🙂"]


def test_the_first_row_that_is_no_text_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"got float in row 2; drop that row"):
        as_texts(["a", "b", float("nan"), None])
