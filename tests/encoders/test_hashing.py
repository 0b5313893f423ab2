"""Hashed n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.encoders.text import HashingEncoder
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


@pytest.mark.parametrize(
    "settings", [{"unit": "line"}, {"ngrams": (2, 1)}, {"columns": 0}, {"columns": 2**30}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        HashingEncoder(**settings).fit(["a"])
