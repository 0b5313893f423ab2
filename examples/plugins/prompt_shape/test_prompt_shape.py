"""What the numbers say, and that an artifact can carry them."""

from pathlib import Path

import numpy as np
from mildroute import TextRouter
from mildroute.persistence import load_router, save_router
from mildroute.routers import TDEFRouter
from mildroute_plugin_prompt_shape import PromptShape, shape_of

TEXTS = [
    "What is 12 * 7?",
    "def f(x): return x[0]",
    "Naïve café?",
    "tell me a story\nof two lines",
    "",
] * 8


def test_numbers_by_hand() -> None:
    assert shape_of("a1?\n") == [np.log1p(4), np.log1p(1), 0.25, 0.0, 0.0, 1.0]
    assert shape_of("") == [0.0] * 6


def test_columns_are_standard_and_rows_do_not_depend_on_each_other() -> None:
    encoder = PromptShape().fit(TEXTS)
    vectors = encoder.transform(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((40, 6), np.float32)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_array_equal(encoder.transform(TEXTS[3:4])[0], vectors[3])


def test_a_stored_router_reads_texts_as_before(tmp_path: Path) -> None:
    costs = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [1, 0]] * 8, dtype=float)
    router = TextRouter(encoder=PromptShape(), router=TDEFRouter(alpha=0.001)).fit(TEXTS, costs)
    again = load_router(save_router(router, tmp_path / "router"))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), router.predict_proba(TEXTS))
    assert router.predict(["Is 3 > 2?", "class A: pass  # {}[]();="]).tolist() == [0, 1]
