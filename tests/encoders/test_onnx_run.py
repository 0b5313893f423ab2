"""Running exported models with care."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from encoders.models import VOCABULARY, tiny_bert
from mildroute.encoders.onnx_runtime import TextModel, open_session
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.exceptions import ArtifactError


def test_a_model_whose_weights_lie_elsewhere_is_refused(tmp_path: Path) -> None:
    encoder = SentenceEncoder(tiny_bert(), max_tokens=32).fit(["a"])
    model = onnx.load_from_string(encoder.onnx_.tobytes())
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    with pytest.raises(ArtifactError, match="must hold its own weights"):
        open_session(np.frombuffer((tmp_path / "model.onnx").read_bytes(), np.uint8))


def test_a_broken_tokenizer_is_an_artifact_error() -> None:
    with pytest.raises(ArtifactError, match="tokenizer"):
        TextModel(np.zeros(1, np.uint8), np.frombuffer(b"\xff", np.uint8))


def test_a_broken_model_is_an_artifact_error() -> None:
    with pytest.raises(ArtifactError, match="ONNX"):
        open_session(np.frombuffer(b"junk", np.uint8))


def test_a_text_without_any_token_is_a_row_that_is_finite() -> None:
    encoder = SentenceEncoder(tiny_bert(), max_tokens=32).fit(["a"])
    bare = Tokenizer(models.WordLevel({"a": 4, "[UNK]": 1}, unk_token=VOCABULARY[1]))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    model = TextModel(encoder.onnx_, np.frombuffer(bare.to_str().encode(), np.uint8))
    ((_, vectors),) = model.batches([""], 1)
    assert vectors.tolist() == [[0.0] * 32]


def test_a_huge_text_is_cut_before_it_is_split() -> None:
    encoder = SentenceEncoder(tiny_bert(), max_tokens=32).fit(["a"])
    huge = "what is " * 1_000_000
    np.testing.assert_array_equal(encoder.transform([huge]), encoder.transform([huge[:2048]]))
