"""Numbers in text become vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.encoders.numbers import NumberEncoder
from mildroute.exceptions import ArgumentError
from mildroute.persistence.named_encoders import get_encoder


def test_vectors_are_centred_and_scaled_by_the_training_rows() -> None:
    """Means 1 and 7, deviations 1 and none."""
    encoder = NumberEncoder().fit(["0 7", "2 7"])
    np.testing.assert_array_equal(
        encoder.transform(["4 8"]), np.array([[3.0, 1.0]], dtype=np.float32)
    )


@pytest.mark.parametrize("text", ["1 2 3", "1,2,3", "[1, 2, 3]", " 1;2 \n 3e0 "])
def test_spaces_commas_and_brackets_separate(text: str) -> None:
    np.testing.assert_array_equal(
        NumberEncoder().fit(["0 0 0", "1 1 1"]).transform([text]), [[1.0, 3.0, 5.0]]
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1 2", "1 x"], "numbers separated by spaces or commas, got row 1"),
        (["1 2", "1"], "must have 2 numbers, got 1 in row 1"),
        (["1 2", ""], "must have finite numbers, got '' in row 1"),
        (["nan 2"], "must have finite numbers"),
    ],
)
def test_rows_that_are_no_vectors_are_named(rows: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        NumberEncoder().fit(rows)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tfidf", "ReducedEncoder"),
        ("tfidf-sparse", "TfidfEncoder"),
        ("characters", "ReducedEncoder"),
        ("hashing", "ReducedEncoder"),
        ("numbers", "NumberEncoder"),
        ("minilm", "SentenceEncoder"),
        ("minilm-int8", "SentenceEncoder"),
        ("auto", "NoneType"),
    ],
)
def test_encoders_have_short_names(name: str, kind: str) -> None:
    assert type(get_encoder(name)).__name__ == kind


def test_a_folder_with_a_config_is_a_sentence_model(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="a model's folder or hub name"):
        get_encoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert get_encoder(str(tmp_path)).model == str(tmp_path)


def test_a_plus_joins_encoders_and_a_slash_names_a_model_on_the_hub() -> None:
    union = get_encoder("tfidf+numbers")
    assert [type(part).__name__ for part in union.encoders] == ["ReducedEncoder", "NumberEncoder"]
    assert get_encoder("owner/model").model == "owner/model"
