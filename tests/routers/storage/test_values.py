"""Whatever may be stored comes back with its type, dtype, layout and every bit."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays_of

from mildroute.exceptions import ArtifactError
from mildroute.persistence.arrays import (
    DTYPES,
    array_from_node,
    array_to_node,
    describe,
    strides_of,
    tensors_from_bytes,
    tensors_to_bytes,
    with_strides,
)
from mildroute.persistence.artifact import parse_document
from mildroute.persistence.serialization import decode, encode

dtypes = st.sampled_from(sorted(DTYPES.values())).map(np.dtype)
shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
numbers = arrays_of.arrays(dtype=dtypes, shape=shapes)
scalars = numbers.filter(lambda array: array.size > 0).map(lambda array: array.ravel()[0])
words = arrays_of.arrays(
    dtype=st.sampled_from([np.dtype("U5"), np.dtype(object)]),
    shape=shapes,
    elements=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | scalars
    | numbers
    | words
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def there_and_back(value: Any) -> Any:
    tensors: dict[str, Any] = {}
    document = parse_document(json.dumps({"value": encode(value, ("router",), tensors)}).encode())
    stored = tensors_from_bytes(tensors_to_bytes(tensors), describe(tensors))
    found = decode(document["value"], stored)
    assert stored == {}
    return found


def assert_identical(found: Any, value: Any) -> None:
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.shape, found.dtype.kind) == (value.shape, value.dtype.kind)
        if value.dtype.kind in "OU":
            assert found.tolist() == value.tolist()
        else:
            assert (found.dtype, found.tobytes()) == (value.dtype, value.tobytes())
            assert value.size == 0 or found.strides == value.strides
    elif isinstance(value, (list, tuple)):
        assert len(found) == len(value)
        for left, right in zip(found, value, strict=True):
            assert_identical(left, right)
    elif isinstance(value, dict):
        assert list(found) == list(value)
        assert_identical(list(found.values()), list(value.values()))
    else:
        assert np.asarray(found).tobytes() == np.asarray(value).tobytes() or (
            math.isnan(found) and math.isnan(value)
        )


@settings(max_examples=300)
@given(values)
def test_every_value_comes_back_identical(value: Any) -> None:
    assert_identical(there_and_back(value), value)


@settings(max_examples=200)
@given(
    st.data(),
    arrays_of.arrays(dtype=np.float64, shape=arrays_of.array_shapes(max_dims=3, max_side=6)),
)
def test_every_view_comes_back_with_its_layout(data: st.DataObject, array: Any) -> None:
    turned = array.transpose(data.draw(st.permutations(range(array.ndim))))
    view = turned[data.draw(arrays_of.basic_indices(turned.shape, allow_newaxis=True))]
    assert_identical(there_and_back(np.asarray(view)), np.asarray(view))


def test_the_product_with_a_stored_view_is_the_same_bit_for_bit() -> None:
    random = np.random.default_rng(0)
    X, wide = random.normal(size=(50, 97)), random.normal(size=(97, 40))
    for weights in (
        wide.T.copy().T,
        wide[:, ::3],
        wide[:, ::-1],
        wide[:, 3],
        wide[:, 3:4],
        wide[::-1, 3],
        np.broadcast_to(wide[:, :1], (97, 5)),
    ):
        assert (X @ there_and_back(weights)).tobytes() == (X @ weights).tobytes()
        assert (X[:1] @ there_and_back(weights)).tobytes() == (X[:1] @ weights).tobytes()


def test_numbers_of_the_other_byte_order_come_back_in_this_machines() -> None:
    found = there_and_back(np.array([1.5, -2.0], dtype=">f8"))
    assert found.dtype == np.float64
    assert found.tolist() == [1.5, -2.0]


def test_keys_that_look_alike_do_not_share_a_tensor() -> None:
    value = {
        "a.b": np.zeros(1),
        "a": {"b": np.ones(1)},
        "a b": np.full(1, 2.0),
        "": np.full(1, 3.0),
        "a/b": np.full(1, 4.0),
    }
    found = there_and_back(value)
    assert [
        found["a.b"][0],
        found["a"]["b"][0],
        found["a b"][0],
        found[""][0],
        found["a/b"][0],
    ] == [0, 1, 2, 3, 4]


def test_strides_that_are_not_whole_elements_are_refused() -> None:
    record = np.zeros(4, dtype=[("a", "i1"), ("b", "<f8")])
    with pytest.raises(ArtifactError, match="whole elements"):
        strides_of(record["b"])


def test_strides_never_reach_outside_their_own_memory() -> None:
    moved = with_strides(np.arange(6.0).reshape(2, 3), [-3, -1])
    assert moved.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert moved.base is not None
    with pytest.raises(ArtifactError, match="may not have strides"):
        with_strides(np.zeros((2, 2)), [10**9, 1])


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", None], dtype=object),
        np.array([b"a"]),
        np.zeros(1, dtype=np.longdouble),
        np.zeros(1, dtype="m8[s]"),
    ],
)
def test_arrays_of_other_things_are_refused(array: Any) -> None:
    with pytest.raises(ArtifactError, match="router must have"):
        array_to_node(array, ["router"], {})


def test_a_tensor_serves_once() -> None:
    tensors = {"a": np.zeros(2)}
    array_from_node({"tensor": "a"}, tensors)
    with pytest.raises(ArtifactError, match="already taken"):
        array_from_node({"tensor": "a"}, tensors)
