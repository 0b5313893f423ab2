"""TF-IDF against its definition."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from encoders.chinese import chinese_prompts, share_of_collisions
from encoders.scripts import SPACED_TEXTS
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.exceptions import ArgumentError


def test_weights_and_vectors_follow_the_definition() -> None:
    encoder = TfidfEncoder(ngrams=(1, 1), min_df=1).fit(["a a b", "b"])
    assert encoder.terms_.tolist() == ["a", "b"]
    # Smoothed: log((1 + n) / (1 + df)) + 1.
    rarity = np.array([np.log(3 / 2) + 1, 1.0])
    np.testing.assert_allclose(encoder.weights_, rarity, rtol=1e-6)
    raw = np.array([1 + np.log(2), 1.0]) * rarity
    np.testing.assert_allclose(
        encoder.transform(["a a b"]).toarray()[0], raw / np.linalg.norm(raw), rtol=1e-6
    )


def test_vectors_are_scikit_learns() -> None:
    texts = ["what is 2 + 2", "what is 3 + 4 + 3", "write a poem", "write it again", ""]
    encoder = TfidfEncoder().fit(texts[:4])
    reference = TfidfVectorizer(
        ngram_range=(1, 2),
        token_pattern=r"\w+|[^\w\s]",  # noqa: S106
        min_df=2,
        sublinear_tf=True,
        dtype=np.float32,
    ).fit(texts[:4])
    found = encoder.transform(texts)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), reference.transform(texts).toarray())
    np.testing.assert_array_equal(encoder.transform(texts[1:2]).toarray(), found[1:2].toarray())


def test_signs_count_as_words() -> None:
    terms = TfidfEncoder(min_df=1).fit(["2 + 2 = 4?"]).terms_
    assert {"+", "=", "?", "2 +"} <= set(terms)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("用Python写快速排序！", ["用", "python", "写", "快", "速", "排", "序", "！"]),  # noqa: RUF001
        ("2024年3月 ABC", ["2024", "年", "3", "月", "abc"]),
        ("東京タワーへ行く", ["東", "京", "タ", "ワ", "ー", "へ", "行", "く"]),
        ("か\u3099く", ["か\u3099", "く"]),
        ("ที่นี่ราคา ๒๕ บาท", ["ที่", "นี่", "ร", "า", "ค", "า", "๒๕", "บ", "า", "ท"]),
        ("ຂ້ອຍ", ["ຂ້", "ອ", "ຍ"]),
        ("ស្រី។", ["ស្រី", "។"]),
        ("ဗုဒ္ဓ၊", ["ဗု", "ဒ္ဓ", "၊"]),
        ("\U00020bb7野屋", ["\U00020bb7", "野", "屋"]),
        ("대한민국의 大韓", ["대한민국의", "大", "韓"]),
    ],
)
def test_scripts_without_spaces_are_split_into_characters(text: str, terms: list[str]) -> None:
    encoder = TfidfEncoder(ngrams=(1, 1), min_df=1).fit([text])
    assert encoder.terms_.tolist() == sorted(set(terms))
    pairs = TfidfEncoder(ngrams=(2, 2), min_df=1).fit([text]).terms_.tolist()
    assert pairs == sorted({f"{one} {two}" for one, two in itertools.pairwise(terms)})


def test_texts_of_all_other_scripts_are_split_at_spaces_and_signs() -> None:
    encoder = TfidfEncoder(min_df=1, max_features=None).fit(SPACED_TEXTS)
    reference = TfidfVectorizer(
        ngram_range=(1, 2),
        token_pattern=r"\w+|[^\w\s]",  # noqa: S106
        sublinear_tf=True,
        dtype=np.float32,
    ).fit(SPACED_TEXTS)
    assert encoder.terms_.tolist() == reference.get_feature_names_out().tolist()
    found, expected = encoder.transform(SPACED_TEXTS), reference.transform(SPACED_TEXTS)
    for part in ("indptr", "indices", "data"):
        assert getattr(found, part).tobytes() == getattr(expected, part).tobytes()


@pytest.mark.parametrize("unit", ["word", "character"])
def test_different_prompts_in_chinese_have_different_vectors(unit: Any) -> None:
    prompts = chinese_prompts()
    vectors = TfidfEncoder(unit=unit).fit(prompts[:200]).transform(prompts[200:]).toarray()
    assert vectors.any(axis=1).all()
    assert share_of_collisions(vectors) == 0


def test_rare_terms_are_left_out_unless_nothing_else_is_there() -> None:
    assert TfidfEncoder(ngrams=(1, 1)).fit(["a b", "b c"]).terms_.tolist() == ["b"]
    assert TfidfEncoder(ngrams=(1, 1)).fit(["a", "b"]).terms_.tolist() == ["a", "b"]


def test_the_most_frequent_terms_are_kept() -> None:
    assert TfidfEncoder(ngrams=(1, 1), min_df=1, max_features=1).fit(
        ["a b", "b"]
    ).terms_.tolist() == ["b"]


def test_texts_without_a_term_are_a_row_of_zeros() -> None:
    assert TfidfEncoder().fit(["a b", "a b"]).transform(["", "zzz"]).nnz == 0


def test_fitting_on_empty_texts_alone_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one word n-gram"):
        TfidfEncoder().fit(["", " "])


@pytest.mark.parametrize(
    "settings",
    [{"unit": "line"}, {"ngrams": (2, 1)}, {"ngrams": (0, 1)}, {"min_df": 0}, {"max_features": 0}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        TfidfEncoder(**settings).fit(["a"])


def test_a_new_fit_forgets_the_old_one() -> None:
    encoder = TfidfEncoder(min_df=1).fit(["a"])
    encoder.transform(["a"])
    assert encoder.fit(["b c"]).transform(["b c"]).shape == (1, 3)
