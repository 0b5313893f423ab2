"""Hashed n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from encoders.chinese import chinese_prompts, share_of_collisions
from encoders.scripts import SPACED_TEXTS
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.exceptions import ArgumentError


def test_vectors_are_damped_counts_of_length_one() -> None:
    vectors = HashingEncoder(ngrams=(1, 1)).fit_transform(["aa aa aa bb", ""])
    assert np.sort(np.abs(vectors[0].data)).tolist() == pytest.approx(
        np.array([np.log(2), np.log(4)]) / np.hypot(np.log(2), np.log(4))
    )
    assert vectors[1].nnz == 0


def test_it_learns_nothing_from_the_texts() -> None:
    one, two = HashingEncoder().fit(["a"]), HashingEncoder().fit(["quite another text"])
    assert (one.transform(["some text"]) != two.transform(["some text"])).nnz == 0


def test_texts_of_scripts_with_spaces_are_split_as_by_scikit_learn() -> None:
    found = HashingEncoder().fit_transform(SPACED_TEXTS)
    reference = HashingVectorizer(
        ngram_range=(1, 2), n_features=2**16, norm=None, dtype=np.float32
    ).transform(SPACED_TEXTS)
    assert found.indptr.tobytes() == reference.indptr.tobytes()
    assert found.indices.tobytes() == reference.indices.tobytes()
    damped = np.sign(reference.data) * np.log1p(np.abs(reference.data))
    np.testing.assert_array_equal(found.data > 0, damped > 0)
    lengths = np.sqrt(np.add.reduceat(np.append(damped, 0.0) ** 2, reference.indptr[:-1]))
    full = np.diff(reference.indptr) > 0
    np.testing.assert_allclose(
        found.data, damped / np.repeat(lengths[full], np.diff(reference.indptr)[full]), rtol=1e-5
    )


def test_scripts_without_spaces_are_split_into_characters() -> None:
    encoder = HashingEncoder()
    # Signs and single letters do not count, as in texts with spaces.
    mixed, spaced = encoder.fit_transform(["用C写快速Python！", "用 写 快 速 python"])  # noqa: RUF001
    assert (mixed != spaced).nnz == 0
    assert mixed.nnz == 5 + 4


def test_different_prompts_in_chinese_have_different_vectors() -> None:
    encoder = ReducedEncoder(HashingEncoder())
    prompts = chinese_prompts()
    vectors = encoder.fit(prompts[:200]).transform(prompts[200:])
    assert vectors.any(axis=1).all()
    assert share_of_collisions(vectors) == 0


@pytest.mark.parametrize(
    "settings", [{"unit": "line"}, {"ngrams": (2, 1)}, {"columns": 0}, {"columns": 2**30}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        HashingEncoder(**settings).fit(["a"])
