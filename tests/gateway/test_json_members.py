from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.gateway.http.body import LENIENT, split_members

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(), ANY_JSON, max_size=6),
    st.sampled_from([None, 0, 1, "\t", " \r\n"]),
    st.booleans(),
)
def test_it_reads_what_the_json_module_reads_and_tells_where_it_stood(
    value: dict[str, Any], indent: Any, is_ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    members, end = split_members(text, 1)
    assert {name: content for name, content, _, _ in members} == value
    assert [json.loads(text[start:end]) for _, _, start, end in members] == list(value.values())
    assert end == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        "{,}",
        '{"a" 1}',
        '{"a":1 "b":2}',
        "{a:1}",
        "{1:1}",
        '{"a":1;"b":2}',
        '{"a":\x0b1}',
    ],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Expecting"):
        split_members(text, 1)


def test_a_name_that_comes_twice_is_told_twice() -> None:
    assert [value for _, value, _, _ in split_members('{"a":1,"a":2}', 1)[0]] == [1, 2]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_in_json_is_refused_or_read_leniently(number: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        split_members(f'{{"a":[{number}]}}', 1)
    assert len(split_members(f'{{"a":[{number}]}}', 1, LENIENT)[0]) == 1
