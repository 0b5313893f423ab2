"""Encoders side by side."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from encoders.models import tiny_bert
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.encoders.union import UnionEncoder
from mildroute.exceptions import ArgumentError

TEXTS = ["what is", "a poem", "what"]


def test_parts_stand_side_by_side_each_times_its_weight() -> None:
    parts = [TfidfEncoder(), SentenceEncoder(tiny_bert(), max_tokens=32)]
    joined = UnionEncoder(parts, weights=(2.0, 0.5)).fit_transform(TEXTS)
    assert sparse.issparse(joined)
    expected = np.hstack(
        [2 * parts[0].fit_transform(TEXTS).toarray(), 0.5 * parts[1].fit_transform(TEXTS)]
    )
    np.testing.assert_array_equal(joined.toarray(), expected)


def test_dense_parts_stay_dense() -> None:
    assert isinstance(
        UnionEncoder([SentenceEncoder(tiny_bert(), max_tokens=32)]).fit_transform(TEXTS), np.ndarray
    )


def test_the_encoders_given_are_not_touched() -> None:
    part = TfidfEncoder()
    UnionEncoder([part]).fit(TEXTS)
    assert not hasattr(part, "terms_")


def test_no_encoder_or_a_wrong_number_of_weights_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one encoder"):
        UnionEncoder([]).fit(TEXTS)
    with pytest.raises(ArgumentError, match="one number per encoder, 1, got 2"):
        UnionEncoder([HashingEncoder()], weights=(1, 2)).fit(TEXTS)
