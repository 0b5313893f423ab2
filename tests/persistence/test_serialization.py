"""Values that may be stored come back with their types, dtypes and every bit."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays_of

from mildroute.exceptions import ArtifactError
from mildroute.persistence.arrays import array_from_node, array_to_node
from mildroute.persistence.manifest import parse_document
from mildroute.persistence.serialization import decode, encode
from mildroute.persistence.weights import (
    DTYPES,
    describe,
    tensors_from_bytes,
    tensors_to_bytes,
)

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
            assert found.flags.c_contiguous
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


@settings(max_examples=50)
@given(
    st.data(),
    arrays_of.arrays(dtype=np.float64, shape=arrays_of.array_shapes(max_dims=3, max_side=6)),
)
def test_every_view_comes_back_with_its_values(data: st.DataObject, array: Any) -> None:
    turned = array.transpose(data.draw(st.permutations(range(array.ndim))))
    view = turned[data.draw(arrays_of.basic_indices(turned.shape, allow_newaxis=True))]
    assert_identical(there_and_back(np.asarray(view)), np.asarray(view))


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


def test_a_field_of_a_record_comes_back() -> None:
    record = np.zeros(4, dtype=[("a", "i1"), ("b", "<f8")])
    record["b"] = [1.0, 2.0, 3.0, 4.0]
    assert there_and_back(record["b"]).tolist() == [1.0, 2.0, 3.0, 4.0]


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
