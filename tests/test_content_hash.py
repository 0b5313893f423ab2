from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from mildroute._content_hash import digests, fingerprints

LENGTHS = st.sampled_from(
    [
        0,
        1,
        7,
        8,
        9,
        63,
        64,
        65,
        255,
        256,
        257,
        1023,
        1024,
        1025,
        3000,
        4096,
        4097,
        16_384,
        65_536,
        65_537,
    ]
)
TEXTS = st.builds(
    lambda text, length: (text * 65_537)[:length],
    st.sampled_from(["a", "ab", "é", "\0", "xyz"]),
    LENGTHS,
)


@given(st.lists(TEXTS, min_size=1, max_size=30))
def test_fingerprints_are_equal_exactly_where_texts_are(texts: list[str]) -> None:
    marks = fingerprints(digests(pa.chunked_array([texts], pa.large_string())))
    assert len(set(marks.tolist())) == len(set(texts))
    alone = [int(fingerprints(digests(pa.chunked_array([[text]])))[0]) for text in texts]
    assert marks.tolist() == alone


def test_differences_in_the_highest_bytes_of_words_are_seen() -> None:
    texts = [
        "".join("." * 7 + letter for letter in letters) for letters in product("abcdefgh", repeat=5)
    ]
    assert len(set(fingerprints(digests(pa.chunked_array([texts]))).tolist())) == 8**5


def test_a_slice_of_a_larger_array_is_read_at_its_place() -> None:
    whole = pa.array([f"text {row}" * (row % 40) for row in range(5000)])
    marks = fingerprints(digests(pa.chunked_array([whole])))
    np.testing.assert_array_equal(
        fingerprints(digests(pa.chunked_array([whole.slice(1234, 999)]))), marks[1234:2233]
    )
