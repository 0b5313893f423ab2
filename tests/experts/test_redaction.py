"""A key is found however it is written, and no text takes long to search."""

from __future__ import annotations

import base64
import html
import json
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from mildroute.experts.redaction import literal_hints, redaction_pattern

KEYS = (
    "plain-key_0123456789.abc",
    'a\\\\b"c/0123456789abcd',
    '"/' * 10 + "abc0123456789",
    "a/+b==" * 5,
    "'&<>%" * 4 + "z9",
)
WAYS: tuple[Callable[[str], str], ...] = (
    str, str.upper, json.dumps, lambda key: json.dumps(json.dumps(key)),
    lambda key: json.dumps(key).replace("/", "\\/"),
    repr, lambda key: repr(repr(key)), lambda key: repr(bytearray(key.encode())),
    lambda key: repr([repr(key.encode())]),
    quote, lambda key: quote(key, safe=""), lambda key: quote(quote(key)),
    lambda key: quote(json.dumps(key)),
    html.escape, lambda key: html.escape(html.escape(key)),
    lambda key: key.replace('"', "&#34;").replace("'", "&#x27;"),
    lambda key: key.encode().hex(), lambda key: key.encode().hex().upper(),
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_a_key_is_matched_whole(key: str, way: Callable[[str], str]) -> None:
    text = f"before {way(key)} behind"
    found = redaction_pattern(key).sub("*", text)
    assert found.replace('"', "").replace("'", "").replace("\\", "").replace("%22", "") in {
        "before * behind", "before bytearray(b*) behind", "before [b*] behind",
    }  # fmt: skip
    assert any(mark in text.lower() for mark in literal_hints(key))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["", "a", "ab", "Bearer ", "user:"])
@pytest.mark.parametrize("behind", ["", "\n", "yz"])
def test_base64_is_matched_whatever_stands_around_the_key(
    key: str, before: str, behind: str
) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{before}{key}{behind}".encode()).decode()
        left = redaction_pattern(key).sub("", text)
        assert len(left) <= len(before) * 4 / 3 + len(behind) * 4 / 3 + 6
        assert any(mark in text.lower() for mark in literal_hints(key))


def test_a_short_key_is_not_looked_for_in_codes() -> None:
    assert redaction_pattern("none").sub("*", "bm9uZQ== 6e6f6e65 none") == "bm9uZQ== 6e6f6e65 *"


@pytest.mark.parametrize("key", KEYS)
def test_no_text_takes_long(key: str) -> None:
    texts = [
        "\\" * 65_536,
        "%25" * 20_000,
        ("\\" * 8 + '"') * 7000,
        "&amp;" * 13_000,
        key[:-1] * 2000,
        (key[:-1] + "\\" * 8) * 900,
    ]
    start = time.process_time()
    for text in texts:
        redaction_pattern(key).sub("*", text)
    assert time.process_time() - start < 10
