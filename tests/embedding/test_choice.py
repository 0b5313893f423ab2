"""Encoders are ready before the first row, and known by what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.embedding.job import encoder_of, encoder_without_data
from mildroute.embedding.shards import encoder_fingerprint, with_threads
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.text import TfidfEncoder, UnionEncoder
from mildroute.exceptions import ArgumentError
from mildroute.persistence import save_router
from mildroute.routers.regression import RegressionRouter
from tests.embedding.tables import hashing


def test_sentence_models_need_no_data_and_come_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceEncoder, "_fit", lambda self, _rows: setattr(self, "width_", 4))
    assert encoder_without_data("minilm-int8").precision == "int8"
    assert [each.width_ for each in encoder_without_data("minilm+owner/model").encoders_] == [4, 4]


def test_a_router_without_an_encoder_has_none_to_give(tmp_path: Path) -> None:
    router = RegressionRouter().fit(
        np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
    )
    save_router(router, tmp_path / "router")
    with pytest.raises(ArgumentError, match="a RegressionRouter without"):
        encoder_of(tmp_path / "router")


def test_an_encoder_is_another_one_where_it_learned_something_else() -> None:
    one, two = (
        TfidfEncoder(min_df=1).fit([text, "and more"]) for text in ("first words", "other words")
    )
    assert encoder_fingerprint(one) != encoder_fingerprint(two)
    one.transform(["words"])  # scratch of its work does not count
    assert encoder_fingerprint(one) == encoder_fingerprint(
        TfidfEncoder(min_df=1).fit(["first words", "and more"])
    )


def test_threads_change_nothing_of_what_an_encoder_is() -> None:
    union = UnionEncoder([hashing(), SentenceEncoder(threads=4)])
    union.encoders_ = [SentenceEncoder(threads=4)]
    copied = with_threads(union, 1)
    assert (copied.encoders[1].threads, copied.encoders_[0].threads, union.encoders[1].threads) == (
        1,
        1,
        4,
    )
    assert encoder_fingerprint(copied) == encoder_fingerprint(union)
