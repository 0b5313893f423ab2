"""Few dense columns of wide vectors."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mildroute.encoders.reduced import ReducedEncoder
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.exceptions import ArgumentError
from mildroute.persistence.named_encoders import get_encoder

TEXTS = ["what is 2 + 2", "what is 3 + 4", "write a poem", "write a long poem", "what is a poem"]


def test_with_all_dimensions_angles_are_those_of_the_wide_vectors() -> None:
    wide = TfidfEncoder(min_df=1).fit_transform(TEXTS).toarray()
    few = ReducedEncoder(TfidfEncoder(min_df=1), n_components=5).fit_transform(TEXTS)
    np.testing.assert_allclose(few @ few.T, wide @ wide.T, atol=1e-5)


def test_columns_are_the_leading_right_singular_vectors() -> None:
    wide = TfidfEncoder(min_df=1).fit_transform(TEXTS).toarray()
    expected = np.linalg.svd(wide.astype(np.float64))[2][:2].T
    found = ReducedEncoder(TfidfEncoder(min_df=1), n_components=2).fit(TEXTS).components_
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)


def test_a_text_of_unknown_words_is_a_row_of_zeros() -> None:
    assert not ReducedEncoder().fit(TEXTS).transform(["zzz"]).any()


def test_one_text_is_enough_to_fit() -> None:
    assert ReducedEncoder().fit_transform(["a few words"]).shape == (1, 1)


def test_no_dimensions_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        ReducedEncoder(n_components=0).fit(TEXTS)


def test_vectors_do_not_depend_on_the_number_of_threads() -> None:
    texts = [
        f"{word} {number} {number % 7} {word * (number % 3)}"
        for number in range(300)
        for word in ("add", "sing", "prove")
    ]
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(ReducedEncoder(n_components=64).fit_transform(texts))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["characters", "characters+hashing"])
def test_characters_see_through_misspellings_by_name(name: str) -> None:
    texts = ["translate this letter", "summarize the report", "prove the theorem"] * 10
    words, parts = get_encoder("tfidf").fit(texts), get_encoder(name).fit(texts)
    typos = ["tranlsates letters", "sumarizing reports", "proof of theorems"]
    assert not words.transform(typos).any()
    likeness = parts.transform(typos) @ parts.transform(texts[:3]).T
    assert likeness.argmax(axis=1).tolist() == [0, 1, 2]
