"""What every encoder promises; a new one is found and tested before its author writes a test."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from encoders.every_encoder import every_encoder, inputs_of
from mildroute import TextRouter
from mildroute.encoders.image import ImageEncoder
from mildroute.exceptions import ArgumentError
from mildroute.persistence import load_router, save_router
from mildroute.routers.regression import RegressionRouter

ENCODERS = every_encoder()
EVERY = pytest.mark.parametrize("name", ENCODERS)
COSTS = np.array([[0.0, 1.0], [1.0, 0.0]] * 4)


@functools.cache
def fitted(name: str) -> Any:
    """An encoder fitted on the usual inputs; tests only ask it, so they share it."""
    encoder = ENCODERS[name]()
    return encoder.fit(inputs_of(encoder))


def dense(vectors: Any) -> Any:
    return vectors.toarray() if sparse.issparse(vectors) else vectors


def assert_same(one: Any, two: Any) -> None:
    assert dense(one).tobytes() == dense(two).tobytes()


def texts_only(name: str) -> None:
    if isinstance(fitted(name), ImageEncoder):
        pytest.skip("reads images")


def test_the_encoders_are_found() -> None:
    assert {
        "HashingEncoder",
        "ImageEncoder",
        "SentenceEncoder",
        "TfidfEncoder",
        "UnionEncoder",
    } <= set(ENCODERS)
    assert "Encoder" not in ENCODERS


@EVERY
def test_vectors_are_float32_finite_and_one_a_row(name: str) -> None:
    vectors = fitted(name).transform(inputs_of(fitted(name)))
    assert vectors.dtype == np.float32
    assert vectors.shape[0] == 8
    assert np.isfinite(dense(vectors)).all()
    assert not sparse.issparse(vectors) or vectors.format == "csr"


@EVERY
def test_a_clone_fitted_again_gives_the_same_vectors_and_fitting_changes_no_parameter(
    name: str,
) -> None:
    encoder, inputs = fitted(name), inputs_of(fitted(name))
    again = clone(encoder)
    before = repr(again.get_params())
    assert_same(again.fit_transform(inputs), encoder.transform(inputs))
    assert repr(again.get_params()) == before


@EVERY
def test_a_row_has_the_same_vector_in_any_batch(name: str) -> None:
    encoder, inputs = fitted(name), inputs_of(fitted(name))
    whole = dense(encoder.transform(inputs))
    alone = np.vstack([dense(encoder.transform([row])) for row in inputs])
    reverse = dense(encoder.transform(inputs[::-1]))[::-1]
    np.testing.assert_allclose(alone, whole, atol=1e-6)
    np.testing.assert_allclose(reverse, whole, atol=1e-6)


@EVERY
def test_equal_rows_have_equal_vectors_whatever_the_container(name: str) -> None:
    texts_only(name)
    encoder = fitted(name)
    texts = [text for text in inputs_of(encoder) if "\ud800" not in text]
    whole = encoder.transform(texts)
    assert_same(encoder.transform(tuple(texts)), whole)
    assert_same(encoder.transform(np.array(texts)), whole)
    assert_same(encoder.transform(np.array(texts, dtype=object)), whole)
    assert_same(encoder.transform(pd.Series(texts)), whole)
    assert_same(encoder.transform(pl.Series(texts)), whole)
    assert_same(encoder.transform(pa.array(texts)), whole)
    assert_same(encoder.transform(pa.chunked_array([texts[:3], texts[3:]])), whole)


@EVERY
def test_what_is_no_input_is_refused_by_its_row(name: str) -> None:
    encoder = fitted(name)
    good = inputs_of(encoder)[0]
    for bad in (None, 3, float("nan"), ["a"]):
        with pytest.raises(ArgumentError, match="in row 1"):
            encoder.transform([good, bad])
    with pytest.raises(ArgumentError, match="in row 1"):
        clone(encoder).fit([good, None])


@EVERY
def test_one_bare_input_no_inputs_or_a_table_are_refused(name: str) -> None:
    encoder = fitted(name)
    for bad in (
        "a text",
        b"bytes",
        [],
        3,
        None,
        pd.DataFrame({"text": ["a"]}),
        np.array([["a"]]),
        {"a": 1},
    ):
        with pytest.raises(ArgumentError, match="inputs must"):
            encoder.transform(bad)


@EVERY
def test_an_encoder_that_is_not_fitted_says_so(name: str) -> None:
    with pytest.raises(NotFittedError):
        ENCODERS[name]().transform(inputs_of(fitted(name)))


@EVERY
def test_a_pickled_encoder_takes_no_scratch_along(name: str) -> None:
    encoder, inputs = fitted(name), inputs_of(fitted(name))
    encoder.transform(inputs)
    back = pickle.loads(pickle.dumps(encoder))  # noqa: S301
    assert not set(back._transient) & set(vars(back))
    assert_same(back.transform(inputs), encoder.transform(inputs))


@EVERY
def test_it_stands_in_a_pipeline(name: str) -> None:
    inputs = inputs_of(fitted(name))
    assert make_pipeline(ENCODERS[name](), RegressionRouter()).fit(inputs, COSTS).predict(
        inputs
    ).shape == (8,)


@EVERY
def test_a_stored_router_over_inputs_answers_bit_for_bit_as_before(
    name: str, tmp_path: Path
) -> None:
    inputs = inputs_of(fitted(name))
    router = TextRouter(encoder=ENCODERS[name](), router=RegressionRouter()).fit(inputs, COSTS)
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert_same(loaded.encoder_.transform(inputs), router.encoder_.transform(inputs))
    for method in ("predict", "predict_proba", "rank", "decision_function"):
        assert (
            getattr(loaded, method)(inputs).tobytes() == getattr(router, method)(inputs).tobytes()
        )
    assert repr(loaded.get_params()) == repr(router.get_params())
    assert loaded.experts_.tolist() == router.experts_.tolist()
    assert sorted(path.name for path in (tmp_path / "router").iterdir()) == [
        "CARD.md",
        "router.json",
        "weights.safetensors",
    ]


@EVERY
def test_a_stored_router_can_be_stored_again_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    inputs = inputs_of(fitted(name))
    router = TextRouter(encoder=ENCODERS[name](), router=RegressionRouter()).fit(inputs, COSTS)
    first = save_router(router, tmp_path / "first")
    second = save_router(load_router(first), tmp_path / "second")
    for file in ("router.json", "weights.safetensors"):
        assert (first / file).read_bytes() == (second / file).read_bytes()
